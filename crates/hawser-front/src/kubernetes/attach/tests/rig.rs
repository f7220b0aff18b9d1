//! This controller alone, at work between a cluster and a storage system in memory.

use std::sync::Arc;

use hawser_api::csi::v1::controller_server::Controller;
use hawser_api::csi::v1::{CapacityRange, CreateVolumeRequest};
use hawser_core::volume::VolumeRef;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::csi::tests::fake::FakeControl;
use crate::csi::tests::inside::{control, services};
use crate::csi::{CsiDriver, Services, within};
use crate::kubernetes::attach::Attacher;
use crate::kubernetes::capability::Use;
use crate::kubernetes::cluster::Cluster;
use crate::kubernetes::events::Events;
use crate::kubernetes::objects::Object;
use crate::kubernetes::office::{CALL_LIMIT, Office, Tables};
use crate::kubernetes::table::{Changed, Table};
use crate::kubernetes::tests::fake::FakeApi;

pub(super) const DRIVER: &str = "csi.hawser.storage";
pub(super) const LOCAL: &str = "local.csi.hawser.storage";
pub(super) const HELD: &str = "external-attacher/csi-hawser-storage";
pub(super) const NODE_ID: &str = "csi.alpha.kubernetes.io/node-id";

/// A volume, its attachment to the first node, and the part of that which is not its status.
pub(super) const PV: &str = "persistentvolumes/pv";
pub(super) const VA: &str = "volumeattachments/a";

/// A cluster of two nodes, a storage system and, while it runs, the controller between them.
pub(super) struct Rig {
    pub(super) api: FakeApi,
    pub(super) control: Arc<FakeControl>,
    pub(super) attacher: Arc<Attacher>,
    tasks: JoinSet<()>,
}

impl Rig {
    /// Nothing runs yet.
    pub(super) fn new() -> Self {
        crate::logged::keep();
        let (api, control) = (FakeApi::new(), control());
        for node in ["n1", "n2"] {
            api.put(registered(node));
        }
        let attacher = Attacher::new(office(&api, &control));
        Self { api, control, attacher, tasks: JoinSet::new() }
    }

    /// The same with the controller at work, and one volume.
    pub(super) async fn with_volume() -> (Self, String) {
        let mut rig = Self::new();
        let id = rig.volume("pv", "ReadWriteOnce").await;
        rig.start().await;
        (rig, id)
    }

    /// A new process: it knows nothing of what was before.
    pub(super) async fn start(&mut self) {
        self.attacher = Attacher::new(office(&self.api, &self.control));
        let tables = &self.attacher.office.tables;
        let (attachments, volumes, nodes) =
            (tables.attachments.clone(), tables.volumes.clone(), tables.csi_nodes.clone());
        self.keep(&attachments, |attacher, changed| attacher.heard_attachment(changed));
        self.keep(&volumes, |attacher, changed| attacher.heard_volume(changed));
        self.keep(&nodes, |attacher, changed| attacher.heard_csi_node(changed));
        tokio::join!(attachments.filled(), volumes.filled(), nodes.filled());
        self.tasks.spawn(self.attacher.clone().run(CancellationToken::new()));
    }

    fn keep<K: Object>(
        &mut self,
        table: &Arc<Table<K>>,
        heard: impl Fn(&Attacher, &Changed<K>) + Send + Sync + 'static,
    ) {
        let (attacher, client) = (self.attacher.clone(), self.api.client());
        let tell = move |changed: Changed<K>| heard(&attacher, &changed);
        self.tasks.spawn(table.clone().keep(client, CancellationToken::new(), tell));
    }

    /// Ends the controller where it is.
    pub(super) async fn kill(&mut self) {
        self.tasks.shutdown().await;
    }

    /// A volume of the storage system and of the cluster; answers its handle.
    pub(super) async fn volume(&self, name: &str, mode: &str) -> String {
        let used = Use { block: true, ..Use::default() };
        let request = CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(CapacityRange { required_bytes: 1 << 30, limit_bytes: 0 }),
            volume_capabilities: vec![used.together(&[mode.to_owned()]).unwrap()],
            ..CreateVolumeRequest::default()
        };
        let service = self.driver().controller().unwrap();
        let made = service.create_volume(within(CALL_LIMIT, request)).await.unwrap();
        let id = made.into_inner().volume.unwrap().volume_id;
        self.api.put(json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": { "name": name, "finalizers": ["kubernetes.io/pv-protection"] },
            "spec": {
                "accessModes": [mode], "volumeMode": "Block",
                "csi": { "driver": DRIVER, "volumeHandle": id },
            },
            "status": { "phase": "Bound" },
        }));
        id
    }

    /// The driver that publishes.
    pub(super) fn driver(&self) -> &Services {
        self.attacher.office.driver(DRIVER).unwrap()
    }

    /// Waits until an attachment is done.
    pub(super) async fn attached(&self, path: &str) -> Value {
        self.api.wait(path, |it| it["status"]["attached"] == true).await
    }

    /// Waits until a failure is told that says this.
    pub(super) async fn told(&self, path: &str, field: &str, words: &str) -> Value {
        let says = |it: &Value| {
            it["status"][field]["message"].as_str().is_some_and(|told| told.contains(words))
        };
        self.api.wait(path, says).await
    }

    /// The nodes that may use a volume.
    pub(super) fn nodes_of(&self, id: &str) -> Vec<String> {
        let volume = self.control.volume_of(id).unwrap();
        volume.publications.iter().map(|given| given.node.to_string()).collect()
    }

    /// Takes a right back behind everybody's back.
    pub(super) async fn take_back(&self, id: &str, node: &str) {
        use hawser_core::port::Control;
        let volume = VolumeRef::Id(id.parse().unwrap());
        self.control.unpublish(&volume, &node.parse().unwrap(), CALL_LIMIT).await.unwrap();
    }
}

fn office(api: &FakeApi, control: &Arc<FakeControl>) -> Arc<Office> {
    let cluster = Arc::new(Cluster::new(api.client()));
    let (events, _) = Events::new(cluster.clone(), "test".to_owned(), false);
    let drivers = [CsiDriver::Published, CsiDriver::Local];
    Arc::new(Office {
        cluster,
        tables: Tables::default(),
        events,
        drivers: drivers.map(|driver| services(driver, control)).to_vec(),
        namespace: "hawser-system".to_owned(),
    })
}

/// What a kubelet says of its node.
pub(super) fn registered(node: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": node },
        "spec": { "drivers": [{ "name": DRIVER, "nodeID": node, "topologyKeys": null }] },
    })
}

/// An attachment as it is when it is made.
pub(super) fn attachment(name: &str, volume: &str, node: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": { "name": name },
        "spec": {
            "attacher": DRIVER, "nodeName": node, "source": { "persistentVolumeName": volume },
        },
        "status": { "attached": false },
    })
}

/// Whether an object is held by the attacher.
pub(super) fn is_held(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|all| all.contains(&json!(HELD)))
}

/// Lets time pass: more than the pauses between tries and comparisons take.
pub(super) async fn later() {
    tokio::time::sleep(std::time::Duration::from_secs(1000)).await;
}
