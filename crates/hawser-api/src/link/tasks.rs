//! The owner of work that outlives the connection it came over.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::JoinSet;

/// Tasks that somebody joins: work begun for a peer goes on when that peer leaves.
#[derive(Clone, Default)]
pub(super) struct Tasks {
    running: Arc<Mutex<JoinSet<()>>>,
}

impl Tasks {
    /// Begins a piece of work.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.running();
        while running.try_join_next().is_some() {}
        running.spawn(work);
    }

    /// Waits until all of it is done.
    pub(super) async fn join(&self) {
        loop {
            let mut taken = std::mem::take(&mut *self.running());
            if taken.is_empty() {
                return;
            }
            while taken.join_next().await.is_some() {}
        }
    }

    fn running(&self) -> MutexGuard<'_, JoinSet<()>> {
        // A panic inside spawn leaves the set as it was.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
