//! Removing and enlarging what stands on a shelf.

use std::sync::Arc;

use hawser_core::port::host::FsUsage;
use hawser_core::{ByteSize, Change};

use super::attempt::{Attempt, OLD};
use super::error::LocalError;
use super::ledger::Weight;
use super::lock::IdLock;
use super::pool::{Pool, write_record};
use super::shelf::{META, Meta, Shelf};

/// The new record of a folder volume before it takes the old one's place.
const META_NEW: &str = "meta.json.new";

/// Removes what stands under this id and what attempts on it left.
pub(super) fn remove(
    pool: &Arc<Pool>,
    shelf: Shelf,
    id: &str,
    lock: IdLock,
) -> Result<Change<()>, LocalError> {
    let (place, name) = (pool.shelf(shelf), pool.name_of(id));
    let found = place.find(&name)?;
    if found.is_none() {
        // Whoever took it away may have been killed before that was durable; what is left of it in
        // `staging/` must not die before, or a power cut could bring back half of it.
        pool.sync_shelf(shelf, id)?;
    }
    let cleared = pool.clear_attempts(id)?;
    let Some(stat) = found else {
        return Ok(if cleared { Change::Made(()) } else { Change::Already(()) });
    };
    pool.check_type(place, &name, &stat)?;
    // A record that cannot be read must not keep a volume from being removed; it counted nothing.
    let weight = pool.find_item(shelf, id).ok().flatten().map(|item| item.weight);
    let weight = weight.unwrap_or_default();
    if !pool.is_folder_pool() {
        // One step: the image is there whole or not at all, so it needs no detour.
        place.remove_file(&name)?;
        pool.ledger.removed(weight);
        pool.sync_shelf(shelf, id)?;
        return Ok(Change::Made(()));
    }
    // A folder dies in many steps, so it leaves its place first, durably: a crash in the middle
    // never leaves half a folder that looks like a volume.
    let attempt = Attempt::begin(pool, id, Some(lock), None)?;
    if let Err(error) = place.move_to(&name, attempt.folder(), OLD) {
        return Err(attempt.fail(error));
    }
    pool.ledger.removed(weight);
    if let Err(error) = pool.sync_shelf(shelf, id) {
        attempt.leave();
        return Err(error);
    }
    // The rest may fail for what is inside; then the next call goes on from `staging/`.
    let freed = attempt.empty().map_err(|source| LocalError::LeftBehind {
        path: place.path().join(&name),
        failure: "it was taken out of use, and not all of it could be removed".into(),
        source: Box::new(source),
    })?;
    pool.ledger.removed(Weight { promised: 0, used: freed });
    Ok(Change::Made(()))
}

/// Makes a volume at least so large.
pub(super) fn grow(
    pool: &Pool,
    id: &str,
    size: ByteSize,
    usage: &FsUsage,
    _lock: IdLock,
) -> Result<Change<ByteSize>, LocalError> {
    let found = pool.get_item(Shelf::Volumes, id)?.size;
    if found >= size {
        // An earlier call may have been cut off between the change and its sync.
        sync_volume(pool, id)?;
        return Ok(Change::Already(found));
    }
    let more = size.get() - found.get();
    let room = pool.reserve(usage, more, 0)?;
    if pool.is_folder_pool() {
        grow_folder(pool, id, size)?;
    } else {
        grow_image(pool, id, size)?;
    }
    room.commit(Weight { promised: more, used: 0 });
    sync_volume(pool, id)?;
    Ok(Change::Made(size))
}

fn grow_image(pool: &Pool, id: &str, size: ByteSize) -> Result<(), LocalError> {
    let name = pool.name_of(id);
    let path = pool.volumes.path().join(&name);
    let file = pool.volumes.find_file(&name, true)?;
    let file = file.ok_or_else(|| LocalError::Missing { path: path.clone() })?;
    rustix::fs::ftruncate(&file, size.get()).map_err(LocalError::io("enlarging", path))
}

/// Nothing enforces the size of a folder: only the record changes, whole or not at all.
fn grow_folder(pool: &Pool, id: &str, size: ByteSize) -> Result<(), LocalError> {
    let missing = || LocalError::Missing { path: pool.volumes.path().join(id) };
    let folder = pool.volumes.find_folder(&pool.name_of(id))?.ok_or_else(missing)?;
    folder.remove_file(META_NEW)?;
    write_record(&folder, META_NEW, &Meta { size, allocated: ByteSize::ZERO })?;
    folder.replace(META_NEW, META)
}

fn sync_volume(pool: &Pool, id: &str) -> Result<(), LocalError> {
    let name = pool.name_of(id);
    let path = || pool.volumes.path().join(&name);
    let synced = if pool.is_folder_pool() {
        let folder = pool.volumes.find_folder(&name)?;
        folder.ok_or_else(|| LocalError::Missing { path: path() })?.sync()
    } else {
        let file = pool.volumes.find_file(&name, false)?;
        rustix::fs::fsync(file.ok_or_else(|| LocalError::Missing { path: path() })?)
    };
    synced.map_err(|source| LocalError::NotDurable { path: path(), source })
}
