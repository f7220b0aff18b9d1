//! The driver for storage on the nodes: a volume is where it is, and the node asks for its right.

use hawser_api::csi::v1::volume_capability::access_mode::Mode;
use hawser_api::csi::v1::*;
use hawser_core::{Error, Kind};
use tonic::Code;

use super::rig::{Rig, Staging, block, code, map, mount, new};
use crate::csi::CsiDriver;

fn on_node(name: &str, node: &str) -> CreateVolumeRequest {
    let there = Topology { segments: map(&[("topology.hawser.storage/node", node)]) };
    let requirement =
        TopologyRequirement { requisite: vec![there.clone()], preferred: vec![there] };
    CreateVolumeRequest {
        parameters: map(&[("class", "local")]),
        accessibility_requirements: Some(requirement),
        ..new(name, mount())
    }
}

async fn rig() -> Rig {
    Rig::with(CsiDriver::Local, |_, _| {}).await
}

#[tokio::test]
async fn a_volume_is_made_where_it_is_wanted_and_says_where_it_is() {
    let rig = rig().await;

    let answer = rig.controller().create_volume(on_node("data", "n2")).await.unwrap();

    let topology = answer.into_inner().volume.unwrap().accessible_topology;
    assert_eq!(topology[0].segments, map(&[("topology.hawser.storage/node", "n2")]));
    rig.stop().await;
}

#[tokio::test]
async fn classes_of_the_other_driver_are_refused_by_its_name() {
    let rig = rig().await;

    let answer = rig.controller().create_volume(new("data", mount())).await.unwrap_err();

    assert_eq!(answer.code(), Code::InvalidArgument);
    assert!(answer.message().contains("csi.hawser.storage"), "{answer}");
    let request =
        GetCapacityRequest { parameters: map(&[("class", "default")]), ..Default::default() };
    let room = rig.controller().get_capacity(request).await.unwrap().into_inner();
    assert_eq!(room.available_capacity, 0);
    rig.stop().await;
}

#[tokio::test]
async fn a_node_claims_its_right_and_gives_it_back() {
    let rig = rig().await;
    let id = rig.create(on_node("data", "n1")).await;
    let there = Staging { id, capability: mount(), context: map(&[]) };
    let (staging, target) = (rig.staging(), rig.path("target"));
    let mut node = rig.nodes();

    node.node_stage_volume(there.stage(&staging)).await.unwrap();
    assert_eq!(rig.control.volume_of(&there.id).unwrap().publications.len(), 1);
    rig.upstream.take_heard();
    node.node_publish_volume(there.publish(&staging, &target)).await.unwrap();
    assert!(rig.upstream.take_heard().is_empty(), "what was learned at staging is enough");
    node.node_unpublish_volume(there.unpublish(&target)).await.unwrap();
    node.node_unstage_volume(there.unstage(&staging)).await.unwrap();

    assert!(rig.control.volume_of(&there.id).unwrap().publications.is_empty());
    assert_eq!(rig.upstream.take_heard(), ["detached", "release"]);
    rig.stop().await;
}

#[tokio::test]
async fn a_right_that_could_not_be_given_back_is_given_back_later() {
    let rig = rig().await;
    let id = rig.create(on_node("data", "n1")).await;
    let there = Staging { id, capability: mount(), context: map(&[]) };
    let staging = rig.staging();
    rig.nodes().node_stage_volume(there.stage(&staging)).await.unwrap();

    *rig.upstream.down.lock().unwrap() = true;
    let answer = rig.nodes().node_unstage_volume(there.unstage(&staging)).await;
    assert_eq!(code(answer), Code::Unavailable);
    assert!(rig.node.records().is_empty(), "it is gone from the host");
    *rig.upstream.down.lock().unwrap() = false;
    rig.nodes().node_unstage_volume(there.unstage(&staging)).await.unwrap();

    assert!(rig.control.volume_of(&there.id).unwrap().publications.is_empty());
    rig.stop().await;
}

#[tokio::test]
async fn a_claimed_right_does_not_outlive_a_stage_that_failed() {
    let rig = rig().await;
    let id = rig.create(on_node("data", "n1")).await;
    let there = Staging { id, capability: mount(), context: map(&[]) };

    let damaged = || Error::new(Kind::Precondition, "the file system is damaged");
    *rig.node.fail_mount.lock().unwrap() = Some(damaged);
    let answer = rig.nodes().node_stage_volume(there.stage(&rig.staging())).await;

    assert_eq!(code(answer), Code::FailedPrecondition);
    assert!(rig.node.records().is_empty());
    assert!(rig.control.volume_of(&there.id).unwrap().publications.is_empty());
    rig.stop().await;
}

#[tokio::test]
async fn a_use_that_is_refused_gives_back_a_new_right_and_no_other() {
    let rig = rig().await;
    let device = block(Mode::SingleNodeWriter);
    let request =
        CreateVolumeRequest { volume_capabilities: vec![device.clone()], ..on_node("data", "n1") };
    let id = rig.create(request).await;
    let wrong = Staging { id, capability: mount(), context: map(&[]) };
    let there = Staging { capability: device, ..wrong.clone() };
    let rights = || rig.control.volume_of(&there.id).unwrap().publications;

    let answer = rig.nodes().node_stage_volume(wrong.stage(&rig.staging())).await;
    assert_eq!(code(answer), Code::FailedPrecondition);
    assert!(rights().is_empty());

    rig.nodes().node_stage_volume(there.stage(&rig.staging())).await.unwrap();
    let (held, record) = (rights(), rig.node.only());
    let answer = rig.nodes().node_stage_volume(wrong.stage(&rig.staging())).await;
    assert_eq!(code(answer), Code::FailedPrecondition);
    assert_eq!((rights(), rig.node.only()), (held, record), "what was staged stays staged");
    rig.stop().await;
}

#[tokio::test]
async fn a_restarted_driver_asks_what_it_has_forgotten() {
    let rig = rig().await;
    let id = rig.create(on_node("data", "n1")).await;
    let there = Staging { id, capability: mount(), context: map(&[]) };
    let (staging, target) = (rig.staging(), rig.path("target"));
    rig.nodes().node_stage_volume(there.stage(&staging)).await.unwrap();
    let (node, upstream) = (rig.node.clone(), rig.upstream.clone());
    upstream.take_heard();

    let other = Rig::with(CsiDriver::Local, |_, parts| {
        parts.node = Some(node.clone());
        parts.upstream = upstream.clone();
    })
    .await;
    other.nodes().node_publish_volume(there.publish(&staging, &target)).await.unwrap();

    assert_eq!(upstream.take_heard(), ["grant"]);
    other.stop().await;
    rig.stop().await;
}

#[tokio::test]
async fn only_volumes_on_nodes_are_listed() {
    let local = rig().await;
    let control = local.control.clone();
    let published =
        Rig::with(CsiDriver::Published, |_, parts| parts.control = Some(control.clone())).await;
    published.create(new("elsewhere", mount())).await;
    let here = local.create(on_node("here", "n1")).await;
    let list = async |rig: &Rig| {
        let answer = rig.controller().list_volumes(ListVolumesRequest::default()).await.unwrap();
        answer.into_inner().entries
    };

    let entries = list(&local).await;
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].volume.as_ref().unwrap().volume_id, here);
    assert_eq!(list(&published).await.len(), 2);
    published.stop().await;
    local.stop().await;
}
