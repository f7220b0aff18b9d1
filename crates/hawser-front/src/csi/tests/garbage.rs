//! CVE-2020-8569: what a caller may send makes nothing fall over. Every call is made with whatever
//! comes, and answers with a code that says something.

use hawser_api::csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use hawser_api::csi::v1::volume_content_source::{SnapshotSource, Type};
use hawser_api::csi::v1::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tonic::Code;

use super::rig::{Rig, code, map};
use crate::csi::CsiDriver;

/// What one round of calls is made of.
#[derive(Clone, Debug)]
struct Junk {
    texts: Vec<String>,
    number: i64,
    mode: i32,
    block: bool,
}

fn junk() -> impl Strategy<Value = Junk> {
    let text = prop_oneof![
        Just(String::new()),
        Just("vol-01k5zzzzzzzzzzzzzzzzzzzzzz".to_owned()),
        Just("snap-01k5zzzzzzzzzzzzzzzzzzzzzz".to_owned()),
        Just("grp-01k5zzzzzzzzzzzzzzzzzzzzzz".to_owned()),
        Just("../../etc/passwd".to_owned()),
        Just("/tmp/../x".to_owned()),
        Just("n1".to_owned()),
        "\\PC{0,300}",
        "[\\x00-\\x1f/.]{1,8}",
    ];
    let number = prop_oneof![Just(0), Just(i64::MIN), Just(i64::MAX), any::<i64>()];
    (prop::collection::vec(text, 8), number, any::<i32>(), any::<bool>())
        .prop_map(|(texts, number, mode, block)| Junk { texts, number, mode, block })
}

impl Junk {
    fn text(&self, n: usize) -> String {
        self.texts[n % self.texts.len()].clone()
    }

    fn pairs(&self) -> std::collections::BTreeMap<String, String> {
        map(&[(&self.texts[5], &self.texts[6]), ("publication", &self.texts[7])])
    }

    fn range(&self) -> Option<CapacityRange> {
        Some(CapacityRange { required_bytes: self.number, limit_bytes: self.number / 2 })
    }

    fn capability(&self) -> VolumeCapability {
        let mount = MountVolume {
            fs_type: self.text(3),
            mount_flags: vec![self.text(4)],
            volume_mount_group: self.text(5),
        };
        let kind = match self.block {
            true => AccessType::Block(BlockVolume {}),
            false => AccessType::Mount(mount),
        };
        VolumeCapability {
            access_mode: Some(AccessMode { mode: self.mode % 9 }),
            access_type: Some(kind),
        }
    }

    fn topology(&self) -> Topology {
        Topology { segments: map(&[(&self.texts[2], &self.texts[3])]) }
    }
}

/// Every call of every service, with the code of its answer.
async fn call_all(rig: &Rig, junk: &Junk) -> Vec<(&'static str, Code)> {
    let mut codes = controller_calls(rig, junk).await;
    codes.extend(snapshot_calls(rig, junk).await);
    codes.extend(node_calls(rig, junk).await);
    codes
}

async fn controller_calls(rig: &Rig, junk: &Junk) -> Vec<(&'static str, Code)> {
    let mut client = rig.controller();
    let source = Type::Snapshot(SnapshotSource { snapshot_id: junk.text(4) });
    let source = VolumeContentSource { r#type: Some(source) };
    let create = CreateVolumeRequest {
        name: junk.text(0),
        capacity_range: junk.range(),
        volume_capabilities: vec![junk.capability()],
        parameters: junk.pairs(),
        secrets: junk.pairs(),
        volume_content_source: junk.block.then_some(source),
        accessibility_requirements: Some(TopologyRequirement {
            requisite: vec![junk.topology()],
            preferred: vec![],
        }),
        mutable_parameters: junk.pairs(),
    };
    let volume_id = junk.text(1);
    let publish = ControllerPublishVolumeRequest {
        volume_id: volume_id.clone(),
        node_id: junk.text(2),
        volume_capability: Some(junk.capability()),
        readonly: junk.block,
        ..Default::default()
    };
    let unpublish = ControllerUnpublishVolumeRequest {
        volume_id: volume_id.clone(),
        node_id: junk.text(2),
        ..Default::default()
    };
    let validate = ValidateVolumeCapabilitiesRequest {
        volume_id: volume_id.clone(),
        volume_capabilities: vec![junk.capability()],
        ..Default::default()
    };
    let list = ListVolumesRequest { max_entries: junk.mode, starting_token: junk.text(3) };
    let capacity = GetCapacityRequest {
        volume_capabilities: vec![junk.capability()],
        parameters: junk.pairs(),
        accessible_topology: Some(junk.topology()),
    };
    let expand = ControllerExpandVolumeRequest {
        volume_id: volume_id.clone(),
        capacity_range: junk.range(),
        volume_capability: Some(junk.capability()),
        ..Default::default()
    };
    let modify = ControllerModifyVolumeRequest {
        volume_id: volume_id.clone(),
        mutable_parameters: junk.pairs(),
        ..Default::default()
    };
    let delete = DeleteVolumeRequest { volume_id: volume_id.clone(), ..Default::default() };
    let get = ControllerGetVolumeRequest { volume_id: volume_id.clone() };
    let health = ControllerGetVolumeHealthRequest { volume_id, ..Default::default() };
    let list_health = ControllerListVolumeHealthRequest {
        max_entries: junk.mode,
        starting_token: junk.text(3),
        ..Default::default()
    };
    vec![
        ("CreateVolume", code(client.create_volume(create).await)),
        ("ControllerPublishVolume", code(client.controller_publish_volume(publish).await)),
        ("ControllerUnpublishVolume", code(client.controller_unpublish_volume(unpublish).await)),
        ("ValidateVolumeCapabilities", code(client.validate_volume_capabilities(validate).await)),
        ("ListVolumes", code(client.list_volumes(list).await)),
        ("GetCapacity", code(client.get_capacity(capacity).await)),
        ("ControllerExpandVolume", code(client.controller_expand_volume(expand).await)),
        ("ControllerModifyVolume", code(client.controller_modify_volume(modify).await)),
        ("ControllerGetVolume", code(client.controller_get_volume(get).await)),
        ("ControllerGetVolumeHealth", code(client.controller_get_volume_health(health).await)),
        (
            "ControllerListVolumeHealth",
            code(client.controller_list_volume_health(list_health).await),
        ),
        ("DeleteVolume", code(client.delete_volume(delete).await)),
    ]
}

async fn snapshot_calls(rig: &Rig, junk: &Junk) -> Vec<(&'static str, Code)> {
    let (mut client, mut groups) = (rig.controller(), rig.groups());
    let create = CreateSnapshotRequest {
        name: junk.text(0),
        source_volume_id: junk.text(1),
        parameters: junk.pairs(),
        ..Default::default()
    };
    let list = ListSnapshotsRequest {
        max_entries: junk.mode,
        starting_token: junk.text(3),
        source_volume_id: junk.text(1),
        snapshot_id: junk.text(2),
        ..Default::default()
    };
    let get = GetSnapshotRequest { snapshot_id: junk.text(2), ..Default::default() };
    let delete = DeleteSnapshotRequest { snapshot_id: junk.text(2), ..Default::default() };
    let create_group = CreateVolumeGroupSnapshotRequest {
        name: junk.text(0),
        source_volume_ids: vec![junk.text(1), junk.text(2)],
        parameters: junk.pairs(),
        ..Default::default()
    };
    let get_group = GetVolumeGroupSnapshotRequest {
        group_snapshot_id: junk.text(1),
        snapshot_ids: vec![junk.text(2)],
        ..Default::default()
    };
    let delete_group = DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id: junk.text(1),
        snapshot_ids: vec![junk.text(2)],
        ..Default::default()
    };
    vec![
        ("CreateSnapshot", code(client.create_snapshot(create).await)),
        ("ListSnapshots", code(client.list_snapshots(list).await)),
        ("GetSnapshot", code(client.get_snapshot(get).await)),
        ("DeleteSnapshot", code(client.delete_snapshot(delete).await)),
        (
            "CreateVolumeGroupSnapshot",
            code(groups.create_volume_group_snapshot(create_group).await),
        ),
        ("GetVolumeGroupSnapshot", code(groups.get_volume_group_snapshot(get_group).await)),
        (
            "DeleteVolumeGroupSnapshot",
            code(groups.delete_volume_group_snapshot(delete_group).await),
        ),
    ]
}

async fn node_calls(rig: &Rig, junk: &Junk) -> Vec<(&'static str, Code)> {
    let mut client = rig.nodes();
    let volume_id = junk.text(1);
    let stage = NodeStageVolumeRequest {
        volume_id: volume_id.clone(),
        publish_context: junk.pairs(),
        staging_target_path: junk.text(2),
        volume_capability: Some(junk.capability()),
        secrets: junk.pairs(),
        ..Default::default()
    };
    let publish = NodePublishVolumeRequest {
        volume_id: volume_id.clone(),
        publish_context: junk.pairs(),
        staging_target_path: junk.text(2),
        target_path: junk.text(3),
        volume_capability: Some(junk.capability()),
        ..Default::default()
    };
    let unpublish =
        NodeUnpublishVolumeRequest { volume_id: volume_id.clone(), target_path: junk.text(3) };
    let unstage = NodeUnstageVolumeRequest {
        volume_id: volume_id.clone(),
        staging_target_path: junk.text(2),
    };
    let stats = NodeGetVolumeStatsRequest {
        volume_id: volume_id.clone(),
        volume_path: junk.text(3),
        ..Default::default()
    };
    let expand = NodeExpandVolumeRequest {
        volume_id: volume_id.clone(),
        volume_path: junk.text(3),
        capacity_range: junk.range(),
        volume_capability: Some(junk.capability()),
        ..Default::default()
    };
    let health = NodeGetVolumeHealthRequest { volume_id, ..Default::default() };
    vec![
        ("NodeStageVolume", code(client.node_stage_volume(stage).await)),
        ("NodePublishVolume", code(client.node_publish_volume(publish).await)),
        ("NodeGetVolumeStats", code(client.node_get_volume_stats(stats).await)),
        ("NodeExpandVolume", code(client.node_expand_volume(expand).await)),
        ("NodeGetVolumeHealth", code(client.node_get_volume_health(health).await)),
        ("NodeUnpublishVolume", code(client.node_unpublish_volume(unpublish).await)),
        ("NodeUnstageVolume", code(client.node_unstage_volume(unstage).await)),
    ]
}

/// Codes that tell a caller what to do. The others would say that the driver has fallen over.
fn is_told(code: Code) -> bool {
    matches!(
        code,
        Code::Ok
            | Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Aborted
            | Code::ResourceExhausted
    )
}

#[test]
fn no_request_makes_the_driver_fall_over() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let rig =
        runtime.block_on(Rig::with(CsiDriver::Published, |settings, _| settings.health = true));
    // Each is 26 calls over a socket, so a thousand take two minutes.
    let cases = (Config::default().cases / 4).min(1000);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);

    let outcome = runner.run(&junk(), |junk| {
        let codes = runtime.block_on(call_all(&rig, &junk));
        prop_assert_eq!(codes.len(), 26);
        for (method, code) in codes {
            prop_assert!(is_told(code), "{} answered {:?}", method, code);
        }
        Ok(())
    });

    outcome.unwrap();
    runtime.block_on(rig.stop());
}
