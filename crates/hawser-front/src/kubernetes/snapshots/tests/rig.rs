//! The controller alone, with its four watches.

use std::sync::Arc;

use hawser_core::ByteSize;
use hawser_core::name::{Alias, Scope};
use hawser_core::page::PageRequest;
use hawser_core::port::Control;
use hawser_core::snapshot::Snapshot;
use hawser_core::volume::{VolumeRef, VolumeRequest};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::super::Snapshots;
use crate::csi::CsiDriver;
use crate::csi::tests::fake::FakeControl;
use crate::csi::tests::inside::{control, services};
use crate::kubernetes::cluster::Cluster;
use crate::kubernetes::events::Events;
use crate::kubernetes::office::{Office, Tables};
use crate::kubernetes::tests::fake::FakeApi;

pub(super) const DRIVER: &str = "csi.hawser.storage";
pub(super) const FINALIZER: &str =
    "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
pub(super) const MARK: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-created";
pub(super) const DELETED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted";
pub(super) const CONTENTS: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents";

pub(super) struct Rig {
    pub(super) api: FakeApi,
    pub(super) control: Arc<FakeControl>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Rig {
    /// A cluster with a class of each kind, and the controller at work.
    pub(super) fn start() -> Self {
        crate::logged::keep();
        let (api, control) = (FakeApi::new(), control());
        api.put(class("fast", DRIVER));
        api.put(group_class("groups", DRIVER));
        let mut rig = Self { api, control, stop: CancellationToken::new(), tasks: JoinSet::new() };
        rig.work();
        rig
    }

    /// Starts another process, after the one before has ended.
    pub(super) fn work(&mut self) {
        let cluster = Arc::new(Cluster::new(self.api.client()));
        let (events, writer) = Events::new(cluster.clone(), "test".into(), false);
        let drivers = vec![services(CsiDriver::Published, &self.control)];
        let tables = Tables::default();
        let namespace = "hawser-system".into();
        let office = Arc::new(Office { cluster, tables, events, drivers, namespace });
        let snapshots = Snapshots::new(office.clone());
        let (tables, stop) = (&office.tables, &self.stop);
        let client = || self.api.client();
        self.tasks.spawn(writer.run(stop.clone()));
        let heard = snapshots.clone();
        let tell = move |changed| heard.heard_content(&changed);
        self.tasks.spawn(tables.contents.clone().keep(client(), stop.clone(), tell));
        let heard = snapshots.clone();
        let tell = move |changed| heard.heard_snapshot_class(&changed);
        self.tasks.spawn(tables.snapshot_classes.clone().keep(client(), stop.clone(), tell));
        let heard = snapshots.clone();
        let tell = move |changed| heard.heard_group_content(&changed);
        self.tasks.spawn(tables.group_contents.clone().keep(client(), stop.clone(), tell));
        let heard = snapshots.clone();
        let tell = move |changed| heard.heard_group_class(&changed);
        self.tasks.spawn(tables.group_classes.clone().keep(client(), stop.clone(), tell));
        self.tasks.spawn(snapshots.run(stop.clone()));
    }

    /// Ends the process where it is, as a kill does.
    pub(super) async fn kill(&mut self) {
        self.tasks.shutdown().await;
    }

    /// Lets the process come to its end.
    pub(super) async fn stop(&mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
    }

    /// A volume, whose handle is answered.
    pub(super) async fn volume(&self, name: &str) -> String {
        let alias = Alias::new(Scope::Csi, name.to_owned()).unwrap();
        let request = VolumeRequest::new(alias.clone(), ByteSize::gib(1));
        self.control.create_volume(request, Default::default()).await.unwrap();
        self.control.get_volume(&VolumeRef::Alias(alias)).await.unwrap().id.to_string()
    }

    /// The snapshots that the storage holds.
    pub(super) async fn stored(&self) -> Vec<Snapshot> {
        self.control.list_snapshots(None, &PageRequest::default()).await.unwrap().items
    }

    /// Waits until an event has this reason, and answers its message.
    pub(super) async fn told(&self, reason: &str) -> String {
        let find = |api: &FakeApi| {
            let events = api.objects("events");
            let found = events.iter().find(|event| event["reason"] == reason)?;
            Some(found["message"].as_str().unwrap_or_default().to_owned())
        };
        assert!(self.api.until(|api| find(api).is_some()).await, "nobody tells {reason}");
        find(&self.api).unwrap()
    }

    /// The changes of contents, in their order, without what stands before their names.
    pub(super) fn writes(&self) -> Vec<String> {
        let of_contents =
            |write: &String| write.strip_prefix(&format!("PATCH {CONTENTS}/")).map(str::to_owned);
        self.api.writes().iter().filter_map(of_contents).collect()
    }
}

pub(super) fn class(name: &str, driver: &str) -> Value {
    json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
        "metadata": { "name": name }, "driver": driver, "deletionPolicy": "Delete",
        "parameters": { "label.team": "blue" },
    })
}

pub(super) fn group_class(name: &str, driver: &str) -> Value {
    json!({
        "apiVersion": "groupsnapshot.storage.k8s.io/v1", "kind": "VolumeGroupSnapshotClass",
        "metadata": { "name": name }, "driver": driver, "deletionPolicy": "Delete",
    })
}

/// A content as the snapshot controller makes it; its name is `snapcontent-UID`.
pub(super) fn content(uid: &str, volume: &str) -> Value {
    json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": { "name": format!("snapcontent-{uid}"), "finalizers": [FINALIZER] },
        "spec": {
            "driver": DRIVER, "deletionPolicy": "Delete",
            "source": { "volumeHandle": volume },
            "volumeSnapshotClassName": "fast",
            "volumeSnapshotRef": { "namespace": "shop", "name": "nightly", "uid": uid },
        },
    })
}

/// Where the content of a snapshot is.
pub(super) fn at(uid: &str) -> String {
    format!("volumesnapshotcontents/snapcontent-{uid}")
}

pub(super) fn is_marked(content: &Value) -> bool {
    content["metadata"]["annotations"][MARK].is_string()
}

/// Ready, and nothing is left to do.
pub(super) fn is_ready(content: &Value) -> bool {
    content["status"]["readyToUse"] == true && !is_marked(content)
}
