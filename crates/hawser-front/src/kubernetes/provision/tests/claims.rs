//! Claims get volumes, whatever happens meanwhile.

use http::Method;
use serde_json::json;

use super::{bound, phase};
use crate::kubernetes::tests::fake::Fault;
use crate::kubernetes::tests::rig::{DRIVER, Rig, claim};

#[tokio::test]
async fn a_claim_gets_a_volume_and_both_say_that_they_are_bound() {
    let mut rig = Rig::running();
    rig.class("gold", DRIVER);
    rig.claim("data", "gold", DRIVER);

    let claim = rig.api.wait("persistentvolumeclaims/shop/data", bound).await;

    let uid = claim["metadata"]["uid"].as_str().unwrap();
    let volume = rig.api.wait(&format!("persistentvolumes/pvc-{uid}"), bound).await;
    assert_eq!(claim["spec"]["volumeName"], volume["metadata"]["name"]);
    assert_eq!(claim["status"]["capacity"]["storage"], "1Gi");
    assert_eq!(claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"], "yes");
    assert_eq!(claim["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"], "yes");
    assert_eq!(volume["spec"]["claimRef"]["uid"], uid);
    assert_eq!(volume["spec"]["csi"]["driver"], DRIVER);
    assert_eq!(volume["spec"]["csi"]["fsType"], "ext4");
    assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    assert_eq!(volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"], DRIVER);
    let finalizer = "external-provisioner.volume.kubernetes.io/finalizer";
    assert_eq!(volume["metadata"]["finalizers"], json!([finalizer]));
    assert_eq!(rig.control.count(), 1);
    rig.stop().await;
}

#[tokio::test]
async fn a_claim_costs_four_requests_of_ours() {
    let mut rig = Rig::running();
    rig.class("gold", DRIVER);
    let claim = rig.claim("data", "gold", DRIVER);
    let name = format!("pvc-{}", claim["metadata"]["uid"].as_str().unwrap());
    rig.api.wait("persistentvolumeclaims/shop/data", bound).await;
    rig.api.wait(&format!("persistentvolumes/{name}"), bound).await;
    rig.stop().await;

    let claims = "/api/v1/namespaces/shop/persistentvolumeclaims/data";
    assert_eq!(
        rig.api.writes(),
        [
            format!("PATCH {claims}"),
            "POST /api/v1/persistentvolumes".to_owned(),
            format!("PATCH /api/v1/persistentvolumes/{name}/status"),
            format!("PATCH {claims}/status"),
        ]
    );
}

/// The controller-manager calls a bound claim Lost whose volume it has not looked at. When it said that
/// the volume is Bound it has looked at it.
#[tokio::test]
async fn a_claim_is_not_said_to_be_bound_before_its_volume_is() {
    let mut rig = Rig::running();
    rig.class("gold", DRIVER);
    rig.api.fail(usize::MAX, Method::PATCH, "persistentvolumes", Fault::Refused(500));
    let claim = rig.claim("data", "gold", DRIVER);
    let name = format!("persistentvolumes/pvc-{}", claim["metadata"]["uid"].as_str().unwrap());
    rig.api.wait(&name, |_| true).await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let claim = rig.api.object("persistentvolumeclaims/shop/data").unwrap();
    assert_eq!(phase(&claim), "Pending");

    rig.api.update(&name, |volume| volume["status"]["phase"] = json!("Bound"));

    rig.api.wait("persistentvolumeclaims/shop/data", bound).await;
    rig.stop().await;
}

#[tokio::test]
async fn a_claim_of_the_empty_class_of_attributes_gets_a_volume() {
    let mut rig = Rig::running();
    rig.class("gold", DRIVER);
    let mut plain = claim("data", "gold", DRIVER);
    plain["spec"]["volumeAttributesClassName"] = json!("");
    rig.api.put(plain);

    let claim = rig.api.wait("persistentvolumeclaims/shop/data", bound).await;

    let name = claim["spec"]["volumeName"].as_str().unwrap();
    let volume = rig.api.object(&format!("persistentvolumes/{name}")).unwrap();
    assert!(volume["spec"]["volumeAttributesClassName"].is_null(), "{volume:#}");
    rig.stop().await;
}

#[tokio::test]
async fn claims_of_others_and_claims_that_wait_are_left_alone() {
    let mut rig = Rig::running();
    rig.class("gold", DRIVER);
    rig.class("theirs", "ebs.csi.example.com");
    rig.api.put(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "late" },
        "provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer",
    }));
    rig.claim("theirs", "theirs", "ebs.csi.example.com");
    rig.claim("late", "late", DRIVER);
    rig.claim("ours", "gold", DRIVER);
    let mut named = claim("named", "gold", DRIVER);
    named["spec"]["volumeName"] = json!("one-of-mine");
    rig.api.put(named);
    let mut unmarked = claim("unmarked", "gold", DRIVER);
    unmarked["metadata"]["annotations"] = json!({});
    rig.api.put(unmarked);

    rig.api.wait("persistentvolumeclaims/shop/ours", bound).await;
    rig.stop().await;

    for name in ["theirs", "late", "named", "unmarked"] {
        let claim = rig.api.object(&format!("persistentvolumeclaims/shop/{name}")).unwrap();
        assert_eq!(phase(&claim), "Pending", "{name}");
    }
    assert_eq!(rig.control.count(), 1);
}

#[tokio::test]
async fn a_lost_answer_at_any_write_ends_in_one_bound_volume() {
    for (method, part) in [
        (Method::PATCH, "persistentvolumeclaims/data"),
        (Method::POST, "persistentvolumes"),
        (Method::PATCH, "data/status"),
        (Method::PATCH, "/status"),
    ] {
        let mut rig = Rig::running();
        rig.class("gold", DRIVER);
        rig.api.fail(1, method.clone(), part, Fault::Lost);
        rig.claim("data", "gold", DRIVER);

        let claim = rig.api.wait("persistentvolumeclaims/shop/data", bound).await;
        let name = claim["spec"]["volumeName"].as_str().unwrap().to_owned();
        rig.api.wait(&format!("persistentvolumes/{name}"), bound).await;

        assert_eq!(rig.api.objects("persistentvolumes").len(), 1, "{method} {part}");
        assert_eq!(rig.control.count(), 1, "{method} {part}");
        rig.stop().await;
    }
}

#[tokio::test]
async fn who_comes_after_a_kill_goes_on_where_it_was() {
    for (method, part) in [
        (Method::PATCH, "persistentvolumeclaims/data"),
        (Method::POST, "persistentvolumes"),
        (Method::PATCH, "data/status"),
        (Method::PATCH, "/status"),
    ] {
        let mut rig = Rig::running();
        rig.class("gold", DRIVER);
        rig.api.fail(1, method.clone(), part, Fault::Hang);
        rig.claim("data", "gold", DRIVER);
        let hangs = |api: &crate::kubernetes::tests::fake::FakeApi| {
            api.writes().iter().any(|write| write.contains(part))
        };
        assert!(rig.api.until(hangs).await);
        rig.kill().await;

        rig.start();

        let claim = rig.api.wait("persistentvolumeclaims/shop/data", bound).await;
        let name = claim["spec"]["volumeName"].as_str().unwrap().to_owned();
        rig.api.wait(&format!("persistentvolumes/{name}"), bound).await;
        assert_eq!((rig.api.objects("persistentvolumes").len(), rig.control.count()), (1, 1));
        rig.stop().await;
    }
}

#[tokio::test]
async fn a_claim_that_was_called_lost_is_bound_again() {
    let mut rig = Rig::running();
    rig.class("gold", DRIVER);
    rig.claim("data", "gold", DRIVER);
    rig.api.wait("persistentvolumeclaims/shop/data", bound).await;

    rig.api.update("persistentvolumeclaims/shop/data", |claim| {
        claim["status"]["phase"] = json!("Lost");
    });

    rig.api.wait("persistentvolumeclaims/shop/data", bound).await;
    rig.stop().await;
}
