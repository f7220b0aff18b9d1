//! One writer, enforced at the device: SCSI-3 persistent reservations and NVMe reservations.
//!
//! The reservation is "write exclusive, registrants only", with this host as the only one that is
//! registered. So every path of this host may write, and every other host gets a conflict for each
//! write, also for those it had under way when it was thrown out. Nothing here believes its own
//! commands: who is registered is read back from the device.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use hawser_core::attach::SingleWriter;
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::kernel::{
    Disk, KernelError, KernelResult, Reservation, ReservationKind, ReservationStep,
};
use hawser_core::{Change, Error};

use super::error::LayerError;
use crate::shared::multipath::Map;
use crate::shared::users::Whole;

const KIND: ReservationKind = ReservationKind::WriteExclusiveRegistrants;

/// Makes this host the only one that may write, over every path that it has now.
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
    let others = others(&before, key);
    if let (Some(holder), false) = (others.first(), preempt) {
        return Err(LayerError::Reserved { device: device.to_owned(), holder: *holder }.into());
    }
    // Our key among the registered says nothing of the paths of today: it may be there for a session
    // of an earlier boot, or over another portal.
    let (held, had) = (is_ours_alone(&before, key), is_registered(&before, key));
    let paths = paths(host, device)?;
    let taken = match register(host, &paths, key, held).await {
        Ok(()) => seize(disk.as_ref(), device, writer).await,
        Err(error) => Err(error),
    };
    match taken {
        Ok(after) if held && after.registered.len() == before.registered.len() => {
            Ok(Change::Already(()))
        }
        Ok(_) => Ok(Change::Made(())),
        Err(error) => {
            for path in paths.iter().filter(|_| !had) {
                // Best effort: a registration without the reservation keeps nobody from writing.
                let _ = step(host, path, &[ReservationStep::Register { key: 0 }]).await;
            }
            Err(error)
        }
    }
}

/// Registers every path by itself: through their map the kernel takes all registrations back when
/// one path does not answer, and with them the reservation below somebody who writes.
///
/// Where the reservation is held already, a path that does not answer is left as it is.
async fn register(host: &dyn Host, paths: &[PathBuf], key: u64, held: bool) -> Result<()> {
    let mut last = None;
    let mut registered = false;
    for path in paths {
        let done = step(host, path, &[ReservationStep::Register { key }]).await;
        match done.map_err(kernel(path, "registering at")) {
            Ok(()) => registered = true,
            Err(error) if held => {
                tracing::warn!(error = %error.sentence(), "a path keeps the registration it has");
                last = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    match last {
        Some(error) if !registered => Err(error),
        Some(_) | None => Ok(()),
    }
}

/// Throws out the others, reserves, and reads back what came of it. Every path is registered.
///
/// Who the others are is read now: our registering has replaced the key that a path of ours had
/// before, and to throw out a key that is not there is a conflict.
async fn seize(disk: &dyn Disk, device: &Path, writer: SingleWriter) -> Result<Reservation> {
    let SingleWriter { key, preempt } = writer;
    let failed = |attempt| kernel(device, attempt);
    let read = || async { disk.reservation().await.map_err(failed("reading the reservation of")) };
    let others = others(&read().await?, key);
    if let (Some(holder), false) = (others.first(), preempt) {
        return Err(LayerError::Reserved { device: device.to_owned(), holder: *holder }.into());
    }
    for other in others {
        let preempt = ReservationStep::PreemptAndAbort { key, other, kind: KIND };
        disk.reserve(&preempt).await.map_err(failed("throwing another host out at"))?;
    }
    let now = read().await?;
    // What a path of ours holds, no other path can take, and need not.
    if !holds(&now, key) {
        let reserve = ReservationStep::Reserve { key, kind: KIND };
        disk.reserve(&reserve).await.map_err(failed("reserving"))?;
    }
    let after = read().await?;
    if is_ours_alone(&after, key) {
        return Ok(after);
    }
    let others = self::others(&after, key).len();
    Err(LayerError::NotAlone { device: device.to_owned(), others }.into())
}

/// Gives the reservation back and leaves; not registered is `Already`.
pub(super) async fn give_back(host: &dyn Host, device: &Path, key: u64) -> Result<Change<()>> {
    let failed = |attempt| kernel(device, attempt);
    let disk = host.disks().open(device).await.map_err(failed("opening"))?;
    let before = disk.reservation().await.map_err(failed("reading the reservation of"))?;
    if !is_registered(&before, key) {
        return Ok(Change::Already(()));
    }
    let paths = paths(host, device)?;
    let release = ReservationStep::Release { key, kind: KIND };
    let leave = [release, ReservationStep::Register { key: 0 }];
    let leave = if holds(&before, key) { &leave[..] } else { &leave[1..] };
    for path in &paths {
        // One that does not answer, or was not registered: what is left is read back.
        let _ = step(host, path, leave).await;
    }
    let left = disk.reservation().await.map_err(failed("reading the reservation of"))?;
    if !is_registered(&left, key) {
        return Ok(Change::Made(()));
    }
    sweep(host, &paths, key, &left).await.map(Change::Made)
}

/// Throws out what is registered for paths of this host that do not answer, or that it had once: one
/// of them may hold the reservation, which would keep every other host out for ever.
async fn sweep(host: &dyn Host, paths: &[PathBuf], key: u64, left: &Reservation) -> Result<()> {
    let register = ReservationStep::Register { key };
    let reserve = ReservationStep::Reserve { key, kind: KIND };
    // By its own key a holder throws out all others that have it, and stays itself.
    let preempt = ReservationStep::PreemptAndAbort { key, other: key, kind: KIND };
    let release = ReservationStep::Release { key, kind: KIND };
    let mut steps = vec![register, preempt, release, ReservationStep::Register { key: 0 }];
    if !holds(left, key) {
        steps.insert(1, reserve);
    }
    let mut answer = Ok(());
    for path in paths {
        answer = step(host, path, &steps).await.map_err(kernel(path, "leaving"));
        if answer.is_ok() {
            break;
        }
    }
    answer
}

/// Sends steps over one path, until one fails.
async fn step(host: &dyn Host, path: &Path, steps: &[ReservationStep]) -> KernelResult<()> {
    let disk = host.disks().open(path).await?;
    for step in steps {
        disk.reserve(step).await?;
    }
    Ok(())
}

/// What has a registration of its own: the paths of a map, or the device.
fn paths(host: &dyn Host, device: &Path) -> Result<Vec<PathBuf>> {
    let files = host.files();
    let Some(map) = Map::of_node(files, device)? else { return Ok(vec![device.to_owned()]) };
    let names = map.paths(files)?;
    Ok(names.into_iter().map(|name| Whole::new(name).node).collect())
}

/// Why this host is not the only one that may write; `None` when it is.
pub(super) async fn problem(host: &dyn Host, device: &Path, key: u64) -> Result<Option<String>> {
    let failed = |attempt| kernel(device, attempt);
    let disk = host.disks().open(device).await.map_err(failed("opening"))?;
    let now = disk.reservation().await.map_err(failed("reading the reservation of"))?;
    if is_ours_alone(&now, key) {
        let paths = paths(host, device)?;
        // NVMe registers a host, whatever its paths; a path of SCSI that came later is not.
        let is_nvme = |path: &&PathBuf| path.to_string_lossy().starts_with("/dev/nvme");
        let single = paths.iter().filter(|path| !is_nvme(path)).count();
        let missing = single > now.registered.len();
        return Ok(missing.then(|| "a path of this host is not registered".to_owned()));
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

/// This host is registered, over whatever path.
fn is_registered(reservation: &Reservation, key: u64) -> bool {
    reservation.registered.iter().any(|register| register.key == key)
}

/// This host holds the reservation, over whatever path.
fn holds(reservation: &Reservation, key: u64) -> bool {
    let holder = reservation.registered.iter().any(|r| r.key == key && r.holder);
    reservation.held == Some(KIND) && holder
}

/// The keys of other hosts, once each: every path of a host is registered with the same one, in any
/// order.
fn others(reservation: &Reservation, key: u64) -> Vec<u64> {
    let keys: BTreeSet<u64> = reservation.registered.iter().map(|register| register.key).collect();
    let mut others: Vec<u64> = keys.into_iter().filter(|other| *other != key).collect();
    // The holder first: an error names it.
    others.sort_by_key(|other| !reservation.registered.iter().any(|r| r.key == *other && r.holder));
    others
}

fn kernel(device: &Path, attempt: &'static str) -> impl FnOnce(KernelError) -> Error {
    let attempt = format!("{attempt} {}", device.display());
    |source| LayerError::Kernel { attempt, source }.into()
}
