//! Volumes that nobody knows any more, and those that look like them.

use hawser_core::ByteSize;
use hawser_core::name::{Alias, Scope};
use hawser_core::port::Control;
use hawser_core::port::control::Reply;
use hawser_core::publication::PublishRequest;
use hawser_core::volume::{Access, SourceRef, VolumeRef, VolumeRequest};
use http::Method;
use serde_json::json;

use super::*;
use crate::kubernetes::tests::fake::{FakeApi, Fault};
use crate::kubernetes::tests::rig::{DRIVER, Rig, claim};

const HOUR: Duration = Duration::from_secs(3600);

/// A raw device that somebody calls like this; answers its id.
async fn device(rig: &Rig, scope: Scope, name: &str, source: Option<&str>) -> String {
    let alias = Alias::new(scope, name).unwrap();
    let mut wanted = VolumeRequest::new(alias, ByteSize::mib(1));
    wanted.access = Some(Access::Block);
    wanted.source = source.map(|id| SourceRef::Volume(VolumeRef::Id(id.parse().unwrap())));
    let made = rig.control.create_volume(wanted, Duration::ZERO).await.unwrap();
    let Reply::Done(change) = made else { panic!("it is made at once") };
    let id = change.get().id.to_string();
    rig.control.age(&id, HOUR);
    id
}

async fn published_once(rig: &Rig, id: &str) {
    let (volume, node) = (VolumeRef::Id(id.parse().unwrap()), "n1".parse().unwrap());
    let request = PublishRequest::new("n1".parse().unwrap(), false);
    rig.control.publish(&volume, request, Duration::ZERO).await.unwrap();
    rig.control.unpublish(&volume, &node, Duration::ZERO).await.unwrap();
}

async fn gone(rig: &Rig, id: &str) -> bool {
    for _ in 0..200 {
        if rig.control.volume_of(id).is_none() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    false
}

#[tokio::test(start_paused = true)]
async fn a_device_whose_claim_went_with_the_process_that_made_it_is_removed() {
    let mut rig = Rig::running();
    rig.class("gold", DRIVER);
    rig.api.fail(1, Method::POST, "persistentvolumes", Fault::Hang);
    let mut wanted = claim("data", "gold", DRIVER);
    wanted["spec"]["volumeMode"] = json!("Block");
    rig.api.put(wanted);
    let hangs =
        |api: &FakeApi| api.writes().iter().any(|write| write.ends_with("/persistentvolumes"));
    assert!(rig.api.until(hangs).await);
    rig.kill().await;
    rig.api.delete("persistentvolumeclaims/shop/data");
    let all = rig.control.list_volumes(&VolumeFilter::default(), &PageRequest::largest()).await;
    let id = all.unwrap().items.remove(0).id.to_string();
    rig.control.age(&id, HOUR);

    rig.start();

    assert!(gone(&rig, &id).await);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_anybody_may_refer_to_or_may_have_used_stays() {
    let mut rig = Rig::new();
    rig.class("gold", DRIVER);
    let nobodys = device(&rig, Scope::Csi, "pvc-nobodys", None).await;
    let used = device(&rig, Scope::Csi, "pvc-used", None).await;
    published_once(&rig, &used).await;
    let copy = device(&rig, Scope::Csi, "pvc-copy", Some(&used)).await;
    let by_hand = device(&rig, Scope::Csi, "mine", None).await;
    let native = device(&rig, Scope::Native, "pvc-native", None).await;
    let claim = rig.claim("data", "none", DRIVER);
    let uid = claim["metadata"]["uid"].as_str().unwrap();
    let claimed = device(&rig, Scope::Csi, &format!("pvc-{uid}"), None).await;
    let by_handle = device(&rig, Scope::Csi, "pvc-handle", None).await;
    let by_name = device(&rig, Scope::Csi, "pvc-name", None).await;
    for (name, handle) in [("anything", by_handle.as_str()), ("pvc-name", "another")] {
        rig.api.put(json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name },
            "spec": {
                "persistentVolumeReclaimPolicy": "Retain",
                "csi": { "driver": DRIVER, "volumeHandle": handle },
            },
        }));
    }

    rig.start();

    assert!(gone(&rig, &nobodys).await, "they were looked for");
    tokio::time::sleep(Duration::from_millis(200)).await;
    rig.stop().await;
    for (what, id) in [
        ("used", used),
        ("copy", copy),
        ("by hand", by_hand),
        ("native", native),
        ("claimed", claimed),
        ("by handle", by_handle),
        ("by name", by_name),
    ] {
        assert!(rig.control.volume_of(&id).is_some(), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_device_that_was_made_just_now_is_left_to_whoever_made_it() {
    let mut rig = Rig::new();
    let old = device(&rig, Scope::Csi, "pvc-old", None).await;
    let wanted = VolumeRequest {
        access: Some(Access::Block),
        ..VolumeRequest::new(Alias::new(Scope::Csi, "pvc-young").unwrap(), ByteSize::mib(1))
    };
    rig.control.create_volume(wanted, Duration::ZERO).await.unwrap();

    rig.start();

    assert!(gone(&rig, &old).await);
    tokio::time::sleep(Duration::from_millis(200)).await;
    rig.stop().await;
    assert_eq!(rig.control.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_removed_while_the_api_server_does_not_say_that_it_has_no_object() {
    let mut rig = Rig::new();
    let id = device(&rig, Scope::Csi, "pvc-nobodys", None).await;
    rig.api.fail(1, Method::GET, "metadata.name=pvc-nobodys", Fault::Refused(500));

    rig.start();

    let asked = |api: &FakeApi| {
        api.requests().iter().any(|seen| seen.query.contains("metadata.name=pvc-nobodys"))
    };
    assert!(rig.api.until(asked).await);
    tokio::time::sleep(Duration::from_millis(200)).await;
    rig.stop().await;
    assert!(rig.control.volume_of(&id).is_some());
}
