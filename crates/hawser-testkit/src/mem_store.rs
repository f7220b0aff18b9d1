//! A store in memory, with the manners of a real one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::stream::BoxStream;
use futures_util::stream;
use hawser_core::port::Store;
use hawser_core::port::store::{
    Cas, Key, LONGEST_KEY, Listing, Prefix, Revision, Versioned, Watched,
};
use hawser_core::{Error, Kind, Result};
use tokio::sync::watch;

/// A store in memory. Clones share their records, so a clone is what a restarted process finds.
#[derive(Clone)]
pub struct MemStore {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    bell: watch::Sender<()>,
    history: usize,
}

#[derive(Default)]
struct State {
    records: BTreeMap<Key, Versioned>,
    latest: u64,
    changes: Vec<(Revision, Watched)>,
    /// Changes up to this revision are no longer in `changes`.
    gone: Revision,
}

impl Default for MemStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemStore {
    /// An empty store that remembers 1000 changes for watches.
    pub fn new() -> Self {
        Self::with_history(1000)
    }

    /// An empty store that remembers this many changes; watches from before answer `Compacted`.
    pub fn with_history(history: usize) -> Self {
        let (bell, _) = watch::channel(());
        Self { inner: Arc::new(Inner { state: Mutex::default(), bell, history }) }
    }

    /// How many changes a watch can go back.
    pub fn history(&self) -> usize {
        self.inner.history
    }

    /// Forgets all changes, as a restart does: watches from before now answer `Compacted`.
    pub fn compact(&self) {
        let mut state = self.lock();
        state.changes.clear();
        state.gone = Revision(state.latest);
        drop(state);
        self.inner.bell.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, key: &Key, value: Option<Bytes>, expected: Option<Revision>) -> Result<Cas> {
        if key.as_str().len() > LONGEST_KEY {
            return Err(Error::new(Kind::Invalid, "the key is too long"));
        }
        let mut state = self.lock();
        if state.records.get(key).map(|found| found.revision) != expected {
            return Ok(Cas::Conflict);
        }
        state.latest += 1;
        let revision = Revision(state.latest);
        let seen = match value {
            Some(value) => {
                let record = Versioned { value, revision };
                state.records.insert(key.clone(), record.clone());
                Watched::Put(key.clone(), record)
            }
            None => {
                state.records.remove(key);
                Watched::Deleted(key.clone(), revision)
            }
        };
        state.changes.push((revision, seen));
        while state.changes.len() > self.inner.history {
            state.gone = state.changes.remove(0).0;
        }
        drop(state);
        self.inner.bell.send_replace(());
        Ok(Cas::Done(revision))
    }
}

#[async_trait]
impl Store for MemStore {
    async fn get(&self, key: &Key) -> Result<Option<Versioned>> {
        Ok(self.lock().records.get(key).cloned())
    }

    async fn create(&self, key: &Key, value: Bytes) -> Result<Cas> {
        self.change(key, Some(value), None)
    }

    async fn put(&self, key: &Key, value: Bytes, expected: Revision) -> Result<Cas> {
        self.change(key, Some(value), Some(expected))
    }

    async fn delete(&self, key: &Key, expected: Revision) -> Result<Cas> {
        self.change(key, None, Some(expected))
    }

    async fn list(&self, prefix: &Prefix, after: Option<&Key>, limit: usize) -> Result<Listing> {
        let state = self.lock();
        let mut matching = state
            .records
            .iter()
            .filter(|(key, _)| prefix.covers(key) && after.is_none_or(|after| *key > after));
        let items = matching
            .by_ref()
            .take(limit)
            .map(|(key, found)| (key.clone(), found.clone()))
            .collect();
        Ok(Listing { items, more: matching.next().is_some(), revision: Revision(state.latest) })
    }

    async fn watch(
        &self,
        prefix: &Prefix,
        after: Revision,
    ) -> Result<BoxStream<'static, Result<Watched>>> {
        let watcher = Watcher {
            bell: self.inner.bell.subscribe(),
            store: self.clone(),
            prefix: prefix.clone(),
            seen: after,
            ended: false,
        };
        Ok(Box::pin(stream::unfold(watcher, |mut watcher| async move {
            let next = watcher.next().await?;
            Some((Ok(next), watcher))
        })))
    }
}

struct Watcher {
    store: MemStore,
    bell: watch::Receiver<()>,
    prefix: Prefix,
    seen: Revision,
    ended: bool,
}

impl Watcher {
    async fn next(&mut self) -> Option<Watched> {
        while !self.ended {
            self.bell.borrow_and_update();
            if let Some(next) = self.look() {
                return Some(next);
            }
            self.bell.changed().await.ok()?;
        }
        None
    }

    fn look(&mut self) -> Option<Watched> {
        let state = self.store.lock();
        if self.seen < state.gone {
            self.ended = true;
            return Some(Watched::Compacted);
        }
        let first = state.changes.partition_point(|(revision, _)| *revision <= self.seen);
        for (revision, change) in &state.changes[first..] {
            self.seen = *revision;
            let key = match change {
                Watched::Put(key, _) | Watched::Deleted(key, _) => key,
                Watched::Compacted => continue,
            };
            if self.prefix.covers(key) {
                return Some(change.clone());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::store::StoreRig;

    async fn rig() -> StoreRig {
        let store = MemStore::with_history(100);
        let kept = store.history();
        StoreRig::new(kept, move || {
            let store = store.clone();
            Box::pin(async move {
                store.compact();
                Arc::new(store) as Arc<dyn Store>
            })
        })
        .await
    }

    crate::store_contract!(rig().await);
}
