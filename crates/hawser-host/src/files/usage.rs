//! How full a file system is.

use std::path::Path;

use hawser_core::ByteSize;
use hawser_core::port::host::FsUsage;
use rustix::fs::statvfs;

use super::copy::failed;
use super::error::FileError;
use crate::mount::target::check_plain;

/// Asks the file system below `path`. Blocks: for workers only.
pub(crate) fn usage(path: &Path) -> Result<FsUsage, FileError> {
    check_plain(path)?;
    let stat = statvfs(path).map_err(failed("asking how full the file system is at", path))?;
    let bytes = |blocks: u64| ByteSize::bytes(blocks.saturating_mul(stat.f_frsize));
    Ok(FsUsage {
        total: bytes(stat.f_blocks),
        available: bytes(stat.f_bavail),
        used: bytes(stat.f_blocks.saturating_sub(stat.f_bfree)),
    })
}
