//! Opening and closing.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use hawser_core::port::kernel::KernelResult;
use rustix::fs::{FileType, Mode, OFlags, fstat, major, minor, open};
use rustix::io::Errno;

use super::refusal;
use crate::workers::Workers;

/// Without `NONBLOCK` a FIFO by that name would keep the worker for ever.
const FLAGS: OFlags = OFlags::CLOEXEC.union(OFlags::NONBLOCK);

/// An open block device.
///
/// It is closed on a thread of its own: the last close of a block device writes out what is cached
/// for it and hangs for as long as that does.
#[derive(Debug)]
pub(super) struct Device {
    path: PathBuf,
    number: (u32, u32),
    /// Taken by `drop` alone.
    file: Option<OwnedFd>,
    workers: Workers,
}

impl Device {
    /// Opens a device without claiming it. Blocks.
    ///
    /// Only for reading: udev examines every device anew that is closed after it was open for
    /// writing, and so has a map open just when it is to be removed. All that is done through it
    /// asks for rights of the process, not of the opening: a flush, commands, reservations. And
    /// errors of earlier writes are told to readers too.
    pub(super) fn open(path: &Path, workers: Workers) -> KernelResult<Self> {
        let refused = |errno| refusal(format!("opening {}", path.display()), errno);
        let file = open(path, OFlags::RDONLY | FLAGS, Mode::empty()).map_err(refused)?;
        let stat = fstat(&file).map_err(refused)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
            return Err(refused(Errno::NOTBLK));
        }
        let number = (major(stat.st_rdev), minor(stat.st_rdev));
        Ok(Self { path: path.to_owned(), number, file: Some(file), workers })
    }

    /// Its name, for messages.
    pub(super) fn name(&self) -> std::path::Display<'_> {
        self.path.display()
    }

    /// Major and minor number.
    pub(super) fn number(&self) -> (u32, u32) {
        self.number
    }

    /// Who closes it.
    pub(super) fn workers(&self) -> &Workers {
        &self.workers
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_ref().expect("only drop takes the file").as_fd()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let file = self.file.take();
        self.workers.leave(move || drop(file));
    }
}

/// True when somebody has claimed a device. Blocks.
pub(super) fn is_claimed(path: &Path) -> KernelResult<bool> {
    // Without O_CREAT, O_EXCL claims a block device, and means nothing to any other file.
    let claimed = open(path, OFlags::RDONLY | OFlags::EXCL | FLAGS, Mode::empty());
    let refused = |errno| refusal(format!("asking whether {} is in use", path.display()), errno);
    match claimed {
        Err(Errno::BUSY) => Ok(true),
        Err(errno) => Err(refused(errno)),
        Ok(file) => match FileType::from_raw_mode(fstat(&file).map_err(refused)?.st_mode) {
            FileType::BlockDevice => Ok(false),
            FileType::RegularFile
            | FileType::Directory
            | FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::Unknown => Err(refused(Errno::NOTBLK)),
        },
    }
}
