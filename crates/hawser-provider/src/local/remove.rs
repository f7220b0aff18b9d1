//! Removing folders that somebody else filled.
//!
//! The content of a folder volume is hostile: links out of the pool, trees deeper than any stack or
//! path can be, folders without the right to enter them, other things mounted inside. So nothing
//! here follows a link, leaves the file system's mount or recurses: folders are moved up to the top
//! one by one and emptied there, with two descriptors open whatever the depth.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use hawser_core::Change;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::error::LocalError;
use super::folder::{Folder, allocated, is_dots, open_inside};

/// Somebody who keeps writing into a folder that is being removed is given up on after so many
/// rounds without an end.
const MOST_REFILLS: u32 = 1000;

/// Removes a folder with all that is in it and answers how many bytes came free; absent is
/// `Already`. A failure leaves the rest in place, and the next call goes on.
pub(super) fn remove_folder(parent: &Folder, name: &str) -> Result<Change<u64>, LocalError> {
    let named = CString::new(name).map_err(|_| LocalError::Io {
        verb: "removing",
        path: parent.path().join(name),
        source: Errno::INVAL,
    })?;
    let mut freed = 0;
    for round in 0..MOST_REFILLS {
        let top = open_folder(parent, &named).map_err(|errno| explain(parent, &named, errno))?;
        let Some(top) = top else {
            return Ok(if round == 0 { Change::Already(0) } else { Change::Made(freed) });
        };
        let top = Top { path: parent.path().join(name), fd: top, next: 0, freed: 0, refills: 0 };
        freed += top.empty()?;
        // Not empty again when a copy whose caller is gone named its result just now.
        if parent.remove_empty(name)? {
            return Ok(Change::Made(freed));
        }
    }
    let path = parent.path().join(name);
    Err(LocalError::Io { verb: "removing folder", path, source: Errno::NOTEMPTY })
}

/// The folder into which everything is moved up.
struct Top {
    path: std::path::PathBuf,
    fd: OwnedFd,
    next: u64,
    freed: u64,
    refills: u32,
}

impl Top {
    fn empty(mut self) -> Result<u64, LocalError> {
        // Each round removes what a listing shows; what is moved up meanwhile may or may not show
        // in the same listing, so rounds go on until one finds nothing.
        loop {
            let mut found = false;
            let entries = rustix::fs::Dir::read_from(&self.fd)
                .map_err(LocalError::io("listing", &self.path))?;
            for entry in entries {
                let entry = entry.map_err(LocalError::io("listing", &self.path))?;
                if is_dots(entry.file_name()) {
                    continue;
                }
                found = true;
                self.remove(entry.file_name(), entry.file_type())
                    .map_err(|error| self.explain(entry.file_name(), error))?;
            }
            if !found {
                return Ok(self.freed);
            }
        }
    }

    /// Removes one name of the top folder; a folder's folders move up first.
    fn remove(&mut self, name: &CStr, kind: FileType) -> Result<(), Errno> {
        if !is_folder(&self.fd, name, kind)? {
            self.freed += unlink(&self.fd, name)?;
            return Ok(());
        }
        let Some(child) = open_folder(&self.fd, name)? else { return Ok(()) };
        for entry in rustix::fs::Dir::read_from(&child)? {
            let entry = entry?;
            if is_dots(entry.file_name()) {
                continue;
            }
            if is_folder(&child, entry.file_name(), entry.file_type())? {
                self.move_up(&child, entry.file_name())?;
            } else {
                self.freed += unlink(&child, entry.file_name())?;
            }
        }
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) if self.refills < MOST_REFILLS => {
                self.refills += 1;
                Ok(())
            }
            Err(errno) => Err(errno),
        }
    }

    fn move_up(&mut self, from: &OwnedFd, name: &CStr) -> Result<(), Errno> {
        // Moving a folder changes its `..`, for which the kernel wants the right to write in it.
        if open_folder(from, name)?.is_none() {
            return Ok(());
        }
        loop {
            // A round that was cut off may have left any of these names.
            let new = format!("{}", self.next);
            self.next += 1;
            match rustix::fs::renameat_with(
                from,
                name,
                &self.fd,
                new.as_str(),
                RenameFlags::NOREPLACE,
            ) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    fn explain(&self, name: &CStr, errno: Errno) -> LocalError {
        explained(self.path.join(name.to_string_lossy().as_ref()), errno)
    }
}

/// Opens a folder to empty it, giving its owner the rights for that; `None` when it is gone.
fn open_folder(parent: impl AsFd, name: &CStr) -> Result<Option<OwnedFd>, Errno> {
    let parent = parent.as_fd();
    let folder = match open_inside(parent, name, OFlags::PATH | OFlags::DIRECTORY) {
        Ok(folder) => folder,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    if rustix::fs::fstat(&folder)?.st_mode & 0o700 != 0o700 {
        // A descriptor that was opened without rights can be named but not changed; its name in
        // /proc can, and unlike the name in the folder it cannot be swapped for another.
        let proc = format!("/proc/self/fd/{}", folder.as_raw_fd());
        rustix::fs::chmod(proc, Mode::from_raw_mode(0o700))?;
    }
    match open_inside(parent, name, OFlags::RDONLY | OFlags::DIRECTORY) {
        Ok(folder) => Ok(Some(folder)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Removes anything but a folder and answers what came free; gone already is fine.
fn unlink(parent: &OwnedFd, name: &CStr) -> Result<u64, Errno> {
    let freed = match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if stat.st_nlink == 1 => allocated(&stat),
        Ok(_) => 0,
        Err(Errno::NOENT) => return Ok(0),
        Err(errno) => return Err(errno),
    };
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(freed),
        Err(errno) => Err(errno),
    }
}

fn is_folder(parent: &OwnedFd, name: &CStr, kind: FileType) -> Result<bool, Errno> {
    if kind != FileType::Unknown {
        return Ok(kind == FileType::Directory);
    }
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn explain(parent: &Folder, name: &CStr, errno: Errno) -> LocalError {
    explained(parent.path().join(name.to_string_lossy().as_ref()), errno)
}

fn explained(path: std::path::PathBuf, source: Errno) -> LocalError {
    let verb = "removing";
    match source {
        Errno::XDEV | Errno::BUSY => LocalError::MountInside { verb, path },
        Errno::PERM | Errno::ACCESS => LocalError::NotAllowed { verb, path, source },
        _ => LocalError::Io { verb, path, source },
    }
}
