//! The same over an API server and a driver in memory.

use std::time::Duration;

use hawser_core::{ByteSize, Error, Kind};
use http::Method;
use serde_json::{Value, json};

use crate::kubernetes::names::{NODE_EXPANSION_NOT_REQUIRED, PRE_RESIZE_CAPACITY};
use crate::kubernetes::tests::fake::{FakeApi, Fault};
use crate::kubernetes::tests::rig::{DRIVER, Rig, claim};

const CLAIM: &str = "persistentvolumeclaims/shop/data";

/// A claim of 1Gi that is bound, and the name of its volume.
async fn bound(rig: &Rig, mode: &str) -> String {
    rig.class("gold", DRIVER);
    let mut wanted = claim("data", "gold", DRIVER);
    wanted["spec"]["volumeMode"] = json!(mode);
    rig.api.put(wanted);
    let claim = rig.api.wait(CLAIM, |claim| claim["status"]["phase"] == "Bound").await;
    let volume = format!("persistentvolumes/{}", claim["spec"]["volumeName"].as_str().unwrap());
    rig.api.wait(&volume, |volume| volume["status"]["phase"] == "Bound").await;
    rig.api.forget();
    volume
}

fn ask_for(rig: &Rig, size: &str) {
    rig.api.update(CLAIM, |claim| claim["spec"]["resources"]["requests"]["storage"] = json!(size));
}

fn size(object: &Value) -> &str {
    let of = if object["kind"] == "PersistentVolume" { "spec" } else { "status" };
    object[of]["capacity"]["storage"].as_str().unwrap_or_default()
}

fn progress(claim: &Value) -> &str {
    claim["status"]["allocatedResourceStatuses"]["storage"].as_str().unwrap_or_default()
}

fn conditions(claim: &Value) -> Vec<&str> {
    let all = claim["status"]["conditions"].as_array();
    all.into_iter().flatten().map(|one| one["type"].as_str().unwrap()).collect()
}

/// How large the driver has made the volume.
fn real_size(rig: &Rig, volume: &str) -> ByteSize {
    let volume = rig.api.object(volume).unwrap();
    let handle = volume["spec"]["csi"]["volumeHandle"].as_str().unwrap();
    rig.control.volume_of(handle).unwrap().size
}

fn fail_with(rig: &Rig, fail: Option<fn() -> Error>) {
    *rig.control.fail.lock().unwrap() = fail;
}

#[tokio::test(start_paused = true)]
async fn a_file_system_is_left_to_the_node() {
    let mut rig = Rig::running();
    let volume = bound(&rig, "Filesystem").await;

    ask_for(&rig, "2Gi");

    let claim = rig.api.wait(CLAIM, |claim| progress(claim) == "NodeResizePending").await;
    assert_eq!(size(&claim), "1Gi");
    assert_eq!(claim["status"]["allocatedResources"]["storage"], "2Gi");
    assert_eq!(conditions(&claim), ["Resizing", "FileSystemResizePending"]);
    let grown = rig.api.object(&volume).unwrap();
    assert_eq!(size(&grown), "2Gi");
    assert_eq!(grown["metadata"]["annotations"][PRE_RESIZE_CAPACITY], "1Gi");
    assert_eq!(real_size(&rig, &volume), ByteSize::gib(2));

    // The kubelet says that it is done.
    rig.api.update(CLAIM, |claim| {
        claim["status"]["capacity"]["storage"] = json!("2Gi");
        claim["status"]["allocatedResourceStatuses"] = Value::Null;
        claim["status"]["conditions"] = Value::Null;
    });
    rig.api
        .wait(&volume, |volume| volume["metadata"]["annotations"][PRE_RESIZE_CAPACITY].is_null())
        .await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_device_that_nobody_uses_is_done_at_once_in_three_requests() {
    let mut rig = Rig::running();
    let volume = bound(&rig, "Block").await;

    ask_for(&rig, "2Gi");

    let claim = rig.api.wait(CLAIM, |claim| size(claim) == "2Gi").await;
    assert_eq!((progress(&claim), conditions(&claim)), ("", vec![]));
    assert_eq!(claim["metadata"]["annotations"][NODE_EXPANSION_NOT_REQUIRED], "true");
    let grown = rig.api.object(&volume).unwrap();
    assert_eq!(size(&grown), "2Gi");
    assert!(grown["metadata"]["annotations"][PRE_RESIZE_CAPACITY].is_null());
    rig.stop().await;
    let status = "PATCH /api/v1/namespaces/shop/persistentvolumeclaims/data/status";
    let writes = rig.api.writes();
    assert_eq!((writes.len(), &*writes[0], &*writes[2]), (3, status, status), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_is_told_let_be_and_may_be_lowered() {
    let mut rig = Rig::running();
    let volume = bound(&rig, "Block").await;
    fail_with(&rig, Some(|| Error::new(Kind::OutOfRange, "4Gi at most")));

    ask_for(&rig, "9Gi");

    let claim = rig.api.wait(CLAIM, |claim| progress(claim) == "ControllerResizeInfeasible").await;
    assert_eq!(conditions(&claim), ["Resizing", "ControllerResizeError"]);
    assert_eq!(claim["status"]["allocatedResources"]["storage"], "9Gi");
    let told = |api: &FakeApi| api.objects("events").len() == 1;
    assert!(rig.api.until(told).await);
    let event = rig.api.objects("events").remove(0);
    assert_eq!(
        (&event["reason"], &event["type"]),
        (&json!("VolumeResizeFailed"), &json!("Warning"))
    );
    assert_eq!(event["message"], "4Gi at most");
    // It is not tried again soon, whatever else happens to the claim.
    rig.api.forget();
    rig.api.update(CLAIM, |claim| claim["metadata"]["labels"] = json!({ "app": "a" }));
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(rig.api.writes(), Vec::<String>::new());

    fail_with(&rig, None);
    ask_for(&rig, "2Gi");

    let claim = rig.api.wait(CLAIM, |claim| size(claim) == "2Gi").await;
    assert_eq!((progress(&claim), conditions(&claim)), ("", vec![]));
    assert_eq!(real_size(&rig, &volume), ByteSize::gib(2));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_is_tried_again_in_a_while() {
    let mut rig = Rig::running();
    bound(&rig, "Block").await;
    fail_with(&rig, Some(|| Error::new(Kind::NotFound, "no such pool")));
    ask_for(&rig, "2Gi");
    rig.api.wait(CLAIM, |claim| progress(claim) == "ControllerResizeInfeasible").await;

    fail_with(&rig, None);
    tokio::time::sleep(Duration::from_secs(301)).await;

    rig.api.wait(CLAIM, |claim| size(claim) == "2Gi").await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_may_be_at_work_comes_to_its_end_before_another_size() {
    let mut rig = Rig::running();
    let volume = bound(&rig, "Block").await;
    *rig.control.slow.lock().unwrap() = true;
    ask_for(&rig, "3Gi");
    rig.api.wait(CLAIM, |claim| progress(claim) == "ControllerResizeInProgress").await;
    assert!(rig.api.until(|api| !api.objects("events").is_empty()).await);

    ask_for(&rig, "2Gi");
    tokio::time::sleep(Duration::from_secs(20)).await;

    // The volume has reached the larger size, which is told in the end.
    let claim = rig.api.object(CLAIM).unwrap();
    assert_eq!(claim["status"]["allocatedResources"]["storage"], "3Gi");
    *rig.control.slow.lock().unwrap() = false;
    rig.api.wait(CLAIM, |claim| size(claim) == "3Gi").await;
    assert_eq!(real_size(&rig, &volume), ByteSize::gib(3));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_failed_for_good_makes_way_for_another_size() {
    let mut rig = Rig::running();
    let volume = bound(&rig, "Block").await;
    fail_with(&rig, Some(|| Error::new(Kind::NoSpace, "the pool is full")));
    ask_for(&rig, "9Gi");
    let told = |claim: &Value| conditions(claim).contains(&"ControllerResizeError");
    let claim = rig.api.wait(CLAIM, told).await;
    assert_eq!(progress(&claim), "ControllerResizeInProgress");

    fail_with(&rig, None);
    ask_for(&rig, "2Gi");

    rig.api.wait(CLAIM, |claim| size(claim) == "2Gi").await;
    assert_eq!(real_size(&rig, &volume), ByteSize::gib(2));
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
        ("/persistentvolumes/", Fault::Refused(500)),
    ] {
        let mut rig = Rig::running();
        let volume = bound(&rig, "Block").await;
        rig.api.fail(1, Method::PATCH, part, fault);

        ask_for(&rig, "2Gi");

        let sent = |api: &FakeApi| api.writes().iter().any(|write| write.contains(part));
        assert!(rig.api.until(sent).await, "{part}");
        if matches!(fault, Fault::Hang) {
            rig.kill().await;
            rig.start();
        }
        let claim = rig.api.wait(CLAIM, |claim| size(claim) == "2Gi").await;
        assert_eq!((progress(&claim), conditions(&claim)), ("", vec![]), "{part} {fault:?}");
        assert_eq!(size(&rig.api.object(&volume).unwrap()), "2Gi", "{part} {fault:?}");
        rig.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_writes_to_the_claim_meanwhile_is_not_overwritten() {
    let mut rig = Rig::running();
    bound(&rig, "Block").await;
    rig.api.fail(1, Method::PATCH, "/persistentvolumes/", Fault::Slow(Duration::from_secs(1)));
    ask_for(&rig, "2Gi");
    let sent =
        |api: &FakeApi| api.writes().iter().any(|write| write.contains("persistentvolumes/"));
    assert!(rig.api.until(sent).await);

    rig.api.update(CLAIM, |claim| {
        let other = json!({ "type": "Other", "status": "True", "lastTransitionTime": "then" });
        claim["status"]["conditions"].as_array_mut().unwrap().push(other);
    });

    let claim = rig.api.wait(CLAIM, |claim| size(claim) == "2Gi").await;
    assert_eq!(conditions(&claim), ["Other"]);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_wish_that_came_while_the_claim_was_bound_is_heard() {
    let mut rig = Rig::running();
    rig.class("gold", DRIVER);
    let slow = Fault::Slow(Duration::from_secs(1));
    rig.api.fail(1, Method::POST, "/persistentvolumes", slow);
    let mut wanted = claim("data", "gold", DRIVER);
    wanted["spec"]["volumeMode"] = json!("Block");
    rig.api.put(wanted);
    let sent = |api: &FakeApi| api.writes().iter().any(|write| write.starts_with("POST"));
    assert!(rig.api.until(sent).await);

    ask_for(&rig, "2Gi");

    rig.api.wait(CLAIM, |claim| size(claim) == "2Gi").await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn claims_and_volumes_of_others_are_left_alone() {
    let mut rig = Rig::running();
    let own = rig.api.object(&bound(&rig, "Block").await).unwrap();
    for (name, driver, uid) in
        [("theirs", "ebs.csi.example.com", "u-theirs"), ("stolen", DRIVER, "u-another")]
    {
        let mut volume = own.clone();
        // With the mark that keeps its object, which anyone's volume of our driver gets.
        let finalizers = &own["metadata"]["finalizers"];
        volume["metadata"] = json!({ "name": format!("pv-{name}"), "finalizers": finalizers });
        volume["spec"]["csi"]["driver"] = json!(driver);
        volume["spec"]["claimRef"] = json!({ "namespace": "shop", "name": name, "uid": uid });
        rig.api.put(volume);
        let mut foreign = claim(name, "gold", "ebs.csi.example.com");
        foreign["metadata"]["uid"] = json!(format!("u-{name}"));
        foreign["spec"]["volumeName"] = json!(format!("pv-{name}"));
        foreign["spec"]["resources"]["requests"]["storage"] = json!("2Gi");
        foreign["status"] = json!({ "phase": "Bound", "capacity": { "storage": "1Gi" } });
        rig.api.put(foreign);
    }

    ask_for(&rig, "2Gi");
    rig.api.wait(CLAIM, |claim| size(claim) == "2Gi").await;
    tokio::time::sleep(Duration::from_secs(1300)).await;

    rig.stop().await;
    let foreign = |write: &&String| write.contains("theirs") || write.contains("stolen");
    assert_eq!(rig.api.writes().iter().filter(foreign).collect::<Vec<_>>(), Vec::<&String>::new());
}
