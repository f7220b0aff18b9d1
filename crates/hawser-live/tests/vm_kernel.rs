//! The kernel's interfaces as connectors use them: disks, maps and network block devices on a real
//! kernel, compared with what other programs and files of the kernel tell.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "vm_kernel/disks.rs"]
mod disks;
#[path = "vm_kernel/iscsi.rs"]
mod iscsi;
#[path = "vm_kernel/maps.rs"]
mod maps;
#[path = "vm_kernel/nbd.rs"]
mod nbd;
#[path = "vm_kernel/nvme.rs"]
mod nvme;
#[path = "vm_kernel/reserve.rs"]
mod reserve;
#[path = "vm_kernel/scsi.rs"]
mod scsi;

use std::time::Duration;

use hawser_core::port::kernel::KernelError;
use hawser_host::{HostSettings, LinuxHost};
use rustix::io::Errno;

/// How long anything here may take.
const LIMIT: Duration = Duration::from_secs(60);

fn host() -> LinuxHost {
    LinuxHost::new(HostSettings::default())
}

/// The number in a refusal.
#[track_caller]
fn errno<T>(answer: Result<T, KernelError>) -> Errno {
    match answer {
        Ok(_) => panic!("it was not refused"),
        Err(error) => match error.errno() {
            Some(errno) => Errno::from_raw_os_error(errno),
            None => panic!("no number in {error:?}"),
        },
    }
}
