//! Reservations: read with commands of the device's own kind, changed through the kernel's
//! `IOC_PR_*`, which a map of several paths passes on to all of them.

use hawser_core::port::kernel::{KernelResult, Reservation, ReservationKind, ReservationStep};
use rustix::io::{Errno, Result as Answer};

use super::open::Device;
use super::scsi::ScsiError;
use super::{nvme, paths, refusal, scsi};
use crate::sys;

/// `PR_STS_*` of `linux/pr.h`, which are numbers of SCSI; kernels before 6.4 hand on what the driver
/// said, which for SCSI is the same, and for NVMe is a status of its own.
const IO_ERROR: u32 = 0x02;
const CONFLICT: u32 = 0x18;
const RETRY_PATH: u32 = 0xe_0000;
const FAST_FAILED: u32 = 0xf_0000;
const PATH_FAILED: u32 = 0x1_0000;
const NVME_CONFLICT: u32 = 0x83;

/// Who is registered and who holds the reservation. Of a map one path is asked: not every kernel
/// passes commands through a map, and a map without a path would hold them for ever. Blocks.
pub(super) fn read(device: &Device) -> KernelResult<Reservation> {
    let Some(below) = paths::of(device)? else { return read_one(device) };
    let mut last = refusal(
        format!("reading the reservation of {}, which has no path", device.name()),
        Errno::NODEV,
    );
    for path in below {
        match paths::open(&path, device).and_then(|path| read_one(&path)) {
            Ok(reservation) => return Ok(reservation),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn read_one(device: &Device) -> KernelResult<Reservation> {
    match scsi::reservation(device) {
        Ok(reservation) => Ok(reservation),
        Err(ScsiError::NotPassed(_)) if nvme::is_namespace(device) => nvme::reservation(device),
        Err(error) => Err(error.about(format!("PERSISTENT RESERVE IN of {}", device.name()))),
    }
}

/// What a step does, for messages that end in the device's name.
pub(super) fn words(step: &ReservationStep) -> &'static str {
    match step {
        ReservationStep::Register { key: 0 } => "taking the registration from",
        ReservationStep::Register { .. } => "registering with",
        ReservationStep::Reserve { .. } => "reserving",
        ReservationStep::Release { .. } => "releasing",
        ReservationStep::PreemptAndAbort { .. } => "throwing another host off",
    }
}

/// Changes registrations or the reservation. Blocks.
pub(super) fn change(device: &Device, step: &ReservationStep) -> KernelResult<()> {
    let attempt = format!("{} {}", words(step), device.name());
    let numbered = |kind| {
        number(kind).ok_or_else(|| {
            refusal(format!("{attempt} with a kind that is only read"), Errno::INVAL)
        })
    };
    match *step {
        ReservationStep::Register { key } => register(device, &attempt, key),
        ReservationStep::Reserve { key, kind } => {
            let kind = numbered(kind)?;
            settle(&attempt, || sys::reserve::reserve(device, key, kind))
        }
        ReservationStep::Release { key, kind } => {
            let kind = numbered(kind)?;
            settle(&attempt, || sys::reserve::release(device, key, kind))
        }
        ReservationStep::PreemptAndAbort { key, other, kind } => {
            let kind = numbered(kind)?;
            settle(&attempt, || sys::reserve::preempt_and_abort(device, key, other, kind))
        }
    }
}

/// SCSI registers whatever was there before, and unregisters with key 0. The kernel's driver of NVMe
/// only makes a registration where no old key is named, and replaces one where it is.
fn register(device: &Device, attempt: &str, key: u64) -> KernelResult<()> {
    if key == 0
        && let Some(namespace) = namespace(device)?
    {
        return nvme::unregister(namespace.as_ref().unwrap_or(device));
    }
    let made = settle(attempt, || sys::reserve::register(device, 0, key));
    let conflict = Some(Errno::BADE.raw_os_error());
    if made.as_ref().is_err_and(|error| error.errno() == conflict) && namespace(device)?.is_some() {
        return settle(attempt, || sys::reserve::register(device, key, key));
    }
    made
}

/// For NVMe, the device to send commands to where it is another: one path of a map. A map is not
/// asked itself, as it holds the question for as long as it has no path.
fn namespace(device: &Device) -> KernelResult<Option<Option<Device>>> {
    let Some(below) = paths::of(device)? else {
        return Ok(nvme::is_namespace(device).then_some(None));
    };
    match below.iter().find(|path| path.is_nvme()) {
        Some(path) => Ok(Some(Some(paths::open(path, device)?))),
        None => Ok(None),
    }
}

/// `enum pr_type` of `linux/pr.h`.
fn number(kind: ReservationKind) -> Option<u32> {
    match kind {
        ReservationKind::WriteExclusive => Some(1),
        ReservationKind::WriteExclusiveRegistrants => Some(3),
        ReservationKind::Other(_) => None,
    }
}

/// Sends a change, and once more after a check condition: older kernels do not hide that the
/// device first wants to tell what has happened to it, and then the command was not looked at.
pub(super) fn settle(attempt: &str, mut send: impl FnMut() -> Answer<u32>) -> KernelResult<()> {
    let mut status = send();
    if let Ok(first) = status
        && first & 0x00ff_ffff == IO_ERROR
    {
        status = send();
    }
    verdict(attempt, status)
}

pub(super) fn verdict(attempt: &str, status: Answer<u32>) -> KernelResult<()> {
    let status = status.map_err(|errno| refusal(attempt, errno))?;
    // The upper byte is the driver's in old kernels, and says no more than the rest.
    let (errno, words) = match status & 0x00ff_ffff {
        0 => return Ok(()),
        CONFLICT => (Errno::BADE, "reservation conflict"),
        status if status & 0x7ff == NVME_CONFLICT => (Errno::BADE, "reservation conflict"),
        RETRY_PATH => (Errno::TIMEDOUT, "the path failed for a moment; try again"),
        FAST_FAILED => (Errno::TIMEDOUT, "the path is down and commands fail fast"),
        PATH_FAILED => (Errno::IO, "the path cannot be reached"),
        IO_ERROR => (Errno::IO, "the device failed"),
        _ => (Errno::IO, "the device or its driver failed"),
    };
    Err(refusal(format!("{attempt} ({words}, status {status:#x})"), errno))
}
