//! Block devices, beyond what files of sysfs tell: flushes, reads past the cache, SCSI and NVMe
//! commands, reservations.
//!
//! Everything here runs on workers: a device whose server is gone hangs in open, in a flush and in
//! the last close.

mod flush;
mod nvme;
mod open;
mod paths;
mod read;
mod reserve;
mod scsi;
mod sense;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hawser_core::port::kernel::{
    Disk, Disks, KernelError, KernelResult, NamespaceFacts, Reservation, ReservationStep,
};
use rustix::io::Errno;

use self::flush::Flushes;
use self::open::Device;
use super::no_answer;
use crate::sys;
use crate::workers::Workers;

/// How long a device has for one SCSI or NVMe command; longer than any healthy one needs, and short
/// enough to ask another path.
const COMMAND_LIMIT: Duration = Duration::from_secs(5);

/// Opens block devices of this machine.
#[derive(Debug)]
pub(crate) struct LinuxDisks {
    workers: Workers,
    limit: Duration,
}

impl LinuxDisks {
    pub(crate) fn new(workers: Workers, limit: Duration) -> Self {
        Self { workers, limit }
    }
}

#[async_trait]
impl Disks for LinuxDisks {
    async fn open(&self, device: &Path) -> KernelResult<Box<dyn Disk>> {
        let attempt = format!("opening {}", device.display());
        let (path, workers) = (device.to_owned(), self.workers.clone());
        let device =
            on_worker(&self.workers, attempt, self.limit, move || Device::open(&path, workers))
                .await?;
        Ok(Box::new(LinuxDisk {
            device: Arc::new(device),
            workers: self.workers.clone(),
            limit: self.limit,
            flushes: Flushes::default(),
        }))
    }

    async fn is_claimed(&self, device: &Path) -> KernelResult<bool> {
        let attempt = format!("asking whether {} is in use", device.display());
        let path = device.to_owned();
        on_worker(&self.workers, attempt, self.limit, move || open::is_claimed(&path)).await
    }

    async fn set_read_only(&self, device: &Path, read_only: bool) -> KernelResult<()> {
        let to = if read_only { "read-only" } else { "writable" };
        let attempt = format!("making {} {to}", device.display());
        let (path, workers) = (device.to_owned(), self.workers.clone());
        let refused = attempt.clone();
        on_worker(&self.workers, attempt, self.limit, move || {
            let device = Device::open(&path, workers)?;
            sys::set_read_only(&device, read_only).map_err(|errno| refusal(refused, errno))
        })
        .await
    }
}

/// An open block device of this machine.
struct LinuxDisk {
    device: Arc<Device>,
    workers: Workers,
    limit: Duration,
    flushes: Flushes,
}

impl LinuxDisk {
    /// Runs a call on the open device; `what` is done "of" or "on" it.
    async fn ask<T: Send + 'static>(
        &self,
        what: &str,
        limit: Duration,
        call: impl FnOnce(&Device) -> KernelResult<T> + Send + 'static,
    ) -> KernelResult<T> {
        let attempt = format!("{what} {}", self.device.name());
        let device = Arc::clone(&self.device);
        on_worker(&self.workers, attempt, limit, move || call(&device)).await
    }
}

#[async_trait]
impl Disk for LinuxDisk {
    async fn flush(&self, limit: Duration) -> KernelResult<()> {
        self.flushes.flush(&self.device, &self.workers, limit).await
    }

    async fn read(&self, at: u64, length: usize, limit: Duration) -> KernelResult<Vec<u8>> {
        self.ask("reading", limit, move |device| read::exactly(device, at, length)).await
    }

    async fn inquiry(&self, page: Option<u8>) -> KernelResult<Vec<u8>> {
        self.ask("INQUIRY of", self.limit, move |device| scsi::inquiry(device, page)).await
    }

    async fn identify_namespace(&self, what: NamespaceFacts) -> KernelResult<Vec<u8>> {
        self.ask("Identify Namespace of", self.limit, move |device| nvme::identify(device, what))
            .await
    }

    async fn reservation(&self) -> KernelResult<Reservation> {
        self.ask("reading the reservation of", self.limit, reserve::read).await
    }

    async fn reserve(&self, step: &ReservationStep) -> KernelResult<()> {
        let step = *step;
        self.ask(reserve::words(&step), self.limit, move |device| reserve::change(device, &step))
            .await
    }
}

/// Runs a call that says itself what it attempted; `attempt` is for when it does not come to that.
async fn on_worker<T: Send + 'static>(
    workers: &Workers,
    attempt: String,
    limit: Duration,
    call: impl FnOnce() -> KernelResult<T> + Send + 'static,
) -> KernelResult<T> {
    match workers.run("a call on a block device", limit, call).await {
        Ok(answer) => answer,
        Err(error) => Err(no_answer(attempt, error)),
    }
}

/// A refusal of the kernel or of the device behind it.
fn refusal(attempt: impl Into<String>, errno: Errno) -> KernelError {
    KernelError::refused(attempt, errno.raw_os_error())
}
