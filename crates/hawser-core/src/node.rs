//! A node: a host that runs the node half.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Timestamp;
use crate::name::NodeId;

/// What is known about a node; providers use it to say who may reach a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its id.
    pub id: NodeId,
    /// Connector properties in the os-brick spelling: `initiator`, `wwpns`, `nqn`, `ip`, `host`, …
    pub properties: BTreeMap<String, Value>,
    /// Where it is: zone, rack, …
    pub topology: BTreeMap<String, String>,
    /// Changes with each boot.
    pub boot_id: String,
    /// Whether it may mount, make loop devices and so on.
    pub privileged: bool,
    /// When it last said something.
    pub last_seen: Timestamp,
}
