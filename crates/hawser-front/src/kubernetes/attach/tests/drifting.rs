//! What others did behind everybody's back.

use hawser_core::{Error, Kind};
use serde_json::json;

use super::rig::{PV, Rig, VA, attachment, later};

#[tokio::test(start_paused = true)]
async fn a_right_that_was_lost_is_given_again() {
    let (rig, id) = Rig::with_volume().await;
    rig.api.put(attachment("a", "pv", "n1"));
    let first = rig.attached(VA).await;
    rig.take_back(&id, "n1").await;
    *rig.control.fail.lock().unwrap() = Some(|| Error::new(Kind::Precondition, "not now"));

    later().await;
    let told = rig.told(VA, "attachError", "not now").await;
    assert_eq!(told["status"]["attached"], true);
    *rig.control.fail.lock().unwrap() = None;
    later().await;

    let publication =
        |it: &serde_json::Value| it["status"]["attachmentMetadata"]["publication"].clone();
    let old = publication(&first);
    let done = rig.api.wait(VA, |it| publication(it) != old).await;
    assert!(done["status"]["attachError"].is_null());
    assert_eq!(rig.nodes_of(&id), ["n1"]);
}

#[tokio::test(start_paused = true)]
async fn a_right_that_came_back_is_taken_again() {
    let (mut rig, id) = Rig::with_volume().await;
    rig.api.put(attachment("a", "pv", "n1"));
    rig.attached(VA).await;
    rig.kill().await;
    // Somebody took the finalizer off, and somebody else still holds the attachment.
    rig.api.update(VA, |it| {
        it["metadata"]["finalizers"] = json!(["theirs.example/held"]);
        it["status"] = json!({ "attached": false });
    });
    rig.api.delete(VA);

    rig.start().await;

    later().await;
    assert!(rig.nodes_of(&id).is_empty());
    assert!(rig.api.object(VA).is_some());
}

#[tokio::test(start_paused = true)]
async fn attachments_that_are_as_they_should_be_cost_nothing() {
    let (rig, id) = Rig::with_volume().await;
    rig.api.put(attachment("a", "pv", "n1"));
    rig.attached(VA).await;
    rig.api.forget();

    later().await;
    rig.attacher.compare(rig.driver()).await.unwrap();

    assert_eq!(rig.api.requests().iter().filter(|seen| seen.method != "GET").count(), 0);
    assert_eq!(rig.nodes_of(&id), ["n1"]);
    assert!(rig.api.object(PV).is_some());
}

#[tokio::test(start_paused = true)]
async fn more_volumes_than_one_page_holds_are_compared() {
    let mut rig = Rig::new();
    for i in 0..1001 {
        rig.volume(&format!("pv-{i}"), "ReadWriteOnce").await;
    }
    rig.start().await;
    let names: Vec<_> = (0..1001).step_by(20).map(|i| i.to_string()).collect();
    for name in &names {
        rig.api.put(attachment(&format!("a-{name}"), &format!("pv-{name}"), "n1"));
    }
    for name in &names {
        rig.attached(&format!("volumeattachments/a-{name}")).await;
    }
    rig.api.forget();

    rig.attacher.compare(rig.driver()).await.unwrap();

    assert!(rig.attacher.astray().is_empty());
}
