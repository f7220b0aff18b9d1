//! One call at a time for each volume on a node, and work that outlives the call that began it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hawser_core::Result;
use tokio::task::JoinError;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span};

use super::error::CsiError;

/// What is being worked on.
#[derive(Clone, Debug, Default)]
pub(super) struct Exclusive(Arc<Mutex<BTreeSet<String>>>);

/// The right to work on one thing; ends when it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    all: Exclusive,
    key: String,
}

impl Exclusive {
    /// Takes a turn, or says at once that somebody else has it: nobody queues up behind work that
    /// may take longer than the caller waits. `Kind::Busy`.
    pub(super) fn enter(&self, key: &str) -> Result<Turn, CsiError> {
        if !self.held().insert(key.to_owned()) {
            return Err(CsiError::InFlight { what: key.to_owned() });
        }
        Ok(Turn { all: self.clone(), key: key.to_owned() })
    }

    fn held(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.all.held().remove(&self.key);
    }
}

/// Work that goes on when its caller has left.
#[derive(Clone, Debug, Default)]
pub(super) struct Tasks(TaskTracker);

impl Tasks {
    /// Runs work to its end, whatever becomes of the caller, and waits for it at most so long. Work
    /// that is not through by then is `Kind::Busy`: the same call again finds out.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let task = self.0.spawn(work.instrument(Span::current()));
        match tokio::time::timeout(limit, task).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(ended)) => Err(CsiError::Panicked { words: words(ended) }.into()),
            Err(_) => Err(CsiError::StillAtWork.into()),
        }
    }

    /// Waits until all work is through, at most so long; true when it is.
    pub(super) async fn finish(&self, limit: Duration) -> bool {
        self.0.close();
        tokio::time::timeout(limit, self.0.wait()).await.is_ok()
    }
}

fn words(ended: JoinError) -> String {
    let Ok(panic) = ended.try_into_panic() else { return "it was stopped".to_owned() };
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without words").to_owned()
}

#[cfg(test)]
mod tests {
    use hawser_core::{Kind, Outcome};
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn a_second_caller_is_told_at_once_and_a_third_gets_in_after_the_first() {
        let all = Exclusive::default();
        let turn = all.enter("vol-a").unwrap();

        assert!(matches!(all.enter("vol-a"), Err(CsiError::InFlight { .. })));
        assert!(all.enter("vol-b").is_ok());
        drop(turn);
        assert!(all.enter("vol-a").is_ok());
    }

    #[tokio::test]
    async fn work_outlives_a_caller_who_left() {
        let tasks = Tasks::default();
        let (go, wait) = oneshot::channel::<()>();
        let (done, seen) = oneshot::channel();
        let work = async move {
            wait.await.unwrap();
            done.send(()).unwrap();
            Ok(())
        };

        let given_up = tokio::time::timeout(
            Duration::from_millis(10),
            tasks.run(Duration::from_secs(60), work),
        );
        assert!(given_up.await.is_err(), "the caller gave up");
        go.send(()).unwrap();

        seen.await.expect("and the work went on");
        assert!(tasks.finish(Duration::from_secs(5)).await);
    }

    #[tokio::test]
    async fn neither_a_panic_nor_slow_work_is_told_as_final() {
        let tasks = Tasks::default();

        let panicked = tasks.run::<()>(Duration::from_secs(5), async { panic!("boom") }).await;
        let slow = tasks.run::<()>(Duration::from_millis(5), std::future::pending()).await;

        let panicked = panicked.unwrap_err();
        assert_eq!((panicked.kind(), panicked.outcome()), (Kind::Internal, Outcome::Unknown));
        let slow = slow.unwrap_err();
        assert_eq!((slow.kind(), slow.outcome()), (Kind::Busy, Outcome::Unknown));
        assert!(!tasks.finish(Duration::from_millis(5)).await, "it is still at work");
    }
}
