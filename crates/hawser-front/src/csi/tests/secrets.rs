//! CVE-2023-2878, CVE-2024-3744, CVE-2025-7445: secrets and tokens in logs. And where secrets go
//! instead.

use std::collections::BTreeMap;

use hawser_api::csi::v1::*;
use tonic::Code;

use super::fake::PASSWORD;
use super::rig::{GIB, Rig, Staging, code, map, mount, new, publish};
use crate::csi::CsiDriver;

/// What no line may contain.
const PLANTED: &str = "planted-";

fn planted(of: &str) -> BTreeMap<String, String> {
    let word = |what: &str| format!("{PLANTED}{of}-{what}");
    BTreeMap::from([
        ("auth_password".to_owned(), word("password")),
        ("encryption_key".to_owned(), word("key")),
        ("unknown".to_owned(), word("other")),
    ])
}

fn context(of: &str) -> BTreeMap<String, String> {
    let token = format!("{PLANTED}{of}-token");
    BTreeMap::from([("csi.storage.k8s.io/serviceAccount.tokens".to_owned(), token)])
}

/// A whole life with something secret in every map that may hold it.
async fn live(rig: &Rig) {
    let create = CreateVolumeRequest { secrets: planted("create"), ..new("data", mount()) };
    let id = rig.create(create).await;
    let request = ControllerPublishVolumeRequest {
        secrets: planted("publish"),
        volume_context: context("publish"),
        ..publish(&id, mount())
    };
    let answer = rig.controller().controller_publish_volume(request).await.unwrap();
    let mut there =
        Staging { id, capability: mount(), context: answer.into_inner().publish_context };
    let (staging, target) = (rig.staging(), rig.path("target"));
    let stage = NodeStageVolumeRequest {
        secrets: planted("stage"),
        volume_context: context("stage"),
        ..there.stage(&staging)
    };
    rig.nodes().node_stage_volume(stage.clone()).await.unwrap();
    let show = NodePublishVolumeRequest {
        secrets: planted("show"),
        volume_context: context("show"),
        ..there.publish(&staging, &target)
    };
    rig.nodes().node_publish_volume(show.clone()).await.unwrap();
    let expand = ControllerExpandVolumeRequest {
        volume_id: there.id.clone(),
        capacity_range: Some(CapacityRange { required_bytes: 2 * GIB, limit_bytes: 0 }),
        secrets: planted("expand"),
        ..Default::default()
    };
    rig.controller().controller_expand_volume(expand).await.unwrap();
    let grow = NodeExpandVolumeRequest {
        volume_id: there.id.clone(),
        volume_path: target.clone(),
        secrets: planted("grow"),
        ..Default::default()
    };
    rig.nodes().node_expand_volume(grow).await.unwrap();
    let snapshot = CreateSnapshotRequest {
        name: "s".into(),
        source_volume_id: there.id.clone(),
        secrets: planted("snapshot"),
        ..Default::default()
    };
    rig.controller().create_snapshot(snapshot).await.unwrap();
    // Refusals speak of what was asked, and must not speak of this.
    let refused = NodePublishVolumeRequest { readonly: true, ..show };
    assert_eq!(code(rig.nodes().node_publish_volume(refused).await), Code::AlreadyExists);
    there.context.insert("info".into(), format!("{{\"{PLANTED}info\": 1}}"));
    let refused = NodeStageVolumeRequest { secrets: planted("bad"), ..there.stage(&staging) };
    assert_eq!(code(rig.nodes().node_stage_volume(refused).await), Code::InvalidArgument);
    let mut flagged = stage;
    let Some(volume_capability::AccessType::Mount(mount)) =
        flagged.volume_capability.as_mut().and_then(|capability| capability.access_type.as_mut())
    else {
        panic!("a mount")
    };
    mount.mount_flags = vec![format!("password={PLANTED}flag")];
    let refused = rig.nodes().node_stage_volume(flagged).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(!refused.message().contains(PLANTED), "{refused}");
    rig.nodes().node_unpublish_volume(there.unpublish(&target)).await.unwrap();
    rig.nodes().node_unstage_volume(there.unstage(&staging)).await.unwrap();
    look(rig, &there.id).await;
    end(rig, &there.id).await;
}

/// The calls that only look.
async fn look(rig: &Rig, id: &str) {
    let validate = ValidateVolumeCapabilitiesRequest {
        volume_id: id.to_owned(),
        volume_context: context("validate"),
        volume_capabilities: vec![mount()],
        secrets: planted("validate"),
        ..Default::default()
    };
    rig.controller().validate_volume_capabilities(validate).await.unwrap();
    let list = ListSnapshotsRequest { secrets: planted("list"), ..Default::default() };
    let listed = rig.controller().list_snapshots(list).await.unwrap().into_inner();
    let snapshot_id = listed.entries[0].snapshot.clone().unwrap().snapshot_id;
    let get = GetSnapshotRequest { snapshot_id, secrets: planted("get") };
    rig.controller().get_snapshot(get).await.unwrap();
    let health =
        ControllerGetVolumeHealthRequest { volume_id: id.to_owned(), secrets: planted("health") };
    rig.controller().controller_get_volume_health(health).await.unwrap();
    let healths =
        ControllerListVolumeHealthRequest { secrets: planted("healths"), ..Default::default() };
    rig.controller().controller_list_volume_health(healths).await.unwrap();
    let storage = NodeGetStorageHealthRequest { secrets: planted("storage") };
    rig.nodes().node_get_storage_health(storage).await.unwrap();
}

/// The calls that change a volume, and those after which nothing of it is left.
async fn end(rig: &Rig, id: &str) {
    let modify = ControllerModifyVolumeRequest {
        volume_id: id.to_owned(),
        secrets: planted("modify"),
        mutable_parameters: map(&[("label.team", "db")]),
    };
    rig.controller().controller_modify_volume(modify).await.unwrap();
    let group = CreateVolumeGroupSnapshotRequest {
        name: "g".into(),
        source_volume_ids: vec![id.to_owned()],
        secrets: planted("group"),
        ..Default::default()
    };
    let group = rig.groups().create_volume_group_snapshot(group).await.unwrap().into_inner();
    let group = group.group_snapshot.unwrap();
    let snapshot_ids: Vec<_> = group.snapshots.iter().map(|one| one.snapshot_id.clone()).collect();
    let group_snapshot_id = group.group_snapshot_id;
    let get = GetVolumeGroupSnapshotRequest {
        group_snapshot_id: group_snapshot_id.clone(),
        snapshot_ids: snapshot_ids.clone(),
        secrets: planted("get-group"),
    };
    rig.groups().get_volume_group_snapshot(get).await.unwrap();
    let secrets = planted("delete-group");
    let delete = DeleteVolumeGroupSnapshotRequest { group_snapshot_id, snapshot_ids, secrets };
    rig.groups().delete_volume_group_snapshot(delete).await.unwrap();
    let left = rig.controller().list_snapshots(ListSnapshotsRequest::default()).await.unwrap();
    for entry in left.into_inner().entries {
        let snapshot_id = entry.snapshot.unwrap().snapshot_id;
        let delete = DeleteSnapshotRequest { snapshot_id, secrets: planted("delete-snapshot") };
        rig.controller().delete_snapshot(delete).await.unwrap();
    }
    let unpublish = ControllerUnpublishVolumeRequest {
        volume_id: id.to_owned(),
        node_id: "n1".into(),
        secrets: planted("unpublish"),
    };
    rig.controller().controller_unpublish_volume(unpublish).await.unwrap();
    let delete = DeleteVolumeRequest { volume_id: id.to_owned(), secrets: planted("delete") };
    rig.controller().delete_volume(delete).await.unwrap();
}

#[tokio::test]
async fn nothing_secret_is_logged_and_calls_are() {
    let lines = crate::logged::keep();
    let rig = Rig::with(CsiDriver::Published, |settings, _| settings.health = true).await;
    *rig.control.needs_secrets.lock().unwrap() = true;

    live(&rig).await;
    rig.stop().await;

    for method in [
        "CreateVolume",
        "NodeStageVolume",
        "NodePublishVolume",
        "NodeExpandVolume",
        "ControllerModifyVolume",
        "DeleteVolumeGroupSnapshot",
        "DeleteVolume",
    ] {
        let logged = lines.with(&format!("csi.method=\"{method}\""));
        assert!(logged.iter().any(|line| line.contains("seconds=")), "{method} is logged");
    }
    let leaked = lines.with(PLANTED);
    assert!(leaked.is_empty(), "{leaked:#?}");
}

#[tokio::test]
async fn secrets_of_the_request_reach_the_connector_where_the_storage_has_none() {
    let rig = Rig::start().await;
    let there = rig.published(mount()).await;
    let stage = NodeStageVolumeRequest {
        secrets: map(&[("authPassword", "of the caller"), ("target_iqn", "iqn.evil")]),
        ..there.stage(&rig.staging())
    };
    rig.nodes().node_stage_volume(stage.clone()).await.unwrap();
    assert_eq!(*rig.node.passwords.lock().unwrap(), ["of the caller"]);
    assert_eq!(rig.node.only().info.data["target_iqn"], "iqn.2026-01.fake", "no address is secret");
    rig.nodes().node_unstage_volume(there.unstage(&rig.staging())).await.unwrap();

    rig.node.passwords.lock().unwrap().clear();
    let mut state = rig.control.volume_of(&there.id).unwrap();
    state.publications.clear();
    *rig.control.needs_secrets.lock().unwrap() = true;
    let id = rig.create(new("secret", mount())).await;
    let answer = rig.controller().controller_publish_volume(publish(&id, mount())).await.unwrap();
    let there = Staging { id, capability: mount(), context: answer.into_inner().publish_context };
    let stage = NodeStageVolumeRequest { secrets: stage.secrets, ..there.stage(&rig.staging()) };
    rig.nodes().node_stage_volume(stage).await.unwrap();
    assert_eq!(*rig.node.passwords.lock().unwrap(), [PASSWORD], "the storage's own comes first");
    rig.stop().await;
}

#[test]
fn requests_with_secrets_cannot_be_printed() {
    trait Silent {
        const PRINTS: bool = false;
    }
    impl<T> Silent for T {}
    struct Of<T>(std::marker::PhantomData<T>);
    impl<T: std::fmt::Debug> Of<T> {
        #[allow(dead_code)]
        const PRINTS: bool = true;
    }

    // An inherent constant is preferred where there is one: where the type has `Debug`.
    const { assert!(!Of::<NodeStageVolumeRequest>::PRINTS) };
    const { assert!(!Of::<CreateVolumeRequest>::PRINTS) };
    const { assert!(Of::<NodeStageVolumeResponse>::PRINTS) };
}
