//! Copies a folder with all that is in it, like `cp -a --reflink=auto`.
//!
//! Walks with descriptors and follows no symbolic link. The copy is made in a folder
//! `.<name>.tmp-<random>` that only we may enter, written out, and then renamed.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use hawser_core::ByteSize;
use hawser_core::port::host::Copied;
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid,
    XattrFlags, chmodat, chownat, fchmod, fchown, fstat, futimens, lgetxattr, linkat, llistxattr,
    lsetxattr, mkdirat, mknodat, open, openat, openat2, readlinkat, statat, symlinkat, syncfs,
    utimensat,
};
use rustix::io::Errno;

use super::copy::{Destination, content, failed};
use super::error::FileError;
use super::meter::Meter;
use crate::mount::target::check_plain;

/// Each level holds two descriptors, and a process may have 1024 by default.
pub(super) const DEEPEST: usize = 300;
const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Copies a folder to a new name. Blocks: for workers only.
pub(crate) fn copy(from: &Path, to: &Path, meter: &Meter) -> Result<Copied, FileError> {
    check_plain(from)?;
    let source = open(from, FOLDER, Mode::empty()).map_err(|errno| match errno {
        Errno::NOTDIR | Errno::LOOP => {
            FileError::WrongType { path: from.to_owned(), what: "a folder" }
        }
        _ => failed("opening", from)(errno),
    })?;
    let destination = Destination::open(to)?;
    let temporary = destination.temporary_name();
    mkdirat(&destination.folder, &temporary, Mode::RWXU).map_err(failed("making", to))?;
    let made = fill(&source, from, &destination, &temporary, meter)
        .and_then(|copied| destination.rename(&temporary).map(|()| copied));
    made.map_err(|error| {
        let draft = Path::new("/proc/self/fd")
            .join(destination.folder.as_raw_fd().to_string())
            .join(&temporary);
        match std::fs::remove_dir_all(draft) {
            Ok(()) => error,
            // Renamed already: only making it durable failed.
            Err(undo) if undo.kind() == std::io::ErrorKind::NotFound => error,
            Err(undo) => {
                let path = to.with_file_name(&temporary);
                FileError::Undo { path, undo, source: Box::new(error) }
            }
        }
    })
}

fn fill(
    source: &OwnedFd,
    from: &Path,
    destination: &Destination,
    temporary: &OsStr,
    meter: &Meter,
) -> Result<Copied, FileError> {
    let fail = failed("copying", from);
    let root = openat(&destination.folder, temporary, FOLDER, Mode::empty()).map_err(&fail)?;
    let mut walk = Walk { root: &root, meter, links: HashMap::new(), shared: false, bytes: 0 };
    walk.folder(source, &root, from, Path::new(""), 0)?;
    let (shared, bytes) = (walk.shared && walk.bytes == 0, ByteSize::bytes(walk.bytes));
    syncfs(&root).map_err(failed("writing out", &destination.path))?;
    meter.go_on(from)?;
    // Last: until now nobody else may enter.
    let stat = fstat(source).map_err(&fail)?;
    attributes(source, &root, &stat, from)?;
    rustix::fs::fsync(&root).map_err(failed("writing out", &destination.path))?;
    Ok(Copied { shared, bytes })
}

/// One name in a folder that is copied.
struct Item<'a> {
    from: &'a OwnedFd,
    to: &'a OwnedFd,
    name: &'a OsStr,
    stat: Stat,
    /// In the original, for messages.
    path: PathBuf,
    /// Below the root of the copy.
    below: PathBuf,
}

impl Item<'_> {
    fn fail(&self) -> impl Fn(Errno) -> FileError + use<> {
        failed("copying", &self.path)
    }

    /// Opens it without following it or what is mounted on it.
    fn open(&self, flags: OFlags) -> Result<OwnedFd, FileError> {
        let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat2(self.from, self.name, flags, Mode::empty(), resolve) {
            Ok(file) => Ok(file),
            Err(Errno::XDEV) => Err(FileError::MountInside { path: self.path.clone() }),
            Err(Errno::NOSYS) => {
                openat(self.from, self.name, flags, Mode::empty()).map_err(self.fail())
            }
            Err(errno) => Err(self.fail()(errno)),
        }
    }
}

struct Walk<'a> {
    root: &'a OwnedFd,
    meter: &'a Meter,
    /// Where the first name of a file with several was copied to.
    links: HashMap<(u64, u64), PathBuf>,
    shared: bool,
    bytes: u64,
}

impl Walk<'_> {
    fn folder(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        path: &Path,
        below: &Path,
        depth: usize,
    ) -> Result<(), FileError> {
        if depth > DEEPEST {
            return Err(FileError::TooDeep { path: path.to_owned(), most: DEEPEST });
        }
        let fail = failed("listing", path);
        let mut names = Vec::new();
        for entry in Dir::read_from(from).map_err(&fail)? {
            let name = entry.map_err(&fail)?.file_name().to_owned();
            if name.as_bytes() != b"." && name.as_bytes() != b".." {
                names.push(name);
            }
        }
        for name in names {
            let name = OsStr::from_bytes(name.as_bytes());
            let path = path.join(name);
            self.meter.go_on(&path)?;
            let stat =
                statat(from, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed("copying", &path))?;
            let item = Item { from, to, name, stat, path, below: below.join(name) };
            self.item(&item, depth)?;
        }
        Ok(())
    }

    fn item(&mut self, item: &Item<'_>, depth: usize) -> Result<(), FileError> {
        let kind = FileType::from_raw_mode(item.stat.st_mode);
        if kind != FileType::Directory && item.stat.st_nlink > 1 {
            let key = (item.stat.st_dev, item.stat.st_ino);
            if let Some(first) = self.links.get(&key) {
                return linkat(self.root, first, item.to, item.name, AtFlags::empty())
                    .map_err(item.fail());
            }
            self.links.insert(key, item.below.clone());
        }
        match kind {
            FileType::Directory => {
                let from = item.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
                mkdirat(item.to, item.name, Mode::RWXU).map_err(item.fail())?;
                let to = openat(item.to, item.name, FOLDER, Mode::empty()).map_err(item.fail())?;
                self.folder(&from, &to, &item.path, &item.below, depth + 1)?;
                attributes(&from, &to, &item.stat, &item.path)
            }
            FileType::RegularFile => self.file(item),
            FileType::Symlink => {
                let leads_to = readlinkat(item.from, item.name, Vec::new()).map_err(item.fail())?;
                symlinkat(leads_to, item.to, item.name).map_err(item.fail())?;
                named_attributes(item, None)
            }
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice => {
                let mode = Mode::from_raw_mode(item.stat.st_mode);
                mknodat(item.to, item.name, kind, mode, item.stat.st_rdev).map_err(item.fail())?;
                named_attributes(item, Some(mode))
            }
            FileType::Unknown => {
                Err(FileError::WrongType { path: item.path.clone(), what: "a known kind of file" })
            }
        }
    }

    fn file(&mut self, item: &Item<'_>) -> Result<(), FileError> {
        let from = item.open(OFlags::RDONLY | OFlags::NONBLOCK)?;
        let stat = fstat(&from).map_err(item.fail())?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            // Replaced since it was listed.
            let path = item.path.clone();
            return Err(FileError::WrongType { path, what: "a regular file any more" });
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let to =
            openat(item.to, item.name, flags, Mode::from_raw_mode(0o600)).map_err(item.fail())?;
        let before = self.bytes;
        let meter = self.meter;
        let copied =
            content(&from, &to, &item.path, |done| meter.amount(&item.path, before + done, 0))?;
        self.bytes += copied.bytes.get();
        self.shared |= copied.shared && stat.st_size > 0;
        attributes(&from, &to, &stat, &item.path)
    }
}

fn times(stat: &Stat) -> Timestamps {
    let time = |seconds: i64, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds as _ };
    Timestamps {
        last_access: time(stat.st_atime as _, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime as _, stat.st_mtime_nsec),
    }
}

fn owner(stat: &Stat) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))
}

/// An ordinary user owns the copy; like `cp -a`, that is no failure.
fn forgive_owner(changed: Result<(), Errno>) -> Result<(), Errno> {
    match changed {
        Err(Errno::PERM) if !rustix::process::geteuid().is_root() => Ok(()),
        changed => changed,
    }
}

/// Owner, then mode, then extended attributes: each clears parts of the next.
fn attributes(from: &OwnedFd, to: &OwnedFd, stat: &Stat, path: &Path) -> Result<(), FileError> {
    let fail = failed("copying the attributes of", path);
    let (uid, gid) = owner(stat);
    forgive_owner(fchown(to, uid, gid)).map_err(&fail)?;
    fchmod(to, Mode::from_raw_mode(stat.st_mode)).map_err(&fail)?;
    open_extended_attributes(from, to).map_err(&fail)?;
    futimens(to, &times(stat)).map_err(&fail)
}

/// The same for what cannot be opened: symbolic links, devices, FIFOs and sockets.
fn named_attributes(item: &Item<'_>, mode: Option<Mode>) -> Result<(), FileError> {
    let fail = failed("copying the attributes of", &item.path);
    let (uid, gid) = owner(&item.stat);
    forgive_owner(chownat(item.to, item.name, uid, gid, AtFlags::SYMLINK_NOFOLLOW))
        .map_err(&fail)?;
    if let Some(mode) = mode {
        chmodat(item.to, item.name, mode, AtFlags::empty()).map_err(&fail)?;
    }
    let named = |folder: &OwnedFd| {
        Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(item.name)
    };
    named_extended_attributes(&named(item.from), &named(item.to)).map_err(&fail)?;
    utimensat(item.to, item.name, &times(&item.stat), AtFlags::SYMLINK_NOFOLLOW).map_err(&fail)
}

/// The names in the kernel's list, NUL after each.
fn names_in(list: &[u8]) -> impl Iterator<Item = CString> + '_ {
    list.split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .filter_map(|name| CString::new(name).ok())
}

/// What belongs to the user must be kept; what the system put there may not be ours to set.
fn forgive_attribute(name: &CString, set: Result<(), Errno>) -> Result<(), Errno> {
    let users = name.as_bytes().starts_with(b"user.") || name.as_bytes().starts_with(b"system.");
    match set {
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::ACCESS) if !users => Ok(()),
        set => set,
    }
}

/// The kernel's largest list and value.
const LARGEST: usize = 64 << 10;

fn named_extended_attributes(from: &Path, to: &Path) -> Result<(), Errno> {
    let mut list = vec![0_u8; LARGEST];
    let length = match llistxattr(from, &mut list[..]) {
        Err(Errno::OPNOTSUPP) => return Ok(()),
        length => length?,
    };
    for name in names_in(&list[..length]) {
        let mut value = vec![0_u8; LARGEST];
        let length = match lgetxattr(from, &name, &mut value[..]) {
            Err(Errno::NODATA) => continue,
            length => length?,
        };
        forgive_attribute(&name, lsetxattr(to, &name, &value[..length], XattrFlags::empty()))?;
    }
    Ok(())
}

fn open_extended_attributes(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    let mut list = vec![0_u8; LARGEST];
    let length = match rustix::fs::flistxattr(from, &mut list[..]) {
        Err(Errno::OPNOTSUPP) => return Ok(()),
        length => length?,
    };
    for name in names_in(&list[..length]) {
        let mut value = vec![0_u8; LARGEST];
        let length = match rustix::fs::fgetxattr(from, &name, &mut value[..]) {
            Err(Errno::NODATA) => continue,
            length => length?,
        };
        let set = rustix::fs::fsetxattr(to, &name, &value[..length], XattrFlags::empty());
        forgive_attribute(&name, set)?;
    }
    Ok(())
}
