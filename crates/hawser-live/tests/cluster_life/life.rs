//! The steps of a life, whoever takes them.

use hawser_live::cluster::driver::objects::{
    Binding, DEVICE, attributes_class, claim, claim_of, from_claim, from_snapshot, pod, pod_of,
    raw, raw_pod, snapshot, snapshot_class, snapshot_of, storage_class,
};
use hawser_live::cluster::driver::{
    ATTACHED, Driver, SOON, claim_warnings, inside, room_in, wait_bound, wait_gone, wait_running,
    wait_size,
};
use hawser_live::cluster::{Cluster, Object, node_name};
use serde_json::{Value, json};

/// The file system; one that grows under its pod also where root lacks `CAP_SYS_RESOURCE`, as in
/// many sandboxes, which ext4 needs for it.
const FS: &str = "xfs";

/// How large volumes are, what one is restored to, and what one grows to.
const SIZE: &str = "320Mi";
const SIZE_BYTES: u64 = 320 << 20;
const RESTORED: &str = "384Mi";
const GROWN: &str = "512Mi";

/// The classes of volumes, of snapshots and of attributes.
const CLASS: &str = "life";
const GOLD: &str = "gold";

/// Every claim with the pod that uses it.
const USES: [(&str, &str); 4] =
    [("data", "writer"), ("restored", "reader"), ("copy", "copier"), ("disk", "driver")];

/// Leads volumes of one of our drivers through their life.
#[track_caller]
pub(crate) fn live(cluster: &mut Cluster, driver: &Driver, csi: &str) {
    let mut life = Life { cluster, driver, csi };
    life.makes_classes();
    life.writes();
    life.takes_a_snapshot_and_restores_it();
    life.copies();
    life.grows_under_its_pod();
    life.shows_a_raw_device();
    life.changes_a_volume();
    life.deletes_everything();

    let failed = claim_warnings(cluster.kubectl(), &["ProvisioningFailed", "ClaimLost"]);
    assert_eq!(failed, [""; 0]);
    driver.assert_nothing_left(cluster);
}

struct Life<'a> {
    cluster: &'a mut Cluster,
    driver: &'a Driver,
    csi: &'a str,
}

impl Life<'_> {
    fn makes_classes(&self) {
        // Storage of a node waits for the pod that wants it there.
        let attached = self.csi == ATTACHED;
        let binding = if attached { Binding::Immediate } else { Binding::WaitForFirstConsumer };
        let parameters = json!({ "class": "local", "csi.storage.k8s.io/fstype": FS });
        self.cluster.kubectl().apply_json(&[
            storage_class(CLASS, self.csi, binding, parameters),
            snapshot_class(CLASS, self.csi),
            attributes_class(GOLD, self.csi, json!({ "label.tier": "gold" })),
        ]);
    }

    /// Makes a claim and its pod; answers the volume when both are ready.
    #[track_caller]
    fn uses(&mut self, claim: Value, pod: Value) -> Value {
        let names = [&claim, &pod].map(|object| object["metadata"]["name"].clone());
        let [claim_name, pod_name] = names.each_ref().map(|name| name.as_str().unwrap_or_default());
        self.cluster.kubectl().apply_json(&[claim, pod]);
        let volume = wait_bound(self.cluster, claim_name);
        wait_running(self.cluster, pod_name);
        volume
    }

    fn writes(&mut self) {
        let volume = self.uses(claim("data", CLASS, SIZE, json!({})), pod("writer", "data"));

        assert_eq!(volume["spec"]["csi"]["driver"], self.csi);
        assert_eq!(volume["spec"]["csi"]["fsType"], FS);
        let attachments = self.cluster.kubectl().list("volumeattachment");
        let ours: Vec<&Value> = attachments
            .iter()
            .filter(|found| {
                found["spec"]["source"]["persistentVolumeName"] == volume["metadata"]["name"]
            })
            .collect();
        if self.csi == ATTACHED {
            assert_eq!(ours.len(), 1, "{attachments:#?}");
            assert_eq!(ours[0]["spec"]["attacher"], self.csi);
            assert_eq!(ours[0]["spec"]["nodeName"], node_name(1));
            assert_eq!(ours[0]["status"]["attached"], true);
        } else {
            assert!(ours.is_empty(), "{attachments:#?}");
        }
        inside(self.cluster, "writer", "echo first >/data/words && sync");
    }

    fn takes_a_snapshot_and_restores_it(&mut self) {
        self.cluster.kubectl().apply_json(&[snapshot("data-1", CLASS, "data")]);
        let ready = |snapshot: &Value| snapshot["status"]["readyToUse"] == true;
        self.cluster.wait("snapshot that is ready", &snapshot_of("data-1"), SOON, ready);
        inside(self.cluster, "writer", "echo second >/data/words && sync");

        let restored = claim("restored", CLASS, RESTORED, from_snapshot("data-1"));
        self.uses(restored, pod("reader", "restored"));

        assert_eq!(inside(self.cluster, "reader", "cat /data/words"), "first");
        let (source, larger) = (room_in(self.cluster, "writer"), room_in(self.cluster, "reader"));
        assert!(larger > source, "a larger copy has {larger} KiB, its source {source}");
    }

    fn copies(&mut self) {
        let copy = claim("copy", CLASS, SIZE, from_claim("data"));
        self.uses(copy, pod("copier", "copy"));

        assert_eq!(inside(self.cluster, "copier", "cat /data/words"), "second");
    }

    fn grows_under_its_pod(&mut self) {
        let before = room_in(self.cluster, "writer");
        let change = json!({ "spec": { "resources": { "requests": { "storage": GROWN } } } });
        self.cluster.kubectl().patch(&claim_of("data"), &change);

        wait_size(self.cluster, "data", GROWN);

        let after = room_in(self.cluster, "writer");
        assert!(after > before * 5 / 4, "{after} KiB after, {before} before");
        assert_eq!(inside(self.cluster, "writer", "cat /data/words"), "second");
    }

    fn shows_a_raw_device(&mut self) {
        let volume = self.uses(claim("disk", CLASS, SIZE, raw()), raw_pod("driver", "disk"));

        assert_eq!(volume["spec"]["volumeMode"], "Block");
        let script = format!(
            "echo raw | dd of={DEVICE} bs=512 count=1 conv=sync,fsync 2>/dev/null && \
             dd if={DEVICE} bs=3 count=1 2>/dev/null"
        );
        assert_eq!(inside(self.cluster, "driver", &script), "raw");
        let size = inside(self.cluster, "driver", &format!("blockdev --getsize64 {DEVICE}"));
        assert_eq!(size, SIZE_BYTES.to_string());
    }

    fn changes_a_volume(&mut self) {
        let change = json!({ "spec": { "volumeAttributesClassName": GOLD } });
        self.cluster.kubectl().patch(&claim_of("data"), &change);

        let is_gold = |claim: &Value| claim["status"]["currentVolumeAttributesClassName"] == GOLD;
        self.cluster.wait("claim of the other class", &claim_of("data"), SOON, is_gold);

        let volume = wait_bound(self.cluster, "data");
        let handle = volume["spec"]["csi"]["volumeHandle"].as_str().expect("a handle");
        let shown = self.driver.hawser(self.cluster, &["volume", "show", handle, "-o", "json"]);
        let shown: Value = serde_json::from_str(&shown).expect("a volume as JSON");
        assert_eq!(shown["labels"]["tier"], "gold", "{shown:#}");
    }

    /// Pods first, and what copies were made from before what they were made of.
    fn deletes_everything(&mut self) {
        let kubectl = self.cluster.kubectl().clone();
        let pods = USES.map(|(_, pod)| pod_of(pod));
        pods.iter().for_each(|pod| kubectl.delete(pod));
        pods.iter().for_each(|pod| wait_gone(self.cluster, pod));
        kubectl.delete(&snapshot_of("data-1"));
        wait_gone(self.cluster, &snapshot_of("data-1"));
        let claims = USES.map(|(claim, _)| claim_of(claim));
        claims.iter().for_each(|claim| kubectl.delete(claim));
        claims.iter().for_each(|claim| wait_gone(self.cluster, claim));
        for (kind, name) in [
            ("storageclass", CLASS),
            ("volumesnapshotclass", CLASS),
            ("volumeattributesclass", GOLD),
        ] {
            kubectl.delete(&Object::new(kind, name));
        }
    }
}
