//! The mount table, mounts and the folders they stand on.
//!
//! Follows mount(2), fsopen(2), open_tree(2), move_mount(2), mount_setattr(2) and openat2(2); needs
//! Linux 5.2 for the kernel's own words in errors, and works without them down to mount(2).

mod attach;
mod error;
mod options;
pub(crate) mod table;
pub(crate) mod target;
#[cfg(test)]
mod tests;
mod users;

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use hawser_core::Change;
use hawser_core::port::host::{HostMount, MountEntry, MountSource};
use rustix::fs::{FileType, Mode, OFlags, fstat, major, minor};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount as umount2};

pub(crate) use error::MountError;
use options::Options;
use target::Place;
pub(crate) use users::openers;

/// The targets that a call is at work on. Between looking at the table and mounting, nobody else of
/// this process may do the same, or two mounts would lie one above the other; and while a call
/// hangs in the kernel, a second one must not hang behind it.
#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<HashSet<PathBuf>>);

struct Claim<'a> {
    claims: &'a Claims,
    path: PathBuf,
}

impl Claims {
    fn claim(&self, path: &Path) -> Result<Claim<'_>, MountError> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !held.insert(path.to_owned()) {
            return Err(MountError::AtWork { target: path.to_owned() });
        }
        Ok(Claim { claims: self, path: path.to_owned() })
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.claims.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.path);
    }
}

/// Mounts what `request` says. Blocks: for workers only.
pub(crate) fn mount(claims: &Claims, request: &HostMount) -> Result<Change<()>, MountError> {
    let mut options = Options::parse(request)?;
    let folder = target::open_folder(&request.target)?;
    let path = target::real_path(&folder, &request.target)?;
    let _claim = claims.claim(&path)?;
    let table = table::read()?;
    if let Some(entry) = topmost(&table, &path) {
        // Opened again: the descriptor above may stand for the folder below a new mount.
        let folder = target::open_folder(&request.target)?;
        return compare(entry, request, &options, folder.as_fd());
    }
    match &request.source {
        MountSource::Device { device, fs } => {
            let number = device_number(device)?;
            // One file system cannot be writable and read-only; two mounts of it can.
            options.written_elsewhere = table.iter().any(|entry| {
                shows(entry, number) && !entry.super_options.iter().any(|option| option == "ro")
            });
            attach::device(device, *fs, folder.as_fd(), &path, &options)?;
        }
        MountSource::Bind { path: source } => {
            let source_folder = target::open_folder(source)?;
            attach::bind(source, source_folder.as_fd(), folder.as_fd(), &path, &options)?;
        }
    }
    Ok(Change::Made(()))
}

/// True when the mount is of the device with this number.
fn shows(entry: &MountEntry, number: (u32, u32)) -> bool {
    // btrfs shows a device number of its own making; its source tells the real one.
    entry.device == number
        || (entry.device.0 == 0
            && device_number(Path::new(&entry.source)).is_ok_and(|own| own == number))
}

/// What is mounted there now, against what is asked for.
fn compare(
    entry: &MountEntry,
    request: &HostMount,
    options: &Options,
    folder: impl AsFd,
) -> Result<Change<()>, MountError> {
    let target = request.target.clone();
    let open = |path: &Path, source| MountError::Open { path: path.to_owned(), source };
    let (same, read_only) = match &request.source {
        MountSource::Device { device, .. } => {
            let same = shows(entry, device_number(device)?);
            (same && entry.root == Path::new("/"), entry.read_only())
        }
        MountSource::Bind { path } => {
            let source = target::open_folder(path)?;
            let wanted = fstat(&source).map_err(|errno| open(path, errno))?;
            let there = fstat(folder).map_err(|errno| open(&target, errno))?;
            let same = (wanted.st_dev, wanted.st_ino) == (there.st_dev, there.st_ino);
            (same, entry.options.iter().any(|option| option == "ro"))
        }
    };
    if !same {
        let what = format!("{} ({}, from {:?})", entry.source, entry.fs_type, entry.root);
        return Err(MountError::Taken { target, what });
    }
    if read_only != options.read_only {
        let word = |read_only| if read_only { "read-only" } else { "writable" };
        let (now, wanted) = (word(read_only), word(options.read_only));
        return Err(MountError::OtherAccess { target, now, wanted });
    }
    Ok(Change::Already(()))
}

/// Major and minor number of a block device.
pub(crate) fn device_number(device: &Path) -> Result<(u32, u32), MountError> {
    let stat = rustix::fs::stat(device)
        .map_err(|source| MountError::Open { path: device.to_owned(), source })?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
        return Err(MountError::NotADevice { path: device.to_owned() });
    }
    Ok((major(stat.st_rdev), minor(stat.st_rdev)))
}

/// The mount that a path leads to: the last one made there.
pub(crate) fn topmost<'a>(table: &'a [MountEntry], path: &Path) -> Option<&'a MountEntry> {
    table.iter().rev().find(|entry| entry.target == path)
}

/// Unmounts the topmost mount at `target`. Blocks: for workers only.
pub(crate) fn unmount(claims: &Claims, target: &Path) -> Result<Change<()>, MountError> {
    let Some(place) = Place::find(target)? else { return Ok(Change::Already(())) };
    let _claim = claims.claim(&place.path)?;
    if topmost(&table::read()?, &place.path).is_none() {
        return Ok(Change::Already(()));
    }
    // By its name in the open parent: a descriptor of the mount itself would keep it busy.
    match umount2(place.through_parent(), UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(Change::Made(())),
        // Somebody else was faster.
        Err(Errno::INVAL | Errno::NOENT) if topmost(&table::read()?, &place.path).is_none() => {
            Ok(Change::Already(()))
        }
        Err(Errno::BUSY) => {
            let by = openers(&place.path);
            Err(MountError::InUse { target: target.to_owned(), by })
        }
        Err(source) => Err(MountError::Unmount { target: target.to_owned(), source }),
    }
}

/// Makes a folder to mount on. Blocks: for workers only.
pub(crate) fn make_target(target: &Path) -> Result<Change<()>, MountError> {
    let place = Place::find(target)?
        .ok_or_else(|| MountError::MakeFolder { path: target.into(), source: Errno::NOENT })?;
    // Whoever may not enter it sees nothing of the volume until something is mounted with modes of
    // its own.
    match rustix::fs::mkdirat(&place.parent, &place.name, Mode::from_raw_mode(0o750)) {
        Ok(()) => Ok(Change::Made(())),
        Err(Errno::EXIST) => {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let there = rustix::fs::openat(&place.parent, &place.name, flags, Mode::empty())
                .and_then(fstat)
                .map_err(|source| MountError::Open { path: target.into(), source })?;
            match FileType::from_raw_mode(there.st_mode) {
                FileType::Directory => Ok(Change::Already(())),
                FileType::Symlink => Err(MountError::Symlink { path: target.into() }),
                FileType::RegularFile
                | FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown => Err(MountError::NotAFolder { path: target.into() }),
            }
        }
        Err(source) => Err(MountError::MakeFolder { path: target.into(), source }),
    }
}

/// Removes an empty folder on which nothing is mounted. Blocks: for workers only.
pub(crate) fn remove_target(claims: &Claims, target: &Path) -> Result<Change<()>, MountError> {
    let Some(place) = Place::find(target)? else { return Ok(Change::Already(())) };
    let _claim = claims.claim(&place.path)?;
    // rmdir refuses a mount point of this namespace by itself; the table also tells of one that is
    // hidden below another.
    if topmost(&table::read()?, &place.path).is_some() {
        return Ok(Change::Already(()));
    }
    match rustix::fs::unlinkat(&place.parent, &place.name, rustix::fs::AtFlags::REMOVEDIR) {
        Ok(()) => Ok(Change::Made(())),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => {
            Ok(Change::Already(()))
        }
        Err(source) => Err(MountError::RemoveFolder { path: target.into(), source }),
    }
}
