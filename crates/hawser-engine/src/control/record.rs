//! What the store holds: one record per volume, snapshot and group, each with its running operation.
//!
//! The journal is part of the record it guards, so that one compare-and-set takes the exclusive
//! right, says what will be done, and names what will be made.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use hawser_core::Timestamp;
use hawser_core::id::{GroupId, InstanceId, OperationId, SnapshotId, VolumeId};
use hawser_core::name::{Alias, ClassName, Labels, NodeId};
use hawser_core::operation::OperationKind;
use hawser_core::place::Place;
use hawser_core::port::provider::SnapshotAtProvider;
use hawser_core::port::store::{Key, Prefix};
use hawser_core::publication::{MountRequest, PublishRequest};
use hawser_core::size::ByteSize;
use hawser_core::snapshot::Snapshot;
use hawser_core::volume::{Volume, VolumeState};

/// A record that an operation can hold.
pub(crate) trait Record:
    Serialize + DeserializeOwned + Clone + Send + Sync + 'static
{
    /// Where it is kept.
    fn key(&self) -> Key;
    /// The operation that holds it.
    fn journal(&self) -> Option<&Journal>;
    /// The same, to change it.
    fn journal_mut(&mut self) -> &mut Option<Journal>;
}

/// A volume with its publications and its running operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct VolumeRecord {
    pub(crate) volume: Volume,
    pub(crate) journal: Option<Journal>,
}

impl VolumeRecord {
    pub(crate) fn key_of(id: &VolumeId) -> Key {
        Key::join(&["volume", id.as_str()])
    }

    pub(crate) fn prefix() -> Prefix {
        Prefix::below(&["volume"])
    }

    /// True when there is no such volume, and only remains of one are removed; see `sweep`.
    pub(crate) fn is_of_remains(&self) -> bool {
        let work = self.journal.as_ref().map(|journal| &journal.work);
        matches!(work, Some(Work::SweepVolume { .. })) && self.volume.state == VolumeState::Deleting
    }

    /// The volume as callers see it.
    pub(crate) fn view(&self) -> Volume {
        let mut volume = self.volume.clone();
        volume.operation = self.journal.as_ref().map(|journal| journal.id.clone());
        volume
    }
}

impl Record for VolumeRecord {
    fn key(&self) -> Key {
        Self::key_of(&self.volume.id)
    }
    fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }
    fn journal_mut(&mut self) -> &mut Option<Journal> {
        &mut self.journal
    }
}

/// A snapshot, who is being made from it, and its running operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SnapshotRecord {
    pub(crate) snapshot: Snapshot,
    /// Volumes that are being copied from it now; it cannot be deleted while there are any.
    pub(crate) holds: Vec<VolumeId>,
    pub(crate) journal: Option<Journal>,
}

impl SnapshotRecord {
    pub(crate) fn key_of(id: &SnapshotId) -> Key {
        Key::join(&["snapshot", id.as_str()])
    }

    pub(crate) fn prefix() -> Prefix {
        Prefix::below(&["snapshot"])
    }
}

impl Record for SnapshotRecord {
    fn key(&self) -> Key {
        Self::key_of(&self.snapshot.id)
    }
    fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }
    fn journal_mut(&mut self) -> &mut Option<Journal> {
        &mut self.journal
    }
}

/// A group of snapshots and its running operation. The snapshots have records of their own, which
/// are written after this one and removed before it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GroupRecord {
    pub(crate) group: GroupHead,
    pub(crate) journal: Option<Journal>,
}

/// What a group is, apart from its snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupHead {
    pub(crate) id: GroupId,
    pub(crate) alias: Alias,
    /// For each snapshot.
    pub(crate) labels: Labels,
    /// In the order of the request.
    pub(crate) members: Vec<Member>,
    pub(crate) cut: Cut,
    pub(crate) created: Timestamp,
}

/// One volume of a group, and the snapshot that is taken of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) volume: VolumeId,
    pub(crate) snapshot: SnapshotId,
    /// What the snapshot is called.
    pub(crate) alias: Alias,
}

/// How much of a group there is at the provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cut {
    /// Nothing yet.
    Never,
    /// The provider was or will be asked: what is there may be of several instants, or not all.
    Started,
    /// All of it, of one instant.
    Done(Vec<SnapshotAtProvider>),
}

impl GroupRecord {
    pub(crate) fn key_of(id: &GroupId) -> Key {
        Key::join(&["group", id.as_str()])
    }

    pub(crate) fn prefix() -> Prefix {
        Prefix::below(&["group"])
    }
}

impl Record for GroupRecord {
    fn key(&self) -> Key {
        Self::key_of(&self.group.id)
    }
    fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }
    fn journal_mut(&mut self) -> &mut Option<Journal> {
        &mut self.journal
    }
}

/// A running operation: written before anything is done, cleared with its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Journal {
    pub(crate) id: OperationId,
    /// What will be done; enough to do it again or to take it back.
    pub(crate) work: Work,
    /// Which instance is at it.
    pub(crate) holder: InstanceId,
    /// Until when nobody else may take it over.
    pub(crate) expires: Timestamp,
    pub(crate) started: Timestamp,
    /// It failed and is being taken back.
    pub(crate) undoing: bool,
}

/// What an operation does, as data. Two requests are the same when these are equal, apart from what
/// the engine itself put in (ids and `new_…`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Work {
    CreateVolume,
    DeleteVolume,
    ExpandVolume {
        size: ByteSize,
    },
    CreateSnapshot {
        snapshot: SnapshotId,
        alias: Alias,
        labels: Labels,
    },
    DeleteSnapshot,
    CreateGroup,
    DeleteGroup,
    PublishVolume {
        request: PublishRequest,
        /// As for attaching. Where an older journal does not say, nothing is taken away.
        #[serde(default)]
        new_publication: bool,
    },
    UnpublishVolume {
        node: NodeId,
    },
    AttachVolume {
        request: PublishRequest,
        /// This operation made the publication, so taking it back removes it.
        new_publication: bool,
    },
    DetachVolume {
        node: NodeId,
    },
    MountVolume {
        request: MountRequest,
        new_publication: bool,
        new_attachment: bool,
        /// Not of a mount that the record has already and that is only brought back.
        new_mount: bool,
    },
    UnmountVolume {
        node: NodeId,
        target: Option<std::path::PathBuf>,
    },
    /// Removes a volume that holds nothing from where no record says that it is; see `sweep`.
    SweepVolume {
        class: ClassName,
        place: Option<Place>,
    },
    /// Holds the volume still while another is copied from it.
    LendVolume {
        to: VolumeId,
    },
    /// Holds the volume still while a group is taken.
    SnapshotInGroup {
        group: GroupId,
    },
}

impl Work {
    pub(crate) fn kind(&self) -> OperationKind {
        match self {
            Self::CreateVolume => OperationKind::CreateVolume,
            Self::DeleteVolume | Self::SweepVolume { .. } => OperationKind::DeleteVolume,
            Self::ExpandVolume { .. } => OperationKind::ExpandVolume,
            Self::CreateSnapshot { .. } => OperationKind::CreateSnapshot,
            Self::DeleteSnapshot => OperationKind::DeleteSnapshot,
            Self::CreateGroup => OperationKind::CreateGroup,
            Self::DeleteGroup => OperationKind::DeleteGroup,
            Self::PublishVolume { .. } => OperationKind::PublishVolume,
            Self::UnpublishVolume { .. } => OperationKind::UnpublishVolume,
            Self::AttachVolume { .. } => OperationKind::AttachVolume,
            Self::DetachVolume { .. } => OperationKind::DetachVolume,
            Self::MountVolume { .. } => OperationKind::MountVolume,
            Self::UnmountVolume { .. } => OperationKind::UnmountVolume,
            Self::LendVolume { .. } | Self::SnapshotInGroup { .. } => OperationKind::LendVolume,
        }
    }

    /// True for work that nobody drives: the volume is released by whoever borrowed it; see `loan`.
    pub(crate) fn is_loan(&self) -> bool {
        matches!(self, Self::LendVolume { .. } | Self::SnapshotInGroup { .. })
    }

    /// True when a request for `other` is a repetition of this one.
    pub(crate) fn same_request(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::PublishVolume { request: a, .. }, Self::PublishVolume { request: b, .. })
            | (Self::AttachVolume { request: a, .. }, Self::AttachVolume { request: b, .. }) => {
                a == b
            }
            (Self::MountVolume { request: a, .. }, Self::MountVolume { request: b, .. }) => a == b,
            (
                Self::CreateSnapshot { alias: a, labels: x, .. },
                Self::CreateSnapshot { alias: b, labels: y, .. },
            ) => a == b && x == y,
            (a, b) => a == b,
        }
    }
}

/// Where the id behind a name is kept.
pub(crate) fn name_key(of: &str, alias: &Alias) -> Key {
    Key::join(&["name", of, alias.scope().as_str(), alias.name()])
}

/// What a name leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NameRecord {
    pub(crate) id: String,
}
