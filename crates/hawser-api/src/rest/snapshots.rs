//! Snapshots on the wire.

use std::collections::BTreeMap;

use hawser_core::id::{GroupId, SnapshotId, VolumeId};
use hawser_core::name::{Alias, ClassName, Labels, Scope};
use hawser_core::place::Place;
use hawser_core::snapshot::{Snapshot, SnapshotRequest, SnapshotState};
use hawser_core::{ByteSize, Error, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::mirror::mirror;
use super::volumes::{AccessView, FilesystemView, ScopeView};
use super::{reference, schema};

mirror!(
    /// Where a snapshot is in its life.
    #[schema(as = SnapshotState)]
    SnapshotStateView = SnapshotState {
        /// Being taken.
        Creating,
        /// Can be restored.
        Ready,
        /// Being removed.
        Deleting,
    }
);

/// A point in time of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Snapshot)]
pub struct SnapshotView {
    /// Its id.
    #[schema(value_type = String)]
    pub id: SnapshotId,
    /// The name to show and to use in paths.
    pub name: String,
    /// What it was called by whoever made it.
    #[schema(schema_with = schema::alias)]
    pub alias: Alias,
    /// The volume it was taken of; that volume may be gone.
    #[schema(value_type = String)]
    pub volume: VolumeId,
    /// The class it lives in.
    #[schema(value_type = String)]
    pub class: ClassName,
    /// The size of the volume at that time; the smallest size of a restored volume.
    #[schema(schema_with = schema::size)]
    pub size: ByteSize,
    /// What the volume was used as.
    pub access: AccessView,
    /// What was inside.
    pub filesystem: Option<FilesystemView>,
    /// The provider's own name for it.
    pub handle: String,
    /// Free pairs.
    #[schema(value_type = BTreeMap<String, String>)]
    pub labels: Labels,
    /// Where the storage behind it is; everywhere when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    pub place: Option<Place>,
    /// The group it was taken with, and goes with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub group: Option<GroupId>,
    /// Where it is in its life.
    pub state: SnapshotStateView,
    /// When it was asked for.
    #[schema(value_type = String, format = DateTime)]
    pub created: Timestamp,
}

impl From<Snapshot> for SnapshotView {
    fn from(snapshot: Snapshot) -> Self {
        Self {
            id: snapshot.id,
            name: snapshot.alias.to_string(),
            alias: snapshot.alias,
            volume: snapshot.volume,
            class: snapshot.class,
            size: snapshot.size,
            access: snapshot.access.into(),
            filesystem: snapshot.filesystem.map(Into::into),
            handle: snapshot.handle,
            labels: snapshot.labels,
            place: snapshot.place,
            group: snapshot.group,
            state: snapshot.state.into(),
            created: snapshot.created,
        }
    }
}

impl From<SnapshotView> for Snapshot {
    fn from(view: SnapshotView) -> Self {
        Self {
            id: view.id,
            alias: view.alias,
            volume: view.volume,
            class: view.class,
            size: view.size,
            access: view.access.into(),
            filesystem: view.filesystem.map(Into::into),
            handle: view.handle,
            labels: view.labels,
            place: view.place,
            group: view.group,
            state: view.state.into(),
            created: view.created,
        }
    }
}

/// The body of `POST /v1/snapshots`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSnapshot {
    /// What to call it; the request is idempotent by this name.
    #[schema(example = "before-upgrade")]
    pub name: String,
    /// Whose name it is; this API's own when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ScopeView>,
    /// Of which volume: an id or a name.
    pub volume: String,
    /// Free pairs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl TryFrom<CreateSnapshot> for SnapshotRequest {
    type Error = Error;

    fn try_from(body: CreateSnapshot) -> Result<Self, Error> {
        Ok(Self {
            alias: Alias::new(body.scope.map_or(Scope::Native, Into::into), body.name)?,
            volume: reference::volume(&body.volume)?,
            labels: Labels::try_from(body.labels)?,
        })
    }
}

impl From<SnapshotRequest> for CreateSnapshot {
    fn from(request: SnapshotRequest) -> Self {
        let scope = request.alias.scope();
        Self {
            name: request.alias.name().to_owned(),
            scope: (scope != Scope::Native).then(|| scope.into()),
            volume: request.volume.to_string(),
            labels: request.labels.into(),
        }
    }
}
