//! The size of a device or image file.

use std::os::fd::AsFd;
use std::path::Path;

use hawser_core::ByteSize;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};

use super::error::BlockError;
use crate::sys;

/// The size of what is at `path`. Blocks: for workers only.
pub(crate) fn of_path(path: &Path) -> Result<ByteSize, BlockError> {
    // Without O_NONBLOCK, a FIFO by that name would keep us for ever.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device = open(path, flags, Mode::empty())
        .map_err(|source| BlockError::Open { path: path.to_owned(), source: source.into() })?;
    of_open(&device, path)
}

/// The size of an open device or file; `path` is for messages.
pub(super) fn of_open(device: impl AsFd, path: &Path) -> Result<ByteSize, BlockError> {
    let failed = |source: rustix::io::Errno| BlockError::Size {
        path: path.to_owned(),
        source: source.into(),
    };
    let stat = fstat(&device).map_err(failed)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => {
            sys::block_size_bytes(&device).map(ByteSize::bytes).map_err(failed)
        }
        FileType::RegularFile => Ok(ByteSize::bytes(stat.st_size.cast_unsigned())),
        FileType::Directory
        | FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::Unknown => Err(BlockError::NotADevice { path: path.to_owned() }),
    }
}
