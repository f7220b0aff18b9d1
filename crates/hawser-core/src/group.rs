//! A group: snapshots of several volumes, all of one instant.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::error::Result;
use crate::id::GroupId;
use crate::name::{Alias, Labels};
use crate::snapshot::Snapshot;
use crate::volume::VolumeRef;

/// Snapshots of several volumes, all of one instant, as callers see them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its id.
    pub id: GroupId,
    /// What it was called by whoever made it.
    pub alias: Alias,
    /// One snapshot of each volume, in the order of the request. While the group is being taken or
    /// removed, only those that are there.
    pub snapshots: Vec<Snapshot>,
    /// When it was asked for.
    pub created: Timestamp,
}

/// What a caller wants a group to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRequest {
    /// What to call it; the request is idempotent by this name.
    pub alias: Alias,
    /// Of which volumes; each once.
    pub volumes: Vec<VolumeRef>,
    /// Free pairs, for each snapshot.
    pub labels: Labels,
}

/// How a caller names a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum GroupRef {
    /// By internal id.
    Id(GroupId),
    /// By the name in some world.
    Alias(Alias),
}

impl GroupRef {
    /// Reads an id or a native name.
    pub fn parse(text: &str) -> Result<Self> {
        match text.parse::<GroupId>() {
            Ok(id) => Ok(Self::Id(id)),
            Err(_) => Ok(Self::Alias(Alias::native(text)?)),
        }
    }
}

impl fmt::Display for GroupRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Alias(alias) => alias.fmt(f),
        }
    }
}
