//! The controllers over an API server in memory and drivers over a control half in memory.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::fake::FakeApi;
use crate::csi::tests::fake::FakeControl;
use crate::csi::tests::inside::{control, services};
use crate::csi::{CsiDriver, Services};
use crate::kubernetes::{KubernetesParts, KubernetesSettings, run};

/// The driver whose volumes are published.
pub(in crate::kubernetes) const DRIVER: &str = "csi.hawser.storage";
/// The driver for storage on the nodes.
pub(in crate::kubernetes) const LOCAL: &str = "local.csi.hawser.storage";

/// A cluster, a storage system and, while they run, the controllers between them.
pub(in crate::kubernetes) struct Rig {
    pub(in crate::kubernetes) api: FakeApi,
    pub(in crate::kubernetes) control: Arc<FakeControl>,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Rig {
    /// Nothing runs yet.
    pub(in crate::kubernetes) fn new() -> Self {
        crate::logged::keep();
        Self { api: FakeApi::new(), control: control(), running: None }
    }

    /// The same with the controllers at work.
    pub(in crate::kubernetes) fn running() -> Self {
        let mut rig = Self::new();
        rig.start();
        rig
    }

    /// Both drivers.
    pub(in crate::kubernetes) fn drivers(&self) -> Vec<Services> {
        let drivers = [CsiDriver::Published, CsiDriver::Local];
        drivers.map(|driver| services(driver, &self.control)).to_vec()
    }

    /// Starts the controllers, as a process that leads does.
    pub(in crate::kubernetes) fn start(&mut self) {
        let parts = KubernetesParts { client: self.api.client(), drivers: self.drivers() };
        let settings = KubernetesSettings {
            namespace: "hawser-system".into(),
            instance: "test".into(),
            pod: None,
            success_events: false,
            startup_taint: Some("hawser.storage/not-ready".into()),
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(run(parts, settings, async move { drop(stopped.await) }));
        self.running = Some((stop, task));
    }

    /// Ends the controllers where they are, as a kill does.
    pub(in crate::kubernetes) async fn kill(&mut self) {
        let (_stop, task) = self.running.take().expect("the controllers run");
        task.abort();
        assert!(task.await.is_err_and(|error| error.is_cancelled()));
    }

    /// Lets the controllers come to their end.
    pub(in crate::kubernetes) async fn stop(&mut self) {
        let (stop, task) = self.running.take().expect("the controllers run");
        drop(stop);
        task.await.expect("the controllers end well");
    }

    /// A storage class of a driver.
    pub(in crate::kubernetes) fn class(&self, name: &str, driver: &str) {
        self.api.put(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": { "name": name },
            "provisioner": driver,
            "parameters": { "csi.storage.k8s.io/fstype": "ext4" },
            "reclaimPolicy": "Delete",
            "volumeBindingMode": "Immediate",
        }));
    }

    /// A claim of the namespace `shop` that asks a driver for a volume.
    pub(in crate::kubernetes) fn claim(&self, name: &str, class: &str, driver: &str) -> Value {
        self.api.put(claim(name, class, driver))
    }
}

/// A claim as it is when the controller-manager or the admission policy has marked it.
pub(in crate::kubernetes) fn claim(name: &str, class: &str, driver: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name, "namespace": "shop",
            "annotations": { "volume.kubernetes.io/storage-provisioner": driver },
        },
        "spec": {
            "storageClassName": class,
            "accessModes": ["ReadWriteOnce"],
            "volumeMode": "Filesystem",
            "resources": { "requests": { "storage": "1Gi" } },
        },
        "status": { "phase": "Pending" },
    })
}
