//! Contents of single snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use hawser_api::csi::v1::controller_server::Controller;
use hawser_api::csi::v1::{
    CreateSnapshotRequest, DeleteSnapshotRequest, GetSnapshotRequest, Snapshot,
};
use serde_json::{Map, Value, json};

use super::super::error::ClusterError;
use super::super::names::{
    CONTENT_FINALIZER, GROUP_HANDLE, SNAPSHOT_BEING_CREATED, SNAPSHOT_BEING_DELETED,
    SNAPSHOT_SECRET, SNAPSHOT_SECRET_NAMESPACE,
};
use super::super::objects::{Content, ContentStatus, Object, ObjectRef, SecretRef, SnapshotClass};
use super::super::office::{CALL_LIMIT, Office, Tables};
use super::super::table::Table;
use super::any::{AnyContent, Names, Source};
use super::secrets::{self, Keys, Variables};
use super::{parameters, time};
use crate::csi::within;

/// In the content: what is needed to take and to remove a snapshot.
const OF_CONTENT: Keys = Keys { name: SNAPSHOT_SECRET, namespace: SNAPSHOT_SECRET_NAMESPACE };
/// In the class: the same.
const OF_CLASS: Keys =
    Keys { name: "snapshotter-secret-name", namespace: "snapshotter-secret-namespace" };
/// In the class: what is needed to look at a snapshot.
const TO_LOOK: Keys =
    Keys { name: "snapshotter-list-secret-name", namespace: "snapshotter-list-secret-namespace" };

impl Content {
    fn class(&self, tables: &Tables) -> Result<Option<Arc<SnapshotClass>>, ClusterError> {
        let Some(name) = self.class_name() else { return Ok(None) };
        let missing = || ClusterError::NotYet(format!("there is no VolumeSnapshotClass {name}"));
        tables.snapshot_classes.named(name).map(Some).ok_or_else(missing)
    }

    fn variables<'a>(&'a self, wish: Option<&'a ObjectRef>) -> Variables<'a> {
        Variables { kind: "volumesnapshot", content: self.name(), wish }
    }

    /// The group that it was taken with, once that is told.
    fn group(&self) -> Option<&str> {
        self.status.as_ref()?.volume_group_snapshot_handle.as_deref()
    }

    fn cut(&self) -> Option<&str> {
        self.status.as_ref()?.snapshot_handle.as_deref()
    }

    fn parameters(&self, class: &SnapshotClass) -> Result<BTreeMap<String, String>, ClusterError> {
        let told = [
            ("volumesnapshot/name", self.wish().name.as_str()),
            ("volumesnapshot/namespace", self.wish().namespace.as_str()),
            ("volumesnapshotcontent/name", self.name()),
        ];
        parameters::for_driver(&class.parameters, told)
    }

    /// The secret that a look at it takes.
    fn secret_to_look(&self, tables: &Tables) -> Result<Option<SecretRef>, ClusterError> {
        let class = self.class(tables)?;
        if self.group().is_some() {
            return secrets::of_object(self, OF_CONTENT);
        }
        let Some(class) = class else { return Ok(None) };
        secrets::of_class(&class.parameters, TO_LOOK, self.variables(None))
    }
}

impl AnyContent for Content {
    const NAMES: Names = Names {
        finalizer: CONTENT_FINALIZER,
        being_created: SNAPSHOT_BEING_CREATED,
        being_deleted: SNAPSHOT_BEING_DELETED,
        not_taken: "SnapshotCreationFailed",
        not_seen: "SnapshotContentCheckandUpdateFailed",
        not_removed: "SnapshotDeleteError",
    };

    type Order = CreateSnapshotRequest;

    fn table(tables: &Tables) -> &Table<Self> {
        &tables.contents
    }

    fn driver(&self) -> &str {
        &self.spec.driver
    }

    fn class_name(&self) -> Option<&str> {
        self.spec.volume_snapshot_class_name.as_deref()
    }

    fn class_driver(&self, tables: &Tables) -> Option<String> {
        Some(tables.snapshot_classes.named(self.class_name()?)?.driver.clone())
    }

    fn is_for_removal(&self) -> bool {
        self.spec.deletion_policy == "Delete"
    }

    fn wish(&self) -> &ObjectRef {
        &self.spec.volume_snapshot_ref
    }

    fn is_given(&self) -> bool {
        self.spec.source.snapshot_handle.is_some()
    }

    fn source(&self) -> Source {
        if self.is_given() {
            return Source::There;
        }
        let member = || {
            let annotations = self.metadata.annotations.as_ref();
            annotations.is_some_and(|all| all.contains_key(GROUP_HANDLE))
        };
        match &self.spec.source.volume_handle {
            None => Source::Unknown,
            Some(_) if self.group().is_some() && self.cut().is_some() => Source::There,
            Some(_) if member() => Source::WithGroup,
            Some(_) => Source::ToTake,
        }
    }

    /// One of a group goes with the group.
    fn handle(&self) -> Option<&str> {
        self.cut().filter(|_| self.group().is_none())
    }

    fn is_ready(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.ready_to_use == Some(true))
    }

    fn told(&self) -> Option<&str> {
        self.status.as_ref()?.error.as_ref()?.message.as_deref()
    }

    fn has_same_spec(&self, other: &Self) -> bool {
        self.spec == other.spec
    }

    fn cleared() -> Value {
        json!({
            "snapshotHandle": null, "readyToUse": null, "creationTime": null, "restoreSize": null,
        })
    }

    async fn order(&self, office: &Office) -> Result<CreateSnapshotRequest, ClusterError> {
        let unbound = || ClusterError::Wrong("it is not bound to a VolumeSnapshot".to_owned());
        let uid = Some(&self.wish().uid).filter(|uid| !uid.is_empty()).ok_or_else(unbound)?;
        let classless = || ClusterError::Wrong("it has no VolumeSnapshotClass".to_owned());
        let class = self.class(&office.tables)?.ok_or_else(classless)?;
        let parameters = self.parameters(&class)?;
        let secret = match secrets::of_object(self, OF_CONTENT)? {
            Some(secret) => Some(secret),
            None => {
                let variables = self.variables(Some(self.wish()));
                secrets::of_class(&class.parameters, OF_CLASS, variables)?
            }
        };
        Ok(CreateSnapshotRequest {
            source_volume_id: self.spec.source.volume_handle.clone().unwrap_or_default(),
            name: format!("snapshot-{uid}"),
            secrets: office.secret(secret.as_ref()).await?,
            parameters,
            ..CreateSnapshotRequest::default()
        })
    }

    async fn take(&self, office: &Office, order: Self::Order) -> Result<Value, ClusterError> {
        let service = super::controller(office, self.driver())?;
        let answer = service.create_snapshot(within(CALL_LIMIT, order)).await?.into_inner();
        let snapshot = answer.snapshot.unwrap_or_default();
        // Whether it is one of a group is told by its annotation alone.
        let snapshot = Snapshot { group_snapshot_id: String::new(), ..snapshot };
        Ok(news(self.status.as_ref(), &snapshot.snapshot_id, &snapshot))
    }

    async fn look(&self, office: &Office) -> Result<Value, ClusterError> {
        let secret = self.secret_to_look(&office.tables)?;
        let secrets = office.secret(secret.as_ref()).await?;
        let handle = self.spec.source.snapshot_handle.as_deref().or(self.cut());
        let handle = handle.unwrap_or_default();
        let request = GetSnapshotRequest { snapshot_id: handle.to_owned(), secrets };
        let service = super::controller(office, self.driver())?;
        let answer = service.get_snapshot(within(CALL_LIMIT, request)).await?.into_inner();
        Ok(news(self.status.as_ref(), handle, &answer.snapshot.unwrap_or_default()))
    }

    async fn remove(&self, office: &Office) -> Result<(), ClusterError> {
        let secret = secrets::of_object(self, OF_CONTENT)?;
        let request = DeleteSnapshotRequest {
            snapshot_id: self.handle().unwrap_or_default().to_owned(),
            secrets: office.secret(secret.as_ref()).await?,
        };
        let service = super::controller(office, self.driver())?;
        service.delete_snapshot(within(CALL_LIMIT, request)).await?;
        Ok(())
    }
}

/// What a snapshot changes in the status of its content: what was told once stays.
pub(super) fn news(known: Option<&ContentStatus>, handle: &str, snapshot: &Snapshot) -> Value {
    let known = known.cloned().unwrap_or_default();
    let mut news = Map::new();
    if known.snapshot_handle.is_none() {
        news.insert("snapshotHandle".to_owned(), json!(handle));
    }
    if known.ready_to_use != Some(snapshot.ready_to_use) {
        news.insert("readyToUse".to_owned(), json!(snapshot.ready_to_use));
    }
    if known.creation_time.is_none() {
        let time = time::nanoseconds(snapshot.creation_time.as_ref());
        news.insert("creationTime".to_owned(), json!(time));
    }
    if known.restore_size.is_none() && snapshot.size_bytes > 0 {
        news.insert("restoreSize".to_owned(), json!(snapshot.size_bytes));
    }
    if known.volume_group_snapshot_handle.is_none() && !snapshot.group_snapshot_id.is_empty() {
        news.insert("volumeGroupSnapshotHandle".to_owned(), json!(snapshot.group_snapshot_id));
    }
    if known.error.is_some() && snapshot.ready_to_use {
        news.insert("error".to_owned(), Value::Null);
    }
    Value::Object(news)
}
