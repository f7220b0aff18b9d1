//! How a node comes to its right.

use hawser_core::{Error, Kind, Outcome};
use http::Method;
use serde_json::{Value, json};

use super::rig::{DRIVER, LOCAL, NODE_ID, PV, Rig, VA, attachment, is_held, later, registered};
use crate::kubernetes::tests::fake::Fault;

/// The requests to change the volume, the attachment and its status.
const PATCH_PV: &str = "PATCH /api/v1/persistentvolumes/pv";
const PATCH_VA: &str = "PATCH /apis/storage.k8s.io/v1/volumeattachments/a";
const PATCH_STATUS: &str = "PATCH /apis/storage.k8s.io/v1/volumeattachments/a/status";

#[tokio::test(start_paused = true)]
async fn finalizers_stand_before_the_driver_is_asked() {
    let (rig, id) = Rig::with_volume().await;
    rig.api.fail(1, Method::PATCH, "persistentvolumes/pv?", Fault::Refused(500));
    rig.api.put(attachment("a", "pv", "n1"));

    let told = rig.told(VA, "attachError", "as told").await;
    assert!(!is_held(&told) && rig.nodes_of(&id).is_empty());
    rig.api.fail(1, Method::PATCH, "volumeattachments/a?", Fault::Refused(503));
    let held = rig.told(VA, "attachError", "VolumeAttachment a").await;
    assert!(is_held(&rig.api.object(PV).unwrap()) && !is_held(&held));
    assert!(rig.nodes_of(&id).is_empty());

    let done = rig.attached(VA).await;
    assert!(is_held(&done) && rig.nodes_of(&id) == ["n1"]);
}

#[tokio::test(start_paused = true)]
async fn an_attachment_takes_three_requests_and_the_next_one_of_its_volume_two() {
    let mut rig = Rig::new();
    let id = rig.volume("pv", "ReadWriteMany").await;
    rig.start().await;
    rig.api.put(attachment("a", "pv", "n1"));

    let done = rig.attached(VA).await;

    assert_eq!(rig.api.writes(), [PATCH_PV, PATCH_VA, PATCH_STATUS]);
    assert_eq!(done["metadata"]["annotations"][NODE_ID], "n1");
    assert!(done["status"]["attachmentMetadata"]["publication"].is_string(), "{done}");
    let volume = rig.api.object(PV).unwrap();
    assert_eq!(volume["metadata"]["finalizers"].as_array().unwrap().len(), 2);
    rig.api.forget();
    rig.api.put(attachment("b", "pv", "n2"));
    rig.attached("volumeattachments/b").await;
    assert_eq!(rig.api.writes().len(), 2);
    assert_eq!(rig.nodes_of(&id), ["n1", "n2"]);
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_killed_before_the_status_repeats_itself_harmlessly() {
    let (mut rig, id) = Rig::with_volume().await;
    rig.api.fail(1, Method::PATCH, "volumeattachments/a/status", Fault::Hang);
    rig.api.put(attachment("a", "pv", "n1"));
    assert!(rig.api.until(|api| api.writes().contains(&PATCH_STATUS.to_owned())).await);
    rig.kill().await;
    let first = rig.control.volume_of(&id).unwrap().publications;
    rig.api.forget();

    rig.start().await;

    rig.attached(VA).await;
    assert_eq!(rig.control.volume_of(&id).unwrap().publications, first);
    assert_eq!(rig.api.writes(), [PATCH_STATUS]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_with_its_code_once_and_cleared_in_the_end() {
    let (rig, id) = Rig::with_volume().await;
    *rig.control.fail.lock().unwrap() = Some(|| Error::new(Kind::NoSpace, "no room on the node"));
    rig.api.put(attachment("a", "pv", "n1"));
    let told = rig.told(VA, "attachError", "no room on the node").await;
    assert_eq!(told["status"]["attachError"]["errorCode"], 8);
    assert!(is_held(&told), "it may be attached all the same");
    // Several tries later.
    later().await;
    assert_eq!(rig.api.writes(), [PATCH_PV, PATCH_VA, PATCH_STATUS]);

    *rig.control.fail.lock().unwrap() =
        Some(|| Error::new(Kind::Unavailable, "no answer").with_outcome(Outcome::Unknown));
    later().await;
    let told = rig.told(VA, "attachError", "no answer").await;
    assert_eq!(told["status"]["attachError"]["errorCode"], 14);
    *rig.control.fail.lock().unwrap() = None;
    later().await;

    let done = rig.attached(VA).await;
    assert!(done["status"]["attachError"].is_null(), "{done}");
    assert_eq!(rig.nodes_of(&id), ["n1"]);
}

#[tokio::test(start_paused = true)]
async fn somebody_who_was_faster_is_no_failure() {
    let (rig, _) = Rig::with_volume().await;
    rig.api.fail(1, Method::PATCH, "persistentvolumes/pv?", Fault::Refused(409));
    rig.api.fail(1, Method::PATCH, "volumeattachments/a?", Fault::Refused(409));
    rig.api.put(attachment("a", "pv", "n1"));

    rig.attached(VA).await;

    let statuses = rig.api.writes().iter().filter(|write| *write == PATCH_STATUS).count();
    assert_eq!(statuses, 1);
}

#[tokio::test(start_paused = true)]
async fn an_attachment_waits_for_its_volume_and_for_the_driver_on_its_node() {
    let mut rig = Rig::new();
    let id = rig.volume("pv", "ReadWriteOnce").await;
    let volume = rig.api.update(PV, |volume| volume["metadata"]["finalizers"] = json!([]));
    rig.api.delete(PV);
    rig.api.update("csinodes/n1", |node| node["spec"]["drivers"] = Value::Null);
    rig.start().await;
    rig.api.put(attachment("a", "pv", "n1"));
    rig.told(VA, "attachError", "there is no PersistentVolume pv").await;
    let mut again = json!({ "metadata": { "name": "pv" } });
    for field in ["apiVersion", "kind", "spec", "status"] {
        again[field] = volume[field].clone();
    }

    rig.api.put(again);
    let told = rig.told(VA, "attachError", "node n1 has no driver").await;
    assert!(!is_held(&told) && !is_held(&rig.api.object(PV).unwrap()));
    let begun = tokio::time::Instant::now();
    rig.api.put(registered("n1"));

    rig.attached(VA).await;
    assert!(begun.elapsed().as_secs() < 1, "it was told, not found by chance");
    assert_eq!(rig.nodes_of(&id), ["n1"]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_attached_is_not_held() {
    let (rig, id) = Rig::with_volume().await;
    rig.api.put(json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "theirs" },
        "spec": { "accessModes": ["ReadWriteOnce"], "csi": { "driver": "x", "volumeHandle": id } },
    }));
    rig.api.update(PV, |volume| {
        volume["spec"]["csi"]["controllerPublishSecretRef"] =
            json!({ "name": "s", "namespace": "ns" });
    });
    let mut inline = attachment("inline", "pv", "n1");
    inline["spec"]["source"] = json!({ "inlineVolumeSpec": { "csi": { "driver": DRIVER } } });
    rig.api.put(inline);
    rig.api.put(attachment("a", "pv", "n1"));
    rig.api.put(attachment("theirs", "theirs", "n1"));

    let paths = [VA, "volumeattachments/inline", "volumeattachments/theirs"];
    let words = ["there is no secret ns/s", "in-tree", "theirs is not of driver"];
    for (path, words) in paths.into_iter().zip(words) {
        let told = rig.told(path, "attachError", words).await;
        assert!(!is_held(&told), "{told}");
    }
    rig.api.delete(PV);
    let told = rig.told(VA, "attachError", "pv is being deleted").await;
    assert!(!is_held(&told) && !is_held(&rig.api.object(PV).unwrap()));
    assert!(rig.nodes_of(&id).is_empty());
}

#[tokio::test(start_paused = true)]
async fn attachments_of_others_are_left_alone() {
    let mut rig = Rig::new();
    rig.volume("pv", "ReadWriteOnce").await;
    let mut theirs = attachment("theirs", "pv", "n1");
    theirs["spec"]["attacher"] = json!("x.example");
    let mut going = theirs.clone();
    going["metadata"] = json!({ "name": "going", "finalizers": ["external-attacher/x-example"] });
    rig.api.put(theirs);
    rig.api.put(going);
    rig.api.delete("volumeattachments/going");
    rig.api.put(json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": { "name": "theirs", "finalizers": ["external-attacher/x-example"] },
        "spec": { "csi": { "driver": "x.example", "volumeHandle": "1" } },
    }));
    rig.api.delete("persistentvolumes/theirs");

    rig.start().await;
    later().await;

    assert_eq!(rig.api.writes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_attachment_of_the_local_driver_is_done_as_it_is() {
    let (rig, _) = Rig::with_volume().await;
    let mut local = attachment("a", "of-a-node", "n9");
    local["spec"]["attacher"] = json!(LOCAL);
    rig.api.put(local);

    rig.attached(VA).await;

    assert_eq!(rig.api.writes(), [PATCH_STATUS]);
    rig.api.delete(VA);
    rig.api.wait_gone(VA).await;
}

#[tokio::test(start_paused = true)]
async fn a_hundred_attachments_at_once_are_done_with_no_request_too_many() {
    let mut rig = Rig::new();
    for i in 0..100 {
        rig.volume(&format!("pv-{i}"), "ReadWriteOnce").await;
    }
    rig.start().await;
    for i in 0..100 {
        let node = if i % 2 == 0 { "n1" } else { "n2" };
        rig.api.put(attachment(&format!("a-{i}"), &format!("pv-{i}"), node));
    }

    for i in 0..100 {
        rig.attached(&format!("volumeattachments/a-{i}")).await;
    }

    assert_eq!(rig.api.writes().len(), 300);
}
