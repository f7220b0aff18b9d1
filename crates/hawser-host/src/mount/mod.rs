//! The mount table, mounts and the folders and files they stand on.
//!
//! Follows mount(2), fsopen(2), open_tree(2), move_mount(2), mount_setattr(2) and openat2(2); needs
//! Linux 5.2 for the kernel's own words in errors, and works without them down to mount(2).
//!
//! A mount whose server is dead hangs whoever asks it something. So what is mounted is read from the
//! table, and a target is reached by its name in its open parent, never through the mount.

mod abandon;
mod attach;
mod error;
mod make;
mod network;
mod options;
pub(crate) mod table;
pub(crate) mod target;
#[cfg(test)]
mod tests;
mod users;

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use hawser_core::Change;
use hawser_core::port::host::{HostMount, MountEntry, MountSource};
use rustix::fs::{FileType, major, minor};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount as umount2};

pub(crate) use abandon::abandon;
use attach::NewFilesystem;
pub(crate) use error::MountError;
pub(crate) use make::{make_folder, make_target, make_target_file, remove_target};
use options::Options;
use target::Place;
pub(crate) use users::{openers, openers_within};

/// How often the table is read again when something appears at a target meanwhile.
const ATTEMPTS: usize = 3;

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
    let missing = || MountError::Open { path: request.target.clone(), source: Errno::NOENT.into() };
    let place = Place::find(&request.target)?.ok_or_else(missing)?;
    let _claim = claims.claim(&place.path)?;
    for _ in 0..ATTEMPTS {
        let table = table::read()?;
        if let Some(entry) = topmost(&table, &place.path) {
            return compare(entry, &place, request, &options);
        }
        let opened = match &request.source {
            MountSource::Raw { .. } => place.open_file()?,
            MountSource::Device { .. } | MountSource::Bind { .. } | MountSource::Network { .. } => {
                place.open()?
            }
        };
        // Another process mounts there at this moment: the table will show what.
        let Some(spot) = opened else { continue };
        place_on(spot.as_fd(), &place.path, request, &mut options, &table)?;
        return Ok(Change::Made(()));
    }
    Err(MountError::AtWork { target: request.target.clone() })
}

/// Mounts on an open folder or file that has nothing mounted.
fn place_on(
    spot: BorrowedFd<'_>,
    path: &Path,
    request: &HostMount,
    options: &mut Options,
    table: &[MountEntry],
) -> Result<(), MountError> {
    match &request.source {
        MountSource::Device { device, fs } => {
            let number = device_number(device)?;
            // One file system cannot be writable and read-only; two mounts of it can.
            options.written_elsewhere = table.iter().any(|entry| {
                shows(entry, number) && !entry.super_options.iter().any(|option| option == "ro")
            });
            let new = NewFilesystem { fs_type: fs.as_str(), source: device, secrets: &[] };
            attach::filesystem(&new, spot, path, options)
        }
        MountSource::Network { fs_type, source, secrets } => {
            let new = NewFilesystem { fs_type, source: Path::new(source), secrets };
            attach::filesystem(&new, spot, path, options)
        }
        MountSource::Bind { path: source } => {
            let source_folder = target::open_folder(source)?;
            attach::bind(source, source_folder.as_fd(), spot, path, options)
        }
        MountSource::Raw { device } => {
            let node = target::open_device(device)?;
            attach::bind(device, node.as_fd(), spot, path, options)
        }
    }
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
    place: &Place,
    request: &HostMount,
    options: &Options,
) -> Result<Change<()>, MountError> {
    let target = request.target.clone();
    let (same, read_only) = match &request.source {
        MountSource::Device { device, .. } => {
            let same = shows(entry, device_number(device)?);
            (same && entry.root == Path::new("/"), entry.read_only())
        }
        MountSource::Bind { path } => {
            let same = identity(path)? == identity(&target)?;
            (same, entry.options.iter().any(|option| option == "ro"))
        }
        // The table tells a place below /dev, which may have been taken by another device since.
        MountSource::Raw { device } => {
            let same = place.look()?.block_device() == Some(device_number(device)?);
            (same, entry.options.iter().any(|option| option == "ro"))
        }
        // By the table alone: the server may be dead, and then a look would hang.
        MountSource::Network { fs_type, source, .. } => {
            (network::is_same(entry, fs_type, source), entry.read_only())
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

/// Which folder a path leads to.
fn identity(path: &Path) -> Result<(u64, u64), MountError> {
    let folder = target::open_folder(path)?;
    let found = target::look(&folder);
    let found =
        found.map_err(|source| MountError::Open { path: path.into(), source: source.into() })?;
    Ok(found.identity)
}

/// Major and minor number of a block device.
pub(crate) fn device_number(device: &Path) -> Result<(u32, u32), MountError> {
    let stat = rustix::fs::stat(device)
        .map_err(|source| MountError::Open { path: device.to_owned(), source: source.into() })?;
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
        Err(source) => {
            Err(MountError::Unmount { target: target.to_owned(), source: source.into() })
        }
    }
}
