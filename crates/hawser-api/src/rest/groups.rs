//! Groups of snapshots on the wire.

use std::collections::BTreeMap;

use hawser_core::group::{Group, GroupRequest};
use hawser_core::id::GroupId;
use hawser_core::name::{Alias, Labels, Scope};
use hawser_core::{Error, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::snapshots::SnapshotView;
use super::volumes::ScopeView;
use super::{reference, schema};

/// Snapshots of several volumes, all of one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Group)]
pub struct GroupView {
    /// Its id.
    #[schema(value_type = String, example = "grp-01k5zzzzzzzzzzzzzzzzzzzzzz")]
    pub id: GroupId,
    /// The name to show and to use in paths.
    pub name: String,
    /// What it was called by whoever made it.
    #[schema(schema_with = schema::alias)]
    pub alias: Alias,
    /// One snapshot of each volume, in the order of the request; while the group is being taken or
    /// removed, only those that are there.
    pub snapshots: Vec<SnapshotView>,
    /// When it was asked for.
    #[schema(value_type = String, format = DateTime)]
    pub created: Timestamp,
}

impl From<Group> for GroupView {
    fn from(group: Group) -> Self {
        Self {
            id: group.id,
            name: group.alias.to_string(),
            alias: group.alias,
            snapshots: group.snapshots.into_iter().map(Into::into).collect(),
            created: group.created,
        }
    }
}

impl From<GroupView> for Group {
    fn from(view: GroupView) -> Self {
        Self {
            id: view.id,
            alias: view.alias,
            snapshots: view.snapshots.into_iter().map(Into::into).collect(),
            created: view.created,
        }
    }
}

/// The body of `POST /v1/groups`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateGroup {
    /// What to call it; the request is idempotent by this name.
    #[schema(example = "nightly")]
    pub name: String,
    /// Whose name it is; this API's own when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ScopeView>,
    /// Of which volumes, each once: ids or names.
    #[schema(min_items = 1)]
    pub volumes: Vec<String>,
    /// Free pairs, for each snapshot.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl TryFrom<CreateGroup> for GroupRequest {
    type Error = Error;

    fn try_from(body: CreateGroup) -> Result<Self, Error> {
        Ok(Self {
            alias: Alias::new(body.scope.map_or(Scope::Native, Into::into), body.name)?,
            volumes: body
                .volumes
                .iter()
                .map(|text| reference::volume(text))
                .collect::<Result<_, _>>()?,
            labels: Labels::try_from(body.labels)?,
        })
    }
}

impl From<GroupRequest> for CreateGroup {
    fn from(request: GroupRequest) -> Self {
        let scope = request.alias.scope();
        Self {
            name: request.alias.name().to_owned(),
            scope: (scope != Scope::Native).then(|| scope.into()),
            volumes: request.volumes.iter().map(ToString::to_string).collect(),
            labels: request.labels.into(),
        }
    }
}
