//! The same over an API server and a driver in memory.

use std::time::Duration;

use hawser_core::{Error, Kind};
use http::Method;
use serde_json::{Value, json};

use crate::kubernetes::tests::fake::{FakeApi, Fault};
use crate::kubernetes::tests::rig::{DRIVER, Rig, claim};

const CLAIM: &str = "persistentvolumeclaims/shop/data";

/// A claim that is bound, and the name of its volume.
async fn bound(rig: &Rig) -> String {
    rig.class("gold", DRIVER);
    rig.claim("data", "gold", DRIVER);
    let claim = rig.api.wait(CLAIM, |claim| claim["status"]["phase"] == "Bound").await;
    let volume = format!("persistentvolumes/{}", claim["spec"]["volumeName"].as_str().unwrap());
    rig.api.wait(&volume, |volume| volume["status"]["phase"] == "Bound").await;
    rig.api.forget();
    volume
}

/// A class that sets the label `tier` to its own name; other keys no volume has.
fn class(rig: &Rig, name: &str, driver: &str, key: &str) {
    rig.api.put(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
        "metadata": { "name": name },
        "driverName": driver,
        "parameters": { key: name },
    }));
}

fn ask_for(rig: &Rig, class: &str) {
    rig.api.update(CLAIM, |claim| claim["spec"]["volumeAttributesClassName"] = json!(class));
}

fn current(claim: &Value) -> &str {
    claim["status"]["currentVolumeAttributesClassName"].as_str().unwrap_or_default()
}

fn status(claim: &Value) -> &str {
    claim["status"]["modifyVolumeStatus"]["status"].as_str().unwrap_or_default()
}

fn target(claim: &Value) -> &str {
    let status = &claim["status"]["modifyVolumeStatus"];
    status["targetVolumeAttributesClassName"].as_str().unwrap_or_default()
}

fn conditions(claim: &Value) -> Vec<&str> {
    let all = claim["status"]["conditions"].as_array();
    all.into_iter().flatten().map(|one| one["type"].as_str().unwrap()).collect()
}

/// What the volume is labelled with.
fn tier(rig: &Rig, volume: &str) -> Option<String> {
    let volume = rig.api.object(volume).unwrap();
    let handle = volume["spec"]["csi"]["volumeHandle"].as_str().unwrap();
    let labels = rig.control.volume_of(handle).unwrap().labels;
    labels.iter().find(|(key, _)| *key == "tier").map(|(_, value)| value.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_volume_gets_the_attributes_of_the_class_that_its_claim_names() {
    let mut rig = Rig::running();
    let volume = bound(&rig).await;
    class(&rig, "fast", DRIVER, "label.tier");

    ask_for(&rig, "fast");

    let claim = rig.api.wait(CLAIM, |claim| current(claim) == "fast").await;
    assert_eq!((status(&claim), conditions(&claim)), ("", vec![]));
    let changed = rig.api.object(&volume).unwrap();
    assert_eq!(changed["spec"]["volumeAttributesClassName"], "fast");
    assert_eq!(tier(&rig, &volume).as_deref(), Some("fast"));
    rig.stop().await;
    assert_eq!(rig.api.writes().len(), 3, "{:?}", rig.api.writes());
}

#[tokio::test(start_paused = true)]
async fn a_class_that_cannot_be_is_told_let_be_and_may_be_changed() {
    let mut rig = Rig::running();
    let volume = bound(&rig).await;
    class(&rig, "odd", DRIVER, "iops");
    class(&rig, "fast", DRIVER, "label.tier");

    ask_for(&rig, "odd");

    let claim = rig.api.wait(CLAIM, |claim| status(claim) == "Infeasible").await;
    assert_eq!((target(&claim), current(&claim)), ("odd", ""));
    assert_eq!(conditions(&claim), ["ModifyingVolume", "ModifyVolumeError"]);
    assert_eq!(claim["status"]["conditions"][1]["reason"], "InvalidArgument");
    assert!(rig.api.until(|api| api.objects("events").len() == 1).await);
    assert_eq!(rig.api.objects("events")[0]["reason"], "VolumeModifyFailed");
    rig.api.forget();
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(rig.api.writes(), Vec::<String>::new());

    ask_for(&rig, "fast");

    let claim = rig.api.wait(CLAIM, |claim| current(claim) == "fast").await;
    assert_eq!((status(&claim), conditions(&claim)), ("", vec![]));
    assert_eq!(tier(&rig, &volume).as_deref(), Some("fast"));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_class_that_is_missing_is_waited_for() {
    let mut rig = Rig::running();
    let volume = bound(&rig).await;

    ask_for(&rig, "fast");
    rig.api.wait(CLAIM, |claim| status(claim) == "Pending").await;
    assert!(rig.api.until(|api| api.objects("events").len() == 1).await);
    class(&rig, "fast", DRIVER, "label.tier");

    rig.api.wait(CLAIM, |claim| current(claim) == "fast").await;
    assert_eq!(tier(&rig, &volume).as_deref(), Some("fast"));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_class_of_another_driver_is_not_applied() {
    let mut rig = Rig::running();
    let volume = bound(&rig).await;
    class(&rig, "theirs", "ebs.csi.example.com", "label.tier");

    ask_for(&rig, "theirs");

    let claim = rig.api.wait(CLAIM, |claim| status(claim) == "Infeasible").await;
    assert_eq!(target(&claim), "theirs");
    assert_eq!(tier(&rig, &volume), None);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_may_be_at_work_keeps_its_class_and_then_comes_the_next() {
    let mut rig = Rig::running();
    let volume = bound(&rig).await;
    class(&rig, "fast", DRIVER, "label.tier");
    class(&rig, "slow", DRIVER, "label.tier");
    *rig.control.slow.lock().unwrap() = true;
    ask_for(&rig, "fast");
    rig.api.wait(CLAIM, |claim| conditions(claim).contains(&"ModifyVolumeError")).await;

    ask_for(&rig, "slow");
    tokio::time::sleep(Duration::from_secs(20)).await;

    let claim = rig.api.object(CLAIM).unwrap();
    assert_eq!((status(&claim), target(&claim)), ("InProgress", "fast"));
    *rig.control.slow.lock().unwrap() = false;
    rig.api.wait(CLAIM, |claim| current(claim) == "slow").await;
    assert_eq!(tier(&rig, &volume).as_deref(), Some("slow"));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_failed_is_tried_again_or_makes_way() {
    let mut rig = Rig::running();
    let volume = bound(&rig).await;
    class(&rig, "fast", DRIVER, "label.tier");
    class(&rig, "slow", DRIVER, "label.tier");
    *rig.control.fail.lock().unwrap() = Some(|| Error::new(Kind::Precondition, "not now"));
    ask_for(&rig, "fast");
    rig.api.wait(CLAIM, |claim| conditions(claim).contains(&"ModifyVolumeError")).await;

    ask_for(&rig, "slow");
    rig.api.wait(CLAIM, |claim| target(claim) == "slow").await;
    *rig.control.fail.lock().unwrap() = None;

    rig.api.wait(CLAIM, |claim| current(claim) == "slow").await;
    assert_eq!(tier(&rig, &volume).as_deref(), Some("slow"));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kill_or_a_lost_answer_at_any_write_is_harmless() {
    let claims = "persistentvolumeclaims/data/status";
    for (part, fault) in [
        (claims, Fault::Hang),
        (claims, Fault::Lost),
        ("/persistentvolumes/", Fault::Hang),
        ("/persistentvolumes/", Fault::Lost),
    ] {
        let mut rig = Rig::running();
        let volume = bound(&rig).await;
        class(&rig, "fast", DRIVER, "label.tier");
        rig.api.fail(1, Method::PATCH, part, fault);

        ask_for(&rig, "fast");

        let sent = |api: &FakeApi| api.writes().iter().any(|write| write.contains(part));
        assert!(rig.api.until(sent).await, "{part}");
        if matches!(fault, Fault::Hang) {
            rig.kill().await;
            rig.start();
        }
        let claim = rig.api.wait(CLAIM, |claim| current(claim) == "fast").await;
        assert_eq!((status(&claim), conditions(&claim)), ("", vec![]), "{part} {fault:?}");
        let changed = rig.api.object(&volume).unwrap();
        assert_eq!(changed["spec"]["volumeAttributesClassName"], "fast", "{part} {fault:?}");
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn claims_of_others_are_left_alone() {
    let mut rig = Rig::running();
    let mut volume = rig.api.object(&bound(&rig).await).unwrap();
    class(&rig, "fast", DRIVER, "label.tier");
    volume["metadata"] = json!({ "name": "pv-theirs" });
    volume["spec"]["csi"]["driver"] = json!("ebs.csi.example.com");
    volume["spec"]["claimRef"] = json!({ "namespace": "shop", "name": "theirs", "uid": "u-1" });
    rig.api.put(volume);
    let mut foreign = claim("theirs", "gold", "ebs.csi.example.com");
    foreign["metadata"]["uid"] = json!("u-1");
    foreign["spec"]["volumeName"] = json!("pv-theirs");
    foreign["spec"]["volumeAttributesClassName"] = json!("fast");
    foreign["status"] = json!({ "phase": "Bound", "capacity": { "storage": "1Gi" } });
    rig.api.put(foreign);

    ask_for(&rig, "fast");
    rig.api.wait(CLAIM, |claim| current(claim) == "fast").await;
    tokio::time::sleep(Duration::from_secs(700)).await;

    rig.stop().await;
    assert!(rig.api.writes().iter().all(|write| !write.contains("theirs")));
}
