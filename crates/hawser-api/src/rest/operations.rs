//! Operations on the wire.

use hawser_core::Timestamp;
use hawser_core::id::OperationId;
use hawser_core::operation::{Failure, Operation, OperationKind, OperationState, ProgressReport};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::mirror::mirror;
use super::problem::{KindView, OutcomeView};

mirror!(
    /// What an operation does.
    #[schema(as = OperationKind)]
    OperationKindView = OperationKind {
        /// Makes a volume.
        CreateVolume,
        /// Removes a volume.
        DeleteVolume,
        /// Makes a volume larger.
        ExpandVolume,
        /// Changes labels.
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
);

mirror!(
    /// Where an operation is.
    #[schema(as = OperationState)]
    OperationStateView = OperationState {
        /// At work.
        Running,
        /// Its outcome is not known yet; it is tried again until it is.
        Waiting,
        /// Done.
        Succeeded,
        /// Failed, and taken back.
        Failed,
    }
);

/// How far an operation has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Progress)]
pub struct ProgressView {
    /// The step it is at, in words.
    pub step: String,
    /// How much of the step is done.
    pub done: u64,
    /// How much the step is in all; 0 when that cannot be said.
    pub total: u64,
}

impl From<ProgressReport> for ProgressView {
    fn from(progress: ProgressReport) -> Self {
        Self { step: progress.step, done: progress.done, total: progress.total }
    }
}

impl From<ProgressView> for ProgressReport {
    fn from(view: ProgressView) -> Self {
        Self { step: view.step, done: view.done, total: view.total }
    }
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Failure)]
pub struct FailureView {
    /// What a caller can do about it.
    pub kind: KindView,
    /// What is known about the world.
    pub outcome: OutcomeView,
    /// What was attempted and why it failed, outermost first.
    pub messages: Vec<String>,
}

impl From<Failure> for FailureView {
    fn from(failure: Failure) -> Self {
        Self {
            kind: failure.kind.into(),
            outcome: failure.outcome.into(),
            messages: failure.messages,
        }
    }
}

impl From<FailureView> for Failure {
    fn from(view: FailureView) -> Self {
        Self {
            kind: view.kind.into(),
            outcome: view.outcome.into(),
            messages: view.messages,
            reason: None,
        }
    }
}

/// A running or finished change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Operation)]
pub struct OperationView {
    /// Its id.
    #[schema(value_type = String)]
    pub id: OperationId,
    /// What it does.
    pub kind: OperationKindView,
    /// The id of the volume, snapshot or group it changes.
    pub subject: String,
    /// The name of that object when the operation began.
    pub subject_name: String,
    /// Where it is.
    pub state: OperationStateView,
    /// How far it has come.
    pub progress: ProgressView,
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    pub started: Timestamp,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished: Option<Timestamp>,
    /// Why it failed.
    pub error: Option<FailureView>,
}

impl From<Operation> for OperationView {
    fn from(operation: Operation) -> Self {
        Self {
            id: operation.id,
            kind: operation.kind.into(),
            subject: operation.subject,
            subject_name: operation.subject_name,
            state: operation.state.into(),
            progress: operation.progress.into(),
            started: operation.started,
            finished: operation.finished,
            error: operation.error.map(Into::into),
        }
    }
}

impl From<OperationView> for Operation {
    fn from(view: OperationView) -> Self {
        Self {
            id: view.id,
            kind: view.kind.into(),
            subject: view.subject,
            subject_name: view.subject_name,
            state: view.state.into(),
            progress: view.progress.into(),
            started: view.started,
            finished: view.finished,
            error: view.error.map(Into::into),
        }
    }
}
