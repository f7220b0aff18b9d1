//! Volumes that nobody wants any more before anything names them, and those that only look so.

use std::sync::Arc;
use std::time::Duration;

use hawser_api::csi::v1::controller_server::Controller;
use hawser_api::csi::v1::volume_capability::access_mode::Mode;
use hawser_api::csi::v1::volume_capability::{AccessMode, AccessType, MountVolume};
use hawser_api::csi::v1::{CreateVolumeRequest, VolumeCapability};
use hawser_core::page::PageRequest;
use http::Method;
use serde_json::{Value, json};
use tonic::Request;

use super::super::Provisioner;
use super::super::request::volume_name;
use super::{bound, volume_of, warnings};
use crate::kubernetes::objects::{Claim, Object};
use crate::kubernetes::queue::Next;
use crate::kubernetes::tests::desk::office;
use crate::kubernetes::tests::fake::{FakeApi, Fault};
use crate::kubernetes::tests::rig::{DRIVER, Rig};

/// Waits until there are this many volumes at the driver.
async fn come_to(rig: &Rig, count: usize) -> bool {
    for _ in 0..200 {
        if rig.control.count() == count {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    false
}

#[tokio::test(start_paused = true)]
async fn a_volume_whose_claim_went_while_it_was_made_is_removed() {
    let mut rig = Rig::running();
    *rig.control.slow.lock().unwrap() = true;
    rig.class("gold", DRIVER);
    rig.claim("data", "gold", DRIVER);
    assert!(come_to(&rig, 1).await);

    rig.api.delete("persistentvolumeclaims/shop/data");
    *rig.control.slow.lock().unwrap() = false;

    assert!(come_to(&rig, 0).await);
    assert!(rig.api.objects("persistentvolumes").is_empty());
    rig.stop().await;
}

/// Somebody made a volume by hand that fits, and the controller-manager was faster.
#[tokio::test(start_paused = true)]
async fn a_volume_whose_claim_got_another_one_while_it_was_made_is_removed() {
    let mut rig = Rig::running();
    *rig.control.slow.lock().unwrap() = true;
    rig.class("gold", DRIVER);
    rig.claim("data", "gold", DRIVER);
    assert!(come_to(&rig, 1).await);

    rig.api.update("persistentvolumeclaims/shop/data", |claim| {
        claim["spec"]["volumeName"] = json!("by-hand");
    });
    *rig.control.slow.lock().unwrap() = false;

    assert!(come_to(&rig, 0).await);
    assert!(rig.api.objects("persistentvolumes").is_empty());
    rig.stop().await;
}

/// The same when it is noticed only as the claim is to name its volume.
#[tokio::test(start_paused = true)]
async fn a_claim_that_cannot_name_its_volume_any_more_leaves_none_behind() {
    let mut rig = Rig::running();
    rig.class("gold", DRIVER);
    rig.api.fail(1, Method::PATCH, "persistentvolumeclaims/data", Fault::Refused(422));
    rig.claim("data", "gold", DRIVER);
    assert!(come_to(&rig, 1).await);

    rig.api.update("persistentvolumeclaims/shop/data", |claim| {
        claim["spec"]["volumeName"] = json!("by-hand");
    });

    assert!(come_to(&rig, 0).await);
    assert!(warnings(&rig.api).is_empty());
    rig.stop().await;
}

/// A request that was answered long ago is not made again: what it made may hold data by now.
#[tokio::test(start_paused = true)]
async fn a_volume_that_somebody_keeps_outlives_its_claim_also_after_trouble_with_its_binding() {
    let mut rig = Rig::running();
    rig.class("gold", DRIVER);
    rig.api.fail(1, Method::PATCH, "persistentvolumes", Fault::Refused(500));
    let path = volume_of(&rig.claim("data", "gold", DRIVER));
    rig.api.wait("persistentvolumeclaims/shop/data", bound).await;
    rig.api.update(&path, |volume| {
        volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    });
    let free =
        |volume: &Value| volume["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
    rig.api.wait(&path, free).await;
    rig.api.delete(&path);
    tokio::time::sleep(Duration::from_millis(200)).await;

    rig.api.delete("persistentvolumeclaims/shop/data");

    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.control.count(), 1);
    rig.stop().await;
}

/// The answer to writing the object was lost, and the watch has not brought it yet.
#[tokio::test]
async fn a_volume_is_left_to_its_object_also_when_that_was_not_seen_yet() {
    let api = FakeApi::new();
    let office = office(&api);
    let control = office.drivers[0].control().unwrap();
    let count =
        async || control.list_volumes(&Default::default(), &PageRequest::largest()).await.unwrap();
    let provisioner = Provisioner::new(office.clone());
    let claim: Claim = serde_json::from_value(json!({
        "metadata": { "name": "data", "namespace": "shop", "uid": "of-data" },
    }))
    .unwrap();
    let request = Arc::new(CreateVolumeRequest {
        name: volume_name(&claim),
        volume_capabilities: vec![capability()],
        ..CreateVolumeRequest::default()
    });
    let controller = office.drivers[0].controller().unwrap();
    controller.create_volume(Request::new((*request).clone())).await.unwrap();
    let forsake = async || {
        provisioner.begun.begin(&claim, DRIVER, &request);
        assert_eq!(provisioner.forsake(&claim.key(), None).await, Next::Done);
        assert!(!provisioner.begun.has(&claim.key()));
    };
    api.put(json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": request.name },
    }));

    forsake().await;
    assert_eq!(count().await.items.len(), 1);

    api.delete("persistentvolumes/pvc-of-data");
    forsake().await;
    assert!(count().await.items.is_empty());
}

/// What every claim asks for at least.
fn capability() -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    }
}
