use std::time::Duration;

use hawser_core::name::{Alias, Labels, Scope};
use hawser_core::port::Control;
use hawser_core::snapshot::{SnapshotRequest, SnapshotState};
use hawser_core::volume::VolumeRef;
use hawser_core::{Error, Kind};
use http::Method;
use serde_json::{Value, json};

use super::rig::{CONTENTS, DRIVER, Rig, at, class, content, is_marked, is_ready};
use crate::kubernetes::tests::fake::Fault;

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_taken_and_told() {
    let mut rig = Rig::start();
    let volume = rig.volume("data").await;

    rig.api.put(content("u-1", &volume));

    let told = rig.api.wait(&at("u-1"), is_ready).await;
    let taken = rig.stored().await.remove(0);
    assert_eq!(taken.alias.to_string(), "csi:snapshot-u-1");
    let label = |name: &str| taken.labels.get(name).map(str::to_owned);
    assert_eq!(label("team").as_deref(), Some("blue"));
    assert_eq!(label("csi.storage.k8s.io/volumesnapshot.name").as_deref(), Some("nightly"));
    assert_eq!(label("csi.storage.k8s.io/volumesnapshot.namespace").as_deref(), Some("shop"));
    let content_name = label("csi.storage.k8s.io/volumesnapshotcontent.name");
    assert_eq!(content_name.as_deref(), Some("snapcontent-u-1"));
    let created = i64::try_from(taken.created.as_nanosecond()).unwrap();
    assert_eq!(
        told["status"],
        json!({
            "snapshotHandle": taken.id, "readyToUse": true, "creationTime": created,
            "restoreSize": 1 << 30,
        })
    );
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn fifty_snapshots_at_once_take_as_long_as_one_and_cost_three_requests_each() {
    let mut rig = Rig::start();
    let volume = rig.volume("data").await;
    rig.api.fail(150, Method::PATCH, "snapcontent", Fault::Slow(Duration::from_secs(1)));
    let start = tokio::time::Instant::now();

    for number in 0..50 {
        rig.api.put(content(&format!("u-{number}"), &volume));
    }

    for number in 0..50 {
        rig.api.wait(&at(&format!("u-{number}")), is_ready).await;
    }
    let took = start.elapsed();
    assert!(took < Duration::from_millis(3500), "{took:?}");
    rig.stop().await;
    assert_eq!(rig.stored().await.len(), 50);
    assert_eq!(rig.writes().len(), 150);
    let mut of_one = rig.writes();
    of_one.retain(|write| write.starts_with("snapcontent-u-7/") || write == "snapcontent-u-7");
    assert_eq!(of_one, ["snapcontent-u-7", "snapcontent-u-7/status", "snapcontent-u-7"]);
}

#[tokio::test(start_paused = true)]
async fn the_driver_is_not_asked_before_the_mark_is_written() {
    let mut rig = Rig::start();
    let volume = rig.volume("data").await;
    rig.api.fail(1, Method::PATCH, "u-1", Fault::Slow(Duration::from_secs(5)));

    rig.api.put(content("u-1", &volume));
    rig.api.until(|api| !api.writes().is_empty()).await;
    tokio::time::sleep(Duration::from_secs(4)).await;

    assert!(rig.stored().await.is_empty());
    rig.api.wait(&at("u-1"), is_ready).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_is_not_ready_is_asked_for_until_it_is() {
    let mut rig = Rig::start();
    let volume = rig.volume("data").await;
    let request = SnapshotRequest {
        alias: Alias::new(Scope::Csi, "snapshot-u-1").unwrap(),
        volume: VolumeRef::Id(volume.parse().unwrap()),
        labels: Labels::default(),
    };
    rig.control.create_snapshot(request, Default::default()).await.unwrap();
    let id = rig.stored().await.remove(0).id.to_string();
    rig.control.set_snapshot_state(&id, SnapshotState::Creating);

    rig.api.put(content("u-1", &volume));

    let cut = |content: &Value| content["status"]["readyToUse"] == false && !is_marked(content);
    let told = rig.api.wait(&at("u-1"), cut).await;
    assert_eq!(told["status"]["snapshotHandle"], id.as_str());
    rig.control.set_snapshot_state(&id, SnapshotState::Ready);
    let told = rig.api.wait(&at("u-1"), is_ready).await;
    assert_eq!(told["status"]["snapshotHandle"], id.as_str());
    assert_eq!(rig.stored().await.len(), 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_keeps_the_mark_and_is_asked_for_again() {
    let mut rig = Rig::start();
    let volume = rig.volume("data").await;
    *rig.control.slow.lock().unwrap() = true;

    rig.api.put(content("u-1", &volume));

    let told = rig.api.wait(&at("u-1"), |it| it["status"]["error"].is_object()).await;
    assert!(is_marked(&told) && told["status"]["readyToUse"] == false, "{told:#}");
    assert!(rig.told("SnapshotCreationFailed").await.contains("copying"));
    *rig.control.slow.lock().unwrap() = false;
    let told = rig.api.wait(&at("u-1"), is_ready).await;
    assert!(told["status"]["error"].is_null());
    assert_eq!(rig.stored().await.len(), 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_final_error_is_told_and_the_mark_goes() {
    let mut rig = Rig::start();
    let volume = rig.volume("data").await;
    *rig.control.fail.lock().unwrap() =
        Some(|| Error::new(Kind::Precondition, "the volume is in a state without snapshots"));

    rig.api.put(content("u-1", &volume));

    let told = |it: &Value| it["status"]["error"].is_object() && !is_marked(it);
    let told = rig.api.wait(&at("u-1"), told).await;
    let message = told["status"]["error"]["message"].as_str().unwrap();
    assert!(message.contains("a state without snapshots"), "{message}");
    assert_eq!(
        told["status"]["error"]["time"].as_str().unwrap().len(),
        "2026-01-01T00:00:00Z".len()
    );
    assert_eq!(rig.told("SnapshotCreationFailed").await, message);
    *rig.control.fail.lock().unwrap() = None;
    let told = rig.api.wait(&at("u-1"), is_ready).await;
    assert!(told["status"]["error"].is_null());
    rig.stop().await;
}

/// What a watch tells of our own writes must not make a failed content come again at once.
#[tokio::test(start_paused = true)]
async fn a_failure_that_stays_is_tried_ever_less_often() {
    let mut rig = Rig::start();
    rig.api.put(content("u-1", "fake-vol-id"));

    tokio::time::sleep(Duration::from_secs(100)).await;

    // After 0, 1, 3, 7, 15, 31 and 63 seconds; each sets the mark and takes it off.
    rig.stop().await;
    let mut writes = rig.writes();
    writes.retain(|write| !write.ends_with("/status"));
    assert_eq!(writes.len(), 14, "{writes:?}");
    assert_eq!(rig.writes().len(), 15);
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_before_a_kill_or_a_lost_answer_is_found_again() {
    for fault in [Fault::Lost, Fault::Hang, Fault::Refused(500), Fault::DoneBut(500)] {
        for part in ["/status", "u-1"] {
            let mut rig = Rig::start();
            let volume = rig.volume("data").await;
            rig.api.fail(1, Method::PATCH, part, fault);

            rig.api.put(content("u-1", &volume));
            rig.api.until(|api| api.writes().iter().any(|write| write.contains(part))).await;
            if matches!(fault, Fault::Hang) {
                rig.kill().await;
                rig.work();
            }

            rig.api.wait(&at("u-1"), is_ready).await;
            assert_eq!(rig.stored().await.len(), 1, "{fault:?} {part}");
            rig.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_content_waits_for_its_class_and_for_its_secret() {
    let mut rig = Rig::start();
    let volume = rig.volume("data").await;
    let mut late = content("u-1", &volume);
    late["spec"]["volumeSnapshotClassName"] = json!("late");
    late["metadata"]["annotations"] = json!({
        "snapshot.storage.kubernetes.io/deletion-secret-name": "key",
        "snapshot.storage.kubernetes.io/deletion-secret-namespace": "vault",
    });

    rig.api.put(late);

    let says = |words: &'static str| {
        move |it: &Value| {
            let message = it["status"]["error"]["message"].as_str().unwrap_or_default();
            message.contains(words)
        }
    };
    rig.api.wait(&at("u-1"), says("no VolumeSnapshotClass late")).await;
    rig.api.put(class("late", DRIVER));
    let told = rig.api.wait(&at("u-1"), says("no secret vault/key")).await;
    assert!(!is_marked(&told));
    rig.api.put(json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "key", "namespace": "vault" }, "data": { "a": "Yg==" },
    }));
    rig.api.wait(&at("u-1"), is_ready).await;
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_was_taken_elsewhere_is_looked_at() {
    let mut rig = Rig::start();
    let volume = rig.volume("data").await;
    rig.api.put(content("u-1", &volume));
    rig.api.wait(&at("u-1"), is_ready).await;
    let taken = rig.stored().await.remove(0);
    let given = |uid: &str, handle: &str| {
        let mut given = content(uid, &volume);
        given["spec"]["source"] = json!({ "snapshotHandle": handle });
        given["spec"]["volumeSnapshotClassName"] = Value::Null;
        given
    };
    rig.api.forget();

    rig.api.put(given("u-2", taken.id.as_str()));
    rig.api.put(given("u-3", "snap-none"));

    let told = rig.api.wait(&at("u-2"), is_ready).await;
    assert_eq!(told["status"]["snapshotHandle"], taken.id.as_str());
    assert_eq!(told["status"]["restoreSize"], 1 << 30);
    let told = rig.api.wait(&at("u-3"), |it| it["status"]["error"].is_object()).await;
    assert_eq!(told["status"]["readyToUse"], false);
    rig.told("SnapshotContentCheckandUpdateFailed").await;
    rig.stop().await;
    let mut of_it = rig.writes();
    of_it.retain(|write| write.contains("u-2"));
    assert_eq!(of_it, ["snapcontent-u-2/status"]);
}

#[tokio::test(start_paused = true)]
async fn contents_of_others_are_not_touched() {
    let mut rig = Rig::start();
    let volume = rig.volume("data").await;
    rig.api.put(class("foreign", "other.example"));
    let changed = |uid: &str, change: fn(&mut Value)| {
        let mut content = content(uid, &volume);
        change(&mut content);
        rig.api.put(content);
    };

    changed("u-1", |it| it["spec"]["driver"] = json!("other.example"));
    changed("u-2", |it| it["spec"]["volumeSnapshotClassName"] = json!("foreign"));
    changed("u-3", |it| it["spec"]["source"] = json!({}));
    rig.api.put(content("u-4", &volume));

    rig.api.wait(&at("u-4"), is_ready).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    rig.stop().await;
    let ours = |write: &String| write.contains("u-4");
    assert!(rig.writes().iter().all(ours), "{:?}", rig.writes());
    assert!(rig.api.object(&format!("{CONTENTS}/snapcontent-u-1")).unwrap()["status"].is_null());
}
