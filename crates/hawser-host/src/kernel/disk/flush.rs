//! Flushing: one at a time for each opening, and no result is lost.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hawser_core::port::kernel::{KernelError, KernelResult};
use rustix::io::Errno;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::open::Device;
use super::refusal;
use crate::kernel::no_answer;
use crate::sys;
use crate::workers::Workers;

/// Where a flush failed, and why.
type Flushed = Result<(), (&'static str, Errno)>;

/// The flushes of one opening.
///
/// The kernel tells an error of an earlier write once to each opening. So the answer of a flush that
/// its caller no longer waited for is kept here for the next call, and two never run side by side.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    running: Mutex<Option<Arc<Run>>>,
    /// Held while one is started, which may have to wait for a worker.
    starting: tokio::sync::Mutex<()>,
}

/// One flush, under way or with an answer that nobody took.
#[derive(Debug)]
struct Run {
    began: Instant,
    answer: watch::Receiver<Option<Flushed>>,
}

impl Flushes {
    /// Flushes. A flush that is under way is waited for first: its failure is the answer, and its
    /// success is not, as it may have begun before the caller's last write.
    pub(super) async fn flush(
        &self,
        device: &Arc<Device>,
        workers: &Workers,
        limit: Duration,
    ) -> KernelResult<()> {
        let file = Arc::clone(device);
        self.run(format!("flushing {}", device.name()), workers, limit, move || write_out(&*file))
            .await
    }

    pub(super) async fn run(
        &self,
        attempt: String,
        workers: &Workers,
        limit: Duration,
        call: impl Fn() -> Flushed + Clone + Send + 'static,
    ) -> KernelResult<()> {
        let asked = Instant::now();
        let deadline = asked + limit;
        loop {
            let joined = self.join(&attempt, workers, deadline, call.clone());
            let Ok(run) = timeout_at(deadline, joined).await else {
                return Err(KernelError::Late { attempt, limit });
            };
            let run = run?;
            let mut answer = run.answer.clone();
            let answered = match timeout_at(deadline, answer.wait_for(Option::is_some)).await {
                Ok(Ok(answered)) => *answered,
                Ok(Err(_)) => None,
                Err(_) => return Err(KernelError::Late { attempt, limit }),
            };
            self.forget(&run);
            match answered {
                Some(Ok(())) if run.began >= asked => return Ok(()),
                Some(Ok(())) => {}
                Some(Err((step, errno))) => {
                    return Err(refusal(format!("{attempt} ({step})"), errno));
                }
                None => {
                    let why = "the worker ended in a panic".into();
                    return Err(KernelError::Nonsense { attempt, why });
                }
            }
        }
    }

    /// The flush that is there, or a new one.
    async fn join(
        &self,
        attempt: &str,
        workers: &Workers,
        deadline: Instant,
        call: impl FnOnce() -> Flushed + Send + 'static,
    ) -> KernelResult<Arc<Run>> {
        let _starting = self.starting.lock().await;
        if let Some(run) = &*self.running() {
            return Ok(Arc::clone(run));
        }
        let (teller, answer) = watch::channel(None);
        let call = move || {
            // Without a listener now, it is there for the next one.
            teller.send_replace(Some(call()));
        };
        let began = Instant::now();
        // From the start of the thread to the note of it nothing is awaited, so a caller that gives
        // up cannot leave a flush behind that nobody knows of.
        workers
            .start("a flush", deadline, call)
            .await
            .map_err(|error| no_answer(attempt, error))?;
        let run = Arc::new(Run { began, answer });
        *self.running() = Some(Arc::clone(&run));
        Ok(run)
    }

    /// Its answer has reached somebody.
    fn forget(&self, run: &Arc<Run>) {
        self.running().take_if(|other| Arc::ptr_eq(other, run));
    }

    fn running(&self) -> MutexGuard<'_, Option<Arc<Run>>> {
        // Nothing that holds it can panic half-way.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes out what is cached, learns of all errors since the device was opened, and forgets what is
/// cached. Blocks.
fn write_out(device: impl AsFd) -> Flushed {
    let device = device.as_fd();
    loop {
        match rustix::fs::fsync(device) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(("writing out", errno)),
        }
    }
    sys::flush_buffers(device).map_err(|errno| ("forgetting the cache", errno))
}
