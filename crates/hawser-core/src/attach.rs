//! What a connector gives and takes: attachments on this host.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::connection::ConnectionInfo;
use crate::id::{InstanceId, PublicationId, VolumeId};
use crate::size::ByteSize;

/// What a device says of itself, and what it must say before it is used.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Which kind of id: `wwid`, `nguid`, `eui`, `uuid`, `rbd`, `serial`, `image`, `folder`.
    pub scheme: String,
    /// The id.
    pub value: String,
}

impl Identity {
    /// An identity of one scheme.
    pub fn new(scheme: impl Into<String>, value: impl Into<String>) -> Self {
        Self { scheme: scheme.into(), value: value.into() }
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.scheme, self.value)
    }
}

/// How to attach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// Give up after so long.
    pub deadline: Duration,
    /// The device must refuse writes.
    pub read_only: bool,
    /// Options for connectors that mount.
    pub mount_flags: Vec<String>,
    /// Over how many paths.
    #[serde(default)]
    pub multipath: Multipath,
    /// The device is encrypted; what is given to the user is the clear side. The key is among the
    /// secrets of the connection info, as `encryption_key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,
    /// Keep every other host from writing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<SingleWriter>,
}

impl Default for Attach {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(60),
            read_only: false,
            mount_flags: Vec::new(),
            multipath: Multipath::default(),
            encryption: None,
            reservation: None,
        }
    }
}

/// Over how many paths a volume is reached; what asks for more is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Multipath {
    /// One path.
    #[default]
    Off,
    /// Every path there is; one alone where this host has no multipath.
    Wanted,
    /// Every path there is; refused where this host has no multipath.
    Enforced,
}

/// How a device is encrypted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Encryption {
    /// The format of the header.
    pub format: EncryptionFormat,
    /// For a new header, such as `aes-xts-plain64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cipher: Option<String>,
    /// For a new header, in bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_size: Option<u32>,
    /// A header may be made where the device was read and is blank; refused otherwise.
    #[serde(default)]
    pub format_if_blank: bool,
    /// Let discards through; they show which blocks are used.
    #[serde(default)]
    pub discards: bool,
}

/// Formats of encryption headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EncryptionFormat {
    /// LUKS version 1.
    Luks,
    /// LUKS version 2.
    Luks2,
}

/// How a single writer is enforced at the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SingleWriter {
    /// The key of this host, not 0.
    pub key: u64,
    /// Throw out whoever holds the reservation. Only where somebody decided that it may not write
    /// any more.
    #[serde(default)]
    pub preempt: bool,
}

/// How to detach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detach {
    /// Give up after so long.
    pub deadline: Duration,
    /// Go on past a failed flush.
    pub force: bool,
    /// With `force`: answer success whatever failed.
    pub ignore_errors: bool,
}

impl Default for Detach {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(60), force: false, ignore_errors: false }
    }
}

/// What a connector made of a volume on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum Attached {
    /// A block device.
    Block {
        /// Its node, such as `/dev/loop3`.
        device: PathBuf,
        /// What it says of itself.
        identity: Option<Identity>,
        /// How large it is.
        size: ByteSize,
    },
    /// A folder.
    Directory {
        /// Where.
        path: PathBuf,
    },
    /// A file in a folder.
    File {
        /// Where.
        path: PathBuf,
    },
}

impl Attached {
    /// The device, folder or file.
    pub fn path(&self) -> &Path {
        match self {
            Self::Block { device, .. } => device,
            Self::Directory { path } | Self::File { path } => path,
        }
    }

    /// What the device says of itself, where it is one.
    pub fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Block { identity, .. } => identity.as_ref(),
            Self::Directory { .. } | Self::File { .. } => None,
        }
    }
}

/// What this host knows about one attachment: written before the connector acts (`Intent`), again
/// before it answers, and removed after detach. One file each, shared by all instances on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachRecord {
    /// For which publication.
    pub publication: PublicationId,
    /// Of which volume.
    pub volume: VolumeId,
    /// How it was reached, without secrets.
    pub info: ConnectionInfo,
    /// How it was attached.
    pub attach: Attach,
    /// How far it has come.
    pub state: AttachState,
    /// What there is; present from [`AttachState::Attached`] on.
    pub attached: Option<Attached>,
    /// Where it is mounted: written before the mount is made, removed after it is gone.
    pub mounts: Vec<NodeMount>,
    /// The mount whose file system is frozen now; written before it is frozen.
    pub frozen: Option<PathBuf>,
    /// Which instance did it.
    pub instance: InstanceId,
    /// During which boot of the host; devices and mounts of another boot are gone.
    pub boot_id: String,
    /// When.
    pub created: Timestamp,
}

/// How far an attachment has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttachState {
    /// The connector may have begun.
    Intent,
    /// There.
    Attached,
    /// The connector may have begun to take it away.
    Detaching,
}

/// A mount that this host made for an attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMount {
    /// The folder, or the file for a device itself.
    pub target: PathBuf,
    /// Without the right to write.
    pub read_only: bool,
    /// Options beyond the default ones.
    pub flags: Vec<String>,
    /// False until the mount is known to be there.
    pub ready: bool,
    /// The folder or file was made for this mount and goes with it.
    pub made_target: bool,
    /// The device itself is shown, in a file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub raw: bool,
}

/// Whether something works, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Nothing is wrong.
    pub healthy: bool,
    /// What is wrong, or that nothing is.
    pub message: String,
}

impl Health {
    /// Nothing is wrong.
    pub fn good() -> Self {
        Self { healthy: true, message: "healthy".into() }
    }

    /// Something is wrong.
    pub fn bad(message: impl Into<String>) -> Self {
        Self { healthy: false, message: message.into() }
    }
}
