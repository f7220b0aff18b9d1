//! Claims that wait: for their pod, for the controller-manager, for each other.

use std::time::Duration;

use hawser_core::{Error, Kind};
use http::Method;
use serde_json::{Value, json};

use super::{bound, late_class, node, volume_of, warnings};
use crate::kubernetes::tests::fake::{FakeApi, Fault};
use crate::kubernetes::tests::rig::{DRIVER, Rig, claim};

/// Whoever marks the claims is busy with all of them before it looks at the first volume.
#[tokio::test(start_paused = true)]
async fn the_volume_of_a_claim_that_was_marked_late_is_left_to_whoever_marked_it() {
    let mut rig = Rig::running();
    rig.class("gold", DRIVER);
    let mut unmarked = claim("data", "gold", DRIVER);
    let marks = unmarked["metadata"]["annotations"].take();
    let claim = rig.api.put(unmarked);
    let name = format!("persistentvolumes/pvc-{}", claim["metadata"]["uid"].as_str().unwrap());
    tokio::time::sleep(Duration::from_millis(200)).await;
    rig.api.update("persistentvolumeclaims/shop/data", |claim| {
        claim["metadata"]["annotations"] = marks.clone();
    });
    rig.api.wait(&name, |_| true).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!bound(&rig.api.object(&name).unwrap()));

    rig.api.update(&name, |volume| volume["status"]["phase"] = json!("Bound"));

    rig.api.wait("persistentvolumeclaims/shop/data", bound).await;
    rig.stop().await;
}

/// The claim `data`, for whose pod a node is chosen: marked by the policy as the scheduler writes that.
fn choose(rig: &Rig, node: &str) {
    rig.api.update("persistentvolumeclaims/shop/data", |claim| {
        claim["metadata"]["annotations"] = json!({
            "volume.kubernetes.io/storage-provisioner": DRIVER,
            "volume.kubernetes.io/selected-node": node,
        });
    });
}

/// A claim that waits for its pod, as users make it.
fn unmarked(rig: &Rig) -> Value {
    let mut unmarked = claim("data", "late", DRIVER);
    unmarked["metadata"]["annotations"] = json!({});
    rig.api.put(unmarked)
}

/// The minute that whoever marks all claims may take is not for a claim that it has not marked.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_marked_as_its_node_is_chosen_is_bound_at_once() {
    let mut rig = Rig::running();
    late_class(&rig);
    node(&rig, "n1");
    unmarked(&rig);
    tokio::time::sleep(Duration::from_millis(200)).await;

    choose(&rig, "n1");

    rig.api.wait("persistentvolumeclaims/shop/data", bound).await;
    assert_eq!((rig.control.count(), warnings(&rig.api)), (1, vec![]));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_the_controller_manager_binds_first_is_left_as_it_is() {
    let mut rig = Rig::running();
    late_class(&rig);
    node(&rig, "n1");
    let name = volume_of(&unmarked(&rig));
    tokio::time::sleep(Duration::from_millis(200)).await;
    rig.api.fail(usize::MAX, Method::PATCH, "/status", Fault::Slow(Duration::from_secs(2)));

    choose(&rig, "n1");
    rig.api.wait(&name, |volume| !volume.is_null()).await;
    rig.api.update(&name, |volume| volume["status"]["phase"] = json!("Bound"));
    let theirs = rig.api.update("persistentvolumeclaims/shop/data", |claim| {
        claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = json!("yes");
        claim["status"] = json!({
            "phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1.5Gi" },
        });
    });
    tokio::time::sleep(Duration::from_secs(3)).await;

    let now = rig.api.object("persistentvolumeclaims/shop/data").unwrap();
    assert_eq!((&now["status"], &now["spec"]), (&theirs["status"], &theirs["spec"]));
    assert!(bound(&rig.api.object(&name).unwrap()));
    assert_eq!((rig.control.count(), warnings(&rig.api)), (1, vec![]));
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_controller_manager_may_come_after_a_claim_is_bound() {
    let mut rig = Rig::running();
    late_class(&rig);
    node(&rig, "n1");
    let name = volume_of(&unmarked(&rig));
    tokio::time::sleep(Duration::from_millis(200)).await;
    choose(&rig, "n1");
    rig.api.wait("persistentvolumeclaims/shop/data", bound).await;
    rig.api.forget();

    // What it writes when it finds both as they are: nothing, but for a look at either.
    for path in [name.as_str(), "persistentvolumeclaims/shop/data"] {
        rig.api.update(path, |object| object["metadata"]["labels"] = json!({ "seen": "yes" }));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;

    assert!(rig.api.writes().is_empty(), "{:?}", rig.api.writes());
    assert_eq!((rig.control.count(), warnings(&rig.api)), (1, vec![]));
    rig.stop().await;
}

/// It cannot be given back, and no other node can be chosen.
#[tokio::test(start_paused = true)]
async fn a_claim_that_names_its_volume_gets_it_when_its_node_is_gone() {
    let mut rig = Rig::new();
    late_class(&rig);
    let made = unmarked(&rig);
    choose(&rig, "gone");
    let name = format!("pvc-{}", made["metadata"]["uid"].as_str().unwrap());
    rig.api.update("persistentvolumeclaims/shop/data", |claim| {
        claim["spec"]["volumeName"] = json!(name);
    });

    rig.start();

    rig.api.wait("persistentvolumeclaims/shop/data", bound).await;
    assert_eq!((rig.control.count(), warnings(&rig.api)), (1, vec![]));
    rig.stop().await;
}

/// Where the controller-manager marks all claims, it comes to no volume for a while.
#[tokio::test(start_paused = true)]
async fn claims_that_wait_for_the_controller_manager_hold_up_no_others() {
    let mut rig = Rig::running();
    rig.class("gold", DRIVER);
    for number in 0..100 {
        let mut late = claim(&format!("late-{number}"), "gold", DRIVER);
        late["metadata"]["annotations"] = json!({});
        rig.api.put(late);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    for number in 0..100 {
        rig.api.update(&format!("persistentvolumeclaims/shop/late-{number}"), |claim| {
            claim["metadata"]["annotations"] =
                json!({ "volume.kubernetes.io/storage-provisioner": DRIVER });
        });
    }
    let all_wait = |api: &FakeApi| api.objects("persistentvolumes").len() >= 64;
    assert!(rig.api.until(all_wait).await);

    rig.claim("data", "gold", DRIVER);

    rig.api.wait("persistentvolumeclaims/shop/data", bound).await;
    rig.kill().await;
}

/// Nobody else would take the mark off, and the scheduler looks at no other node while it is there.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_gone_is_given_back_to_the_scheduler() {
    let mut rig = Rig::running();
    late_class(&rig);
    let mut chosen = claim("data", "late", DRIVER);
    chosen["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = json!("gone");
    rig.api.put(chosen);

    rig.api
        .wait("persistentvolumeclaims/shop/data", |claim| {
            claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].is_null()
        })
        .await;
    rig.stop().await;
    assert!(rig.api.objects("events").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_without_room_is_given_back_to_the_scheduler() {
    let mut rig = Rig::running();
    *rig.control.fail.lock().unwrap() = Some(|| Error::new(Kind::NoSpace, "full"));
    node(&rig, "n1");
    late_class(&rig);
    let mut chosen = claim("data", "late", DRIVER);
    chosen["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = json!("n1");
    rig.api.put(chosen);

    rig.api
        .wait("persistentvolumeclaims/shop/data", |claim| {
            claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].is_null()
        })
        .await;
    rig.stop().await;
}
