//! Bounded workers for calls that may hang for ever.
//!
//! Each call gets a thread of its own, not one of the runtime's blocking pool: a thread that is
//! stuck in the kernel cannot be ended, would take a place in that pool, and would keep the runtime
//! from shutting down. A call that exceeds its limit is answered as unknown while its thread goes
//! on; once every place is taken by stuck threads, further calls are refused instead of piling up.

use std::sync::Arc;
use std::time::Duration;

use hawser_core::{Classify, Kind, Outcome};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

/// Why a call gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkerError {
    #[error(
        "{what} did not answer within {} s; it may still happen: look for a dead server or device",
        limit.as_secs_f64()
    )]
    Late { what: &'static str, limit: Duration },
    #[error(
        "{what} was not begun: all {places} workers of this host are taken by calls that hang; \
         look for dead servers or devices"
    )]
    Full { what: &'static str, places: usize },
    #[error("{what} was not begun: the system gives no more threads")]
    NoThread { what: &'static str, source: std::io::Error },
    #[error("{what} ended in a panic")]
    Panicked { what: &'static str },
}

impl Classify for WorkerError {
    fn kind(&self) -> Kind {
        match self {
            Self::Late { .. } => Kind::Timeout,
            Self::Full { .. } | Self::NoThread { .. } => Kind::Unavailable,
            Self::Panicked { .. } => Kind::Internal,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Late { .. } | Self::Panicked { .. } => Outcome::Unknown,
            Self::Full { .. } | Self::NoThread { .. } => Outcome::Nothing,
        }
    }
}

/// A bounded set of threads.
#[derive(Clone, Debug)]
pub(crate) struct Workers {
    places: Arc<Semaphore>,
    most: usize,
}

impl Workers {
    pub(crate) fn new(most: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(most)), most }
    }

    /// Runs `call` on a thread of its own and waits for it until `limit` has passed.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        what: &'static str,
        limit: Duration,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, WorkerError> {
        let deadline = Instant::now() + limit;
        let answer = self.start(what, deadline, call).await?;
        match timeout_at(deadline, answer).await {
            Ok(answer) => answer.map_err(|_| WorkerError::Panicked { what }),
            Err(_) => Err(WorkerError::Late { what, limit }),
        }
    }

    /// Starts `call` and gives the channel of its answer; dropping that does not stop the thread.
    pub(crate) async fn start<T: Send + 'static>(
        &self,
        what: &'static str,
        deadline: Instant,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, WorkerError> {
        // A burst waits for its turn; only places that stay taken refuse it.
        let place = match timeout_at(deadline, Arc::clone(&self.places).acquire_owned()).await {
            Ok(Ok(place)) => place,
            Ok(Err(_)) | Err(_) => return Err(WorkerError::Full { what, places: self.most }),
        };
        let (answer, answered) = oneshot::channel();
        std::thread::Builder::new()
            .name("hawser-worker".into())
            .spawn(move || {
                let _place = place;
                // The caller may have given up; then nobody wants the answer.
                let _ = answer.send(call());
            })
            .map_err(|source| WorkerError::NoThread { what, source })?;
        Ok(answered)
    }

    /// Runs what has to be done whatever comes of it, such as closing a device, and waits for
    /// nobody. It takes a place where one is free, so that what hangs here is counted as well.
    pub(crate) fn leave(&self, call: impl FnOnce() + Send + 'static) {
        let place = Arc::clone(&self.places).try_acquire_owned().ok();
        let thread = std::thread::Builder::new().name("hawser-worker".into()).spawn(move || {
            let _place = place;
            call();
        });
        if let Err(error) = thread {
            // What the call held has been dropped right here, which is all that closing needs.
            tracing::warn!(%error, "no thread to let go of a device; it was done in place");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_call_that_hangs_is_answered_as_unknown() {
        let (release, stuck) = mpsc::channel::<()>();
        let workers = Workers::new(1);

        let late = workers.run("statfs", Duration::from_millis(20), move || stuck.recv()).await;

        let late = late.expect_err("stuck");
        assert_eq!((late.kind(), late.outcome()), (Kind::Timeout, Outcome::Unknown));
        let full = workers.run("statfs", Duration::from_millis(20), || ()).await;
        let full = full.expect_err("no place");
        assert_eq!((full.kind(), full.outcome()), (Kind::Unavailable, Outcome::Nothing));

        release.send(()).unwrap();
        workers.run("statfs", Duration::from_secs(5), || ()).await.expect("a place came free");
    }

    #[tokio::test]
    async fn what_is_left_to_itself_takes_a_place_and_is_done_without_one_too() {
        let (release, stuck) = mpsc::channel::<()>();
        let (done, answer) = mpsc::channel();
        let workers = Workers::new(1);

        workers.leave(move || {
            let _ = stuck.recv();
        });
        let full = workers.run("statfs", Duration::from_millis(20), || ()).await;
        workers.leave(move || done.send(7).unwrap());

        assert!(matches!(full, Err(WorkerError::Full { .. })));
        assert_eq!(answer.recv_timeout(Duration::from_secs(5)), Ok(7));
        release.send(()).unwrap();
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_gives_its_place_back() {
        let workers = Workers::new(1);

        let panicked = workers.run("x", Duration::from_secs(5), || panic!("on purpose")).await;

        assert!(matches!(panicked, Err(WorkerError::Panicked { .. })));
        assert_eq!(workers.run("x", Duration::from_secs(5), || 7).await.unwrap(), 7);
    }
}
