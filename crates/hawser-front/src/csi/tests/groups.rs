//! Rows 66 to 71: groups of snapshots.

use hawser_api::csi::v1::*;
use tonic::Code;

use super::rig::{Rig, code, map, mount, new};
use crate::csi::CsiDriver;

fn request(name: &str, volumes: &[&str]) -> CreateVolumeGroupSnapshotRequest {
    CreateVolumeGroupSnapshotRequest {
        name: name.to_owned(),
        source_volume_ids: volumes.iter().map(|id| (*id).to_owned()).collect(),
        ..Default::default()
    }
}

async fn create(rig: &Rig, request: CreateVolumeGroupSnapshotRequest) -> Code {
    code(rig.groups().create_volume_group_snapshot(request).await)
}

#[tokio::test]
async fn a_group_is_taken_told_and_removed_as_one() {
    let rig = Rig::start().await;
    let (a, b) = (rig.create(new("a", mount())).await, rig.create(new("b", mount())).await);

    let answer = rig.groups().create_volume_group_snapshot(request("g", &[&a, &b])).await.unwrap();
    let group = answer.into_inner().group_snapshot.unwrap();

    assert!(group.ready_to_use && group.creation_time.unwrap().seconds > 0);
    let of: Vec<_> = group.snapshots.iter().map(|one| one.source_volume_id.clone()).collect();
    assert_eq!(of, [a.clone(), b.clone()]);
    assert!(group.snapshots.iter().all(|one| one.group_snapshot_id == group.group_snapshot_id));
    let again = rig.groups().create_volume_group_snapshot(request("g", &[&a, &b])).await.unwrap();
    assert_eq!(again.into_inner().group_snapshot.unwrap(), group);
    assert_eq!(create(&rig, request("g", &[&a])).await, Code::AlreadyExists);
    let member = DeleteSnapshotRequest {
        snapshot_id: group.snapshots[0].snapshot_id.clone(),
        ..Default::default()
    };
    assert_eq!(code(rig.controller().delete_snapshot(member).await), Code::InvalidArgument);

    let members: Vec<_> = group.snapshots.iter().map(|one| one.snapshot_id.clone()).collect();
    let get = async |snapshot_ids: Vec<String>| {
        let group_snapshot_id = group.group_snapshot_id.clone();
        let request =
            GetVolumeGroupSnapshotRequest { group_snapshot_id, snapshot_ids, ..Default::default() };
        rig.groups().get_volume_group_snapshot(request).await
    };
    let delete = async |snapshot_ids: Vec<String>| {
        let group_snapshot_id = group.group_snapshot_id.clone();
        let request = DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id,
            snapshot_ids,
            ..Default::default()
        };
        code(rig.groups().delete_volume_group_snapshot(request).await)
    };
    assert_eq!(get(members.clone()).await.unwrap().into_inner().group_snapshot.unwrap(), group);
    assert_eq!(code(get(vec![members[0].clone()]).await), Code::InvalidArgument);
    assert_eq!(code(get(vec![]).await), Code::InvalidArgument);
    assert_eq!(delete(vec![]).await, Code::InvalidArgument);
    assert_eq!(delete(vec!["snap-x".into()]).await, Code::InvalidArgument);
    assert_eq!(delete(members).await, Code::Ok);
    assert_eq!(code(get(vec![]).await), Code::NotFound);
    assert_eq!(delete(vec![]).await, Code::Ok);
    rig.stop().await;
}

/// Rows 67 to 71.
#[tokio::test]
async fn what_is_missing_or_unknown_is_told_as_csi_sanity_wants_it() {
    let rig = Rig::start().await;
    let a = rig.create(new("a", mount())).await;

    assert_eq!(create(&rig, request("", &[&a])).await, Code::InvalidArgument);
    assert_eq!(create(&rig, request("g", &[])).await, Code::InvalidArgument);
    assert_eq!(create(&rig, request("g", &[&a, &a])).await, Code::InvalidArgument);
    assert_eq!(create(&rig, request("g", &[&a, "fake-vol-id"])).await, Code::NotFound);
    for (id, wanted) in [("", Code::InvalidArgument), ("reallyfakegroup", Code::NotFound)] {
        let group_snapshot_id = id.to_owned();
        let request = GetVolumeGroupSnapshotRequest { group_snapshot_id, ..Default::default() };
        assert_eq!(code(rig.groups().get_volume_group_snapshot(request).await), wanted, "{id}");
    }
    for (id, wanted) in [("", Code::InvalidArgument), ("reallyfakegroup", Code::Ok)] {
        let group_snapshot_id = id.to_owned();
        let request = DeleteVolumeGroupSnapshotRequest { group_snapshot_id, ..Default::default() };
        assert_eq!(code(rig.groups().delete_volume_group_snapshot(request).await), wanted, "{id}");
    }
    rig.stop().await;
}

#[tokio::test]
async fn volumes_that_cannot_be_taken_together_are_refused() {
    let rig = Rig::start().await;
    let a = rig.create(new("a", mount())).await;
    let files = CreateVolumeRequest { parameters: map(&[("class", "files")]), ..new("f", mount()) };
    let f = rig.create(files).await;

    assert_eq!(create(&rig, request("g", &[&a, &f])).await, Code::FailedPrecondition);
    rig.stop().await;
}

#[tokio::test]
async fn without_a_control_half_there_is_no_group_service() {
    let rig = Rig::with(CsiDriver::Published, |_, parts| parts.control = None).await;

    let request = GroupControllerGetCapabilitiesRequest {};
    let answer = rig.groups().group_controller_get_capabilities(request).await;

    assert_eq!(answer.unwrap_err().code(), Code::Unimplemented);
    rig.stop().await;
}
