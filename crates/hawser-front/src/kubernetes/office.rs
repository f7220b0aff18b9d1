//! What all controllers share: the API server, what is known of the cluster, the drivers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;

use super::cluster::Cluster;
use super::error::ClusterError;
use super::events::Events;
use super::objects::{
    Attachment, AttributesClass, Claim, Content, CsiNode, GroupClass, GroupContent, Node,
    SecretRef, SnapshotClass, StorageClass, Volume,
};
use super::table::Table;
use crate::csi::Services;

/// How long one call of a driver may take before it is answered as still at work.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(60);

/// One copy of everything that is watched, for all controllers.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) claims: Arc<Table<Claim>>,
    pub(super) volumes: Arc<Table<Volume>>,
    pub(super) classes: Arc<Table<StorageClass>>,
    pub(super) attributes_classes: Arc<Table<AttributesClass>>,
    pub(super) attachments: Arc<Table<Attachment>>,
    pub(super) csi_nodes: Arc<Table<CsiNode>>,
    pub(super) nodes: Arc<Table<Node>>,
    pub(super) contents: Arc<Table<Content>>,
    pub(super) snapshot_classes: Arc<Table<SnapshotClass>>,
    pub(super) group_contents: Arc<Table<GroupContent>>,
    pub(super) group_classes: Arc<Table<GroupClass>>,
}

/// What all controllers share.
pub(super) struct Office {
    pub(super) cluster: Arc<Cluster>,
    pub(super) tables: Tables,
    pub(super) events: Events,
    /// Each has a controller service.
    pub(super) drivers: Vec<Services>,
    /// Where what belongs to this process is.
    pub(super) namespace: String,
}

impl Office {
    /// The driver of this name, if it is one of ours.
    pub(super) fn driver(&self, name: &str) -> Option<&Services> {
        self.drivers.iter().find(|driver| driver.name() == name)
    }

    /// What a secret holds, for a request; nothing when none is named.
    pub(super) async fn secret(
        &self,
        at: Option<&SecretRef>,
    ) -> Result<BTreeMap<String, String>, ClusterError> {
        let Some(at) = at else { return Ok(Default::default()) };
        let path = format!("/api/v1/namespaces/{}/secrets/{}", at.namespace, at.name);
        let absent =
            || ClusterError::NotYet(format!("there is no secret {}/{}", at.namespace, at.name));
        let text = self.cluster.text_at(&path).await?.ok_or_else(absent)?;
        // Its words are not repeated: they may be the secret.
        let unreadable =
            || ClusterError::Wrong(format!("secret {}/{} cannot be read", at.namespace, at.name));
        let secret: Secret = serde_json::from_str(&text).map_err(|_| unreadable())?;
        let decoded = secret.data.into_iter().map(|(key, value)| {
            let bytes = BASE64.decode(value).map_err(|_| unreadable())?;
            Ok((key, String::from_utf8(bytes).map_err(|_| unreadable())?))
        });
        decoded.collect()
    }
}

#[derive(Deserialize)]
struct Secret {
    #[serde(default)]
    data: BTreeMap<String, String>,
}
