//! The objects of the cluster, as much of each as is used here: what is kept in memory of tens of
//! thousands of them is what these types hold. Changes are sent as patches, so that fields which are
//! not here survive.

mod attachment;
mod capacity;
mod claim;
mod class;
mod event;
mod meta;
mod node;
mod snapshot;
mod volume;

pub(super) use attachment::Attachment;
pub(super) use capacity::{Capacity, CsiDriver};
pub(super) use claim::{Claim, Condition, DataSource, ModifyStatus};
pub(super) use class::{AttributesClass, StorageClass, TopologyTerm};
pub(super) use event::Event;
pub(super) use meta::{Key, Meta, Object};
pub(super) use node::{CsiNode, Node, Taint};
pub(super) use snapshot::{
    Content, ContentStatus, GroupClass, GroupContent, GroupContentStatus, ObjectRef, Snapshot,
    SnapshotClass,
};
pub(super) use volume::{
    ClaimRef, CsiSource, NodeAffinity, NodeSelector, NodeSelectorExpression, NodeSelectorTerm,
    SecretRef, Volume, VolumeSpec,
};

use std::collections::BTreeMap;

/// Amounts by resource; volumes have `storage` only.
pub(super) type Amounts = BTreeMap<String, String>;

/// What amounts of storage are called.
pub(super) const STORAGE: &str = "storage";

#[cfg(test)]
mod tests;
