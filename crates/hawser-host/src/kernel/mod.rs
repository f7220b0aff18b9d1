//! The kernel's own interfaces: files of sysfs, device events, block devices, device maps, network
//! block devices, and the locks between processes.

mod disk;
mod events;
mod files;
mod iscsid;
mod locks;
mod maps;
mod nbd;

use std::io;
use std::time::Duration;

use hawser_core::port::kernel::{KernelError, KernelResult};

pub(crate) use disk::LinuxDisks;
pub(crate) use events::LinuxEvents;
pub(crate) use files::LinuxFiles;
pub(crate) use iscsid::LinuxIscsid;
pub use locks::FileLocks;
pub(crate) use maps::LinuxMaps;
pub(crate) use nbd::LinuxNbd;

use crate::workers::{WorkerError, Workers};

/// Runs a call that may hang on a worker; `attempt` says what is attempted, and on what.
pub(crate) async fn call<T: Send + 'static, E: Into<io::Error> + Send + 'static>(
    workers: &Workers,
    attempt: impl Into<String>,
    limit: Duration,
    call: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> KernelResult<T> {
    let attempt = attempt.into();
    match workers.run("a call of the kernel", limit, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(KernelError::Refused { attempt, source: error.into() }),
        Err(error) => Err(no_answer(attempt, error)),
    }
}

/// Why a worker gave no answer, as an error of the kernel's part.
pub(crate) fn no_answer(attempt: impl Into<String>, error: WorkerError) -> KernelError {
    let attempt = attempt.into();
    match error {
        WorkerError::Late { limit, .. } => KernelError::Late { attempt, limit },
        // A mistake of ours; how far it came is as unknown as with a call that hangs.
        WorkerError::Panicked { .. } => {
            KernelError::Late { attempt: attempt + " ended in a panic and", limit: Duration::ZERO }
        }
        WorkerError::Full { .. } | WorkerError::NoThread { .. } => {
            KernelError::NotBegun { attempt, source: io::Error::other(error.to_string()) }
        }
    }
}
