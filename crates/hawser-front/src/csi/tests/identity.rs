//! Rows 1 to 4, 66, 72 and 73: who the driver is, and what it says it can do.

use hawser_api::csi::v1::plugin_capability::service::Type as Service;
use hawser_api::csi::v1::plugin_capability::{Type, volume_expansion};
use hawser_api::csi::v1::*;
use tonic::Code;

use super::rig::{Rig, code};
use crate::csi::CsiDriver;

fn controller_rpcs(answer: ControllerGetCapabilitiesResponse) -> Vec<i32> {
    let rpc = |one: ControllerServiceCapability| {
        let controller_service_capability::Type::Rpc(rpc) = one.r#type.expect("rpc is set");
        rpc.r#type
    };
    answer.capabilities.into_iter().map(rpc).collect()
}

fn node_rpcs(answer: NodeGetCapabilitiesResponse) -> Vec<i32> {
    let rpc = |one: NodeServiceCapability| {
        let node_service_capability::Type::Rpc(rpc) = one.r#type.expect("rpc is set");
        rpc.r#type
    };
    answer.capabilities.into_iter().map(rpc).collect()
}

async fn of_controller(rig: &Rig) -> Vec<i32> {
    let request = ControllerGetCapabilitiesRequest {};
    let answer = rig.controller().controller_get_capabilities(request).await.unwrap();
    controller_rpcs(answer.into_inner())
}

async fn of_node(rig: &Rig) -> Vec<i32> {
    let answer = rig.nodes().node_get_capabilities(NodeGetCapabilitiesRequest {}).await.unwrap();
    node_rpcs(answer.into_inner())
}

#[tokio::test]
async fn the_name_is_one_that_every_checker_takes() {
    for driver in [CsiDriver::Published, CsiDriver::Local] {
        let rig = Rig::with(driver, |_, _| {}).await;

        let info = rig.identity().get_plugin_info(GetPluginInfoRequest {}).await.unwrap();

        let info = info.into_inner();
        assert_eq!(info.name, driver.name());
        assert!((1..=63).contains(&info.name.len()) && !info.vendor_version.is_empty());
        let letter = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphabetic());
        assert!(letter(info.name.chars().next()) && letter(info.name.chars().next_back()));
        rig.stop().await;
    }
}

#[tokio::test]
async fn the_plugin_says_what_its_classes_can_do() {
    let rig = Rig::start().await;
    let request = GetPluginCapabilitiesRequest {};

    let answer = rig.identity().get_plugin_capabilities(request).await.unwrap().into_inner();

    let (mut services, mut expansions) = (Vec::new(), Vec::new());
    for one in answer.capabilities {
        match one.r#type.unwrap() {
            Type::Service(service) => services.push(service.r#type),
            Type::VolumeExpansion(expansion) => expansions.push(expansion.r#type),
        }
    }
    let wanted = [
        Service::ControllerService,
        Service::VolumeAccessibilityConstraints,
        Service::GroupControllerService,
    ];
    assert_eq!(services, wanted.map(|service| service as i32));
    assert_eq!(expansions, [volume_expansion::Type::Online as i32]);
    rig.stop().await;
}

#[test]
fn the_page_for_operators_names_every_capability_and_key() {
    const PAGE: &str = include_str!("../../../../../docs/csi.md");
    use controller_service_capability::rpc::Type as ControllerRpc;
    use node_service_capability::rpc::Type as NodeRpc;
    let controller = (1..=17).filter_map(|n| ControllerRpc::try_from(n).ok());
    let node = (1..=8).filter_map(|n| NodeRpc::try_from(n).ok());
    let names = controller.map(|rpc| rpc.as_str_name()).chain(node.map(|rpc| rpc.as_str_name()));
    let keys = ["publication", "access", "filesystem", "readOnly", "identity", "info", "class"];

    for name in names {
        assert!(PAGE.contains(name), "{name} is not told");
    }
    for word in keys.map(|key| format!("`{key}`")) {
        assert!(PAGE.contains(&word), "{word} is not told");
    }
    for driver in [CsiDriver::Published, CsiDriver::Local] {
        assert!(PAGE.contains(driver.name()));
    }
}

/// All processes of a driver say the same of it, whatever part they serve.
#[tokio::test]
async fn a_node_says_the_same_of_the_plugin_as_its_controller() {
    let all = Rig::start().await;
    let node = Rig::with(CsiDriver::Published, |_, parts| parts.control = None).await;
    let told = async |rig: &Rig| {
        let request = GetPluginCapabilitiesRequest {};
        rig.identity().get_plugin_capabilities(request).await.unwrap().into_inner()
    };

    assert_eq!(told(&all).await, told(&node).await);
    all.stop().await;
    node.stop().await;
}

#[tokio::test]
async fn without_a_class_for_groups_there_is_no_group_service() {
    let no_groups = |_: &mut _, parts: &mut crate::csi::CsiParts| {
        parts.abilities.remove(&hawser_core::class::Ability::Groups);
    };
    let rig = Rig::with(CsiDriver::Published, no_groups).await;

    let request = GetPluginCapabilitiesRequest {};
    let answer = rig.identity().get_plugin_capabilities(request).await.unwrap().into_inner();
    assert_eq!(answer.capabilities.len(), 3, "controller, topology, expansion");
    let request = GroupControllerGetCapabilitiesRequest {};
    let answer = rig.groups().group_controller_get_capabilities(request).await;
    assert_eq!(answer.unwrap_err().code(), Code::Unimplemented);
    rig.stop().await;
}

#[tokio::test]
async fn a_probe_tells_starting_from_ready_and_from_a_host_that_cannot_mount() {
    let rig = Rig::start().await;
    let ready = async || {
        rig.identity().probe(ProbeRequest {}).await.map(|answer| answer.into_inner().ready)
    };

    assert_eq!(ready().await.unwrap(), Some(true));
    *rig.control.ready.lock().unwrap() = false;
    assert_eq!(ready().await.unwrap(), Some(false));
    *rig.node.privileged.lock().unwrap() = false;
    assert_eq!(ready().await.unwrap_err().code(), Code::FailedPrecondition);
    rig.stop().await;
}

#[tokio::test]
async fn only_capabilities_that_csi_sanity_knows_are_told_by_default() {
    let rig = Rig::start().await;

    let mut controller = of_controller(&rig).await;
    let node = of_node(&rig).await;

    controller.sort();
    assert_eq!(controller, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15]);
    assert_eq!(node, [1, 2, 3, 5, 6]);
    let request = GroupControllerGetCapabilitiesRequest {};
    let groups = rig.groups().group_controller_get_capabilities(request).await.unwrap();
    let groups = groups.into_inner().capabilities;
    let group_controller_service_capability::Type::Rpc(rpc) = groups[0].r#type.unwrap();
    assert_eq!((groups.len(), rpc.r#type), (1, 1));
    rig.stop().await;
}

#[tokio::test]
async fn health_is_told_of_where_it_is_asked_for() {
    let rig = Rig::with(CsiDriver::Published, |settings, _| settings.health = true).await;

    let (controller, node) = (of_controller(&rig).await, of_node(&rig).await);

    assert!(controller.contains(&16) && controller.contains(&17));
    assert!(node.contains(&7) && node.contains(&8));
    rig.stop().await;
    let rig = Rig::start().await;
    let request = NodeGetStorageHealthRequest::default();
    assert_eq!(code(rig.nodes().node_get_storage_health(request).await), Code::Unimplemented);
    rig.stop().await;
}

#[tokio::test]
async fn the_driver_of_the_nodes_publishes_nothing() {
    let rig = Rig::with(CsiDriver::Local, |_, _| {}).await;

    let controller = of_controller(&rig).await;

    assert!([2, 8, 10].iter().all(|rpc| !controller.contains(rpc)), "{controller:?}");
    let request = ControllerPublishVolumeRequest::default();
    let answer = rig.controller().controller_publish_volume(request).await;
    assert_eq!(code(answer), Code::Unimplemented);
    rig.stop().await;
}

#[tokio::test]
async fn a_process_serves_the_parts_it_has() {
    let rig = Rig::with(CsiDriver::Published, |_, parts| parts.control = None).await;
    let request = ListVolumesRequest::default();
    assert_eq!(
        rig.controller().list_volumes(request).await.unwrap_err().code(),
        Code::Unimplemented
    );
    let probe = rig.identity().probe(ProbeRequest {}).await.unwrap().into_inner();
    assert_eq!(probe.ready, Some(true));
    rig.stop().await;

    let rig = Rig::with(CsiDriver::Published, |_, parts| parts.node = None).await;
    let request = NodeGetInfoRequest {};
    assert_eq!(rig.nodes().node_get_info(request).await.unwrap_err().code(), Code::Unimplemented);
    rig.stop().await;
}

#[tokio::test]
async fn a_node_says_who_and_where_it_is() {
    let rig = Rig::start().await;

    let info = rig.nodes().node_get_info(NodeGetInfoRequest {}).await.unwrap().into_inner();

    assert_eq!((info.node_id.as_str(), info.max_volumes_per_node), ("n1", 64));
    let segments = info.accessible_topology.unwrap().segments;
    assert_eq!(segments["topology.hawser.storage/node"], "n1");
    assert_eq!(segments["topology.hawser.storage/zone"], "z1");
    rig.stop().await;
}

#[tokio::test]
async fn calls_are_counted_with_their_codes() {
    let rig = Rig::start().await;
    let request = DeleteVolumeRequest::default();
    assert_eq!(code(rig.controller().delete_volume(request).await), Code::InvalidArgument);

    let text = rig.metrics.text().unwrap();

    let line = text.lines().find(|line| line.contains("DeleteVolume") && line.contains("_count"));
    let line = line.expect("the call was counted");
    assert!(line.starts_with("hawser_csi_operations_seconds_count"), "{line}");
    for part in ["csi.hawser.storage", "InvalidArgument", "} 1"] {
        assert!(line.contains(part), "no {part} in {line}");
    }
    rig.stop().await;
}
