//! Gives a folder and all that is below it to a group.
//!
//! What is below was written by others and is hostile: it is walked with descriptors, no link is
//! followed and no other mount entered. The folder itself comes last, so that a walk that was cut off
//! is known by it and is made again.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use hawser_core::Change;
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, chmod, chownat, fstat, openat,
    openat2,
};
use rustix::io::Errno;

use super::copy::failed;
use super::error::FileError;
use super::meter::Meter;
use super::tree::DEEPEST;
use crate::mount::target::open_folder;

/// What a folder has that was given: its group may do all, and what is made in it is the group's too.
const FOLDER: u32 = 0o2070;
/// What everything else gets.
const READ_AND_WRITE: u32 = 0o060;
const EXECUTE: u32 = 0o010;
/// Between two words to whoever waits.
const ENTRIES: u64 = 256;

/// Gives a folder to a group. Blocks: for workers only.
pub(crate) fn give(folder: &Path, group: u32, meter: &Meter) -> Result<Change<()>, FileError> {
    // To the kernel that number says to leave the group as it is.
    if group == u32::MAX {
        return Err(FileError::NoGroup { group });
    }
    let fail = failed("changing the group of", folder);
    let place = open_folder(folder)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(&place, ".", flags, Mode::empty()).map_err(&fail)?;
    let stat = fstat(&root).map_err(&fail)?;
    if stat.st_gid == group && stat.st_mode & FOLDER == FOLDER {
        return Ok(Change::Already(()));
    }
    let mut walk = Walk { group, device: stat.st_dev, meter, seen: 0 };
    walk.folder(&root, folder, 0)?;
    walk.change(&root, &stat).map_err(fail)?;
    Ok(Change::Made(()))
}

struct Walk<'a> {
    group: u32,
    /// Of the file system that is walked, for kernels that do not tell where another begins.
    device: u64,
    meter: &'a Meter,
    seen: u64,
}

impl Walk<'_> {
    /// Everything in an open folder.
    fn folder(&mut self, folder: &OwnedFd, path: &Path, depth: usize) -> Result<(), FileError> {
        if depth > DEEPEST {
            return Err(FileError::TooDeep { path: path.to_owned(), most: DEEPEST });
        }
        let fail = failed("listing", path);
        let mut names = Vec::new();
        for entry in Dir::read_from(folder).map_err(&fail)? {
            let name = entry.map_err(&fail)?.file_name().to_owned();
            if name.as_bytes() != b"." && name.as_bytes() != b".." {
                names.push(name);
            }
        }
        for name in names {
            let name = OsStr::from_bytes(name.as_bytes());
            self.entry(folder, name, &path.join(name), depth)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        folder: &OwnedFd,
        name: &OsStr,
        path: &Path,
        depth: usize,
    ) -> Result<(), FileError> {
        self.seen += 1;
        if self.seen.is_multiple_of(ENTRIES) {
            self.meter.amount(path, self.seen, 0)?;
        }
        self.meter.go_on(path)?;
        let fail = failed("changing the group of", path);
        let Some(entry) = self.open(folder, name).map_err(&fail)? else { return Ok(()) };
        let stat = fstat(&entry).map_err(&fail)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let inner = openat(&entry, ".", flags, Mode::empty()).map_err(&fail)?;
                drop(entry);
                self.folder(&inner, path, depth + 1)?;
                self.change(&inner, &stat).map_err(fail)
            }
            FileType::RegularFile | FileType::Symlink | FileType::Fifo | FileType::Socket => {
                self.change(&entry, &stat).map_err(fail)
            }
            // Devices of this host are nobody's to give away.
            FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => Ok(()),
        }
    }

    /// Opens an entry itself, as a place only; `None` when something is mounted on it, or it is gone.
    fn open(&self, folder: &OwnedFd, name: &OsStr) -> Result<Option<OwnedFd>, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
        match openat2(folder, name, flags, Mode::empty(), resolve) {
            Ok(entry) => Ok(Some(entry)),
            // Somebody else works here, too.
            Err(Errno::XDEV | Errno::NOENT) => Ok(None),
            Err(Errno::NOSYS | Errno::PERM) => {
                let entry = match openat(folder, name, flags, Mode::empty()) {
                    Err(Errno::NOENT) => return Ok(None),
                    entry => entry?,
                };
                Ok((fstat(&entry)?.st_dev == self.device).then_some(entry))
            }
            Err(errno) => Err(errno),
        }
    }

    /// Changes what has to be changed of an open entry, which is not looked up by its name again.
    fn change(&self, entry: &OwnedFd, stat: &Stat) -> Result<(), Errno> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let mut mode = stat.st_mode & 0o7777;
        if stat.st_gid != self.group {
            let group = Some(Gid::from_raw(self.group));
            chownat(entry, "", None, group, AtFlags::EMPTY_PATH)?;
            // As the kernel has done: what runs as its owner or group was not meant for this one.
            if kind != FileType::Directory {
                mode &= 0o1777;
            }
        }
        let added = match kind {
            // The mode of a link means nothing.
            FileType::Symlink => return Ok(()),
            FileType::Directory => FOLDER,
            FileType::RegularFile
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => READ_AND_WRITE | if mode & 0o111 == 0 { 0 } else { EXECUTE },
        };
        if mode & added == added {
            return Ok(());
        }
        let own = format!("/proc/self/fd/{}", entry.as_raw_fd());
        chmod(own, Mode::from_raw_mode(mode | added))
    }
}
