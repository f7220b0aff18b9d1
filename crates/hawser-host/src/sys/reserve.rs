//! Persistent reservations of a block device: `linux/pr.h`.

use std::os::fd::AsFd;

use linux_raw_sys::ioctl::{IOC_PR_PREEMPT_ABORT, IOC_PR_REGISTER, IOC_PR_RELEASE, IOC_PR_RESERVE};
use rustix::io::Result;
use rustix::ioctl::{self, Opcode};

use super::passthrough::WithStatus;

/// `PR_FL_IGNORE_KEY`: whatever key was registered before.
const IGNORE_KEY: u32 = 1;

/// `struct pr_registration` of `linux/pr.h`.
#[repr(C)]
struct PrRegistration {
    old_key: u64,
    new_key: u64,
    flags: u32,
    pad: u32,
}

/// `struct pr_reservation` of `linux/pr.h`.
#[repr(C)]
struct PrReservation {
    key: u64,
    kind: u32,
    flags: u32,
}

/// `struct pr_preempt` of `linux/pr.h`.
#[repr(C)]
struct PrPreempt {
    old_key: u64,
    new_key: u64,
    kind: u32,
    flags: u32,
}

/// Registers `new` whatever was registered before; answers a status, of which 0 is good. An `old`
/// other than 0 has NVMe replace a registration instead of making one; SCSI does not look at it.
pub(crate) fn register(device: impl AsFd, old: u64, new: u64) -> Result<u32> {
    let mut value = PrRegistration { old_key: old, new_key: new, flags: IGNORE_KEY, pad: 0 };
    // SAFETY: IOC_PR_REGISTER reads one `pr_registration`.
    unsafe { ioctl::ioctl(device, WithStatus::<{ IOC_PR_REGISTER as Opcode }, _>::new(&mut value)) }
}

/// Takes a reservation of `kind`, which is `enum pr_type`; answers a status, of which 0 is good.
pub(crate) fn reserve(device: impl AsFd, key: u64, kind: u32) -> Result<u32> {
    let mut value = PrReservation { key, kind, flags: 0 };
    // SAFETY: IOC_PR_RESERVE reads one `pr_reservation`.
    unsafe { ioctl::ioctl(device, WithStatus::<{ IOC_PR_RESERVE as Opcode }, _>::new(&mut value)) }
}

/// Gives a reservation back; answers a status, of which 0 is good.
pub(crate) fn release(device: impl AsFd, key: u64, kind: u32) -> Result<u32> {
    let mut value = PrReservation { key, kind, flags: 0 };
    // SAFETY: IOC_PR_RELEASE reads one `pr_reservation`.
    unsafe { ioctl::ioctl(device, WithStatus::<{ IOC_PR_RELEASE as Opcode }, _>::new(&mut value)) }
}

/// Throws the owner of `other` out, aborts what it has under way and takes its reservation for
/// `key`; answers a status, of which 0 is good.
pub(crate) fn preempt_and_abort(device: impl AsFd, key: u64, other: u64, kind: u32) -> Result<u32> {
    // The header's names mislead: `old_key` is the caller's own key and `new_key` the one to throw
    // out (`sd_pr_preempt` hands them on as reservation key and service action key).
    let mut value = PrPreempt { old_key: key, new_key: other, kind, flags: 0 };
    // SAFETY: IOC_PR_PREEMPT_ABORT reads one `pr_preempt`.
    unsafe {
        ioctl::ioctl(device, WithStatus::<{ IOC_PR_PREEMPT_ABORT as Opcode }, _>::new(&mut value))
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn the_layouts_are_those_of_the_header() {
        assert_eq!(size_of::<PrRegistration>(), 24);
        assert_eq!(size_of::<PrReservation>(), 16);
        assert_eq!(size_of::<PrPreempt>(), 24);
    }

    #[test]
    fn what_has_no_reservations_refuses() {
        let file = std::fs::File::open("/dev/null").unwrap();

        assert_eq!(register(&file, 0, 1).unwrap_err(), Errno::NOTTY);
        assert_eq!(reserve(&file, 1, 1).unwrap_err(), Errno::NOTTY);
        assert_eq!(release(&file, 1, 1).unwrap_err(), Errno::NOTTY);
        assert_eq!(preempt_and_abort(&file, 1, 2, 1).unwrap_err(), Errno::NOTTY);
    }
}
