//! Carries progress out of a worker and cancellation into it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hawser_core::port::progress::Progress;
use tokio::sync::watch;
use tokio::time::Instant;

use super::error::FileError;
use crate::workers::{WorkerError, Workers};

/// The worker's end: where it tells how far it is and asks whether to go on.
pub(crate) struct Meter {
    cancelled: AtomicBool,
    amounts: watch::Sender<(u64, u64)>,
}

impl Meter {
    #[cfg(test)]
    pub(super) fn unheard() -> Self {
        Self { cancelled: AtomicBool::new(false), amounts: watch::channel((0, 0)).0 }
    }

    #[cfg(test)]
    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// So much is done; an error once nobody waits for the rest.
    pub(super) fn amount(&self, path: &Path, done: u64, total: u64) -> Result<(), FileError> {
        self.amounts.send_replace((done, total));
        self.go_on(path)
    }

    /// An error once nobody waits.
    pub(super) fn go_on(&self, path: &Path) -> Result<(), FileError> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(FileError::Cancelled { path: path.to_owned() });
        }
        Ok(())
    }
}

/// Tells the worker when the caller goes away.
struct Caller(Arc<Meter>);

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.cancelled.store(true, Ordering::Relaxed);
    }
}

/// Runs long work on a worker. It has no limit as a whole, as a large copy takes its time; when
/// it has made no progress for `stall`, it is given up as unknown.
pub(crate) async fn with_progress<T: Send + 'static>(
    workers: &Workers,
    what: &'static str,
    stall: Duration,
    progress: &dyn Progress,
    work: impl FnOnce(&Meter) -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    let (amounts, mut heard) = watch::channel((0, 0));
    let caller = Caller(Arc::new(Meter { cancelled: AtomicBool::new(false), amounts }));
    let meter = Arc::clone(&caller.0);
    let start = Instant::now() + stall;
    let mut answer = workers.start(what, start, move || work(&meter)).await?;
    loop {
        tokio::select! {
            biased;
            answer = &mut answer => {
                let (done, total) = *heard.borrow();
                if done > 0 {
                    progress.amount(done, total);
                }
                return answer.map_err(|_| WorkerError::Panicked { what })?;
            }
            // `caller` keeps the sender, so this never ends by itself.
            Ok(()) = heard.changed() => {
                let (done, total) = *heard.borrow_and_update();
                progress.amount(done, total);
            }
            () = tokio::time::sleep(stall) => {
                return Err(WorkerError::Late { what, limit: stall }.into());
            }
        }
    }
}
