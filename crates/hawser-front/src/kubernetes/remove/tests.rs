//! Volumes that nobody claims any more.

use hawser_core::{Error, Kind};
use serde_json::{Value, json};

use crate::kubernetes::tests::rig::{DRIVER, Rig};

/// A claim with its volume, whose name is answered.
async fn bound(rig: &Rig) -> String {
    rig.class("gold", DRIVER);
    let claim = rig.claim("data", "gold", DRIVER);
    let name = format!("pvc-{}", claim["metadata"]["uid"].as_str().unwrap());
    let path = format!("persistentvolumes/{name}");
    rig.api.wait(&path, |volume| volume["status"]["phase"] == "Bound").await;
    path
}

/// What the controller-manager makes of a volume whose claim was deleted.
fn release(rig: &Rig, path: &str) {
    rig.api.delete("persistentvolumeclaims/shop/data");
    rig.api.update(path, |volume| volume["status"]["phase"] = json!("Released"));
}

#[tokio::test]
async fn a_released_volume_goes_with_its_object() {
    let mut rig = Rig::running();
    let path = bound(&rig).await;

    release(&rig, &path);

    rig.api.wait_gone(&path).await;
    assert_eq!(rig.control.count(), 0);
    rig.stop().await;
}

#[tokio::test]
async fn a_volume_that_is_to_be_kept_stays_and_nothing_holds_its_object() {
    let mut rig = Rig::running();
    let path = bound(&rig).await;
    rig.api.update(&path, |volume| {
        volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    });
    let free =
        |volume: &Value| volume["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
    rig.api.wait(&path, free).await;

    release(&rig, &path);
    rig.api.delete(&path);

    rig.api.wait_gone(&path).await;
    assert_eq!(rig.control.count(), 1);
    rig.stop().await;
}

#[tokio::test]
async fn an_attached_volume_waits_for_its_attachment() {
    let mut rig = Rig::running();
    let path = bound(&rig).await;
    let name = path.strip_prefix("persistentvolumes/").unwrap();
    rig.api.put(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": "a" },
        "spec": { "attacher": "other.example", "nodeName": "n1", "source": { "persistentVolumeName": name } },
    }));
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    release(&rig, &path);
    let told = |api: &crate::kubernetes::tests::fake::FakeApi| {
        api.objects("events").iter().any(|event| event["reason"] == "VolumeFailedDelete")
    };
    assert!(rig.api.until(told).await);
    assert_eq!(rig.control.count(), 1);

    rig.api.delete("volumeattachments/a");

    rig.api.wait_gone(&path).await;
    assert_eq!(rig.control.count(), 0);
    rig.stop().await;
}

#[tokio::test]
async fn the_object_stays_while_the_driver_cannot_remove_the_storage() {
    let mut rig = Rig::running();
    let path = bound(&rig).await;
    *rig.control.fail.lock().unwrap() = Some(|| Error::new(Kind::Precondition, "it has snapshots"));

    release(&rig, &path);

    let told = |api: &crate::kubernetes::tests::fake::FakeApi| {
        api.objects("events").iter().any(|event| {
            event["message"].as_str().is_some_and(|message| message.contains("it has snapshots"))
        })
    };
    assert!(rig.api.until(told).await);
    assert!(rig.api.object(&path).is_some());
    *rig.control.fail.lock().unwrap() = None;
    rig.api.wait_gone(&path).await;
    rig.stop().await;
}

#[tokio::test]
async fn volumes_of_others_are_left_alone() {
    let mut rig = Rig::running();
    let path = bound(&rig).await;
    rig.api.put(json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": { "name": "theirs", "annotations": { "pv.kubernetes.io/provisioned-by": "x.example" } },
        "spec": { "persistentVolumeReclaimPolicy": "Delete", "csi": { "driver": "x.example", "volumeHandle": "1" } },
        "status": { "phase": "Released" },
    }));

    release(&rig, &path);

    rig.api.wait_gone(&path).await;
    rig.stop().await;
    assert!(rig.api.object("persistentvolumes/theirs").is_some());
}

/// The controller-manager leaves it to us, and nobody else would come.
#[tokio::test]
async fn a_volume_that_was_made_by_hand_is_removed_when_it_asks_for_that() {
    let mut rig = Rig::running();
    for (name, policy) in [("goes", "Delete"), ("stays", "Retain")] {
        rig.api.put(json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name },
            "spec": { "persistentVolumeReclaimPolicy": policy, "csi": { "driver": DRIVER, "volumeHandle": name } },
            "status": { "phase": "Released" },
        }));
    }

    rig.api.wait_gone("persistentvolumes/goes").await;
    rig.stop().await;
    assert!(rig.api.object("persistentvolumes/stays").is_some());
}

/// Whoever deletes the object first would leave the storage behind otherwise.
#[tokio::test]
async fn the_object_of_a_volume_that_is_no_longer_to_be_kept_is_held() {
    let mut rig = Rig::running();
    let path = bound(&rig).await;
    let policy = |policy: &str| {
        rig.api.update(&path, |volume| {
            volume["spec"]["persistentVolumeReclaimPolicy"] = json!(policy);
        });
    };
    let held = |volume: &Value| {
        volume["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty())
    };
    policy("Retain");
    rig.api.wait(&path, |volume| !held(volume)).await;

    policy("Delete");

    rig.api.wait(&path, held).await;
    rig.stop().await;
}
