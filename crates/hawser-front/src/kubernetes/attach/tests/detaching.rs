//! How a right is taken back.

use hawser_core::port::Control;
use hawser_core::volume::VolumeRef;
use hawser_core::{Error, Kind};
use http::Method;
use serde_json::{Value, json};

use super::rig::{HELD, PV, Rig, VA, attachment, is_held, later};
use crate::kubernetes::office::CALL_LIMIT;
use crate::kubernetes::tests::fake::Fault;

/// A volume that is attached to the first node.
async fn attached() -> (Rig, String) {
    let (rig, id) = Rig::with_volume().await;
    rig.api.put(attachment("a", "pv", "n1"));
    rig.attached(VA).await;
    rig.api.forget();
    (rig, id)
}

#[tokio::test(start_paused = true)]
async fn a_detach_takes_one_request() {
    let (rig, id) = attached().await;

    rig.api.delete(VA);

    rig.api.wait_gone(VA).await;
    assert!(rig.nodes_of(&id).is_empty());
    assert_eq!(rig.api.writes().len(), 1);
    assert!(is_held(&rig.api.object(PV).unwrap()), "the next attachment needs it again");
}

#[tokio::test(start_paused = true)]
async fn the_id_of_a_node_survives_the_node() {
    let (mut rig, id) = attached().await;
    rig.kill().await;
    rig.api.delete("csinodes/n1");
    rig.api.delete(VA);

    rig.start().await;

    rig.api.wait_gone(VA).await;
    assert!(rig.nodes_of(&id).is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_volume_is_taken_from_the_node_that_had_it() {
    let (rig, id) = attached().await;
    rig.api.update("csinodes/n1", |node| node["spec"]["drivers"][0]["nodeID"] = json!("n2"));

    rig.api.delete(VA);

    rig.api.wait_gone(VA).await;
    assert!(rig.nodes_of(&id).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_nobody_knows_takes_nothing_from_the_others() {
    let (rig, id) = attached().await;
    rig.api.update(VA, |it| it["metadata"]["annotations"] = Value::Null);
    rig.api.delete("csinodes/n1");

    rig.api.delete(VA);

    rig.told(VA, "detachError", "node n1 has no driver").await;
    assert_eq!(rig.nodes_of(&id), ["n1"]);
}

#[tokio::test(start_paused = true)]
async fn the_detach_of_a_volume_that_is_gone_succeeds() {
    let (rig, id) = attached().await;
    rig.take_back(&id, "n1").await;
    let volume = VolumeRef::Id(id.parse().unwrap());
    rig.control.delete_volume(&volume, CALL_LIMIT).await.unwrap();

    rig.api.delete(VA);

    rig.api.wait_gone(VA).await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_to_detach_is_told_and_the_attachment_stays() {
    let (rig, id) = attached().await;
    *rig.control.fail.lock().unwrap() = Some(|| Error::new(Kind::Unavailable, "no answer"));

    rig.api.delete(VA);

    let told = rig.told(VA, "detachError", "no answer").await;
    assert!(is_held(&told) && told["status"]["attached"] == true);
    assert!(told["status"]["detachError"]["errorCode"].is_null());
    *rig.control.fail.lock().unwrap() = None;
    rig.api.wait_gone(VA).await;
    assert!(rig.nodes_of(&id).is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_attachment_that_others_hold_is_let_go_before_its_status_says_so() {
    let (rig, id) = attached().await;
    rig.api.update(VA, |it| it["metadata"]["finalizers"] = json!([HELD, "theirs.example/held"]));
    rig.api.fail(1, Method::PATCH, "volumeattachments/a/status", Fault::Refused(500));

    rig.api.delete(VA);

    rig.api.wait(VA, |it| it["metadata"]["finalizers"] == json!(["theirs.example/held"])).await;
    assert!(rig.nodes_of(&id).is_empty());
    // The next comparison with the driver finds what was not told.
    later().await;
    let told = rig.api.wait(VA, |it| it["status"]["attached"] == false).await;
    assert!(told["status"]["attachmentMetadata"].is_null(), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_let_go_with_its_last_attachment_alone() {
    let mut rig = Rig::new();
    let id = rig.volume("pv", "ReadWriteMany").await;
    rig.start().await;
    rig.api.put(attachment("a", "pv", "n1"));
    rig.api.put(attachment("b", "pv", "n2"));
    rig.attached(VA).await;
    rig.attached("volumeattachments/b").await;
    rig.api.update(PV, |volume| volume["metadata"]["finalizers"] = json!([HELD]));
    rig.api.delete(PV);

    rig.api.delete(VA);
    rig.api.wait_gone(VA).await;
    later().await;
    assert!(is_held(&rig.api.object(PV).unwrap()));
    rig.api.delete("volumeattachments/b");

    rig.api.wait_gone(PV).await;
    assert!(rig.nodes_of(&id).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_goes_unattached_is_let_go_and_others_keep_it() {
    let (mut rig, _) = Rig::with_volume().await;
    rig.kill().await;
    rig.api.update(PV, |volume| {
        volume["metadata"]["finalizers"] = json!([HELD, "kubernetes.io/pv-protection"]);
    });
    rig.api.delete(PV);

    rig.start().await;

    let rest = json!(["kubernetes.io/pv-protection"]);
    rig.api.wait(PV, |volume| volume["metadata"]["finalizers"] == rest).await;
}

#[tokio::test(start_paused = true)]
async fn an_attachment_that_comes_again_under_its_name_is_attached() {
    let (rig, id) = attached().await;
    for _ in 0..20 {
        rig.api.delete(VA);
        rig.api.wait_gone(VA).await;
        rig.api.put(attachment("a", "pv", "n1"));
        rig.attached(VA).await;
    }
    assert_eq!(rig.nodes_of(&id), ["n1"]);
}

#[tokio::test(start_paused = true)]
async fn a_volume_moves_as_soon_as_the_other_node_has_given_it_back() {
    let (rig, id) = attached().await;
    rig.api.put(attachment("b", "pv", "n2"));
    rig.told("volumeattachments/b", "attachError", "n1").await;
    // By now it is tried again only every few minutes.
    later().await;
    let begun = tokio::time::Instant::now();

    rig.api.delete(VA);

    rig.attached("volumeattachments/b").await;
    assert!(begun.elapsed().as_secs() < 1);
    assert_eq!(rig.nodes_of(&id), ["n2"]);
}
