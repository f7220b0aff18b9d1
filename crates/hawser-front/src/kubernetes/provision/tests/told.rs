//! What users are told of while there is no volume, and what not.

use std::time::Duration;

use hawser_core::{Error, Kind};
use http::Method;
use serde_json::json;

use super::{bound, volume_of, warnings};
use crate::kubernetes::tests::fake::{FakeApi, Fault};
use crate::kubernetes::tests::rig::{DRIVER, Rig, claim};

#[tokio::test]
async fn what_the_driver_refuses_is_told_as_an_event_and_tried_again() {
    let mut rig = Rig::running();
    *rig.control.fail.lock().unwrap() = Some(|| Error::new(Kind::NoSpace, "the pool is full"));
    rig.class("gold", DRIVER);
    rig.claim("data", "gold", DRIVER);
    let told = |api: &FakeApi| !api.objects("events").is_empty();
    assert!(rig.api.until(told).await);
    let event = rig.api.objects("events").remove(0);
    assert_eq!(event["reason"], "ProvisioningFailed");
    assert_eq!(event["involvedObject"]["name"], "data");
    assert!(event["message"].as_str().unwrap().contains("the pool is full"), "{event:#}");

    *rig.control.fail.lock().unwrap() = None;

    rig.api.wait("persistentvolumeclaims/shop/data", bound).await;
    rig.stop().await;
}

/// The claim is bound soon, and whoever looks at it would find a failure that was none.
#[tokio::test(start_paused = true)]
async fn trouble_after_the_volume_was_made_is_not_told_to_users() {
    let mut rig = Rig::running();
    rig.class("gold", DRIVER);
    for (method, part, code) in [
        (Method::PATCH, "persistentvolumeclaims/data", 500),
        (Method::POST, "persistentvolumes", 503),
        (Method::PATCH, "persistentvolumes/pvc-", 429),
        (Method::PATCH, "data/status", 500),
    ] {
        rig.api.fail(1, method, part, Fault::Refused(code));
    }
    let path = volume_of(&rig.claim("data", "gold", DRIVER));

    rig.api.wait("persistentvolumeclaims/shop/data", bound).await;

    assert!(bound(&rig.api.object(&path).unwrap()));
    assert!(warnings(&rig.api).is_empty(), "{:?}", warnings(&rig.api));
    rig.stop().await;
}

/// Only the administrator of the cluster can help, and nothing else says so.
#[tokio::test(start_paused = true)]
async fn a_policy_against_the_volumes_object_is_told() {
    let mut rig = Rig::running();
    rig.class("gold", DRIVER);
    rig.api.fail(usize::MAX, Method::POST, "persistentvolumes", Fault::Refused(422));

    rig.claim("data", "gold", DRIVER);

    assert!(rig.api.until(|api| !warnings(api).is_empty()).await, "nobody is told");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_api_server_with_too_much_to_do_is_no_failure_of_a_claim() {
    let mut rig = Rig::running();
    rig.api.put(json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "login", "namespace": "shop" }, "data": { "user": "bWU=" },
    }));
    rig.api.put(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "gold" },
        "provisioner": DRIVER, "volumeBindingMode": "Immediate",
        "parameters": {
            "csi.storage.k8s.io/provisioner-secret-name": "login",
            "csi.storage.k8s.io/provisioner-secret-namespace": "shop",
        },
    }));
    rig.api.fail(1, Method::GET, "secrets/login", Fault::Refused(429));

    rig.claim("data", "gold", DRIVER);

    rig.api.wait("persistentvolumeclaims/shop/data", bound).await;
    assert!(warnings(&rig.api).is_empty(), "{:?}", warnings(&rig.api));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_does_not_come_is_looked_for_less_and_less_often() {
    let mut rig = Rig::running();
    rig.class("gold", DRIVER);
    let mut copy = claim("data", "gold", DRIVER);
    copy["spec"]["dataSource"] = json!({
        "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "absent",
    });
    rig.api.put(copy);

    tokio::time::sleep(Duration::from_secs(600)).await;

    let looks = |seen: &&crate::kubernetes::tests::fake::Seen| seen.path.ends_with("/absent");
    let looks = rig.api.requests().iter().filter(looks).count();
    assert!((5..15).contains(&looks), "{looks} in ten minutes");
    assert_eq!(warnings(&rig.api).len(), 1, "it is told once, and counted");
    rig.stop().await;
}
