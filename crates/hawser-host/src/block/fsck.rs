//! Checks unmounted file systems by the rules of their kind.

use std::path::Path;
use std::time::Duration;

use hawser_core::Change;
use hawser_core::filesystem::FsKind;
use hawser_core::port::host::{Tool, ToolOutput};

use super::error::BlockError;
use crate::mount::{device_number, table};

/// A full check of a large, damaged file system takes long; a clean one is answered at once.
pub(super) const LIMIT: Duration = Duration::from_secs(3600);

/// The exit codes of e2fsck(8); they add up.
mod exit {
    /// Errors were corrected.
    pub(super) const CORRECTED: i32 = 1;
    /// Errors were corrected, and a root file system would need a reboot; ours is not mounted.
    pub(super) const REBOOT: i32 = 2;
    /// Errors were left.
    pub(super) const UNCORRECTED: i32 = 4;
    /// It could not work: no superblock that it knows, for one.
    pub(super) const OPERATIONAL: i32 = 8;
}

/// The command that checks `fs`; `None` where the mount does it (xfs replays its log) or nothing
/// is to be done (btrfs: its check is for repairs by hand, and its authors warn of it).
pub(crate) fn command(device: &Path, fs: FsKind) -> Option<Tool> {
    match fs {
        FsKind::Ext4 => Some(Tool::new("e2fsck").arg("-p").arg(device).limit(LIMIT)),
        FsKind::Xfs | FsKind::Btrfs => None,
    }
}

/// What the end of e2fsck means.
pub(crate) fn verdict(
    device: &Path,
    fs: FsKind,
    output: &ToolOutput,
) -> Result<Change<()>, BlockError> {
    let device = device.to_owned();
    let source = output.failed();
    match output.code {
        Some(0) => Ok(Change::Already(())),
        Some(code) if code & !(exit::CORRECTED | exit::REBOOT) == 0 => Ok(Change::Made(())),
        Some(code) if code & (exit::UNCORRECTED | exit::OPERATIONAL) != 0 => {
            Err(BlockError::Damaged { fs, device, source })
        }
        Some(_) | None => Err(BlockError::Check { fs, device, source }),
    }
}

/// A mounted file system is never checked. Blocks: for workers only.
pub(crate) fn refuse_mounted(device: &Path, fs: FsKind) -> Result<(), BlockError> {
    let number = device_number(device)?;
    let table = table::read()?;
    match table.iter().find(|entry| entry.device == number) {
        None => Ok(()),
        Some(entry) => {
            let (device, target) = (device.to_owned(), entry.target.clone());
            Err(BlockError::CheckMounted { fs, device, target })
        }
    }
}
