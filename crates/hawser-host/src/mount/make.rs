//! The folders and files that mounts stand on.

use std::io::ErrorKind;
use std::path::Path;

use hawser_core::Change;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fchmod, openat, unlinkat};
use rustix::io::Errno;

use super::target::Place;
use super::{Claims, MountError, table, topmost};

/// Makes a folder to mount on. Blocks: for workers only.
pub(crate) fn make_target(target: &Path) -> Result<Change<()>, MountError> {
    // Whoever may not enter it sees nothing of the volume until something is mounted with modes of
    // its own.
    make_folder(target, 0o750)
}

/// Makes a folder with exactly this mode. Blocks: for workers only.
pub(crate) fn make_folder(folder: &Path, mode: u32) -> Result<Change<()>, MountError> {
    let failed =
        |source: Errno| MountError::MakeFolder { path: folder.into(), source: source.into() };
    let place = Place::find(folder)?.ok_or_else(|| failed(Errno::NOENT))?;
    let wanted = Mode::from_raw_mode(mode & 0o7777);
    match rustix::fs::mkdirat(&place.parent, &place.name, wanted) {
        Ok(()) => {}
        Err(Errno::EXIST) => {
            return match place.kind()? {
                FileType::Directory => Ok(Change::Already(())),
                FileType::Symlink => Err(MountError::Symlink { path: folder.into() }),
                FileType::RegularFile
                | FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown => Err(MountError::NotAFolder { path: folder.into() }),
            };
        }
        Err(source) => return Err(failed(source)),
    }
    // Whatever the umask of this process is. By its path through the parent: a folder that may not
    // be entered cannot be opened either.
    rustix::fs::chmod(place.through_parent(), wanted).map_err(|source| {
        let _ = unlinkat(&place.parent, &place.name, AtFlags::REMOVEDIR);
        failed(source)
    })?;
    Ok(Change::Made(()))
}

/// Makes an empty file to show a device in. Blocks: for workers only.
pub(crate) fn make_target_file(target: &Path) -> Result<Change<()>, MountError> {
    let failed =
        |source: Errno| MountError::MakeFile { path: target.into(), source: source.into() };
    let place = Place::find(target)?.ok_or_else(|| failed(Errno::NOENT))?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // For us alone: what is shown in it has an owner and a mode of its own.
    let mode = Mode::from_raw_mode(0o600);
    match openat(&place.parent, &place.name, flags, mode) {
        // Whatever the umask of this process is.
        Ok(file) => fchmod(&file, mode).map(Change::Made).map_err(|source| {
            let _ = unlinkat(&place.parent, &place.name, AtFlags::empty());
            failed(source)
        }),
        Err(Errno::EXIST) => match place.kind()? {
            FileType::RegularFile | FileType::BlockDevice => Ok(Change::Already(())),
            FileType::Symlink => Err(MountError::Symlink { path: target.into() }),
            FileType::Directory
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::Unknown => Err(MountError::NotAFile { path: target.into() }),
        },
        Err(source) => Err(failed(source)),
    }
}

/// Removes an empty folder or file on which nothing is mounted. Blocks: for workers only.
pub(crate) fn remove_target(claims: &Claims, target: &Path) -> Result<Change<()>, MountError> {
    let Some(place) = Place::find(target)? else { return Ok(Change::Already(())) };
    let _claim = claims.claim(&place.path)?;
    // rmdir refuses a mount point of this namespace by itself; the table also tells of one that is
    // hidden below another.
    if topmost(&table::read()?, &place.path).is_some() {
        return Ok(Change::Already(()));
    }
    match unlinkat(&place.parent, &place.name, AtFlags::REMOVEDIR) {
        Ok(()) => Ok(Change::Made(())),
        Err(Errno::NOTDIR) => remove_file(&place),
        Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => Ok(Change::Already(())),
        Err(source) => Err(MountError::Remove { path: target.into(), source: source.into() }),
    }
}

/// Removes a plain file that holds nothing.
fn remove_file(place: &Place) -> Result<Change<()>, MountError> {
    let there = match place.look() {
        // Somebody else was faster.
        Err(MountError::Open { source, .. }) if source.kind() == ErrorKind::NotFound => {
            return Ok(Change::Already(()));
        }
        there => there?,
    };
    if FileType::from_raw_mode(there.mode) != FileType::RegularFile || there.length > 0 {
        return Ok(Change::Already(()));
    }
    match unlinkat(&place.parent, &place.name, AtFlags::empty()) {
        Ok(()) => Ok(Change::Made(())),
        Err(Errno::NOENT | Errno::ISDIR | Errno::BUSY) => Ok(Change::Already(())),
        Err(source) => Err(MountError::Remove { path: place.path.clone(), source: source.into() }),
    }
}
