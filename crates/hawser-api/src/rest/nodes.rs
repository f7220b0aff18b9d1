//! Nodes on the wire.

use std::collections::BTreeMap;

use hawser_core::Timestamp;
use hawser_core::name::NodeId;
use hawser_core::node::NodeRecord;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A host that runs the node half.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Node)]
pub struct NodeView {
    /// Its id.
    #[schema(value_type = String)]
    pub id: NodeId,
    /// Connector properties: initiator, addresses, …
    pub properties: BTreeMap<String, Value>,
    /// Where it is: zone, rack, …
    pub topology: BTreeMap<String, String>,
    /// Changes with each boot.
    pub boot_id: String,
    /// Whether it may mount, make loop devices and so on.
    pub privileged: bool,
    /// When it last said something.
    #[schema(value_type = String, format = DateTime)]
    pub last_seen: Timestamp,
}

impl From<NodeRecord> for NodeView {
    fn from(node: NodeRecord) -> Self {
        Self {
            id: node.id,
            properties: node.properties,
            topology: node.topology,
            boot_id: node.boot_id,
            privileged: node.privileged,
            last_seen: node.last_seen,
        }
    }
}

impl From<NodeView> for NodeRecord {
    fn from(view: NodeView) -> Self {
        Self {
            id: view.id,
            properties: view.properties,
            topology: view.topology,
            boot_id: view.boot_id,
            privileged: view.privileged,
            last_seen: view.last_seen,
        }
    }
}
