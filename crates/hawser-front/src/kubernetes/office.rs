//! What all controllers share: the API server, what is known of the cluster, the drivers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::cluster::Cluster;
use super::error::ClusterError;
use super::events::Events;
use super::objects::{
    Attachment, AttributesClass, Claim, Content, CsiNode, GroupClass, GroupContent, Key, Node,
    SecretRef, SnapshotClass, StorageClass, Volume,
};
use super::secrets;
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

    /// The class of attributes of this name. The table may not be filled yet: not every cluster knows
    /// the kind, so nobody waits for it.
    pub(super) async fn attributes_class(
        &self,
        name: &str,
    ) -> Result<Option<Arc<AttributesClass>>, ClusterError> {
        if let Some(class) = self.tables.attributes_classes.named(name) {
            return Ok(Some(class));
        }
        Ok(self.cluster.get(&Key::global(name)).await?.map(Arc::new))
    }

    /// Whether there is a volume of this name, which the caller has checked to be one, as the API server
    /// itself says: the watch may be late. It is listed, because whoever may watch may do that.
    pub(super) async fn has_volume(&self, name: &str) -> Result<bool, ClusterError> {
        let path = format!("/api/v1/persistentvolumes?fieldSelector=metadata.name%3D{name}");
        let text = self.cluster.text_at(&path).await?.unwrap_or_default();
        let unreadable = |_| ClusterError::NotYet(format!("the list of {path} cannot be read"));
        let list: List = serde_json::from_str(&text).map_err(unreadable)?;
        Ok(!list.items.is_empty())
    }

    /// What a secret holds, for a request; nothing when none is named. `Wrong` for names that are
    /// none: not every reference comes from a class.
    pub(super) async fn secret(
        &self,
        at: Option<&SecretRef>,
    ) -> Result<BTreeMap<String, String>, ClusterError> {
        let Some(at) = at else { return Ok(Default::default()) };
        secrets::check(at)?;
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
struct List {
    items: Vec<IgnoredAny>,
}

#[derive(Deserialize)]
struct Secret {
    #[serde(default)]
    data: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kubernetes::tests::desk::office;
    use crate::kubernetes::tests::fake::FakeApi;

    /// References also stand in volumes and in their annotations, which others may write.
    #[tokio::test]
    async fn a_reference_names_one_secret_and_no_other_path() {
        let api = FakeApi::new();
        api.put(json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": "login", "namespace": "shop" },
            "data": { "user": "bWU=" },
        }));
        let office = office(&api);
        let read = async |namespace: &str, name: &str| {
            let at = SecretRef { name: name.into(), namespace: namespace.into() };
            office.secret(Some(&at)).await
        };
        assert_eq!(read("shop", "login").await.unwrap()["user"], "me");
        api.forget();

        for (namespace, name) in [
            ("shop", ""),
            ("", "login"),
            ("bank", "../../shop/secrets/login"),
            ("bank/secrets/x/../../../shop", "login"),
            ("shop", "login?watch=true"),
            ("shop", "login#"),
            ("shop", "log%69n"),
            ("shop", "login/"),
            ("shop", ".."),
            ("shop", "Login"),
            ("sh.op", "login"),
        ] {
            let refused = read(namespace, name).await;
            assert!(matches!(refused, Err(ClusterError::Wrong(_))), "{namespace} {name}");
        }
        assert!(api.requests().is_empty(), "nobody was asked");
    }
}
