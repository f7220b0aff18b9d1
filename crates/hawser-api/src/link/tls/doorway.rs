//! The place of those who have not proved yet who they are.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// A bounded crowd: whoever comes when it is full takes the place of the one who has waited longest.
/// An honest node is through in milliseconds, so a stranger who opens connections and says nothing
/// pushes out other strangers, not nodes.
#[derive(Default)]
pub(super) struct Doorway {
    crowd: Mutex<Crowd>,
}

#[derive(Default)]
struct Crowd {
    /// Never given twice.
    next: u64,
    /// Whoever came first stands first.
    waiting: VecDeque<(u64, oneshot::Sender<()>)>,
}

/// A place in the doorway, given back when it is dropped.
pub(super) struct Place {
    doorway: Arc<Doorway>,
    number: u64,
    pushed_out: oneshot::Receiver<()>,
}

impl Doorway {
    /// Takes a place among at most so many.
    pub(super) fn enter(self: &Arc<Self>, most: usize) -> Place {
        let (held, pushed_out) = oneshot::channel();
        let mut crowd = self.crowd();
        while crowd.waiting.len() >= most.max(1) {
            crowd.waiting.pop_front();
        }
        let number = crowd.next;
        crowd.next += 1;
        crowd.waiting.push_back((number, held));
        drop(crowd);
        Place { doorway: Arc::clone(self), number, pushed_out }
    }

    fn crowd(&self) -> MutexGuard<'_, Crowd> {
        // Nothing in the critical sections can panic half-way.
        self.crowd.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Resolves when somebody else took the place.
    pub(super) async fn lost(&mut self) {
        // Nobody sends: the other end goes when the place does.
        let _ = (&mut self.pushed_out).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.doorway.crowd().waiting.retain(|(number, _)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_crowd_pushes_out_whoever_has_waited_longest() {
        let doorway = Arc::new(Doorway::default());
        let mut first = doorway.enter(2);
        let mut second = doorway.enter(2);
        assert!(first.lost().now_or_never().is_none());

        let mut third = doorway.enter(2);

        assert!(first.lost().now_or_never().is_some());
        assert!(second.lost().now_or_never().is_none());
        drop((first, second));
        let _fourth = doorway.enter(2);
        assert!(third.lost().now_or_never().is_none(), "a place was given back");
    }
}
