//! Copies a file: shares its blocks where the file system can, else copies data and keeps holes.
//!
//! The copy is made without a name (`O_TMPFILE`) and gets one when it is complete and durable, so
//! that neither a failure nor a power cut leaves half of one. Where the file system has no nameless
//! files it is made as `.<name>.tmp-<random>` in the same folder.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use hawser_core::ByteSize;
use hawser_core::port::host::Copied;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, SeekFrom, copy_file_range, fchmod, fstat,
    fsync, ftruncate, ioctl_ficlone, linkat, open, openat, renameat_with, seek, statat, unlinkat,
};
use rustix::io::{Errno, pread, pwrite};

use super::error::FileError;
use super::meter::Meter;
use crate::mount::target::check_plain;
use crate::sys;

/// How much is copied between two looks at the caller: a fraction of a second on a slow disk.
const CHUNK: u64 = 8 << 20;
/// Where the kernel does not copy by itself.
const BUFFER: usize = 1 << 20;

pub(super) fn failed(attempt: &'static str, path: &Path) -> impl Fn(Errno) -> FileError + use<> {
    let path = path.to_owned();
    move |source| FileError::Call { attempt, path: path.clone(), source: source.into() }
}

/// The folder and name that a copy is to get.
pub(super) struct Destination {
    pub(super) folder: OwnedFd,
    pub(super) name: OsString,
    pub(super) path: PathBuf,
}

impl Destination {
    /// Opens the folder and makes sure that the name is free.
    pub(super) fn open(path: &Path) -> Result<Self, FileError> {
        check_plain(path)?;
        let wrong = || FileError::WrongType { path: path.to_owned(), what: "a name in a folder" };
        let parent = path.parent().ok_or_else(wrong)?;
        let name = path.file_name().ok_or_else(wrong)?.to_owned();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder =
            open(parent, flags, Mode::empty()).map_err(failed("opening the folder", parent))?;
        match statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(Self { folder, name, path: path.to_owned() }),
            Ok(_) => Err(FileError::Exists { path: path.to_owned() }),
            Err(errno) => Err(failed("looking for", path)(errno)),
        }
    }

    /// A name beside the final one that nothing else has.
    pub(super) fn temporary_name(&self) -> OsString {
        let mut name = OsString::from(".");
        // Names end at 255 bytes; a cut one is as good, the random part tells them apart.
        let kept = self.name.to_string_lossy();
        let kept: String = kept.chars().take(48).collect();
        name.push(kept);
        name.push(format!(".tmp-{}", uuid::Uuid::new_v4().simple()));
        name
    }

    /// Gives the finished copy its name, unless that was taken meanwhile, and makes it durable.
    pub(super) fn rename(&self, temporary: &OsStr) -> Result<(), FileError> {
        let renamed = renameat_with(
            &self.folder,
            temporary,
            &self.folder,
            &self.name,
            RenameFlags::NOREPLACE,
        );
        match renamed {
            Ok(()) => self.sync(),
            Err(Errno::EXIST) => Err(FileError::Exists { path: self.path.clone() }),
            Err(errno) => Err(failed("naming", &self.path)(errno)),
        }
    }

    pub(super) fn sync(&self) -> Result<(), FileError> {
        fsync(&self.folder).map_err(failed("writing out the folder of", &self.path))
    }
}

/// A copy in the making; what has a name loses it when the copy fails.
struct Draft<'a> {
    destination: &'a Destination,
    file: OwnedFd,
    name: Option<OsString>,
}

impl<'a> Draft<'a> {
    fn new(destination: &'a Destination) -> Result<Self, FileError> {
        let mode = Mode::from_raw_mode(0o600);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        match openat(&destination.folder, ".", flags | OFlags::TMPFILE, mode) {
            Ok(file) => return Ok(Self { destination, file, name: None }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {}
            Err(errno) => return Err(failed("making", &destination.path)(errno)),
        }
        let name = destination.temporary_name();
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = openat(&destination.folder, &name, flags, mode)
            .map_err(failed("making", &destination.path))?;
        Ok(Self { destination, file, name: Some(name) })
    }

    fn finish(mut self) -> Result<(), FileError> {
        let Destination { folder, name, path } = self.destination;
        fsync(&self.file).map_err(failed("writing out", path))?;
        match &self.name {
            Some(temporary) => {
                self.destination.rename(temporary)?;
                self.name = None;
                Ok(())
            }
            None => {
                let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                match linkat(CWD, own, folder, name, AtFlags::SYMLINK_FOLLOW) {
                    Ok(()) => self.destination.sync(),
                    Err(Errno::EXIST) => Err(FileError::Exists { path: path.clone() }),
                    Err(errno) => Err(failed("naming", path)(errno)),
                }
            }
        }
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = unlinkat(&self.destination.folder, name, AtFlags::empty());
        }
    }
}

/// Copies a file to a new name. Blocks: for workers only.
pub(crate) fn copy(from: &Path, to: &Path, meter: &Meter) -> Result<Copied, FileError> {
    check_plain(from)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let source = open(from, flags, Mode::empty()).map_err(failed("opening", from))?;
    let stat = fstat(&source).map_err(failed("opening", from))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(FileError::WrongType { path: from.to_owned(), what: "a regular file" });
    }
    let destination = Destination::open(to)?;
    let draft = Draft::new(&destination)?;
    let copied = content(&source, &draft.file, from, |done| {
        meter.amount(from, done, stat.st_size.cast_unsigned())
    })?;
    fchmod(&draft.file, Mode::from_raw_mode(stat.st_mode)).map_err(failed("making", to))?;
    meter.go_on(from)?;
    draft.finish()?;
    Ok(copied)
}

/// Fills an empty file with the content of another; `report` hears how far it is in the file.
pub(super) fn content(
    from: &OwnedFd,
    to: &OwnedFd,
    path: &Path,
    report: impl FnMut(u64) -> Result<(), FileError>,
) -> Result<Copied, FileError> {
    match ioctl_ficlone(to, from) {
        Ok(()) => return Ok(Copied { shared: true, bytes: ByteSize::ZERO }),
        // Not this file system, not these two, or not with these attributes.
        Err(
            Errno::OPNOTSUPP
            | Errno::XDEV
            | Errno::INVAL
            | Errno::NOTTY
            | Errno::NOSYS
            | Errno::PERM
            | Errno::TXTBSY
            | Errno::BADF,
        ) => {}
        Err(errno) => return Err(failed("sharing the blocks of", path)(errno)),
    }
    let length = fstat(from).map_err(failed("copying", path))?.st_size.cast_unsigned();
    ftruncate(to, length).map_err(failed("sizing the copy of", path))?;
    let mut copy = DataCopy { from, to, path, buffer: None, bytes: 0, report };
    let mut at = 0;
    while let Some((start, end)) = next_data(from, at, length).map_err(failed("copying", path))? {
        copy.range(start, end)?;
        at = end;
    }
    (copy.report)(length)?;
    Ok(Copied { shared: false, bytes: ByteSize::bytes(copy.bytes) })
}

/// The next stretch of data at or after `at`; a file system that does not know has no holes.
fn next_data(file: &OwnedFd, at: u64, length: u64) -> Result<Option<(u64, u64)>, Errno> {
    if at >= length {
        return Ok(None);
    }
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((at, length))),
        Err(errno) => return Err(errno),
    };
    let end = seek(file, SeekFrom::Hole(start))?.min(length);
    Ok((start < end).then_some((start, end)))
}

struct DataCopy<'a, R> {
    from: &'a OwnedFd,
    to: &'a OwnedFd,
    path: &'a Path,
    /// There once the kernel has refused to copy by itself.
    buffer: Option<Vec<u8>>,
    bytes: u64,
    report: R,
}

impl<R: FnMut(u64) -> Result<(), FileError>> DataCopy<'_, R> {
    fn range(&mut self, mut at: u64, end: u64) -> Result<(), FileError> {
        while at < end {
            let moved = self.chunk(at, end)?;
            // The disk works while the next chunk is read, and less is left for the fsync.
            sys::begin_writing_out(self.to, at, moved);
            at += moved;
            self.bytes += moved;
            (self.report)(at)?;
        }
        Ok(())
    }

    fn chunk(&mut self, at: u64, end: u64) -> Result<u64, FileError> {
        let fail = failed("copying", self.path);
        let wanted = (end - at).min(CHUNK);
        if self.buffer.is_none() {
            let (mut source, mut sink) = (at, at);
            let length = usize::try_from(wanted).unwrap_or(usize::MAX);
            match copy_file_range(self.from, Some(&mut source), self.to, Some(&mut sink), length) {
                Ok(0)
                | Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => {
                    self.buffer = Some(vec![0; BUFFER])
                }
                Ok(moved) => return Ok(moved as u64),
                Err(Errno::INTR) => return Ok(0),
                Err(errno) => return Err(fail(errno)),
            }
        }
        let buffer = self.buffer.get_or_insert_with(|| vec![0; BUFFER]);
        let length = usize::try_from(wanted).map_or(buffer.len(), |most| most.min(buffer.len()));
        let read = match pread(self.from, &mut buffer[..length], at) {
            Ok(0) => return Err(FileError::Shrunk { path: self.path.to_owned() }),
            Ok(read) => read,
            Err(Errno::INTR) => return Ok(0),
            Err(errno) => return Err(fail(errno)),
        };
        let mut written = 0;
        while written < read {
            match pwrite(self.to, &buffer[written..read], at + written as u64) {
                Ok(length) => written += length,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(fail(errno)),
            }
        }
        Ok(read as u64)
    }
}
