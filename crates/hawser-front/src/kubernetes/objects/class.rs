//! StorageClasses and VolumeAttributesClasses.

use std::collections::BTreeMap;

use kube::core::ClusterResourceScope;
use serde::Deserialize;

use super::Meta;
use super::meta::object;

/// How volumes of a class are made.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct StorageClass {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) provisioner: String,
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) parameters: BTreeMap<String, String>,
    pub(in crate::kubernetes) reclaim_policy: Option<String>,
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) mount_options: Vec<String>,
    pub(in crate::kubernetes) allow_volume_expansion: Option<bool>,
    pub(in crate::kubernetes) volume_binding_mode: Option<String>,
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) allowed_topologies: Vec<TopologyTerm>,
}

/// Nodes that meet all of these.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct TopologyTerm {
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) match_label_expressions: Vec<TopologyExpression>,
}

/// What a label of a node must be.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct TopologyExpression {
    pub(in crate::kubernetes) key: String,
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) values: Vec<String>,
}

object!(
    StorageClass,
    "StorageClass",
    "storage.k8s.io",
    "v1",
    "storageclasses",
    ClusterResourceScope
);

impl StorageClass {
    /// True when a volume is made once the first pod that uses it has a node.
    pub(in crate::kubernetes) fn waits_for_consumer(&self) -> bool {
        self.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
    }
}

/// Attributes of volumes that can be changed later.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct AttributesClass {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) driver_name: String,
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) parameters: BTreeMap<String, String>,
}

object!(
    AttributesClass,
    "VolumeAttributesClass",
    "storage.k8s.io",
    "v1",
    "volumeattributesclasses",
    ClusterResourceScope
);
