use std::time::Duration;

use hawser_core::group::GroupRef;
use hawser_core::port::Control;
use serde_json::{Value, json};

use super::rig::{DELETED, DRIVER, FINALIZER, Rig, at, content, is_ready};

const GROUP_FINALIZER: &str =
    "groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection";
const GROUP_MARK: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-created";
const GROUP_DELETED: &str = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted";
const PATH: &str = "volumegroupsnapshotcontents/group";

/// The content of a group as the snapshot controller makes it.
fn group(source: &Value) -> Value {
    json!({
        "apiVersion": "groupsnapshot.storage.k8s.io/v1", "kind": "VolumeGroupSnapshotContent",
        "metadata": { "name": "group", "finalizers": [GROUP_FINALIZER] },
        "spec": {
            "driver": DRIVER, "deletionPolicy": "Delete", "source": source,
            "volumeGroupSnapshotClassName": "groups",
            "volumeGroupSnapshotRef": { "namespace": "shop", "name": "all", "uid": "g-1" },
        },
    })
}

fn settled(group: &Value) -> bool {
    let mark = &group["metadata"]["annotations"][GROUP_MARK];
    group["status"]["readyToUse"] == true && mark.is_null()
}

fn delete(rig: &Rig, path: &str, annotation: &str) {
    rig.api.update(path, |it| it["metadata"]["annotations"][annotation] = json!("yes"));
    rig.api.delete(path);
}

/// A group of two volumes, and its content.
async fn taken(rig: &Rig) -> Value {
    let volumes = [rig.volume("a").await, rig.volume("b").await];
    rig.api.put(group(&json!({ "volumeHandles": volumes })));
    rig.api.wait(PATH, settled).await
}

#[tokio::test(start_paused = true)]
async fn a_group_is_taken_told_and_removed() {
    let mut rig = Rig::start();

    let told = taken(&rig).await;

    let stored = rig.stored().await;
    let id = stored[0].group.clone().unwrap();
    let found = rig.control.get_group(&GroupRef::Id(id.clone())).await.unwrap();
    assert_eq!(found.alias.to_string(), "csi:groupsnapshot-g-1");
    assert_eq!(told["status"]["volumeGroupSnapshotHandle"], id.as_str());
    let time = told["status"]["creationTime"].as_str().unwrap();
    assert_eq!(time.len(), "2026-01-01T00:00:00Z".len());
    let members: Vec<_> = found
        .snapshots
        .iter()
        .map(|one| {
            json!({
                "volumeHandle": one.volume, "snapshotHandle": one.id, "readyToUse": true,
                "creationTime": i64::try_from(one.created.as_nanosecond()).unwrap(),
                "restoreSize": 1 << 30,
            })
        })
        .collect();
    assert_eq!(told["status"]["volumeSnapshotInfoList"], json!(members));
    delete(&rig, PATH, GROUP_DELETED);
    rig.api.wait_gone(PATH).await;
    assert!(rig.stored().await.is_empty());
    rig.stop().await;
    let writes = rig.api.writes();
    assert_eq!(writes.len(), 4, "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_group_of_unknown_outcome_keeps_its_mark() {
    let mut rig = Rig::start();
    let volume = rig.volume("a").await;
    *rig.control.slow.lock().unwrap() = true;

    rig.api.put(group(&json!({ "volumeHandles": [volume] })));

    let told = rig.api.wait(PATH, |it| it["status"]["error"].is_object()).await;
    assert_eq!(told["metadata"]["annotations"][GROUP_MARK], "yes");
    rig.told("GroupSnapshotCreationFailed").await;
    *rig.control.slow.lock().unwrap() = false;
    let told = rig.api.wait(PATH, settled).await;
    assert!(told["status"]["error"].is_null());
    assert_eq!(rig.stored().await.len(), 1);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_group_that_was_taken_elsewhere_is_looked_at_and_removed_by_its_members() {
    let mut rig = Rig::start();
    let told = taken(&rig).await;
    let handle = told["status"]["volumeGroupSnapshotHandle"].clone();
    let members: Vec<_> = rig.stored().await.iter().map(|one| one.id.to_string()).collect();
    rig.api.update(PATH, |it| it["spec"]["deletionPolicy"] = json!("Retain"));
    delete(&rig, PATH, GROUP_DELETED);
    rig.api.wait_gone(PATH).await;
    assert_eq!(rig.stored().await.len(), 2);

    let handles = json!({ "volumeGroupSnapshotHandle": handle, "volumeSnapshotHandles": members });
    rig.api.put(group(&json!({ "groupSnapshotHandles": handles })));

    let told = rig.api.wait(PATH, settled).await;
    assert_eq!(told["status"]["volumeGroupSnapshotHandle"], handle);
    assert!(told["status"]["volumeSnapshotInfoList"].is_null());
    delete(&rig, PATH, GROUP_DELETED);
    rig.api.wait_gone(PATH).await;
    assert!(rig.stored().await.is_empty());
    rig.stop().await;
}

/// The snapshot controller makes a content for each member and fills in its status.
#[tokio::test(start_paused = true)]
async fn a_member_of_a_group_is_not_taken_again_and_goes_with_the_group() {
    let mut rig = Rig::start();
    let told = taken(&rig).await;
    let handle = &told["status"]["volumeGroupSnapshotHandle"];
    let member = &told["status"]["volumeSnapshotInfoList"][0];
    let mut one = content("u-1", member["volumeHandle"].as_str().unwrap());
    one["metadata"]["annotations"] =
        json!({ "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle": handle });
    one["metadata"]["finalizers"] = json!([FINALIZER]);
    one["spec"]["volumeSnapshotClassName"] = Value::Null;

    rig.api.put(one);
    tokio::time::sleep(Duration::from_secs(10)).await;

    assert!(rig.writes().is_empty(), "{:?}", rig.writes());
    rig.api.update(&at("u-1"), |it| {
        it["status"] = json!({
            "snapshotHandle": member["snapshotHandle"], "volumeGroupSnapshotHandle": handle,
            "readyToUse": false,
        });
    });
    rig.api.wait(&at("u-1"), is_ready).await;
    delete(&rig, &at("u-1"), DELETED);
    rig.api.wait_gone(&at("u-1")).await;
    assert_eq!(rig.stored().await.len(), 2);
    rig.stop().await;
    assert_eq!(rig.writes(), ["snapcontent-u-1/status", "snapcontent-u-1"]);
}
