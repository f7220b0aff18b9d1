//! Making volumes and snapshots: grown in `staging/`, moved into place when they are whole.
//!
//! The order, each step durable before the next matters: content and size (fsync of the file, or of
//! the folder and its record), then the name (rename without replacing, fsync of the shelf), then
//! the answer. A power cut before the rename leaves an attempt in `staging/`; after it, the whole
//! thing. Nothing in between can be seen.

use std::path::PathBuf;
use std::sync::Arc;

use hawser_core::port::host::FsUsage;
use hawser_core::{ByteSize, Change};
use rustix::fs::Mode;

use super::attempt::{Attempt, NEW};
use super::error::LocalError;
use super::folder;
use super::ledger::Weight;
use super::lock::IdLock;
use super::pool::{Pool, write_record};
use super::shelf::{DATA, Item, META, Meta, Shelf};

/// Something that is to be made.
pub(super) struct Order {
    pub(super) shelf: Shelf,
    pub(super) id: String,
    /// How large; `None` means as large as the source.
    pub(super) size: Option<ByteSize>,
    /// What it is a copy of.
    pub(super) source: Option<(Shelf, String)>,
    /// How full the pool's file system is.
    pub(super) usage: FsUsage,
}

/// An order for which room was taken and an attempt begun.
pub(super) struct Job {
    attempt: Attempt,
    shelf: Shelf,
    id: String,
    size: ByteSize,
    /// What the copy will use on the medium.
    copy: u64,
    /// What to copy where; nothing for an empty volume.
    pub(super) copy_paths: Option<(PathBuf, PathBuf)>,
}

/// What is to be done for an order.
pub(super) enum Plan {
    /// Nothing: it is there.
    Done(Item),
    /// This.
    Work(Box<Job>),
}

/// Finds the thing made, or takes room and begins an attempt. What earlier attempts on the id left
/// is removed in either case.
pub(super) fn plan(pool: &Arc<Pool>, order: Order, lock: IdLock) -> Result<Plan, LocalError> {
    let Order { shelf, id, size, source, usage } = order;
    pool.clear_attempts(&id)?;
    if let Some(item) = pool.find_item(shelf, &id)? {
        if let Some(wanted) = size.filter(|wanted| item.size < *wanted) {
            return Err(LocalError::OtherSize { id, found: item.size, wanted });
        }
        // Whoever moved it into place may have been killed before its name was durable.
        pool.sync_shelf(shelf, &id)?;
        return Ok(Plan::Done(item));
    }
    let (size, copy) = match &source {
        Some((from, origin)) => {
            let needed = pool.get_item(*from, origin)?.size;
            let size = size.unwrap_or(needed);
            if size < needed {
                let origin = origin.clone();
                return Err(LocalError::SmallerThanSource { size, origin, needed });
            }
            (size, pool.measure(*from, origin)?)
        }
        None => (size.unwrap_or_default(), 0),
    };
    let promise = match shelf {
        Shelf::Volumes => size.get(),
        Shelf::Snapshots => copy,
    };
    let room = pool.reserve(&usage, promise, copy)?;
    let attempt = Attempt::begin(pool, &id, Some(lock), Some(room))?;
    let copy_paths = source.map(|(from, origin)| {
        let new = attempt.folder().path().join(NEW);
        let to = if pool.is_folder_pool() { new.join(DATA) } else { new };
        (pool.content_path(from, &origin), to)
    });
    if pool.is_folder_pool()
        && let Err(error) = attempt.folder().make_folder(NEW, 0o700)
    {
        return Err(attempt.fail(error));
    }
    Ok(Plan::Work(Box::new(Job { attempt, shelf, id, size, copy, copy_paths })))
}

impl Job {
    /// Gives the attempt up: removes what it made.
    pub(super) fn abandon(self) -> Result<(), LocalError> {
        self.attempt.empty().map(drop)
    }

    /// Completes what was copied or makes the empty thing, and puts it in its place.
    pub(super) fn finish(mut self, pool: &Pool) -> Result<Change<Item>, LocalError> {
        let sealed = if pool.is_folder_pool() { self.seal_folder() } else { self.seal_image() };
        let weight = match sealed {
            Ok(weight) => weight,
            Err(error) => return Err(self.attempt.fail(error)),
        };
        let (place, name) = (pool.shelf(self.shelf), pool.name_of(&self.id));
        if let Err(error) = self.attempt.folder().move_to(NEW, place, &name) {
            return Err(self.attempt.fail(error));
        }
        // From here on it exists, whatever fails.
        if let Some(room) = self.attempt.room.take() {
            room.commit(weight);
        }
        // The attempt's folder goes before the sync, so that journaling file systems make both
        // durable at once; the id stays locked until it is done.
        let _lock = self.attempt.close();
        pool.sync_shelf(self.shelf, &self.id)?;
        Ok(Change::Made(Item { size: self.size, weight }))
    }

    fn seal_image(&self) -> Result<Weight, LocalError> {
        let folder = self.attempt.folder();
        let path = folder.path().join(NEW);
        let missing = || LocalError::Missing { path: path.clone() };
        let file = match &self.copy_paths {
            None => folder.make_file(NEW)?,
            Some(_) => {
                // A copy of a snapshot came read-only.
                let copied = folder.find_file(NEW, false)?.ok_or_else(missing)?;
                rustix::fs::fchmod(&copied, Mode::from_raw_mode(0o600))
                    .map_err(LocalError::io("setting the mode of", &path))?;
                folder.find_file(NEW, true)?.ok_or_else(missing)?
            }
        };
        let look = || rustix::fs::fstat(&file).map_err(LocalError::io("looking at", &path));
        let found = folder::length(&look()?);
        if found > self.size.get() {
            let (size, needed) = (self.size, ByteSize::bytes(found));
            return Err(LocalError::SmallerThanSource {
                size,
                origin: "its source".into(),
                needed,
            });
        }
        if found < self.size.get() {
            rustix::fs::ftruncate(&file, self.size.get())
                .map_err(LocalError::io("setting the size of", &path))?;
        }
        if self.shelf == Shelf::Snapshots {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(0o400))
                .map_err(LocalError::io("setting the mode of", &path))?;
        }
        // A copy came durable from the host, and a mode that a power cut takes back harms nobody.
        if self.copy_paths.is_none() || found < self.size.get() {
            rustix::fs::fsync(&file).map_err(LocalError::io("syncing", &path))?;
        }
        let used = folder::allocated(&look()?);
        Ok(match self.shelf {
            Shelf::Volumes => Weight { promised: self.size.get(), used },
            Shelf::Snapshots => Weight { promised: used, used },
        })
    }

    fn seal_folder(&self) -> Result<Weight, LocalError> {
        let outer = self.attempt.folder();
        let missing = || LocalError::Missing { path: outer.path().join(NEW) };
        let folder = outer.find_folder(NEW)?.ok_or_else(missing)?;
        if self.copy_paths.is_none() {
            // As the root of a fresh file system.
            folder.make_folder(DATA, 0o755)?;
        }
        let allocated = match self.shelf {
            Shelf::Volumes => ByteSize::ZERO,
            Shelf::Snapshots => ByteSize::bytes(self.copy),
        };
        write_record(&folder, META, &Meta { size: self.size, allocated })?;
        folder.sync().map_err(LocalError::io("syncing", folder.path()))?;
        Ok(match self.shelf {
            Shelf::Volumes => Weight { promised: self.size.get(), used: self.copy },
            Shelf::Snapshots => Weight { promised: self.copy, used: self.copy },
        })
    }
}
