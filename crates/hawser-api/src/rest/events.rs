//! Events on the wire: the `data` of each server-sent event.

use hawser_core::Timestamp;
use hawser_core::event::{Event, EventKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::mirror::mirror;

mirror!(
    /// What happened.
    #[schema(as = EventKind)]
    EventKindView = EventKind {
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
);

/// One change, in the order in which the server saw them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Event)]
pub struct EventView {
    /// Counts up since the server started; also the event's `id`, for `Last-Event-ID`.
    pub sequence: u64,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// What happened.
    pub kind: EventKindView,
    /// The id of the object.
    pub subject: String,
    /// More, in words.
    pub message: String,
}

impl From<Event> for EventView {
    fn from(event: Event) -> Self {
        Self {
            sequence: event.sequence,
            at: event.at,
            kind: event.kind.into(),
            subject: event.subject,
            message: event.message,
        }
    }
}

impl From<EventView> for Event {
    fn from(view: EventView) -> Self {
        Self {
            sequence: view.sequence,
            at: view.at,
            kind: view.kind.into(),
            subject: view.subject,
            message: view.message,
        }
    }
}
