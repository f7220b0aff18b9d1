//! Nodes, and what their kubelets say of CSI drivers.

use kube::core::ClusterResourceScope;
use serde::{Deserialize, Serialize};

use super::Meta;
use super::meta::object;

/// The drivers on a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct CsiNode {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) spec: CsiNodeSpec,
}

/// The drivers on a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct CsiNodeSpec {
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) drivers: Vec<CsiNodeDriver>,
}

/// One driver on a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct CsiNodeDriver {
    pub(in crate::kubernetes) name: String,
    #[serde(rename = "nodeID")]
    pub(in crate::kubernetes) node_id: String,
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) topology_keys: Vec<String>,
}

object!(CsiNode, "CSINode", "storage.k8s.io", "v1", "csinodes", ClusterResourceScope);

impl CsiNode {
    /// What the kubelet says of one driver.
    pub(in crate::kubernetes) fn driver(&self, name: &str) -> Option<&CsiNodeDriver> {
        self.spec.drivers.iter().find(|driver| driver.name == name)
    }
}

/// A node: its labels say where it is, its taints who may not come.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct Node {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) spec: NodeSpec,
}

/// Who may not come.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct NodeSpec {
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) taints: Vec<Taint>,
}

/// Keeps pods away.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct Taint {
    pub(in crate::kubernetes) key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::kubernetes) value: Option<String>,
    pub(in crate::kubernetes) effect: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::kubernetes) time_added: Option<String>,
}

object!(Node, "Node", "", "v1", "nodes", ClusterResourceScope);
