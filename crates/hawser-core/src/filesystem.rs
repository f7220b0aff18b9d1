//! What is inside a block volume: the file systems Hawser makes, and how far making one has come.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Classify, Kind};

/// A file system that Hawser can make, check, mount and grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FsKind {
    /// The default: everywhere, grows while mounted.
    Ext4,
    /// For large volumes; copies share blocks.
    Xfs,
    /// Checksums and its own snapshots inside.
    Btrfs,
}

impl FsKind {
    /// Every kind, for help texts and tests.
    pub const ALL: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];

    /// The kernel's name for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The smallest device its mkfs accepts with default settings, in MiB; found by trying e2fsprogs
    /// 1.47, xfsprogs 6.1 and btrfs-progs 6.2.
    pub fn smallest_mib(self) -> u64 {
        match self {
            Self::Ext4 => 1,
            Self::Xfs => 300,
            Self::Btrfs => 110,
        }
    }
}

impl fmt::Display for FsKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A word that names no file system we know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a file system that Hawser makes: use ext4, xfs or btrfs")]
pub struct UnknownFs(String);

impl Classify for UnknownFs {
    fn kind(&self) -> Kind {
        Kind::Invalid
    }
}

impl FromStr for FsKind {
    type Err = UnknownFs;

    fn from_str(text: &str) -> Result<Self, UnknownFs> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| UnknownFs(text.chars().take(32).collect()))
    }
}

/// The file system of a volume, its id chosen before it is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filesystem {
    /// Which one.
    pub kind: FsKind,
    /// Its UUID: chosen with the volume, copied with a clone, checked before every mount.
    pub uuid: Uuid,
    /// How far it has come.
    pub state: FormatState,
}

/// How far the making of a file system has come. Only ever moves down this list.
///
/// `Done` is recorded before the first mount, so anything not `Done` has never held a user's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FormatState {
    /// The device must be blank.
    Never,
    /// mkfs was about to run: the device is blank, or carries our UUID, or a torso of it.
    Started,
    /// It was made; never format again.
    Done,
}
