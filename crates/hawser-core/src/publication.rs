//! A publication: the right of one node to use a volume, and what that node made of it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::attach::Attached;
use crate::connection::ConnectionInfo;
use crate::id::PublicationId;
use crate::name::NodeId;

/// The right of one node to use a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publication {
    /// Its id; the node's attachment record carries the same.
    pub id: PublicationId,
    /// Who may use it.
    pub node: NodeId,
    /// Without the right to write.
    pub read_only: bool,
    /// What is attached and mounted is up to the node, where an orchestrator says so; the control
    /// half gives the right, takes it back, and hears of the rest.
    #[serde(default)]
    pub node_led: bool,
    /// The node asked for it by itself, and gives it back by itself.
    #[serde(default)]
    pub claimed: bool,
    /// No other node has it at the same time, whatever the volume bears.
    #[serde(default)]
    pub single_node: bool,
    /// Reaching the volume takes secrets, which are not in `info`.
    #[serde(default)]
    pub needs_secrets: bool,
    /// Where it is in its life.
    pub state: PublicationState,
    /// How to reach the volume, without secrets; present once published.
    pub info: Option<ConnectionInfo>,
    /// What the node has; present once attached.
    pub attached: Option<Attached>,
    /// Where the node shows it.
    pub mounts: Vec<MountPoint>,
}

/// Where a publication is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PublicationState {
    /// The storage system is being told.
    Publishing,
    /// The node may use it.
    Published,
    /// The right is being taken back.
    Unpublishing,
}

/// A place in the node's file tree where a volume is seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountPoint {
    /// The folder.
    pub target: PathBuf,
    /// Without the right to write.
    pub read_only: bool,
    /// Options beyond the default ones.
    pub flags: Vec<String>,
    /// False while it is being made or removed.
    pub ready: bool,
}

/// What a caller wants of a publication.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishRequest {
    /// For whom.
    pub node: NodeId,
    /// Without the right to write.
    pub read_only: bool,
    /// See [`Publication::node_led`].
    #[serde(default)]
    pub node_led: bool,
    /// See [`Publication::single_node`].
    #[serde(default)]
    pub single_node: bool,
}

impl PublishRequest {
    /// A right whose use the control half sees to.
    pub fn new(node: NodeId, read_only: bool) -> Self {
        Self { node, read_only, node_led: false, single_node: false }
    }
}

/// What a caller wants of a mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountRequest {
    /// Where to mount: this node.
    pub node: NodeId,
    /// On which folder; absolute, made if it is missing.
    pub target: PathBuf,
    /// Without the right to write.
    pub read_only: bool,
    /// Options beyond the default ones.
    pub flags: Vec<String>,
}
