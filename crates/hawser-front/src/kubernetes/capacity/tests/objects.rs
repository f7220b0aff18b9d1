//! The objects in a cluster, over an API server in memory. The time of these tests is not real.

use http::Method;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::*;
use crate::kubernetes::tests::desk;
use crate::kubernetes::tests::fake::{FakeApi, Fault};

const PATH: &str = "/apis/storage.k8s.io/v1/namespaces/hawser-system/csistoragecapacities";

/// A cluster with two nodes, of which `n1` has room for 10Gi, and a class of storage on nodes.
struct Cluster {
    api: FakeApi,
    capacities: Arc<Capacities>,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Cluster {
    fn new() -> Self {
        Self::of_pod(None)
    }

    fn of_pod(pod: Option<&str>) -> Self {
        let api = FakeApi::new();
        let capacities = Capacities::new(desk::office(&api), pod.map(str::to_owned));
        let cluster = Self { api, capacities, stop: CancellationToken::new(), tasks: Vec::new() };
        cluster.driver(true);
        cluster.class("fast");
        cluster.node("n1");
        cluster.node("n2");
        cluster
    }

    /// The same with the controller at work.
    async fn working() -> Self {
        let mut cluster = Self::new();
        cluster.start().await;
        cluster
    }

    async fn start(&mut self) {
        let (this, stop) = (&self.capacities, &self.stop);
        let tables = &this.office.tables;
        let client = self.api.client();
        macro_rules! watch {
            ($table:ident, $heard:ident) => {{
                let controller = this.clone();
                let kept =
                    tables.$table.clone().keep(client.clone(), stop.clone(), move |changed| {
                        controller.$heard(&changed);
                    });
                self.tasks.push(tokio::spawn(kept));
            }};
        }
        watch!(volumes, heard_volume);
        watch!(claims, heard_claim);
        watch!(classes, heard_class);
        watch!(nodes, heard_node);
        watch!(csi_nodes, heard_csi_node);
        tokio::join!(tables.classes.filled(), tables.nodes.filled(), tables.csi_nodes.filled());
        self.tasks.push(tokio::spawn(this.clone().run(stop.clone())));
    }

    async fn stop(self) {
        self.stop.cancel();
        for task in self.tasks {
            task.await.unwrap();
        }
    }

    fn driver(&self, looked_at: bool) {
        self.api.put(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": DRIVER },
            "spec": { "storageCapacity": looked_at },
        }));
    }

    fn class(&self, name: &str) {
        self.api.put(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": name },
            "provisioner": DRIVER, "parameters": { "class": "local" },
            "volumeBindingMode": "WaitForFirstConsumer",
        }));
    }

    fn node(&self, name: &str) {
        let meta = json!({ "name": name, "labels": { NODE: name } });
        self.api.put(json!({ "apiVersion": "v1", "kind": "Node", "metadata": meta }));
        self.api.put(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": name },
            "spec": { "drivers": [{ "name": DRIVER, "nodeID": name, "topologyKeys": [NODE] }] },
        }));
    }

    fn objects(&self) -> Vec<Value> {
        self.api.objects("csistoragecapacities")
    }

    /// Class, place and room of all objects.
    fn room(&self) -> Vec<(String, String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let said = |object: &Value| {
            let place = &object["nodeTopology"]["matchLabels"][NODE];
            (text(&object["storageClassName"]), text(place), text(&object["capacity"]))
        };
        let mut room: Vec<_> = self.objects().iter().map(said).collect();
        room.sort();
        room
    }

    /// Waits until this is what is written of room, no more and no less.
    async fn says(&self, expected: &[(&str, &str, &str)]) {
        let expected: Vec<_> = expected
            .iter()
            .map(|(class, place, room)| ((*class).into(), (*place).into(), (*room).into()))
            .collect();
        let met = self.api.until(|_| self.room() == expected).await;
        assert!(met, "{:?} is not {expected:?}", self.room());
    }

    /// An object that a sidecar has written.
    fn foreign(&self, name: &str, node: &str, room: &str) {
        let mut object =
            room::object(&pair("fast", node), "hawser-system", super::room(0, None), None);
        object["metadata"]["name"] = name.into();
        object["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z".into();
        object["capacity"] = room.into();
        self.api.put(object);
    }
}

/// Long enough for everything to be looked at again.
async fn a_minute() {
    tokio::time::sleep(REFRESH + Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn room_is_written_for_each_place_and_class() {
    let cluster = Cluster::working().await;
    cluster.says(&[("fast", "n1", "10Gi"), ("fast", "n2", "0")]).await;

    cluster.class("slow");
    cluster.node("n3");

    let fast = [("fast", "n1", "10Gi"), ("fast", "n2", "0"), ("fast", "n3", "0")];
    let slow = fast.map(|(_, node, room)| ("slow", node, room));
    cluster.says(&[fast, slow].concat()).await;
    let one = cluster.objects().into_iter().find(|it| it["capacity"] == "10Gi").unwrap();
    assert_eq!(one["maximumVolumeSize"], "10Gi");
    assert_eq!(one["metadata"]["namespace"], "hawser-system");
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_has_not_changed_is_not_written_again() {
    let cluster = Cluster::working().await;
    cluster.says(&[("fast", "n1", "10Gi"), ("fast", "n2", "0")]).await;
    cluster.api.forget();

    a_minute().await;
    a_minute().await;

    assert_eq!(cluster.api.writes(), [""; 0]);
    let asked = cluster.api.requests().into_iter().filter(|seen| seen.path.contains("csidrivers"));
    assert_eq!(asked.count(), 4, "both drivers, every minute");
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn objects_of_classes_and_places_that_are_gone_go_too() {
    let cluster = Cluster::working().await;
    cluster.class("slow");
    let all =
        [("fast", "n1", "10Gi"), ("fast", "n2", "0"), ("slow", "n1", "10Gi"), ("slow", "n2", "0")];
    cluster.says(&all).await;

    cluster.api.delete("storageclasses/slow");
    cluster.says(&all[..2]).await;
    cluster.api.update("csinodes/n2", |node| node["spec"]["drivers"] = json!([]));
    cluster.says(&all[..1]).await;
    cluster.api.delete("nodes/n1");
    cluster.says(&[]).await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_nobody_looks_at_has_no_objects() {
    let cluster = Cluster::working().await;
    cluster.says(&[("fast", "n1", "10Gi"), ("fast", "n2", "0")]).await;

    cluster.driver(false);
    a_minute().await;

    assert_eq!(cluster.room(), []);
    cluster.api.delete(&format!("csidrivers/{DRIVER}"));
    a_minute().await;
    assert_eq!(cluster.room(), []);
    cluster.driver(true);
    a_minute().await;
    assert_eq!(cluster.room().len(), 2);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_cannot_be_asked_for_is_taken_to_be_looked_at() {
    let mut cluster = Cluster::new();
    cluster.api.fail(2, Method::GET, "/csidrivers/", Fault::Refused(403));

    cluster.start().await;

    cluster.says(&[("fast", "n1", "10Gi"), ("fast", "n2", "0")]).await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_sidecar_are_taken_over_and_second_ones_removed() {
    let mut cluster = Cluster::new();
    cluster.foreign("csisc-abcde", "n1", "1Gi");
    cluster.foreign("csisc-fghij", "n1", "2Gi");
    cluster.foreign("csisc-klmno", "n9", "3Gi");

    cluster.start().await;

    cluster.says(&[("fast", "n1", "10Gi"), ("fast", "n2", "0")]).await;
    let kept = cluster.api.object("csistoragecapacities/hawser-system/csisc-abcde");
    assert_eq!(kept.unwrap()["capacity"], "10Gi");
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn objects_of_others_are_left_alone() {
    let mut cluster = Cluster::new();
    for (name, label, value) in [
        ("theirs", "csi.storage.k8s.io/drivername", "ebs.csi.example.com"),
        ("distributed", "csi.storage.k8s.io/managed-by", "external-provisioner-n1"),
    ] {
        cluster.foreign(name, "n7", "1Gi");
        cluster.api.update(&format!("csistoragecapacities/hawser-system/{name}"), |object| {
            object["metadata"]["labels"][label] = value.into();
        });
    }

    cluster.start().await;
    a_minute().await;

    assert_eq!(cluster.room().iter().filter(|(_, place, _)| place == "n7").count(), 2);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_somebody_removed_or_changed_is_written_again() {
    let cluster = Cluster::working().await;
    let expected = [("fast", "n1", "10Gi"), ("fast", "n2", "0")];
    cluster.says(&expected).await;
    let path =
        |node| format!("csistoragecapacities/hawser-system/{}", pair("fast", node).object_name());

    cluster.api.delete(&path("n1"));
    cluster.api.update(&path("n2"), |object| object["capacity"] = "5Gi".into());

    cluster.says(&expected).await;
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_is_tried_again_and_one_whose_answer_is_lost_makes_no_second_object() {
    let mut cluster = Cluster::new();
    cluster.api.fail(1, Method::POST, PATH, Fault::Lost);
    cluster.api.fail(2, Method::POST, PATH, Fault::Refused(500));

    cluster.start().await;

    cluster.says(&[("fast", "n1", "10Gi"), ("fast", "n2", "0")]).await;
    a_minute().await;
    assert_eq!(cluster.objects().len(), 2);
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn objects_belong_to_what_made_the_pod() {
    let mut cluster = Cluster::of_pod(Some("hawser-1-x"));
    cluster.api.serve("apps", &["v1"]);
    let controlled = |kind: &str, name: &str, version: &str| {
        json!([{
            "apiVersion": version, "kind": kind, "name": name, "uid": format!("uid-{name}"),
            "controller": true, "blockOwnerDeletion": true,
        }])
    };
    cluster.api.put(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "hawser-1-x", "namespace": "hawser-system",
            "ownerReferences": controlled("ReplicaSet", "hawser-1", "apps/v1"),
        },
    }));
    cluster.api.put(json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": "hawser-1", "namespace": "hawser-system",
            "ownerReferences": controlled("Deployment", "hawser", "apps/v1"),
        },
    }));
    cluster.foreign("csisc-abcde", "n1", "10Gi");

    cluster.start().await;

    let owner = json!([{
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "hawser", "uid": "uid-hawser",
        "controller": true,
    }]);
    let owned = |object: &Value| object["metadata"]["ownerReferences"] == owner;
    let met = cluster.api.until(|_| {
        let objects = cluster.objects();
        objects.len() == 2 && objects.iter().all(owned)
    });
    assert!(met.await, "{:?}", cluster.objects());
    cluster.stop().await;
}

/// What is heard wakes the controller, and what does not concern room does not.
#[tokio::test]
async fn volumes_and_claims_that_change_room_are_heard() {
    let cluster = Cluster::new();
    let this = &cluster.capacities;
    this.office.tables.classes.tell_made((*class("fast", DRIVER, "WaitForFirstConsumer")).clone());
    let woken = || !std::mem::take(&mut this.state().touched).is_empty();
    let volume = |driver: &str, size: &str| -> Option<Arc<Volume>> {
        let spec = json!({
            "csi": { "driver": driver }, "storageClassName": "fast", "capacity": { "storage": size },
        });
        Some(Arc::new(serde_json::from_value(json!({ "spec": spec })).unwrap()))
    };
    let heard = |before, now| {
        this.heard_volume(&Changed {
            key: crate::kubernetes::objects::Key::global("v"),
            before,
            now,
        });
        woken()
    };

    assert!(heard(None, volume(DRIVER, "1Gi")), "made");
    assert!(heard(volume(DRIVER, "1Gi"), volume(DRIVER, "2Gi")), "grown");
    assert!(heard(volume(DRIVER, "1Gi"), None), "removed");
    assert!(!heard(volume(DRIVER, "1Gi"), volume(DRIVER, "1Gi")), "bound, perhaps");
    assert!(!heard(None, volume("ebs.csi.example.com", "1Gi")), "not ours");

    let claim = |node: &str| -> Option<Arc<Claim>> {
        let annotations = json!({ "volume.kubernetes.io/selected-node": node });
        let object = json!({
            "metadata": { "annotations": annotations }, "spec": { "storageClassName": "fast" },
        });
        Some(Arc::new(serde_json::from_value(object).unwrap()))
    };
    let heard = |before, now| {
        this.heard_claim(&Changed {
            key: crate::kubernetes::objects::Key::global("c"),
            before,
            now,
        });
        woken()
    };
    assert!(heard(claim("n1"), claim("")), "it was refused there");
    assert!(!heard(claim(""), claim("n1")));
}
