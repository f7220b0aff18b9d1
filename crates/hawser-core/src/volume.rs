//! A volume: what it is, what a caller may ask for, and how it is named.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::attach::Identity;
use crate::error::{Error, Kind, Result};
use crate::filesystem::{Filesystem, FsKind};
use crate::id::{OperationId, SnapshotId, VolumeId};
use crate::name::{Alias, ClassName, Labels};
use crate::place::Place;
use crate::publication::Publication;
use crate::size::ByteSize;
use crate::snapshot::SnapshotRef;

/// A volume as callers see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Its id.
    pub id: VolumeId,
    /// What it was called by whoever made it; the first is the one that made it.
    pub aliases: Vec<Alias>,
    /// Where it lives.
    pub class: ClassName,
    /// How large it is.
    pub size: ByteSize,
    /// What it is used as.
    pub access: Access,
    /// Who may write at the same time.
    pub sharing: Sharing,
    /// What it was made from.
    pub source: Option<Source>,
    /// Free pairs.
    pub labels: Labels,
    /// Settings for the provider, as given at creation.
    pub parameters: BTreeMap<String, String>,
    /// The provider's own name for it; chosen from the id, so known before it is made.
    pub handle: String,
    /// Where it can be reached from; everywhere when `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// Where it is in its life.
    pub state: VolumeState,
    /// What is inside, for volumes used as a file system.
    pub filesystem: Option<Filesystem>,
    /// What its device must say of itself; learned at the first attach where the provider cannot
    /// know it.
    pub identity: Option<Identity>,
    /// Who may use it, and what they made of that.
    pub publications: Vec<Publication>,
    /// Nobody was ever given the right to use it; false, too, where that is not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untouched: bool,
    /// The operation that holds it now.
    pub operation: Option<OperationId>,
    /// When it was asked for.
    pub created: Timestamp,
}

impl Volume {
    /// The name to show: the first alias, else the id.
    pub fn display_name(&self) -> String {
        self.aliases.first().map_or_else(|| self.id.to_string(), ToString::to_string)
    }
}

/// What a volume is used as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "mode", content = "fs")]
pub enum Access {
    /// A raw device.
    Block,
    /// A block device with this file system on it.
    Filesystem(FsKind),
    /// A folder that the storage system itself serves.
    Folder,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block => f.pad("block"),
            Self::Filesystem(kind) => f.pad(kind.as_str()),
            Self::Folder => f.pad("folder"),
        }
    }
}

/// Who may use a volume at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// One node, which may write.
    #[default]
    SingleWriter,
    /// Many nodes, none of which writes.
    ManyReaders,
    /// Many nodes, all of which may write; the content must be able to bear it.
    ManyWriters,
}

impl Sharing {
    /// The stable word, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SingleWriter => "single_writer",
            Self::ManyReaders => "many_readers",
            Self::ManyWriters => "many_writers",
        }
    }
}

/// What a volume was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A snapshot.
    Snapshot(SnapshotId),
    /// Another volume, as it was at that moment.
    Volume(VolumeId),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot(id) => write!(f, "snapshot {id}"),
            Self::Volume(id) => write!(f, "volume {id}"),
        }
    }
}

/// Where a volume is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeState {
    /// Being made.
    Creating,
    /// Can be used.
    Ready,
    /// Being removed.
    Deleting,
}

/// How a caller names a volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VolumeRef {
    /// By internal id.
    Id(VolumeId),
    /// By the name in some world.
    Alias(Alias),
}

macro_rules! reference {
    ($name:ident, $id:ty) => {
        impl $name {
            /// Reads an id or a native name.
            pub fn parse(text: &str) -> Result<Self> {
                match text.parse::<$id>() {
                    Ok(id) => Ok(Self::Id(id)),
                    Err(_) => Ok(Self::Alias(Alias::native(text)?)),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    Self::Id(id) => id.fmt(f),
                    Self::Alias(alias) => alias.fmt(f),
                }
            }
        }
    };
}
reference!(VolumeRef, VolumeId);
reference!(SnapshotRef, SnapshotId);

/// What a caller wants a volume to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRequest {
    /// What to call it; the request is idempotent by this name.
    pub alias: Alias,
    /// Where; the default class when `None`.
    pub class: Option<ClassName>,
    /// How large; with a source, `None` means as large as the source.
    pub size: Option<ByteSize>,
    /// Used as what; with a source, `None` means as the source, else the class's default.
    pub access: Option<Access>,
    /// Who may write.
    pub sharing: Sharing,
    /// From what.
    pub source: Option<SourceRef>,
    /// Free pairs.
    pub labels: Labels,
    /// Settings for the provider.
    pub parameters: BTreeMap<String, String>,
    /// From where it must be reached, the better places first: from at least one of them. Anywhere
    /// when empty.
    pub places: Vec<Place>,
    /// How large it may be at most: where the storage would make it larger, nothing is made and the
    /// answer is `Kind::OutOfRange`. A volume that is there is answered as it is.
    pub limit: Option<ByteSize>,
}

impl VolumeRequest {
    /// A new, empty volume of the default class.
    pub fn new(alias: Alias, size: ByteSize) -> Self {
        Self {
            alias,
            class: None,
            size: Some(size),
            access: None,
            sharing: Sharing::default(),
            source: None,
            labels: Labels::default(),
            parameters: BTreeMap::new(),
            places: Vec::new(),
            limit: None,
        }
    }

    /// Refuses what no back end could make. `Kind::Invalid` or `Kind::OutOfRange`.
    pub fn validate(&self) -> Result<()> {
        match (self.size, &self.source) {
            (None, None) => Err(Error::new(
                Kind::Invalid,
                format!("creating volume {}: a size is needed, such as 10GiB", self.alias),
            )),
            (Some(size), _) if size == ByteSize::ZERO => Err(Error::new(
                Kind::OutOfRange,
                format!("creating volume {}: a volume of 0 bytes is not possible", self.alias),
            )),
            (Some(_) | None, _) => Ok(()),
        }
    }
}

/// What a new volume is made from, as the caller names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceRef {
    /// A snapshot.
    Snapshot(SnapshotRef),
    /// Another volume.
    Volume(VolumeRef),
}
