//! Those who wait for an object to become what they need: each is woken for its own object only. Of
//! hundreds of claims that are bound at once, each would else wake all others with every change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::objects::Key;

/// Who waits, by the object that is waited for.
#[derive(Default)]
pub(super) struct Waiters(Mutex<HashMap<Key, Arc<Notify>>>);

/// One who waits: leaves no trace when it is done, or given up.
struct Waiting<'a> {
    waiters: &'a Waiters,
    key: &'a Key,
    bell: Arc<Notify>,
}

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something about this object has changed.
    pub(super) fn ring(&self, key: &Key) {
        if let Some(bell) = self.lock().get(key) {
            bell.notify_waiters();
        }
    }

    /// Waits until something is so; it is asked now, and when something about the object has changed.
    pub(super) async fn until(&self, key: &Key, is_so: impl Fn() -> bool) {
        let bell = self.lock().entry(key.clone()).or_default().clone();
        let waiting = Waiting { waiters: self, key, bell };
        loop {
            let rung = waiting.bell.notified();
            tokio::pin!(rung);
            // Before it is asked: what changes meanwhile must not be missed.
            rung.as_mut().enable();
            if is_so() {
                return;
            }
            rung.await;
        }
    }

    /// True when nobody waits.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.waiters.lock();
        // One in the map, one here.
        if Arc::strong_count(&self.bell) == 2 {
            waiting.remove(self.key);
        }
    }
}
