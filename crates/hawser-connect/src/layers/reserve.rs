//! One writer, enforced at the device: SCSI-3 persistent reservations and NVMe reservations.
//!
//! The reservation is "write exclusive, registrants only", with this host as the only one that is
//! registered. So every path of this host may write, and every other host gets a conflict for each
//! write, also for those it had under way when it was thrown out. Nothing here believes its own
//! commands: who is registered is read back from the device.

use std::path::Path;

use hawser_core::attach::SingleWriter;
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::kernel::{Disk, KernelError, Reservation, ReservationKind, ReservationStep};
use hawser_core::{Change, Error};

use super::error::LayerError;

const KIND: ReservationKind = ReservationKind::WriteExclusiveRegistrants;

/// Makes this host the only one that may write.
pub(super) async fn take(
    host: &dyn Host,
    device: &Path,
    writer: SingleWriter,
) -> Result<Change<()>> {
    let SingleWriter { key, preempt } = writer;
    if key == 0 {
        return Err(LayerError::NoReservationKey.into());
    }
    let failed = |attempt| kernel(device, attempt);
    let disk = host.disks().open(device).await.map_err(failed("opening"))?;
    let before = disk.reservation().await.map_err(failed("reading the reservation of"))?;
    if is_ours_alone(&before, key) {
        return Ok(Change::Already(()));
    }
    let others = others(&before, key);
    if let (Some(holder), false) = (others.first(), preempt) {
        return Err(LayerError::Reserved { device: device.to_owned(), holder: *holder }.into());
    }
    let had = before.registered.iter().any(|register| register.key == key);
    let taken = seize(disk.as_ref(), device, key, &others).await;
    if let Err(error) = taken {
        if !had {
            // Best effort: a registration without the reservation hinders nobody.
            let _ = disk.reserve(&ReservationStep::Register { key: 0 }).await;
        }
        return Err(error);
    }
    Ok(Change::Made(()))
}

/// Registers, throws out the others, reserves, and reads back what came of it.
async fn seize(disk: &dyn Disk, device: &Path, key: u64, others: &[u64]) -> Result<()> {
    let failed = |attempt| kernel(device, attempt);
    let register = ReservationStep::Register { key };
    disk.reserve(&register).await.map_err(failed("registering at"))?;
    for other in others {
        let preempt = ReservationStep::PreemptAndAbort { key, other: *other, kind: KIND };
        disk.reserve(&preempt).await.map_err(failed("throwing another host out at"))?;
    }
    let reserve = ReservationStep::Reserve { key, kind: KIND };
    disk.reserve(&reserve).await.map_err(failed("reserving"))?;
    let after = disk.reservation().await.map_err(failed("reading the reservation of"))?;
    if is_ours_alone(&after, key) {
        return Ok(());
    }
    let others = self::others(&after, key).len();
    Err(LayerError::NotAlone { device: device.to_owned(), others }.into())
}

/// Gives the reservation back and leaves; not registered is `Already`.
pub(super) async fn give_back(host: &dyn Host, device: &Path, key: u64) -> Result<Change<()>> {
    let failed = |attempt| kernel(device, attempt);
    let disk = host.disks().open(device).await.map_err(failed("opening"))?;
    let before = disk.reservation().await.map_err(failed("reading the reservation of"))?;
    if !before.registered.iter().any(|register| register.key == key) {
        return Ok(Change::Already(()));
    }
    if before.held == Some(KIND) && before.registered.iter().any(|r| r.key == key && r.holder) {
        let release = ReservationStep::Release { key, kind: KIND };
        disk.reserve(&release).await.map_err(failed("releasing"))?;
    }
    let leave = ReservationStep::Register { key: 0 };
    disk.reserve(&leave).await.map_err(failed("taking the registration from"))?;
    Ok(Change::Made(()))
}

/// Why this host is not the only one that may write; `None` when it is.
pub(super) async fn problem(host: &dyn Host, device: &Path, key: u64) -> Result<Option<String>> {
    let failed = |attempt| kernel(device, attempt);
    let disk = host.disks().open(device).await.map_err(failed("opening"))?;
    let now = disk.reservation().await.map_err(failed("reading the reservation of"))?;
    if is_ours_alone(&now, key) {
        return Ok(None);
    }
    Ok(Some(match others(&now, key).first() {
        Some(holder) => format!("another host holds the right to write (key {holder:#x})"),
        None => "the reservation of this host is gone".to_owned(),
    }))
}

fn is_ours_alone(reservation: &Reservation, key: u64) -> bool {
    reservation.held == Some(KIND)
        && !reservation.registered.is_empty()
        && reservation.registered.iter().all(|register| register.key == key)
}

/// The keys of other hosts, once each: every path of a host is registered with the same one.
fn others(reservation: &Reservation, key: u64) -> Vec<u64> {
    let mut others: Vec<u64> =
        reservation.registered.iter().map(|r| r.key).filter(|other| *other != key).collect();
    // The holder first: an error names it.
    others.sort_by_key(|other| !reservation.registered.iter().any(|r| r.key == *other && r.holder));
    others.dedup();
    others
}

fn kernel(device: &Path, attempt: &'static str) -> impl FnOnce(KernelError) -> Error {
    let attempt = format!("{attempt} {}", device.display());
    |source| LayerError::Kernel { attempt, source }.into()
}
