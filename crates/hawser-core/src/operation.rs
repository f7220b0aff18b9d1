//! An operation: a running or finished change.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::Timestamp;
use crate::error::{Error, Kind, Outcome};
use crate::id::OperationId;
use crate::reason::Reason;

/// A running or finished change, as callers see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Its id.
    pub id: OperationId,
    /// What it does.
    pub kind: OperationKind,
    /// The id of the volume, snapshot or group it changes.
    pub subject: String,
    /// The name of that object when the operation began.
    pub subject_name: String,
    /// Where it is.
    pub state: OperationState,
    /// How far it has come.
    pub progress: ProgressReport,
    /// When it began.
    pub started: Timestamp,
    /// When it ended.
    pub finished: Option<Timestamp>,
    /// Why it failed.
    pub error: Option<Failure>,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    /// Makes a volume, from nothing or from a source.
    CreateVolume,
    /// Removes a volume.
    DeleteVolume,
    /// Makes a volume larger, with all that is inside.
    ExpandVolume,
    /// Changes the labels of a volume.
    LabelVolume,
    /// Takes a snapshot.
    CreateSnapshot,
    /// Removes a snapshot.
    DeleteSnapshot,
    /// Takes snapshots of several volumes, all of one instant.
    CreateGroup,
    /// Removes a group with all of its snapshots.
    DeleteGroup,
    /// Gives a node the right to use a volume.
    PublishVolume,
    /// Takes that right back.
    UnpublishVolume,
    /// Brings the device to the node.
    AttachVolume,
    /// Takes the device away.
    DetachVolume,
    /// Shows the volume in a folder.
    MountVolume,
    /// Takes that folder away.
    UnmountVolume,
    /// Holds a volume still while another is copied from it, or while a group is taken.
    LendVolume,
}

impl OperationKind {
    /// Every kind, for tables and tests.
    pub const ALL: [Self; 15] = [
        Self::CreateVolume,
        Self::DeleteVolume,
        Self::ExpandVolume,
        Self::LabelVolume,
        Self::CreateSnapshot,
        Self::DeleteSnapshot,
        Self::CreateGroup,
        Self::DeleteGroup,
        Self::PublishVolume,
        Self::UnpublishVolume,
        Self::AttachVolume,
        Self::DetachVolume,
        Self::MountVolume,
        Self::UnmountVolume,
        Self::LendVolume,
    ];

    /// The stable word, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CreateVolume => "create_volume",
            Self::DeleteVolume => "delete_volume",
            Self::ExpandVolume => "expand_volume",
            Self::LabelVolume => "label_volume",
            Self::CreateSnapshot => "create_snapshot",
            Self::DeleteSnapshot => "delete_snapshot",
            Self::CreateGroup => "create_group",
            Self::DeleteGroup => "delete_group",
            Self::PublishVolume => "publish_volume",
            Self::UnpublishVolume => "unpublish_volume",
            Self::AttachVolume => "attach_volume",
            Self::DetachVolume => "detach_volume",
            Self::MountVolume => "mount_volume",
            Self::UnmountVolume => "unmount_volume",
            Self::LendVolume => "lend_volume",
        }
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Where an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationState {
    /// At work.
    Running,
    /// Its outcome is not known yet; it is tried again until it is.
    Waiting,
    /// Done.
    Succeeded,
    /// Failed, and taken back.
    Failed,
}

impl OperationState {
    /// True when nothing more will happen.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// How far an operation has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressReport {
    /// The step it is at, in words.
    pub step: String,
    /// How much of the step is done, where that can be said.
    pub done: u64,
    /// How much the step is in all; 0 when that cannot be said.
    pub total: u64,
}

/// An [`Error`] as data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What a caller can do about it.
    pub kind: Kind,
    /// What is known about the world.
    pub outcome: Outcome,
    /// The chain, outermost first.
    pub messages: Vec<String>,
    /// The word of the host library, where it has one. Words of a newer peer are left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "known_reason")]
    pub reason: Option<Reason>,
}

/// A reason that this version knows; others, of a newer peer, are none.
fn known_reason<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Reason>, D::Error> {
    let word = Option::<String>::deserialize(deserializer)?;
    Ok(word.as_deref().and_then(Reason::parse))
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        Self {
            kind: error.kind(),
            outcome: error.outcome(),
            messages: error.chain(),
            reason: error.reason(),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::from_remote(failure.kind, failure.outcome, failure.messages)
            .with_reason(failure.reason)
    }
}
