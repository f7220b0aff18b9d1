use std::time::Duration;

use hawser_core::{Error, Kind};
use http::Method;
use serde_json::{Value, json};

use super::rig::{DELETED, FINALIZER, MARK, Rig, at, content, is_ready};
use crate::kubernetes::tests::fake::Fault;

/// A content that is ready, with this policy and perhaps another finalizer.
async fn ready(rig: &Rig, policy: &str, other: Option<&str>) -> String {
    let volume = rig.volume("data").await;
    let mut content = content("u-1", &volume);
    content["spec"]["deletionPolicy"] = json!(policy);
    content["metadata"]["finalizers"] =
        [FINALIZER].into_iter().chain(other).collect::<Vec<_>>().into();
    rig.api.put(content);
    rig.api.wait(&at("u-1"), is_ready).await;
    rig.api.forget();
    at("u-1")
}

/// What the snapshot controller does when a snapshot is deleted.
fn delete(rig: &Rig, path: &str) {
    rig.api.update(path, |it| it["metadata"]["annotations"][DELETED] = json!("yes"));
    rig.api.delete(path);
}

#[tokio::test(start_paused = true)]
async fn a_content_goes_with_its_snapshot_in_one_request() {
    let mut rig = Rig::start();
    let path = ready(&rig, "Delete", None).await;

    delete(&rig, &path);

    rig.api.wait_gone(&path).await;
    assert!(rig.stored().await.is_empty());
    rig.stop().await;
    assert_eq!(rig.writes(), ["snapcontent-u-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_content_that_others_hold_is_told_that_its_snapshot_is_gone_first() {
    let mut rig = Rig::start();
    let path = ready(&rig, "Delete", Some("example/other")).await;

    delete(&rig, &path);

    let others = json!(["example/other"]);
    let told = rig.api.wait(&path, |it| it["metadata"]["finalizers"] == others).await;
    assert_eq!(told["status"].as_object().map_or(0, |status| status.len()), 0, "{told:#}");
    assert!(rig.stored().await.is_empty());
    rig.stop().await;
    assert_eq!(rig.writes(), ["snapcontent-u-1/status", "snapcontent-u-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_is_to_be_kept_stays() {
    let mut rig = Rig::start();
    let path = ready(&rig, "Retain", None).await;

    delete(&rig, &path);

    rig.api.wait_gone(&path).await;
    assert_eq!(rig.stored().await.len(), 1);
    rig.stop().await;
    assert_eq!(rig.writes(), ["snapcontent-u-1"]);
}

#[tokio::test(start_paused = true)]
async fn without_the_word_of_the_snapshot_controller_nothing_goes() {
    let mut rig = Rig::start();
    let path = ready(&rig, "Delete", None).await;

    rig.api.delete(&path);
    tokio::time::sleep(Duration::from_secs(10)).await;

    assert!(rig.api.object(&path).is_some());
    assert_eq!(rig.stored().await.len(), 1);
    rig.stop().await;
    assert!(rig.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_content_that_nobody_is_bound_to_goes_without_it() {
    let mut rig = Rig::start();
    ready(&rig, "Delete", None).await;
    let handle = rig.stored().await.remove(0).id;
    let mut given = content("u-2", "");
    given["spec"]["source"] = json!({ "snapshotHandle": handle });
    given["spec"]["volumeSnapshotRef"]["uid"] = Value::Null;
    rig.api.put(given);
    rig.api.wait(&at("u-2"), is_ready).await;

    rig.api.delete(&at("u-2"));

    rig.api.wait_gone(&at("u-2")).await;
    assert!(rig.stored().await.is_empty());
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_content_stays_while_the_driver_cannot_remove_the_snapshot() {
    let mut rig = Rig::start();
    let path = ready(&rig, "Delete", None).await;
    *rig.control.fail.lock().unwrap() =
        Some(|| Error::new(Kind::Precondition, "a volume depends on it"));

    delete(&rig, &path);

    assert!(rig.told("SnapshotDeleteError").await.contains("a volume depends on it"));
    assert!(rig.writes().is_empty());
    *rig.control.fail.lock().unwrap() = None;
    rig.api.wait_gone(&path).await;
    assert!(rig.stored().await.is_empty());
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_content_that_changes_meanwhile_is_let_go_all_the_same() {
    let mut rig = Rig::start();
    let path = ready(&rig, "Delete", None).await;
    rig.api.fail(1, Method::PATCH, "u-1", Fault::Refused(409));

    delete(&rig, &path);

    rig.api.wait_gone(&path).await;
    assert!(rig.stored().await.is_empty());
    rig.stop().await;
}

/// The content must stay until it is known what there is to remove.
#[tokio::test(start_paused = true)]
async fn what_may_be_under_way_is_taken_and_then_removed() {
    let mut rig = Rig::start();
    let volume = rig.volume("data").await;
    *rig.control.slow.lock().unwrap() = true;
    let path = at("u-1");
    rig.api.put(content("u-1", &volume));
    rig.api.wait(&path, |it| it["status"]["error"].is_object()).await;

    delete(&rig, &path);
    tokio::time::sleep(Duration::from_secs(10)).await;

    let held = rig.api.object(&path).unwrap();
    assert!(held["metadata"]["annotations"][MARK].is_string(), "{held:#}");
    *rig.control.slow.lock().unwrap() = false;
    rig.api.wait_gone(&path).await;
    assert!(rig.stored().await.is_empty());
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_failed_for_good_goes_at_once() {
    let mut rig = Rig::start();
    let path = at("u-1");
    rig.api.put(content("u-1", "fake-vol-id"));
    rig.told("SnapshotCreationFailed").await;

    delete(&rig, &path);

    rig.api.wait_gone(&path).await;
    rig.stop().await;
}
