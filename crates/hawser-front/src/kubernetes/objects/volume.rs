//! PersistentVolumes.

use std::collections::BTreeMap;

use kube::core::ClusterResourceScope;
use serde::{Deserialize, Serialize};

use super::meta::object;
use super::{Amounts, Meta};

/// A volume of the cluster.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct Volume {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) spec: VolumeSpec,
    pub(in crate::kubernetes) status: VolumeStatus,
}

/// What it is.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct VolumeSpec {
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) access_modes: Vec<String>,
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) capacity: Amounts,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::kubernetes) claim_ref: Option<ClaimRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::kubernetes) csi: Option<CsiSource>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) mount_options: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::kubernetes) node_affinity: Option<NodeAffinity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::kubernetes) persistent_volume_reclaim_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::kubernetes) storage_class_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::kubernetes) volume_attributes_class_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::kubernetes) volume_mode: Option<String>,
}

/// Whose it is.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct ClaimRef {
    pub(in crate::kubernetes) kind: String,
    pub(in crate::kubernetes) api_version: String,
    pub(in crate::kubernetes) namespace: String,
    pub(in crate::kubernetes) name: String,
    pub(in crate::kubernetes) uid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::kubernetes) resource_version: Option<String>,
}

/// Where it comes from.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct CsiSource {
    pub(in crate::kubernetes) driver: String,
    pub(in crate::kubernetes) volume_handle: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::kubernetes) fs_type: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::kubernetes) read_only: bool,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) volume_attributes: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::kubernetes) controller_publish_secret_ref: Option<SecretRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::kubernetes) controller_expand_secret_ref: Option<SecretRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::kubernetes) node_stage_secret_ref: Option<SecretRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::kubernetes) node_publish_secret_ref: Option<SecretRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::kubernetes) node_expand_secret_ref: Option<SecretRef>,
}

/// Where a secret is.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(default)]
pub(in crate::kubernetes) struct SecretRef {
    pub(in crate::kubernetes) name: String,
    pub(in crate::kubernetes) namespace: String,
}

/// Which nodes reach it.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(default)]
pub(in crate::kubernetes) struct NodeAffinity {
    pub(in crate::kubernetes) required: NodeSelector,
}

/// Nodes that meet one of these.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct NodeSelector {
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) node_selector_terms: Vec<NodeSelectorTerm>,
}

/// Nodes that meet all of these.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct NodeSelectorTerm {
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) match_expressions: Vec<NodeSelectorExpression>,
}

/// What a label of a node must be.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(default)]
pub(in crate::kubernetes) struct NodeSelectorExpression {
    pub(in crate::kubernetes) key: String,
    pub(in crate::kubernetes) operator: String,
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) values: Vec<String>,
}

/// What has become of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct VolumeStatus {
    pub(in crate::kubernetes) phase: Option<String>,
}

object!(Volume, "PersistentVolume", "", "v1", "persistentvolumes", ClusterResourceScope);

impl Volume {
    /// The driver and the handle of a volume that comes from CSI.
    pub(in crate::kubernetes) fn csi(&self) -> Option<&CsiSource> {
        self.spec.csi.as_ref()
    }

    /// True when it has this phase.
    pub(in crate::kubernetes) fn is(&self, phase: &str) -> bool {
        self.status.phase.as_deref() == Some(phase)
    }
}
