//! Snapshots stay while volumes are made from them, and no longer.

use hawser_core::name::{Alias, Labels, Scope};
use hawser_core::port::Control;
use hawser_core::snapshot::{SnapshotRef, SnapshotRequest};
use hawser_core::volume::{VolumeRef, VolumeRequest};
use hawser_core::{ByteSize, Error, Kind};
use http::Method;
use serde_json::{Value, json};

use crate::kubernetes::names::SNAPSHOT_SOURCE_FINALIZER as MARK;
use crate::kubernetes::tests::fake::Fault;
use crate::kubernetes::tests::rig::{DRIVER, Rig, claim};

const SNAPSHOT: &str = "volumesnapshots/shop/s";
const GROUP: &str = "snapshot.storage.k8s.io";

fn snapshot(name: &str, finalizers: &[&str]) -> Value {
    json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": { "name": name, "namespace": "shop", "finalizers": finalizers },
        "status": { "boundVolumeSnapshotContentName": "content", "readyToUse": true },
    })
}

fn is_marked(snapshot: &Value) -> bool {
    snapshot["metadata"]["finalizers"].as_array().is_some_and(|all| all.contains(&json!(MARK)))
}

fn is_bound(claim: &Value) -> bool {
    claim["status"]["phase"] == "Bound"
}

fn copy(name: &str) -> Value {
    let mut copy = claim(name, "gold", DRIVER);
    copy["spec"]["dataSource"] =
        json!({ "apiGroup": GROUP, "kind": "VolumeSnapshot", "name": "s" });
    copy
}

/// A cluster with a class and the snapshot `s`, whose storage is there, and nothing at work.
async fn rig(finalizers: &[&str]) -> Rig {
    let rig = Rig::new();
    rig.class("gold", DRIVER);
    let name = |name: &str| Alias::new(Scope::Csi, name.to_owned()).unwrap();
    let volume = VolumeRequest::new(name("old"), ByteSize::gib(1));
    rig.control.create_volume(volume, Default::default()).await.unwrap();
    let volume = VolumeRef::Alias(name("old"));
    let request = SnapshotRequest { alias: name("cut"), volume, labels: Labels::default() };
    rig.control.create_snapshot(request, Default::default()).await.unwrap();
    let cut = rig.control.get_snapshot(&SnapshotRef::Alias(name("cut"))).await.unwrap();
    let there = rig.api.put(snapshot("s", finalizers));
    rig.api.put(json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": { "name": "content" },
        "spec": {
            "driver": DRIVER,
            "source": { "snapshotHandle": cut.id.to_string() },
            "volumeSnapshotRef": {
                "namespace": "shop", "name": "s", "uid": there["metadata"]["uid"],
            },
        },
        "status": { "snapshotHandle": cut.id.to_string(), "readyToUse": true },
    }));
    rig
}

fn busy() -> Error {
    Error::new(Kind::Busy, "it takes its time")
}

#[tokio::test]
async fn a_snapshot_is_marked_while_a_volume_is_made_from_it_and_no_longer() {
    let mut rig = rig(&["others/finalizer"]).await;
    *rig.control.fail.lock().unwrap() = Some(busy);
    rig.start();

    rig.api.put(copy("copy"));

    rig.api.wait(SNAPSHOT, is_marked).await;
    // Who deletes it now has to wait, and the volume is made all the same.
    rig.api.delete(SNAPSHOT);
    *rig.control.fail.lock().unwrap() = None;
    rig.api.wait("persistentvolumeclaims/shop/copy", is_bound).await;
    let left = rig.api.wait(SNAPSHOT, |snapshot| !is_marked(snapshot)).await;
    assert_eq!(left["metadata"]["finalizers"], json!(["others/finalizer"]));
    rig.stop().await;
    let of_it = |write: &&String| write.contains("/volumesnapshots/");
    assert_eq!(rig.api.writes().iter().filter(of_it).count(), 2);
}

/// The sidecar marks it, too, and was ended before it could take the mark off.
#[tokio::test]
async fn a_restore_that_a_sidecar_began_is_gone_on_with() {
    let mut rig = rig(&[MARK]).await;
    rig.api.delete(SNAPSHOT);
    rig.api.put(copy("copy"));

    rig.start();

    rig.api.wait("persistentvolumeclaims/shop/copy", is_bound).await;
    rig.api.wait_gone(SNAPSHOT).await;
    rig.stop().await;
}

#[tokio::test]
async fn a_snapshot_that_goes_and_that_nobody_has_begun_to_copy_is_no_source() {
    let mut rig = rig(&["others/finalizer"]).await;
    rig.api.delete(SNAPSHOT);
    rig.start();

    rig.api.put(copy("copy"));

    let told = |event: &Value| event["message"].as_str().unwrap_or_default().contains("deleted");
    assert!(rig.api.until(|api| api.objects("events").iter().any(told)).await);
    assert!(!is_marked(&rig.api.object(SNAPSHOT).unwrap()));
    rig.stop().await;
}

#[tokio::test]
async fn without_the_right_to_mark_it_a_snapshot_is_still_a_source() {
    let mut rig = rig(&[]).await;
    rig.api.fail(usize::MAX, Method::PATCH, "volumesnapshots", Fault::Refused(403));
    rig.api.fail(usize::MAX, Method::GET, "apis/snapshot.storage.k8s.io/v1/volumesnapshots?", {
        Fault::Refused(403)
    });
    rig.start();

    rig.api.put(copy("copy"));

    rig.api.wait("persistentvolumeclaims/shop/copy", is_bound).await;
    rig.stop().await;
}

#[tokio::test]
async fn marks_that_nobody_needs_are_swept_and_those_of_other_drivers_stay() {
    let mut rig = rig(&[MARK]).await;
    rig.api.put(snapshot("theirs", &[MARK]));
    let mut foreign = claim("foreign", "silver", "csi.example.org");
    foreign["spec"]["dataSourceRef"] =
        json!({ "apiGroup": GROUP, "kind": "VolumeSnapshot", "name": "theirs" });
    rig.api.put(foreign);
    let mut done = copy("done");
    done["status"]["phase"] = json!("Bound");
    rig.api.put(done);

    rig.start();

    rig.api.wait(SNAPSHOT, |snapshot| !is_marked(snapshot)).await;
    assert!(is_marked(&rig.api.object("volumesnapshots/shop/theirs").unwrap()));
    rig.stop().await;
}

#[tokio::test]
async fn the_mark_stays_until_the_last_copy_is_made() {
    let mut rig = rig(&[]).await;
    rig.start();
    let mut waiting = copy("waiting");
    waiting["spec"]["storageClassName"] = json!("absent");
    rig.api.put(waiting);

    rig.api.put(copy("copy"));

    rig.api.wait("persistentvolumeclaims/shop/copy", is_bound).await;
    let looked = |api: &crate::kubernetes::tests::fake::FakeApi| {
        let reads = api.requests();
        let of_it = reads.iter().filter(|seen| seen.path.ends_with("/shop/volumesnapshots/s"));
        of_it.filter(|seen| seen.method == Method::GET).count() >= 2
    };
    assert!(rig.api.until(looked).await);
    assert!(is_marked(&rig.api.object(SNAPSHOT).unwrap()));
    rig.api.delete("persistentvolumeclaims/shop/waiting");
    rig.api.wait(SNAPSHOT, |snapshot| !is_marked(snapshot)).await;
    rig.stop().await;
}
