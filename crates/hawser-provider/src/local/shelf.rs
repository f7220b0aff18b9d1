//! Finding, counting and measuring what the pool holds.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Instant;

use hawser_core::ByteSize;
use hawser_core::id::{SnapshotId, VolumeId};
use hawser_core::port::host::FsUsage;
use rustix::fs::{Dir, FileType, OFlags, Stat};
use serde::{Deserialize, Serialize};

use super::error::LocalError;
use super::folder::{self, Folder, is_dots, open_inside};
use super::ledger::{NoRoom, Reservation, Weight};
use super::pool::{Pool, read_record};

/// Folders below this depth are not measured: the figure is an estimate, and each level costs a
/// descriptor.
const MEASURED_DEPTH: usize = 64;
/// The record of a folder volume.
pub(super) const META: &str = "meta.json";
/// The content of a folder volume.
pub(super) const DATA: &str = "data";

/// Where finished things stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shelf {
    Volumes,
    Snapshots,
}

/// Something that the pool holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// How large it was promised to be.
    pub(super) size: ByteSize,
    /// What it counts for.
    pub(super) weight: Weight,
}

/// What `meta.json` says: a folder has no size of its own, so it is kept beside it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Meta {
    pub(super) size: ByteSize,
    /// For snapshots: what the copy took.
    #[serde(default)]
    pub(super) allocated: ByteSize,
}

impl Pool {
    pub(super) fn shelf(&self, shelf: Shelf) -> &Folder {
        match shelf {
            Shelf::Volumes => &self.volumes,
            Shelf::Snapshots => &self.snapshots,
        }
    }

    /// The name of a finished thing: its id, with an ending for images.
    pub(super) fn name_of(&self, id: &str) -> String {
        if self.is_folder_pool() { id.to_owned() } else { format!("{id}.img") }
    }

    /// The id of a name on a shelf; `None` for names that this pool does not give.
    pub(super) fn id_of<'n>(&self, shelf: Shelf, name: &'n str) -> Option<&'n str> {
        let id = if self.is_folder_pool() { name } else { name.strip_suffix(".img")? };
        let ours = match shelf {
            Shelf::Volumes => id.parse::<VolumeId>().is_ok(),
            Shelf::Snapshots => id.parse::<SnapshotId>().is_ok(),
        };
        ours.then_some(id)
    }

    /// The image, or the folder that is the volume: what is copied and handed out.
    pub(super) fn content_path(&self, shelf: Shelf, id: &str) -> PathBuf {
        let path = self.shelf(shelf).path().join(self.name_of(id));
        if self.is_folder_pool() { path.join(DATA) } else { path }
    }

    /// What stands on a shelf under this id; `None` when nothing does.
    pub(super) fn find_item(&self, shelf: Shelf, id: &str) -> Result<Option<Item>, LocalError> {
        let (place, name) = (self.shelf(shelf), self.name_of(id));
        let Some(stat) = place.find(&name)? else { return Ok(None) };
        self.check_type(place, &name, &stat)?;
        if !self.is_folder_pool() {
            return Ok(Some(image_item(shelf, &stat)));
        }
        let Some(folder) = place.find_folder(&name)? else { return Ok(None) };
        let missing = || LocalError::Missing { path: folder.path().join(META) };
        let meta: Meta = read_record(&folder, META)?.ok_or_else(missing)?;
        let promised = match shelf {
            Shelf::Volumes => meta.size,
            Shelf::Snapshots => meta.allocated,
        };
        Ok(Some(Item { size: meta.size, weight: Weight { promised: promised.get(), used: 0 } }))
    }

    /// As [`Pool::find_item`], but absent is `Kind::NotFound`.
    pub(super) fn get_item(&self, shelf: Shelf, id: &str) -> Result<Item, LocalError> {
        let missing =
            || LocalError::Missing { path: self.shelf(shelf).path().join(self.name_of(id)) };
        self.find_item(shelf, id)?.ok_or_else(missing)
    }

    /// Makes it durable that something stands on a shelf, or stands there no more.
    pub(super) fn sync_shelf(&self, shelf: Shelf, id: &str) -> Result<(), LocalError> {
        let place = self.shelf(shelf);
        place.sync().map_err(|source| LocalError::NotDurable {
            path: place.path().join(self.name_of(id)),
            source,
        })
    }

    /// Refuses what has our name but is not what we make.
    pub(super) fn check_type(
        &self,
        place: &Folder,
        name: &str,
        stat: &Stat,
    ) -> Result<(), LocalError> {
        let (wanted, expected) = if self.is_folder_pool() {
            (FileType::Directory, "a folder")
        } else {
            (FileType::RegularFile, "a regular file")
        };
        if folder::file_type(stat) == wanted {
            return Ok(());
        }
        Err(LocalError::WrongType { path: place.path().join(name), expected })
    }

    /// Fills the ledger from what the pool holds. What cannot be read counts nothing here and is
    /// shown by the survey: one bad file must not take the whole pool away.
    pub(super) fn count(&self) -> Result<(), LocalError> {
        let started = Instant::now();
        let mut used = 0_u64;
        for shelf in [Shelf::Volumes, Shelf::Snapshots] {
            for name in self.shelf(shelf).names()? {
                let Some(id) = self.id_of(shelf, &name) else { continue };
                match self.find_item(shelf, id) {
                    Ok(Some(item)) => {
                        used = used.saturating_add(item.weight.used);
                        self.ledger.found(item.weight);
                    }
                    Ok(None) => {}
                    Err(error) => {
                        tracing::warn!(%error, pool = %self.root.path().display(), name, "not counted");
                    }
                }
            }
        }
        // Folders are walked only when the figure is needed.
        if !self.is_folder_pool() {
            self.ledger.measured(used, started.elapsed());
        }
        Ok(())
    }

    /// Measures again what the files really use, unless that was done just now.
    pub(super) fn refresh(&self) -> Result<(), LocalError> {
        if !self.ledger.may_measure() {
            return Ok(());
        }
        let started = Instant::now();
        let mut used = 0_u64;
        for shelf in [Shelf::Volumes, Shelf::Snapshots] {
            for name in self.shelf(shelf).names()? {
                let Some(id) = self.id_of(shelf, &name) else { continue };
                used = used.saturating_add(self.measure(shelf, id)?);
            }
        }
        self.ledger.measured(used, started.elapsed());
        Ok(())
    }

    /// What one item really uses; gone is nothing.
    pub(super) fn measure(&self, shelf: Shelf, id: &str) -> Result<u64, LocalError> {
        let (place, name) = (self.shelf(shelf), self.name_of(id));
        if !self.is_folder_pool() {
            return Ok(place.find(&name)?.map_or(0, |stat| folder::allocated(&stat)));
        }
        Ok(open_inside(place, name.as_str(), OFlags::RDONLY | OFlags::DIRECTORY)
            .map_or(0, measure_tree))
    }

    /// Takes room, measuring again before it is refused: what is known of the real use may be old.
    pub(super) fn reserve(
        &self,
        usage: &FsUsage,
        promise: u64,
        copy: u64,
    ) -> Result<Reservation, LocalError> {
        // Copies that share blocks write next to nothing.
        let copy =
            if self.shares_blocks.load(std::sync::atomic::Ordering::Relaxed) { 0 } else { copy };
        let refused = match self.ledger.reserve(usage, promise, copy) {
            Ok(room) => return Ok(room),
            Err(NoRoom::Promised(_)) => {
                self.refresh()?;
                self.ledger.reserve(usage, promise, copy)
            }
            Err(refused @ NoRoom::Copy { .. }) => Err(refused),
        };
        refused.map_err(|refused| {
            let path = self.root.path().to_owned();
            match refused {
                NoRoom::Promised(capacity) => LocalError::Full {
                    path,
                    wanted: ByteSize::bytes(promise),
                    available: capacity.available,
                    promised: capacity.promised,
                    total: capacity.total,
                },
                NoRoom::Copy { free } => {
                    LocalError::NoRoomForCopy { path, wanted: ByteSize::bytes(copy), free }
                }
            }
        })
    }
}

fn image_item(shelf: Shelf, stat: &Stat) -> Item {
    let (size, used) = (folder::length(stat), folder::allocated(stat));
    let promised = match shelf {
        Shelf::Volumes => size,
        Shelf::Snapshots => used,
    };
    Item { size: ByteSize::bytes(size), weight: Weight { promised, used } }
}

/// What the files below a folder use. Follows no link and enters no mount; what cannot be read
/// counts nothing.
fn measure_tree(top: OwnedFd) -> u64 {
    let mut used = 0_u64;
    let mut open: Vec<Dir> = Dir::new(top).into_iter().collect();
    while let Some(folder) = open.last_mut() {
        let Some(Ok(entry)) = folder.read() else {
            open.pop();
            continue;
        };
        if is_dots(entry.file_name()) {
            continue;
        }
        let Ok(parent) = folder.fd() else { continue };
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        let Ok(stat) = rustix::fs::statat(parent, entry.file_name(), flags) else { continue };
        let is_folder = folder::file_type(&stat) == FileType::Directory;
        // Each name of a file with several is counted for its part.
        let names = if is_folder { 1 } else { u64::from(stat.st_nlink as u32).max(1) };
        used = used.saturating_add(folder::allocated(&stat) / names);
        if is_folder && open.len() < MEASURED_DEPTH {
            let child = open
                .last()
                .and_then(|folder| folder.fd().ok())
                .and_then(|fd| {
                    open_inside(fd, entry.file_name(), OFlags::RDONLY | OFlags::DIRECTORY).ok()
                })
                .and_then(|fd| Dir::new(fd).ok());
            open.extend(child);
        }
    }
    used
}
