//! What is attached, how large it is, and whether it works.

use hawser_core::attach::{Attached, Health};
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::host::MountEntry;
use hawser_core::{ByteSize, Kind};

use super::data::Volume;
use super::notes::Notes;
use super::{ALIVE, RemoteFs, alive, find, is_recognised, mounted_at};
use crate::shared::error::AttachError;
use crate::shared::wait::Deadline;

/// The mount of a volume, if it is there.
async fn recognised(
    host: &dyn Host,
    fs: &dyn RemoteFs,
    volume: &Volume,
    notes: &Notes<'_>,
    deadline: Deadline,
) -> Result<Option<MountEntry>> {
    let Some(entry) = mounted_at(host, &volume.target).await? else { return Ok(None) };
    Ok(is_recognised(&entry, fs, notes, deadline).await?.then_some(entry))
}

/// What is attached now. Asks nobody but this host.
pub(super) async fn lookup(
    host: &dyn Host,
    fs: &dyn RemoteFs,
    volume: &Volume,
) -> Result<Option<Attached>> {
    let notes = Notes::of(host, volume);
    if !notes.in_use()? {
        return Ok(None);
    }
    let deadline = Deadline::after(ALIVE);
    let entry = recognised(host, fs, volume, &notes, deadline).await?;
    Ok(entry.map(|_| volume.attached()))
}

/// The size of a file as its server tells it now; nothing for a folder.
pub(super) async fn extend(
    host: &dyn Host,
    fs: &dyn RemoteFs,
    volume: &Volume,
) -> Result<ByteSize> {
    let deadline = Deadline::after(3 * ALIVE);
    let notes = Notes::of(host, volume);
    let Some(entry) = recognised(host, fs, volume, &notes, deadline).await? else {
        let what = volume.path().display().to_string();
        return Err(AttachError::NotAttached { what }.into());
    };
    alive(host, &entry, volume, deadline).await?;
    // No event tells when that time is over.
    tokio::time::sleep(fs.attribute_age()).await;
    let seen = find(host, volume, deadline).await?;
    let size = if volume.name.is_some() { seen.length } else { 0 };
    Ok(ByteSize::bytes(size))
}

/// Whether the mount is there, is the right one, answers, and has the volume.
pub(super) async fn health(host: &dyn Host, fs: &dyn RemoteFs, volume: &Volume) -> Result<Health> {
    let deadline = Deadline::after(2 * ALIVE);
    let notes = Notes::of(host, volume);
    let target = volume.target.display();
    let Some(entry) = mounted_at(host, &volume.target).await? else {
        return Ok(Health::bad(format!("{} is not mounted on {target}", volume.export)));
    };
    if !is_recognised(&entry, fs, &notes, deadline).await? {
        let what = format!("{} ({})", entry.source, entry.fs_type);
        return Ok(Health::bad(format!("{target} has something else mounted: {what}")));
    }
    let works = match alive(host, &entry, volume, deadline).await {
        Ok(()) => find(host, volume, deadline).await.map(drop),
        Err(error) => Err(error),
    };
    match works {
        Ok(()) => Ok(Health::good()),
        // The host could not be asked at all: that says nothing of the volume.
        Err(error) if error.kind() == Kind::Internal => Err(error),
        Err(error) => Ok(Health::bad(error.sentence())),
    }
}
