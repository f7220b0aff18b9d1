//! VolumeAttachments.

use std::collections::BTreeMap;

use kube::core::ClusterResourceScope;
use serde::Deserialize;
use serde_json::Value;

use super::Meta;
use super::meta::object;

/// The wish that a node may use a volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct Attachment {
    pub(in crate::kubernetes) metadata: Meta,
    pub(in crate::kubernetes) spec: AttachmentSpec,
    pub(in crate::kubernetes) status: AttachmentStatus,
}

/// Which volume, which node, which driver.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct AttachmentSpec {
    pub(in crate::kubernetes) attacher: String,
    pub(in crate::kubernetes) node_name: String,
    pub(in crate::kubernetes) source: AttachmentSource,
}

/// The volume: one of the cluster, or one of an old kind that was translated for one pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct AttachmentSource {
    pub(in crate::kubernetes) persistent_volume_name: Option<String>,
    pub(in crate::kubernetes) inline_volume_spec: Option<Value>,
}

/// What has become of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct AttachmentStatus {
    pub(in crate::kubernetes) attached: bool,
    #[serde(deserialize_with = "super::meta::nullable")]
    pub(in crate::kubernetes) attachment_metadata: BTreeMap<String, String>,
    pub(in crate::kubernetes) attach_error: Option<AttachmentError>,
    pub(in crate::kubernetes) detach_error: Option<AttachmentError>,
}

/// Why not.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::kubernetes) struct AttachmentError {
    pub(in crate::kubernetes) message: String,
    /// The code of gRPC, where the API server knows the field.
    pub(in crate::kubernetes) error_code: Option<i32>,
}

object!(
    Attachment,
    "VolumeAttachment",
    "storage.k8s.io",
    "v1",
    "volumeattachments",
    ClusterResourceScope
);
