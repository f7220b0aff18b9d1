//! Drafts: records that are in no store yet, because whoever asked for them repeats the request until
//! it hears the answer. See docs/adr/0016.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use hawser_core::port::store::{Key, Revision};

/// The revision of a record that is in no store: none that a store gives.
pub(crate) const DRAFT: Revision = Revision(u64::MAX);

/// The drafts of this process, by key. Other servers know nothing of them: only what is written
/// excludes others, and a record in the store is always right against a draft.
#[derive(Clone, Default)]
pub(crate) struct Drafts {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    begun: u64,
    records: HashMap<Key, (u64, Bytes)>,
}

/// One draft; gone when this is dropped.
pub(crate) struct Draft {
    drafts: Drafts,
    key: Key,
    number: u64,
    began: Instant,
}

impl Drafts {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` when the key has one already.
    pub(crate) fn begin(&self, key: &Key, value: Bytes) -> Option<Draft> {
        let mut inner = self.lock();
        if inner.records.contains_key(key) {
            return None;
        }
        inner.begun += 1;
        let number = inner.begun;
        inner.records.insert(key.clone(), (number, value));
        Some(Draft { drafts: self.clone(), key: key.clone(), number, began: Instant::now() })
    }

    /// The draft of a key: which one it is, and the record.
    pub(crate) fn find(&self, key: &Key) -> Option<(u64, Bytes)> {
        self.lock().records.get(key).cloned()
    }

    /// Ends this one, if it is still there: its key was found in the store, and that counts.
    pub(crate) fn end(&self, key: &Key, number: u64) {
        let mut inner = self.lock();
        if inner.records.get(key).is_some_and(|(found, _)| *found == number) {
            inner.records.remove(key);
        }
    }
}

impl Draft {
    /// False when a record was found in the store under its key since.
    pub(crate) fn is_live(&self) -> bool {
        self.drafts.find(&self.key).is_some_and(|(number, _)| number == self.number)
    }

    /// How long ago there was no record in the store.
    pub(crate) fn age(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        self.drafts.end(&self.key, self.number);
    }
}
