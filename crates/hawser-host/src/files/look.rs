//! What is at a path, whatever file system it lies in.

use std::path::Path;

use hawser_core::port::host::{Seen, SeenKind};
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use rustix::io::Errno;

use super::copy::failed;
use super::error::FileError;
use crate::mount::target::check_plain;

/// Asks the file system itself: a network file system answers from its cache otherwise. Blocks: for
/// workers only.
pub(crate) fn look(path: &Path) -> Result<Option<Seen>, FileError> {
    check_plain(path)?;
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC | AtFlags::NO_AUTOMOUNT;
    let stat = match statx(CWD, path, flags, StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::SIZE)
    {
        Ok(stat) => stat,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(errno) => return Err(failed("looking at", path)(errno)),
    };
    let kind = match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::RegularFile => SeenKind::File,
        FileType::Directory => SeenKind::Folder,
        FileType::Symlink => SeenKind::Symlink,
        FileType::BlockDevice => SeenKind::BlockDevice,
        FileType::Fifo | FileType::Socket | FileType::CharacterDevice | FileType::Unknown => {
            SeenKind::Other
        }
    };
    let mode = u32::from(stat.stx_mode) & 0o7777;
    let device = (stat.stx_dev_major, stat.stx_dev_minor);
    Ok(Some(Seen { kind, mode, length: stat.stx_size, device }))
}
