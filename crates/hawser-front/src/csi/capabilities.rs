//! What the driver says it can do: computed from what its classes can.

use hawser_api::csi::v1::{
    ControllerServiceCapability, GroupControllerServiceCapability, NodeServiceCapability,
    PluginCapability, controller_service_capability, group_controller_service_capability,
    node_service_capability, plugin_capability,
};
use hawser_core::class::Ability;

use super::driver::Driver;
use super::settings::CsiDriver;

use controller_service_capability::rpc::Type as ControllerRpc;
use group_controller_service_capability::rpc::Type as GroupRpc;
use node_service_capability::rpc::Type as NodeRpc;
use plugin_capability::service::Type as Service;

impl Driver {
    /// What the plug-in as a whole can do.
    pub(super) fn plugin_capabilities(&self) -> Vec<PluginCapability> {
        let mut services =
            vec![Service::ControllerService, Service::VolumeAccessibilityConstraints];
        if self.can(Ability::Groups) {
            services.push(Service::GroupControllerService);
        }
        let mut all: Vec<_> = services.into_iter().map(service).collect();
        if self.can(Ability::Expand) {
            all.push(online_expansion());
        }
        all
    }

    /// What the controller service can do.
    pub(super) fn controller_capabilities(&self) -> Vec<ControllerServiceCapability> {
        self.controller_rpcs().into_iter().map(controller).collect()
    }

    fn controller_rpcs(&self) -> Vec<ControllerRpc> {
        let published = self.settings.driver == CsiDriver::Published;
        let (snapshots, health) = (self.can(Ability::Snapshots), self.settings.health);
        [
            (true, ControllerRpc::CreateDeleteVolume),
            (published, ControllerRpc::PublishUnpublishVolume),
            (true, ControllerRpc::ListVolumes),
            (self.can(Ability::Capacity), ControllerRpc::GetCapacity),
            (snapshots, ControllerRpc::CreateDeleteSnapshot),
            (snapshots, ControllerRpc::ListSnapshots),
            (self.can(Ability::Clones), ControllerRpc::CloneVolume),
            (published, ControllerRpc::PublishReadonly),
            (self.can(Ability::Expand), ControllerRpc::ExpandVolume),
            (published, ControllerRpc::ListVolumesPublishedNodes),
            (true, ControllerRpc::GetVolume),
            (true, ControllerRpc::SingleNodeMultiWriter),
            (true, ControllerRpc::ModifyVolume),
            (snapshots, ControllerRpc::GetSnapshot),
            (health, ControllerRpc::GetVolumeHealth),
            (health, ControllerRpc::ListVolumeHealth),
        ]
        .into_iter()
        .filter_map(|(can, rpc)| can.then_some(rpc))
        .collect()
    }

    /// What the node service can do.
    pub(super) fn node_capabilities(&self) -> Vec<NodeServiceCapability> {
        let health = self.settings.health;
        [
            (true, NodeRpc::StageUnstageVolume),
            (true, NodeRpc::GetVolumeStats),
            (true, NodeRpc::ExpandVolume),
            (true, NodeRpc::SingleNodeMultiWriter),
            (true, NodeRpc::VolumeMountGroup),
            (health, NodeRpc::GetVolumeHealth),
            (health, NodeRpc::GetStorageHealth),
        ]
        .into_iter()
        .filter_map(|(can, rpc)| can.then_some(rpc))
        .map(node)
        .collect()
    }

    /// What the group service can do; it is only served where a class can take groups.
    pub(super) fn group_capabilities(&self) -> Vec<GroupControllerServiceCapability> {
        let rpc = group_controller_service_capability::Rpc {
            r#type: GroupRpc::CreateDeleteGetVolumeGroupSnapshot as i32,
        };
        let rpc = group_controller_service_capability::Type::Rpc(rpc);
        vec![GroupControllerServiceCapability { r#type: Some(rpc) }]
    }
}

fn service(kind: Service) -> PluginCapability {
    let service = plugin_capability::Service { r#type: kind as i32 };
    PluginCapability { r#type: Some(plugin_capability::Type::Service(service)) }
}

fn online_expansion() -> PluginCapability {
    let expansion = plugin_capability::VolumeExpansion {
        r#type: plugin_capability::volume_expansion::Type::Online as i32,
    };
    PluginCapability { r#type: Some(plugin_capability::Type::VolumeExpansion(expansion)) }
}

fn controller(kind: ControllerRpc) -> ControllerServiceCapability {
    let rpc = controller_service_capability::Rpc { r#type: kind as i32 };
    let rpc = controller_service_capability::Type::Rpc(rpc);
    ControllerServiceCapability { r#type: Some(rpc) }
}

fn node(kind: NodeRpc) -> NodeServiceCapability {
    let rpc = node_service_capability::Rpc { r#type: kind as i32 };
    NodeServiceCapability { r#type: Some(node_service_capability::Type::Rpc(rpc)) }
}
