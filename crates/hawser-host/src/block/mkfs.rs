//! Makes file systems.

use std::path::Path;
use std::time::Duration;

use hawser_core::filesystem::FsKind;
use hawser_core::port::host::Tool;
use rustix::fs::{Mode, OFlags, fsync, open};
use uuid::Uuid;

use super::error::BlockError;

/// mkfs writes a few MiB and syncs; on a slow network device with a full cache that takes time.
const LIMIT: Duration = Duration::from_secs(600);

/// The command that makes `fs` with this UUID on `device`.
///
/// Nothing is discarded: a new volume has nothing to discard, and on some arrays it takes minutes.
/// Forcing is right because the caller has made sure; each still refuses a mounted device.
pub(crate) fn command(device: &Path, fs: FsKind, uuid: Uuid) -> Tool {
    let tool = match fs {
        // The inode tables and the journal are zeroed by the kernel after the first mount. No
        // blocks are kept for root: a volume is somebody's data, not a system disk.
        FsKind::Ext4 => Tool::new("mkfs.ext4")
            .args(["-F", "-q", "-m", "0"])
            .args(["-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1"])
            .args(["-U", &uuid.to_string()]),
        FsKind::Xfs => {
            Tool::new("mkfs.xfs").args(["-f", "-q", "-K"]).args(["-m", &format!("uuid={uuid}")])
        }
        FsKind::Btrfs => {
            Tool::new("mkfs.btrfs").args(["-f", "-q", "-K"]).args(["-U", &uuid.to_string()])
        }
    };
    tool.arg(device).limit(LIMIT)
}

/// Makes what mkfs wrote durable. Blocks: for workers only.
pub(crate) fn sync(device: &Path) -> Result<(), BlockError> {
    let file = open(device, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
        .map_err(|source| BlockError::Open { path: device.to_owned(), source: source.into() })?;
    fsync(&file).map_err(|source| BlockError::Ioctl {
        attempt: "writing out",
        device: device.to_owned(),
        source: source.into(),
    })
}
