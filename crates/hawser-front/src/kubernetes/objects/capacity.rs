//! CSIStorageCapacities, and the drivers that they are for.

use std::collections::BTreeMap;

use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Meta;
use super::meta::object;

/// How much room a class has on some nodes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct Capacity {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) storage_class_name: String,
    pub(in crate::kubernetes) node_topology: Option<LabelSelector>,
    pub(in crate::kubernetes) capacity: Option<String>,
    pub(in crate::kubernetes) maximum_volume_size: Option<String>,
}

/// Nodes with certain labels.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct LabelSelector {
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) match_labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) match_expressions: Vec<IgnoredAny>,
}

object!(
    Capacity,
    "CSIStorageCapacity",
    "storage.k8s.io",
    "v1",
    "csistoragecapacities",
    NamespaceResourceScope
);

/// What a cluster is told of a driver.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct CsiDriver {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) spec: CsiDriverSpec,
}

/// What a cluster is told of a driver.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct CsiDriverSpec {
    /// Whether the scheduler looks at how much room there is.
    pub(in crate::kubernetes) storage_capacity: Option<bool>,
}

object!(CsiDriver, "CSIDriver", "storage.k8s.io", "v1", "csidrivers", ClusterResourceScope);
