//! One piece of work per id at a time, also when nobody waits for it any more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Locks by id. The engine already lets one operation at a volume; these hold what it cannot see:
/// work on a blocking thread whose caller was dropped must end before the next call begins.
#[derive(Default)]
pub(super) struct Locks {
    held: Mutex<HashMap<String, Arc<AsyncMutex<()>>>>,
}

/// The right to work on one id; moves into the blocking work and ends with it.
pub(super) struct IdLock {
    locks: Arc<Locks>,
    id: String,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Locks {
    /// Waits until nothing else works on this id.
    pub(super) async fn hold(self: &Arc<Self>, id: &str) -> IdLock {
        let lock = {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(held.entry(id.to_owned()).or_default())
        };
        // Made before the wait, so that a waiter who gives up tidies the map too.
        let mut mine = IdLock { locks: Arc::clone(self), id: id.to_owned(), guard: None };
        mine.guard = Some(lock.lock_owned().await);
        mine
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Drop for IdLock {
    fn drop(&mut self) {
        let mut held = self.locks.held.lock().unwrap_or_else(PoisonError::into_inner);
        self.guard = None;
        // Clones are made under the map's lock only, so a count of one means that nobody waits.
        if held.get(&self.id).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            held.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_second_holder_waits_and_the_map_is_empty_afterwards() {
        let locks = Arc::new(Locks::default());
        let first = locks.hold("a").await;
        let other = locks.hold("b").await;

        let waiting = tokio::spawn({
            let locks = Arc::clone(&locks);
            async move { drop(locks.hold("a").await) }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop((first, other));
        waiting.await.unwrap();

        assert_eq!(locks.len(), 0);
    }
}
