//! Contents of groups: snapshots of several volumes, all of one instant.

use std::collections::BTreeMap;
use std::sync::Arc;

use hawser_api::csi::v1::group_controller_server::GroupController;
use hawser_api::csi::v1::{
    CreateVolumeGroupSnapshotRequest, DeleteVolumeGroupSnapshotRequest,
    GetVolumeGroupSnapshotRequest, Snapshot, VolumeGroupSnapshot,
};
use serde_json::{Map, Value, json};

use super::super::error::ClusterError;
use super::super::names::{
    GROUP_BEING_CREATED, GROUP_BEING_DELETED, GROUP_CONTENT_FINALIZER, GROUP_SECRET,
    GROUP_SECRET_NAMESPACE,
};
use super::super::objects::{GroupClass, GroupContent, GroupContentStatus, Object, ObjectRef};
use super::super::office::{CALL_LIMIT, Office, Tables};
use super::super::table::Table;
use super::any::{AnyContent, Names, Source};
use super::secrets::{self, Keys, Variables};
use super::{parameters, time};
use crate::csi::within;

/// In the content: what is needed to take and to remove a group.
const OF_CONTENT: Keys = Keys { name: GROUP_SECRET, namespace: GROUP_SECRET_NAMESPACE };
/// In the class: the same.
const OF_CLASS: Keys =
    Keys { name: "group-snapshotter-secret-name", namespace: "group-snapshotter-secret-namespace" };
/// In the class: what is needed to look at a group.
const TO_LOOK: Keys = Keys {
    name: "group-snapshotter-get-secret-name",
    namespace: "group-snapshotter-get-secret-namespace",
};

impl GroupContent {
    fn class(&self, tables: &Tables) -> Result<Option<Arc<GroupClass>>, ClusterError> {
        let Some(name) = self.class_name() else { return Ok(None) };
        let missing =
            || ClusterError::NotYet(format!("there is no VolumeGroupSnapshotClass {name}"));
        tables.group_classes.named(name).map(Some).ok_or_else(missing)
    }

    fn variables<'a>(&'a self, wish: Option<&'a ObjectRef>) -> Variables<'a> {
        Variables { kind: "volumegroupsnapshot", content: self.name(), wish }
    }

    fn parameters(&self, class: &GroupClass) -> Result<BTreeMap<String, String>, ClusterError> {
        let told = [
            ("volumegroupsnapshot/name", self.wish().name.as_str()),
            ("volumegroupsnapshot/namespace", self.wish().namespace.as_str()),
            ("volumegroupsnapshotcontent/name", self.name()),
        ];
        parameters::for_driver(&class.parameters, told)
    }

    /// The snapshots of a group that was taken here or elsewhere.
    fn members(&self) -> Vec<String> {
        let taken = self.status.iter().flat_map(|status| &status.volume_snapshot_info_list);
        let taken: Vec<_> = taken.map(|member| member.snapshot_handle.clone()).collect();
        match &self.spec.source.group_snapshot_handles {
            Some(given) if taken.is_empty() => given.volume_snapshot_handles.clone(),
            Some(_) | None => taken,
        }
    }
}

impl AnyContent for GroupContent {
    const NAMES: Names = Names {
        finalizer: GROUP_CONTENT_FINALIZER,
        being_created: GROUP_BEING_CREATED,
        being_deleted: GROUP_BEING_DELETED,
        not_taken: "GroupSnapshotCreationFailed",
        not_seen: "GroupSnapshotContentCheckandUpdateFailed",
        not_removed: "GroupSnapshotDeleteError",
    };

    type Order = CreateVolumeGroupSnapshotRequest;

    fn table(tables: &Tables) -> &Table<Self> {
        &tables.group_contents
    }

    fn driver(&self) -> &str {
        &self.spec.driver
    }

    fn class_name(&self) -> Option<&str> {
        self.spec.volume_group_snapshot_class_name.as_deref()
    }

    fn class_driver(&self, tables: &Tables) -> Option<String> {
        Some(tables.group_classes.named(self.class_name()?)?.driver.clone())
    }

    fn is_for_removal(&self) -> bool {
        self.spec.deletion_policy == "Delete"
    }

    fn wish(&self) -> &ObjectRef {
        &self.spec.volume_group_snapshot_ref
    }

    fn is_given(&self) -> bool {
        self.spec.source.group_snapshot_handles.is_some()
    }

    fn source(&self) -> Source {
        if self.is_given() {
            Source::There
        } else if self.spec.source.volume_handles.is_empty() {
            Source::Unknown
        } else {
            Source::ToTake
        }
    }

    fn handle(&self) -> Option<&str> {
        self.status.as_ref()?.volume_group_snapshot_handle.as_deref()
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
            "volumeGroupSnapshotHandle": null, "readyToUse": null, "creationTime": null,
            "error": null,
        })
    }

    async fn order(
        &self,
        office: &Office,
    ) -> Result<CreateVolumeGroupSnapshotRequest, ClusterError> {
        let unbound = || ClusterError::Wrong("it is not bound to a VolumeGroupSnapshot".to_owned());
        let uid = Some(&self.wish().uid).filter(|uid| !uid.is_empty()).ok_or_else(unbound)?;
        let classless = || ClusterError::Wrong("it has no VolumeGroupSnapshotClass".to_owned());
        let class = self.class(&office.tables)?.ok_or_else(classless)?;
        let parameters = self.parameters(&class)?;
        let secret = match secrets::of_object(self, OF_CONTENT)? {
            Some(secret) => Some(secret),
            None => {
                let variables = self.variables(Some(self.wish()));
                secrets::of_class(&class.parameters, OF_CLASS, variables)?
            }
        };
        Ok(CreateVolumeGroupSnapshotRequest {
            name: format!("groupsnapshot-{uid}"),
            source_volume_ids: self.spec.source.volume_handles.clone(),
            secrets: office.secret(secret.as_ref()).await?,
            parameters,
        })
    }

    async fn take(&self, office: &Office, order: Self::Order) -> Result<Value, ClusterError> {
        let service = super::groups(office, self.driver())?;
        let request = within(CALL_LIMIT, order);
        let answer = service.create_volume_group_snapshot(request).await?.into_inner();
        let group = answer.group_snapshot.unwrap_or_default();
        Ok(news(self.status.as_ref(), &group.group_snapshot_id, &group))
    }

    async fn look(&self, office: &Office) -> Result<Value, ClusterError> {
        let secret = match self.class(&office.tables)? {
            None => None,
            Some(class) => secrets::of_class(&class.parameters, TO_LOOK, self.variables(None))?,
        };
        let given = self.spec.source.group_snapshot_handles.clone().unwrap_or_default();
        let request = GetVolumeGroupSnapshotRequest {
            group_snapshot_id: given.volume_group_snapshot_handle.clone(),
            snapshot_ids: given.volume_snapshot_handles,
            secrets: office.secret(secret.as_ref()).await?,
        };
        let service = super::groups(office, self.driver())?;
        let request = within(CALL_LIMIT, request);
        let answer = service.get_volume_group_snapshot(request).await?.into_inner();
        let group = answer.group_snapshot.unwrap_or_default();
        // The members of a given group are contents that somebody gives, too.
        let group = VolumeGroupSnapshot { snapshots: Vec::new(), ..group };
        Ok(news(self.status.as_ref(), &given.volume_group_snapshot_handle, &group))
    }

    async fn remove(&self, office: &Office) -> Result<(), ClusterError> {
        let secret = secrets::of_object(self, OF_CONTENT)?;
        let request = DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: self.handle().unwrap_or_default().to_owned(),
            snapshot_ids: self.members(),
            secrets: office.secret(secret.as_ref()).await?,
        };
        let service = super::groups(office, self.driver())?;
        service.delete_volume_group_snapshot(within(CALL_LIMIT, request)).await?;
        Ok(())
    }
}

/// What a group changes in the status of its content: what was told once stays.
pub(super) fn news(
    known: Option<&GroupContentStatus>,
    handle: &str,
    group: &VolumeGroupSnapshot,
) -> Value {
    let known = known.cloned().unwrap_or_default();
    let mut news = Map::new();
    if known.volume_group_snapshot_handle.is_none() {
        news.insert("volumeGroupSnapshotHandle".to_owned(), json!(handle));
    }
    if known.ready_to_use != Some(group.ready_to_use) {
        news.insert("readyToUse".to_owned(), json!(group.ready_to_use));
    }
    if known.creation_time.is_none() {
        let time = time::instant(group.creation_time.as_ref());
        news.insert("creationTime".to_owned(), json!(time));
    }
    if known.volume_snapshot_info_list.is_empty() && !group.snapshots.is_empty() {
        let members: Vec<_> = group.snapshots.iter().map(member).collect();
        news.insert("volumeSnapshotInfoList".to_owned(), json!(members));
    }
    if known.error.is_some() && group.ready_to_use {
        news.insert("error".to_owned(), Value::Null);
    }
    Value::Object(news)
}

fn member(snapshot: &Snapshot) -> Value {
    let mut member = json!({
        "volumeHandle": snapshot.source_volume_id,
        "snapshotHandle": snapshot.snapshot_id,
        "readyToUse": snapshot.ready_to_use,
    });
    if let Some(time) = snapshot.creation_time.as_ref().and_then(time::exact) {
        member["creationTime"] = json!(time);
    }
    if snapshot.size_bytes != 0 {
        member["restoreSize"] = json!(snapshot.size_bytes);
    }
    member
}
