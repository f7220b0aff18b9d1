//! Walks to mount targets with descriptors and refuses symbolic links that others could have placed.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags, fstat, major, makedev, minor,
    open, openat, openat2, readlinkat, statx,
};
use rustix::io::Errno;

use super::error::MountError;

const FOLDER: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const ANYTHING: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;

/// The name of a target in its open parent.
pub(super) struct Place {
    /// The parent folder.
    pub(super) parent: OwnedFd,
    /// The last component.
    pub(super) name: OsString,
    /// The whole path without symbolic links, as the mount table spells it.
    pub(super) path: PathBuf,
}

impl Place {
    /// Opens the parent of `target`; `None` when there is none.
    pub(super) fn find(target: &Path) -> Result<Option<Self>, MountError> {
        check_plain(target)?;
        let not_plain = || MountError::NotPlain { path: target.to_owned() };
        let parent = target.parent().ok_or_else(not_plain)?;
        let name = target.file_name().ok_or_else(not_plain)?.to_owned();
        let opened = match open_folder_through(parent, true) {
            Err(MountError::NotAFolder { .. }) => return Ok(None),
            Err(MountError::Open { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Ok(None);
            }
            opened => opened?,
        };
        let path = real_path(&opened, parent)?.join(&name);
        Ok(Some(Self { parent: opened, name, path }))
    }

    /// Opens what stands there without entering what is mounted on it, which is `EXDEV`.
    fn enter(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve =
            ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match openat2(&self.parent, &self.name, flags, Mode::empty(), resolve) {
            // A kernel or sandbox without openat2.
            Err(Errno::NOSYS | Errno::PERM) => {
                openat(&self.parent, &self.name, flags, Mode::empty())
            }
            opened => opened,
        }
    }

    /// Opens the plain file there, as a place only; `None` when something is mounted on it.
    pub(super) fn open_file(&self) -> Result<Option<OwnedFd>, MountError> {
        let file = match self.enter(ANYTHING) {
            Ok(file) => file,
            Err(Errno::XDEV) => return Ok(None),
            Err(source) => return Err(failed(&self.path, source)),
        };
        let there = look(&file).map_err(|source| failed(&self.path, source))?;
        match FileType::from_raw_mode(there.mode) {
            FileType::RegularFile => Ok(Some(file)),
            FileType::Symlink => Err(MountError::Symlink { path: self.path.clone() }),
            FileType::Directory
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Err(MountError::NotAFile { path: self.path.clone() }),
        }
    }

    /// Opens the folder itself, as a place only; `None` when something is mounted on it.
    pub(super) fn open(&self) -> Result<Option<OwnedFd>, MountError> {
        match self.enter(FOLDER) {
            Ok(folder) => Ok(Some(folder)),
            Err(Errno::XDEV) => Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => match self.kind()? {
                FileType::Symlink => Err(MountError::Symlink { path: self.path.clone() }),
                // Replaced by another since.
                FileType::Directory => Err(failed(&self.path, Errno::LOOP)),
                FileType::RegularFile
                | FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown => Err(MountError::NotAFolder { path: self.path.clone() }),
            },
            Err(source) => Err(failed(&self.path, source)),
        }
    }

    /// What stands there, or is mounted there; a link is not followed, and no server is asked.
    pub(super) fn look(&self) -> Result<Look, MountError> {
        let there = openat(&self.parent, &self.name, ANYTHING, Mode::empty()).and_then(look);
        there.map_err(|source| failed(&self.path, source))
    }

    /// The same, only of which kind it is.
    pub(super) fn kind(&self) -> Result<FileType, MountError> {
        Ok(FileType::from_raw_mode(self.look()?.mode))
    }

    /// A path of the target that does not depend on what happens to its parents' names.
    pub(super) fn through_parent(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.parent.as_raw_fd().to_string()).join(&self.name)
    }
}

/// Refuses paths that are relative, have `..` or NUL.
pub(crate) fn check_plain(path: &Path) -> Result<(), MountError> {
    let plain = path.is_absolute()
        && !path.as_os_str().as_bytes().contains(&0)
        && !path.components().any(|part| part == Component::ParentDir);
    if plain { Ok(()) } else { Err(MountError::NotPlain { path: path.to_owned() }) }
}

/// Opens a folder, as a place only. Its last component is never followed; a link before that only
/// where everything up to it belongs to root or to us and is closed to others.
pub(crate) fn open_folder(path: &Path) -> Result<OwnedFd, MountError> {
    check_plain(path)?;
    open_folder_through(path, false)
}

/// Opens the node of a block device, as a place only. Links are followed: names of devices are links
/// of the system's own.
pub(super) fn open_device(path: &Path) -> Result<OwnedFd, MountError> {
    check_plain(path)?;
    let node = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let node = node.map_err(|source| failed(path, source))?;
    match look(&node).map_err(|source| failed(path, source))?.block_device() {
        Some(_) => Ok(node),
        None => Err(MountError::NotADevice { path: path.to_owned() }),
    }
}

fn open_folder_through(path: &Path, follow_last: bool) -> Result<OwnedFd, MountError> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match openat2(CWD, path, FOLDER, Mode::empty(), resolve) {
        Ok(folder) => Ok(folder),
        // A link somewhere (as last component it is ENOTDIR), or a kernel or sandbox without
        // openat2: step by step then.
        Err(Errno::LOOP | Errno::NOTDIR | Errno::NOSYS | Errno::PERM) => walk(path, follow_last),
        Err(source) => Err(failed(path, source)),
    }
}

fn failed(path: &Path, source: Errno) -> MountError {
    if source == Errno::NOTDIR {
        return MountError::NotAFolder { path: path.to_owned() };
    }
    MountError::Open { path: path.to_owned(), source: source.into() }
}

/// What is known of an open place.
pub(super) struct Look {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) length: u64,
    /// Device and inode: which file it is.
    pub(super) identity: (u64, u64),
    /// Of a device.
    number: (u32, u32),
}

impl Look {
    /// Major and minor number, where it is a block device.
    pub(super) fn block_device(&self) -> Option<(u32, u32)> {
        (FileType::from_raw_mode(self.mode) == FileType::BlockDevice).then_some(self.number)
    }
}

/// Looks at an open place without asking a server that may be dead: what the kernel knows of it
/// will do.
pub(super) fn look(place: impl AsFd) -> Result<Look, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    match statx(&place, "", flags, StatxFlags::BASIC_STATS) {
        Ok(found) => Ok(Look {
            mode: found.stx_mode.into(),
            uid: found.stx_uid,
            length: found.stx_size,
            identity: (makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino),
            number: (found.stx_rdev_major, found.stx_rdev_minor),
        }),
        // A sandbox that does not know it.
        Err(Errno::NOSYS | Errno::PERM) => {
            let found = fstat(place)?;
            Ok(Look {
                mode: found.st_mode,
                uid: found.st_uid,
                length: found.st_size.cast_unsigned(),
                identity: (found.st_dev, found.st_ino),
                number: (major(found.st_rdev), minor(found.st_rdev)),
            })
        }
        Err(errno) => Err(errno),
    }
}

fn walk(path: &Path, follow_last: bool) -> Result<OwnedFd, MountError> {
    let fail = |source| failed(path, source);
    let refuse = || MountError::Symlink { path: path.to_owned() };
    let root = || open("/", FOLDER, Mode::empty()).map_err(fail);
    let mut here = root()?;
    let mut trusted = is_closed(&here).map_err(fail)?;
    let mut links = 0;
    let mut parts: VecDeque<OsString> = parts_of(path.as_os_str()).collect();
    while let Some(part) = parts.pop_front() {
        if part == ".." {
            // Only out of a link that we trusted.
            here = openat(&here, "..", FOLDER, Mode::empty()).map_err(fail)?;
            continue;
        }
        let next = openat(&here, &part, ANYTHING, Mode::empty()).map_err(fail)?;
        let kind = FileType::from_raw_mode(look(&next).map_err(fail)?.mode);
        if kind == FileType::Symlink {
            links += 1;
            let last = parts.is_empty() && !follow_last;
            if last || !trusted || links > MOST_LINKS {
                return Err(refuse());
            }
            let to = readlinkat(&here, &part, Vec::new()).map_err(fail)?;
            let to = OsString::from_vec(to.into_bytes());
            if Path::new(&to).is_absolute() {
                here = root()?;
            }
            // What the link leads through is walked with the same care.
            for part in parts_of(&to).collect::<Vec<_>>().into_iter().rev() {
                parts.push_front(part);
            }
            continue;
        }
        if kind != FileType::Directory {
            return Err(MountError::NotAFolder { path: path.to_owned() });
        }
        trusted &= is_closed(&next).map_err(fail)?;
        here = next;
    }
    Ok(here)
}

fn parts_of(path: &OsStr) -> impl Iterator<Item = OsString> {
    Path::new(path)
        .components()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().to_owned())
        .collect::<Vec<_>>()
        .into_iter()
}

/// True when only root and we can place names in a folder.
fn is_closed(folder: &OwnedFd) -> Result<bool, Errno> {
    let found = look(folder)?;
    let ours = found.uid == 0 || found.uid == rustix::process::geteuid().as_raw();
    Ok(ours && found.mode & 0o022 == 0)
}

/// The path of an open folder without symbolic links, as the mount table spells it.
pub(super) fn real_path(folder: &OwnedFd, named: &Path) -> Result<PathBuf, MountError> {
    let link = format!("/proc/self/fd/{}", folder.as_raw_fd());
    let path = rustix::fs::readlink(link, Vec::new()).map_err(|source| failed(named, source))?;
    Ok(PathBuf::from(OsString::from_vec(path.into_bytes())))
}
