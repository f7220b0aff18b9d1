//! The latest changes, kept in memory for watches.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_core::stream::BoxStream;
use futures_util::stream;
use hawser_core::Result;
use hawser_core::port::store::{Key, Prefix, Revision, Versioned, Watched};
use tokio::sync::watch;

/// How many changes are kept. A watcher that is further behind lists again, which costs it a page
/// walk; keeping more would cost every server the memory.
pub(super) const CHANGES_KEPT: usize = 4096;

/// How many bytes of values are kept, whatever their number: 4096 records of the usual 1 KiB.
const BYTES_KEPT: usize = 4 << 20;

/// One committed change.
#[derive(Clone)]
pub(super) struct Committed {
    pub(super) key: Key,
    pub(super) revision: Revision,
    /// `None` when the key was removed.
    pub(super) value: Option<Bytes>,
}

/// The ring of the latest changes.
pub(super) struct Changes {
    ring: Mutex<Ring>,
}

struct Ring {
    kept: VecDeque<Committed>,
    bytes: usize,
    /// Changes up to and including this revision are gone.
    gone: Revision,
    /// The last change.
    latest: Revision,
}

/// Tells watchers that there is something new; the store ends their streams by dropping it.
pub(super) type Bell = watch::Sender<()>;

impl Changes {
    /// Starts with nothing kept; changes up to `latest` were made before this process began.
    pub(super) fn new(latest: Revision) -> Self {
        let ring = Ring { kept: VecDeque::new(), bytes: 0, gone: latest, latest };
        Self { ring: Mutex::new(ring) }
    }

    /// Adds changes, in the order of their revisions.
    pub(super) fn add(&self, committed: impl IntoIterator<Item = Committed>) {
        let mut ring = self.lock();
        for mut change in committed {
            // A copy of exact size: the writer's buffer may be a slice of something far larger.
            change.value = change.value.map(|value| Bytes::copy_from_slice(&value));
            ring.latest = change.revision;
            ring.bytes += change.size();
            ring.kept.push_back(change);
        }
        while ring.kept.len() > CHANGES_KEPT || ring.bytes > BYTES_KEPT {
            let Some(oldest) = ring.kept.pop_front() else { break };
            ring.bytes -= oldest.size();
            ring.gone = oldest.revision;
        }
    }

    /// Forgets everything up to `latest`: what became of these changes was not seen.
    pub(super) fn skip_to(&self, latest: Revision) {
        let mut ring = self.lock();
        if latest > ring.latest {
            ring.kept.clear();
            ring.bytes = 0;
            ring.gone = latest;
            ring.latest = latest;
        }
    }

    /// The changes below `prefix` after `after`, and the revision up to which they go; `None` when
    /// some are gone.
    fn after(&self, prefix: &Prefix, after: Revision) -> Option<(VecDeque<Watched>, Revision)> {
        let ring = self.lock();
        if after < ring.gone {
            return None;
        }
        let first = ring.kept.partition_point(|change| change.revision <= after);
        let found = ring.kept.range(first..).filter(|change| prefix.covers(&change.key));
        Some((found.cloned().map(Watched::from).collect(), after.max(ring.latest)))
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Committed {
    fn size(&self) -> usize {
        self.value.as_ref().map_or(0, Bytes::len)
    }
}

impl From<Committed> for Watched {
    fn from(change: Committed) -> Self {
        let Committed { key, revision, value } = change;
        match value {
            Some(value) => Self::Put(key, Versioned { value, revision }),
            None => Self::Deleted(key, revision),
        }
    }
}

/// Where one watcher is. It pulls from the ring at its own pace and has no queue of its own beyond
/// one look at the ring, so a slow watcher costs no memory and delays nobody.
struct Watcher {
    changes: Arc<Changes>,
    bell: watch::Receiver<()>,
    prefix: Prefix,
    seen: Revision,
    ready: VecDeque<Watched>,
    ended: bool,
}

/// The stream of changes below `prefix` after `after`.
pub(super) fn watch_changes(
    changes: Arc<Changes>,
    bell: watch::Receiver<()>,
    prefix: Prefix,
    after: Revision,
) -> BoxStream<'static, Result<Watched>> {
    let watcher =
        Watcher { changes, bell, prefix, seen: after, ready: VecDeque::new(), ended: false };
    Box::pin(stream::unfold(watcher, |mut watcher| async move {
        let next = watcher.next().await?;
        Some((Ok(next), watcher))
    }))
}

impl Watcher {
    async fn next(&mut self) -> Option<Watched> {
        loop {
            if let Some(next) = self.ready.pop_front() {
                return Some(next);
            }
            if self.ended {
                return None;
            }
            // Marked before the look, so that a change right after it rings again.
            self.bell.borrow_and_update();
            let Some((found, seen)) = self.changes.after(&self.prefix, self.seen) else {
                self.ended = true;
                return Some(Watched::Compacted);
            };
            self.seen = seen;
            self.ready = found;
            if self.ready.is_empty() && self.bell.changed().await.is_err() {
                // The store is gone. One last look: it may have rung before it went.
                let last = self.changes.after(&self.prefix, self.seen);
                self.ended = true;
                self.ready = last.map(|(found, _)| found).unwrap_or_default();
            }
        }
    }
}
