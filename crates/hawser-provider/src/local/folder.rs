//! One open folder of the pool: every name below it is reached through its descriptor.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RawMode, RenameFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::error::LocalError;

/// A folder held open; its path is for messages and for calls that take paths.
pub(super) struct Folder {
    path: PathBuf,
    fd: OwnedFd,
}

/// Never out of the folder, through a link, or onto another mount.
const INSIDE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

impl Folder {
    /// Opens a folder by its path; the path itself is the administrator's and may hold links.
    pub(super) fn open(path: &Path) -> Result<Self, LocalError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())
            .map_err(LocalError::io("opening", path))?;
        Ok(Self { path: path.to_owned(), fd })
    }

    /// Opens a folder in this one; `None` when there is none.
    pub(super) fn find_folder(&self, name: &str) -> Result<Option<Self>, LocalError> {
        let path = self.path.join(name);
        match open_inside(&self.fd, name, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(fd) => Ok(Some(Self { path, fd })),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                Err(LocalError::WrongType { path, expected: "a folder" })
            }
            Err(Errno::XDEV) => Err(LocalError::MountInside { verb: "opening", path }),
            Err(source) => Err(LocalError::Io { verb: "opening", path, source }),
        }
    }

    /// Makes a folder in this one if it is not there, and opens it.
    pub(super) fn ensure_folder(&self, name: &str, mode: RawMode) -> Result<Self, LocalError> {
        match self.make_folder(name, mode) {
            Err(error) if error.errno() == Some(Errno::EXIST) => {}
            other => other?,
        }
        self.find_folder(name)?.ok_or_else(|| LocalError::Missing { path: self.path.join(name) })
    }

    /// Makes a folder that must not exist. The mode is exact, whatever the umask.
    pub(super) fn make_folder(&self, name: &str, mode: RawMode) -> Result<(), LocalError> {
        let path = self.path.join(name);
        rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(mode & 0o700))
            .map_err(LocalError::io("making folder", &path))?;
        let fd = open_inside(&self.fd, name, OFlags::RDONLY | OFlags::DIRECTORY)
            .map_err(LocalError::io("opening", &path))?;
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode))
            .map_err(LocalError::io("setting the mode of", &path))
    }

    /// Makes a file that must not exist, to write.
    pub(super) fn make_file(&self, name: &str) -> Result<OwnedFd, LocalError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(0o600))
            .map_err(LocalError::io("making", self.path.join(name)))
    }

    /// Opens a file that exists; `None` when there is none.
    pub(super) fn find_file(&self, name: &str, write: bool) -> Result<Option<OwnedFd>, LocalError> {
        let flags = if write { OFlags::RDWR } else { OFlags::RDONLY };
        match open_inside(&self.fd, name, flags | OFlags::NONBLOCK) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::LOOP) => Err(LocalError::WrongType {
                path: self.path.join(name),
                expected: "a regular file",
            }),
            Err(source) => Err(LocalError::io("opening", self.path.join(name))(source)),
        }
    }

    /// What a name in this folder is, links not followed; `None` when there is nothing.
    pub(super) fn find(&self, name: &str) -> Result<Option<Stat>, LocalError> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(source) => Err(LocalError::io("looking at", self.path.join(name))(source)),
        }
    }

    /// Every name in this folder. Names that are not UTF-8 are not ours and come out lossily.
    pub(super) fn names(&self) -> Result<Vec<String>, LocalError> {
        let mut names = Vec::new();
        for entry in self.entries()? {
            let entry = entry.map_err(LocalError::io("listing", &self.path))?;
            if !is_dots(entry.file_name()) {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        Ok(names)
    }

    /// The entries from the beginning, through a descriptor of their own.
    pub(super) fn entries(&self) -> Result<Dir, LocalError> {
        Dir::read_from(&self.fd).map_err(LocalError::io("listing", &self.path))
    }

    /// Moves a name to another folder of the same file system, onto nothing.
    pub(super) fn move_to(&self, name: &str, to: &Self, new: &str) -> Result<(), LocalError> {
        rustix::fs::renameat_with(&self.fd, name, &to.fd, new, RenameFlags::NOREPLACE)
            .map_err(LocalError::io("moving into place", to.path.join(new)))
    }

    /// Puts one name in the place of another in this folder.
    pub(super) fn replace(&self, name: &str, old: &str) -> Result<(), LocalError> {
        rustix::fs::renameat(&self.fd, name, &self.fd, old)
            .map_err(LocalError::io("replacing", self.path.join(old)))
    }

    /// Removes a file; true when it was there.
    pub(super) fn remove_file(&self, name: &str) -> Result<bool, LocalError> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(source @ (Errno::PERM | Errno::ACCESS)) => {
                Err(LocalError::NotAllowed { verb: "removing", path: self.path.join(name), source })
            }
            Err(source) => Err(LocalError::io("removing", self.path.join(name))(source)),
        }
    }

    /// Removes an empty folder; true when it is gone, false when something is in it.
    pub(super) fn remove_empty(&self, name: &str) -> Result<bool, LocalError> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            Err(source) => Err(LocalError::io("removing folder", self.path.join(name))(source)),
        }
    }

    /// Makes the names in this folder durable.
    pub(super) fn sync(&self) -> Result<(), Errno> {
        rustix::fs::fsync(&self.fd)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens one name in a folder: not through a link, not on another mount.
pub(super) fn open_inside(
    folder: impl AsFd,
    name: impl rustix::path::Arg,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(folder, name, flags | OFlags::CLOEXEC, Mode::empty(), INSIDE)
}

/// True for the two names that every folder has.
pub(super) fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

/// Bytes that a file really uses on the medium.
pub(super) fn allocated(stat: &Stat) -> u64 {
    // The kernel counts in units of 512 bytes, whatever the file system's block size.
    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512)
}

/// Bytes that a file can hold.
pub(super) fn length(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// What kind of thing it is.
pub(super) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}
