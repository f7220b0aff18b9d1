//! Locks on names that are about to be given, so that racing creators of one name queue up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use hawser_core::port::store::Key;

/// One lock per name in use. Only a fast path: the reservation in the store decides.
#[derive(Default)]
pub(crate) struct NameLocks {
    locks: Mutex<HashMap<Key, Arc<AsyncMutex<()>>>>,
}

impl NameLocks {
    pub(crate) async fn lock(&self, name: Key) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            // Those that nobody waits for go, so that the map stays as small as the traffic.
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            locks.entry(name).or_default().clone()
        };
        lock.lock_owned().await
    }
}
