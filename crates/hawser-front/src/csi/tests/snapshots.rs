//! Rows 39 to 56: snapshots.

use hawser_api::csi::v1::*;
use hawser_core::snapshot::SnapshotState;
use tonic::Code;

use super::rig::{Rig, code, map, mount, new};

fn request(name: &str, volume: &str) -> CreateSnapshotRequest {
    CreateSnapshotRequest {
        name: name.to_owned(),
        source_volume_id: volume.to_owned(),
        ..CreateSnapshotRequest::default()
    }
}

async fn take(rig: &Rig, name: &str, volume: &str) -> Snapshot {
    let answer = rig.controller().create_snapshot(request(name, volume)).await.unwrap();
    answer.into_inner().snapshot.unwrap()
}

async fn create(rig: &Rig, request: CreateSnapshotRequest) -> Code {
    code(rig.controller().create_snapshot(request).await)
}

async fn list(rig: &Rig, request: ListSnapshotsRequest) -> Vec<String> {
    let answer = rig.controller().list_snapshots(request).await.unwrap().into_inner();
    for entry in &answer.entries {
        let snapshot = entry.snapshot.as_ref().unwrap();
        assert!(!snapshot.snapshot_id.is_empty() && !snapshot.source_volume_id.is_empty());
        assert!(snapshot.creation_time.unwrap().seconds > 0);
    }
    answer.entries.into_iter().map(|entry| entry.snapshot.unwrap().snapshot_id).collect()
}

/// Rows 52 to 56.
#[tokio::test]
async fn a_name_leads_to_one_snapshot() {
    let rig = Rig::start().await;
    let (volume, other) =
        (rig.create(new("a", mount())).await, rig.create(new("b", mount())).await);

    assert_eq!(create(&rig, request("", "testId")).await, Code::InvalidArgument);
    assert_eq!(create(&rig, request("s", "")).await, Code::InvalidArgument);
    assert_eq!(create(&rig, request("s", "testId")).await, Code::NotFound);
    let first = take(&rig, "s", &volume).await;
    assert!(first.ready_to_use && first.group_snapshot_id.is_empty() && first.size_bytes > 0);
    assert_eq!(take(&rig, "s", &volume).await, first);
    assert_eq!(create(&rig, request("s", &other)).await, Code::AlreadyExists);
    let long = "n".repeat(128);
    assert_eq!(take(&rig, &long, &volume).await, take(&rig, &long, &volume).await);
    rig.stop().await;
}

#[tokio::test]
async fn a_snapshot_takes_labels_and_no_other_parameters() {
    let rig = Rig::start().await;
    let volume = rig.create(new("a", mount())).await;
    let with = |name: &str, pairs: &[(&str, &str)]| CreateSnapshotRequest {
        parameters: map(pairs),
        ..request(name, &volume)
    };

    assert_eq!(create(&rig, with("s", &[("deep", "yes")])).await, Code::InvalidArgument);
    let fine = with("s", &[("csi.storage.k8s.io/volumesnapshot/name", "x")]);
    assert_eq!(create(&rig, fine).await, Code::Ok);
    let placed = CreateSnapshotRequest {
        accessibility_requirements: Some(TopologyRequirement::default()),
        ..request("t", &volume)
    };
    assert_eq!(create(&rig, placed).await, Code::InvalidArgument, "not advertised");
    rig.stop().await;
}

/// Rows 39 to 45.
#[tokio::test]
async fn lists_are_filtered_and_paged() {
    let rig = Rig::start().await;
    let (volume, other) =
        (rig.create(new("a", mount())).await, rig.create(new("b", mount())).await);
    assert!(list(&rig, ListSnapshotsRequest::default()).await.is_empty());
    let one = take(&rig, "s1", &volume).await.snapshot_id;
    for n in 2..5 {
        take(&rig, &format!("s{n}"), &other).await;
    }
    let by_id = |id: &str| ListSnapshotsRequest { snapshot_id: id.into(), ..Default::default() };
    let of = |id: &str| ListSnapshotsRequest { source_volume_id: id.into(), ..Default::default() };

    assert_eq!(list(&rig, ListSnapshotsRequest::default()).await.len(), 4);
    assert_eq!(list(&rig, by_id(&one)).await, [one.as_str()]);
    assert_eq!(list(&rig, of(&volume)).await, [one.as_str()]);
    for absent in ["none-exist-id", "snap-01k5zzzzzzzzzzzzzzzzzzzzzz", "../x"] {
        assert!(list(&rig, by_id(absent)).await.is_empty(), "{absent}");
    }
    for absent in ["none-exist-id", "vol-01k5zzzzzzzzzzzzzzzzzzzzzz"] {
        assert!(list(&rig, of(absent)).await.is_empty(), "{absent}");
    }
    let both = ListSnapshotsRequest { source_volume_id: other.clone(), ..by_id(&one) };
    assert!(list(&rig, both).await.is_empty(), "both filters hold");

    let first = ListSnapshotsRequest { max_entries: 2, ..Default::default() };
    let answer = rig.controller().list_snapshots(first).await.unwrap().into_inner();
    assert_eq!(answer.entries.len(), 2);
    let rest = ListSnapshotsRequest { starting_token: answer.next_token, ..Default::default() };
    let answer = rig.controller().list_snapshots(rest).await.unwrap().into_inner();
    assert_eq!((answer.entries.len(), answer.next_token.as_str()), (2, ""));
    let bad = ListSnapshotsRequest { starting_token: "invalid-token".into(), ..Default::default() };
    assert_eq!(code(rig.controller().list_snapshots(bad).await), Code::Aborted);
    let bad = ListSnapshotsRequest { max_entries: -1, ..Default::default() };
    assert_eq!(code(rig.controller().list_snapshots(bad).await), Code::InvalidArgument);
    rig.stop().await;
}

/// Rows 46 to 48, and a snapshot that is not there for lists yet.
#[tokio::test]
async fn one_snapshot_is_found_also_before_it_is_ready() {
    let rig = Rig::start().await;
    let volume = rig.create(new("a", mount())).await;
    let id = take(&rig, "s", &volume).await.snapshot_id;
    let get = async |id: &str| {
        let request = GetSnapshotRequest { snapshot_id: id.to_owned(), ..Default::default() };
        rig.controller().get_snapshot(request).await
    };

    assert_eq!(code(get("").await), Code::InvalidArgument);
    assert_eq!(code(get("reallyfakesnapshotid").await), Code::NotFound);
    assert_eq!(get(&id).await.unwrap().into_inner().snapshot.unwrap().snapshot_id, id);
    rig.control.set_snapshot_state(&id, SnapshotState::Creating);
    assert!(!get(&id).await.unwrap().into_inner().snapshot.unwrap().ready_to_use);
    assert!(list(&rig, ListSnapshotsRequest::default()).await.is_empty());
    rig.stop().await;
}

/// Rows 49 to 51.
#[tokio::test]
async fn deleting_what_is_not_there_is_fine() {
    let rig = Rig::start().await;
    let volume = rig.create(new("a", mount())).await;
    let id = take(&rig, "s", &volume).await.snapshot_id;
    let delete = async |id: &str| {
        let request = DeleteSnapshotRequest { snapshot_id: id.to_owned(), ..Default::default() };
        code(rig.controller().delete_snapshot(request).await)
    };

    assert_eq!(delete("").await, Code::InvalidArgument);
    for absent in ["reallyfakesnapshotid", "snap-01k5zzzzzzzzzzzzzzzzzzzzzz"] {
        assert_eq!(delete(absent).await, Code::Ok, "{absent}");
    }
    assert_eq!(delete(&id).await, Code::Ok);
    assert_eq!(delete(&id).await, Code::Ok);
    assert!(list(&rig, ListSnapshotsRequest::default()).await.is_empty());
    rig.stop().await;
}
