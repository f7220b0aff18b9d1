//! Rows 74 to 80 and 86 to 93: volumes shown to pods, how full they are, and larger.

use std::path::Path;

use hawser_api::csi::v1::volume_capability::access_mode::Mode;
use hawser_api::csi::v1::volume_usage::Unit;
use hawser_api::csi::v1::*;
use tonic::Code;

use super::rig::{GIB, Rig, Staging, block, code, map, mount, mount_as, new, publish};
use crate::csi::CsiDriver;

async fn show(rig: &Rig, request: NodePublishVolumeRequest) -> Code {
    code(rig.nodes().node_publish_volume(request).await)
}

async fn hide(rig: &Rig, request: NodeUnpublishVolumeRequest) -> Code {
    code(rig.nodes().node_unpublish_volume(request).await)
}

/// Rows 74 to 76, 78 and 79.
#[tokio::test]
async fn what_is_missing_is_asked_for() {
    let rig = Rig::start().await;
    let fake = Staging { id: "fake-vol-id".into(), capability: mount(), context: map(&[]) };
    let full = || fake.publish(&rig.staging(), &rig.path("target"));

    let no_id = NodePublishVolumeRequest { volume_id: String::new(), ..full() };
    assert_eq!(show(&rig, no_id).await, Code::InvalidArgument);
    let no_target = NodePublishVolumeRequest { target_path: String::new(), ..full() };
    assert_eq!(show(&rig, no_target).await, Code::InvalidArgument);
    let no_capability = NodePublishVolumeRequest { volume_capability: None, ..full() };
    assert_eq!(show(&rig, no_capability).await, Code::InvalidArgument);
    let no_staging = NodePublishVolumeRequest { staging_target_path: String::new(), ..full() };
    assert_eq!(show(&rig, no_staging).await, Code::FailedPrecondition);
    assert_eq!(show(&rig, full()).await, Code::NotFound);
    for (id, target) in [("", "/x"), ("fake-vol-id", "")] {
        let request =
            NodeUnpublishVolumeRequest { volume_id: id.into(), target_path: target.into() };
        assert_eq!(hide(&rig, request).await, Code::InvalidArgument);
    }
    assert_eq!(hide(&rig, fake.unpublish(&rig.path("target"))).await, Code::Ok);
    rig.stop().await;
}

/// Rows 80, 94 and 95.
#[tokio::test]
async fn a_target_is_there_while_it_is_published_and_gone_afterwards() {
    let rig = Rig::start().await;
    let (staging, target) = (rig.staging(), rig.path("target"));
    for (capability, folder) in [(mount(), true), (block(Mode::SingleNodeWriter), false)] {
        let id = rig.create(new(&format!("v{folder}"), capability.clone())).await;
        let request = publish(&id, capability.clone());
        let answer = rig.controller().controller_publish_volume(request).await.unwrap();
        let context = answer.into_inner().publish_context;
        let there = Staging { id, capability, context };
        rig.nodes().node_stage_volume(there.stage(&staging)).await.unwrap();

        for _ in 0..10 {
            assert_eq!(show(&rig, there.publish(&staging, &target)).await, Code::Ok);
        }
        assert_eq!(Path::new(&target).is_dir(), folder);
        assert!(Path::new(&target).exists());
        assert_eq!(hide(&rig, there.unpublish(&target)).await, Code::Ok);
        assert!(!Path::new(&target).exists());
        assert_eq!(hide(&rig, there.unpublish(&target)).await, Code::Ok);
        rig.nodes().node_unstage_volume(there.unstage(&staging)).await.unwrap();
    }
    rig.stop().await;
}

#[tokio::test]
async fn a_target_that_the_orchestrator_made_goes_too() {
    let rig = Rig::start().await;
    let there = rig.staged(mount()).await;
    let target = rig.path("target");
    std::fs::create_dir(&target).unwrap();

    assert_eq!(show(&rig, there.publish(&rig.staging(), &target)).await, Code::Ok);
    assert_eq!(hide(&rig, there.unpublish(&target)).await, Code::Ok);

    assert!(!Path::new(&target).exists());
    rig.stop().await;
}

#[tokio::test]
async fn a_volume_is_staged_before_it_is_published() {
    let rig = Rig::start().await;
    let there = rig.published(mount()).await;
    let request = there.publish(&rig.staging(), &rig.path("target"));

    assert_eq!(show(&rig, request.clone()).await, Code::FailedPrecondition);
    rig.nodes().node_stage_volume(there.stage(&rig.staging())).await.unwrap();
    let elsewhere = there.publish(&rig.path("elsewhere"), &rig.path("target"));
    assert_eq!(show(&rig, elsewhere).await, Code::FailedPrecondition, "not staged there");
    assert_eq!(show(&rig, request).await, Code::Ok);
    rig.stop().await;
}

/// Row 77, and the table of second calls.
#[tokio::test]
async fn a_volume_for_one_pod_is_not_shown_to_two() {
    for (mode, second) in [
        (Mode::SingleNodeSingleWriter, Code::FailedPrecondition),
        (Mode::SingleNodeMultiWriter, Code::Ok),
        (Mode::SingleNodeWriter, Code::Ok),
    ] {
        let rig = Rig::start().await;
        let there = rig.staged(mount_as("", mode)).await;
        let to = |target: &str| there.publish(&rig.staging(), &rig.path(target));

        assert_eq!(show(&rig, to("one")).await, Code::Ok, "{mode:?}");
        assert_eq!(show(&rig, to("one")).await, Code::Ok, "{mode:?}");
        let differs = NodePublishVolumeRequest { readonly: true, ..to("one") };
        assert_eq!(show(&rig, differs).await, Code::AlreadyExists, "{mode:?}");
        assert_eq!(show(&rig, to("two")).await, second, "{mode:?}");
        assert_eq!(hide(&rig, there.unpublish(&rig.path("one"))).await, Code::Ok);
        assert_eq!(show(&rig, to("two")).await, Code::Ok, "{mode:?}");
        rig.stop().await;
    }
}

#[tokio::test]
async fn a_pod_that_may_not_write_gets_a_mount_of_its_own() {
    let rig = Rig::start().await;
    let there = rig.staged(mount()).await;
    let target = rig.path("target");
    let request =
        NodePublishVolumeRequest { readonly: true, ..there.publish(&rig.staging(), &target) };

    assert_eq!(show(&rig, request).await, Code::Ok);

    let mounts = rig.node.only().mounts;
    let read_only: Vec<_> = mounts.iter().map(|mount| mount.read_only).collect();
    assert_eq!(read_only, [false, true], "the staging mount keeps the right to write");
    rig.stop().await;
}

/// Rows 86 to 89.
#[tokio::test]
async fn how_full_a_volume_is_is_told_where_it_is() {
    let rig = Rig::start().await;
    let there = rig.staged(mount()).await;
    let target = rig.path("target");
    assert_eq!(show(&rig, there.publish(&rig.staging(), &target)).await, Code::Ok);
    let stats = async |id: &str, path: &str| {
        let request = NodeGetVolumeStatsRequest {
            volume_id: id.into(),
            volume_path: path.into(),
            ..Default::default()
        };
        rig.nodes().node_get_volume_stats(request).await
    };

    assert_eq!(code(stats("", "some/path").await), Code::InvalidArgument);
    assert_eq!(code(stats("foobar", "").await), Code::InvalidArgument);
    assert_eq!(code(stats("foobar", "some/path").await), Code::NotFound);
    assert_eq!(code(stats(&there.id, "some/path").await), Code::NotFound);
    assert_eq!(code(stats(&there.id, &rig.path("other")).await), Code::NotFound);
    let usage = stats(&there.id, &target).await.unwrap().into_inner().usage;
    let units: Vec<_> = usage.iter().map(|usage| usage.unit).collect();
    assert_eq!(units, [Unit::Bytes as i32, Unit::Inodes as i32]);
    assert_eq!(usage[0].total, GIB);
    rig.stop().await;
}

/// Rows 90 to 93.
#[tokio::test]
async fn a_larger_volume_is_seen_where_it_is_used() {
    let rig = Rig::start().await;
    let there = rig.staged(mount()).await;
    let target = rig.path("target");
    assert_eq!(show(&rig, there.publish(&rig.staging(), &target)).await, Code::Ok);
    let request = ControllerExpandVolumeRequest {
        volume_id: there.id.clone(),
        capacity_range: Some(CapacityRange { required_bytes: 2 * GIB, limit_bytes: 0 }),
        ..Default::default()
    };
    rig.controller().controller_expand_volume(request).await.unwrap();
    let expand = async |id: &str, path: &str, required_bytes: i64| {
        let request = NodeExpandVolumeRequest {
            volume_id: id.into(),
            volume_path: path.into(),
            capacity_range: (required_bytes != 0)
                .then_some(CapacityRange { required_bytes, limit_bytes: 0 }),
            ..Default::default()
        };
        rig.nodes().node_expand_volume(request).await
    };

    assert_eq!(code(expand("", "some/path", 0).await), Code::InvalidArgument);
    assert_eq!(code(expand("foobar", "", 0).await), Code::InvalidArgument);
    assert_eq!(code(expand("non-existing-volume-id", "some/path", 0).await), Code::NotFound);
    assert_eq!(code(expand(&there.id, "some/path", 0).await), Code::NotFound);
    for (path, size) in [(target.as_str(), 2 * GIB), (rig.staging().as_str(), 0)] {
        let answer = expand(&there.id, path, size).await.unwrap().into_inner();
        assert_eq!(answer.capacity_bytes, 2 * GIB, "{path}");
    }
    assert_eq!(code(expand(&there.id, &target, 3 * GIB).await), Code::FailedPrecondition);
    assert_eq!(code(expand(&there.id, &target, -1).await), Code::InvalidArgument);
    rig.stop().await;
}

#[tokio::test]
async fn a_device_is_expanded_by_whatever_path_the_kubelet_has_for_it() {
    let rig = Rig::start().await;
    let there = rig.staged(block(Mode::SingleNodeWriter)).await;
    let request = NodeExpandVolumeRequest {
        volume_id: there.id.clone(),
        volume_path: "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/pv/dev/1".into(),
        volume_capability: Some(there.capability.clone()),
        ..Default::default()
    };

    let answer = rig.nodes().node_expand_volume(request).await.unwrap().into_inner();

    assert_eq!(answer.capacity_bytes, GIB);
    rig.stop().await;
}

#[tokio::test]
async fn a_mount_option_that_is_not_passed_on_is_refused() {
    let rig = Rig::start().await;
    let mut there = rig.published(mount()).await;
    let Some(volume_capability::AccessType::Mount(mount)) = &mut there.capability.access_type
    else {
        panic!("a mount")
    };
    mount.mount_flags = vec!["suid".into()];

    let answer = rig.nodes().node_stage_volume(there.stage(&rig.staging())).await;

    assert_eq!(code(answer), Code::InvalidArgument);
    assert!(rig.node.records().is_empty());
    rig.stop().await;
}

#[tokio::test]
async fn health_is_told_of_what_is_here() {
    let rig = Rig::with(CsiDriver::Published, |settings, _| settings.health = true).await;
    let there = rig.staged(mount()).await;
    let get = async |id: &str| {
        let request = NodeGetVolumeHealthRequest { volume_id: id.into(), ..Default::default() };
        rig.nodes().node_get_volume_health(request).await
    };
    let storage = async || {
        let request = NodeGetStorageHealthRequest::default();
        let answer = rig.nodes().node_get_storage_health(request).await.unwrap();
        answer.into_inner().backend_health
    };

    assert_eq!(code(get("").await), Code::InvalidArgument);
    assert_eq!(code(get("fake-vol-id").await), Code::NotFound);
    let health = get(&there.id).await.unwrap().into_inner().volume_health.unwrap();
    assert!(health.health_statuses.is_empty() && storage().await.is_empty());
    *rig.node.sick.lock().unwrap() = true;
    let health = get(&there.id).await.unwrap().into_inner().volume_health.unwrap();
    assert_eq!(health.health_statuses[0].message, "its session is gone");
    let unreachable = StorageHealthErrorType::StorageUnreachable as i32;
    assert_eq!(storage().await[0].status, unreachable, "nothing works here");
    rig.stop().await;
}
