//! From the words of the protocol to those of Hawser, and back.

mod about;
mod capability;
mod parameters;
mod range;
mod snapshot;
mod topology;
mod volume;

pub(super) use about::{About, Subject};
pub(super) use capability::{Capability, Mode, Use, fits, of_many};
pub(super) use parameters::{Parameters, labels_of, mutable_labels};
pub(super) use range::Range;
pub(super) use snapshot::{group, snapshot};
pub(super) use topology::{place, places, topology};
pub(super) use volume::{listed, volume};

use hawser_core::ByteSize;
use hawser_core::id::{GroupId, SnapshotId, VolumeId};

use super::error::{CsiError, cut};

/// The id of a volume. A text that is no id names nothing that exists: `Kind::NotFound`.
pub(super) fn volume_id(text: &str) -> Result<VolumeId, CsiError> {
    text.parse().map_err(|_| CsiError::Unknown { what: "volume", id: cut(text) })
}

/// The id of a snapshot. A text that is no id names nothing that exists: `Kind::NotFound`.
pub(super) fn snapshot_id(text: &str) -> Result<SnapshotId, CsiError> {
    text.parse().map_err(|_| CsiError::Unknown { what: "snapshot", id: cut(text) })
}

/// The id of a group. A text that is no id names nothing that exists: `Kind::NotFound`.
pub(super) fn group_id(text: &str) -> Result<GroupId, CsiError> {
    text.parse().map_err(|_| CsiError::Unknown { what: "group snapshot", id: cut(text) })
}

/// A size as the protocol writes it. Nothing on Linux is larger than what fits.
pub(super) fn bytes(size: ByteSize) -> i64 {
    i64::try_from(size.get()).unwrap_or(i64::MAX)
}
