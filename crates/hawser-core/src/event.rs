//! Events: what changed, for whoever watches.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// One change, in the order in which the server saw them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Counts up from 1 since the server started.
    pub sequence: u64,
    /// When.
    pub at: Timestamp,
    /// What happened.
    pub kind: EventKind,
    /// The id of the object.
    pub subject: String,
    /// More, in words.
    pub message: String,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A volume appeared or changed.
    VolumeChanged,
    /// A volume is gone.
    VolumeDeleted,
    /// A snapshot appeared or changed.
    SnapshotChanged,
    /// A snapshot is gone.
    SnapshotDeleted,
    /// An operation began.
    OperationStarted,
    /// An operation ended.
    OperationFinished,
    /// A node came or went.
    NodeChanged,
    /// Events before this one are no longer kept: read the lists again.
    Compacted,
}
