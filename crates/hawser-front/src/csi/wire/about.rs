//! What a request is about, for the log: an id or a name, and nothing else of it.

use hawser_api::csi::registration::{InfoRequest, RegistrationStatus};
use hawser_api::csi::v1::*;

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::csi) enum Subject<'a> {
    /// A volume, by its id.
    Volume(&'a str),
    /// Something else, by its name or id.
    Name(&'a str),
    /// Nothing in particular.
    Nothing,
}

/// A request that says what it is about.
pub(in crate::csi) trait About {
    /// An id or a name; never anything secret.
    fn about(&self) -> Subject<'_>;
}

macro_rules! about {
    ($($request:ident $(. $field:ident)? => $subject:ident),+ $(,)?) => {$(
        impl About for $request {
            fn about(&self) -> Subject<'_> {
                Subject::$subject $((&self.$field))?
            }
        }
    )+};
}

about! {
    GetPluginInfoRequest => Nothing,
    GetPluginCapabilitiesRequest => Nothing,
    ProbeRequest => Nothing,
    CreateVolumeRequest.name => Name,
    DeleteVolumeRequest.volume_id => Volume,
    ControllerPublishVolumeRequest.volume_id => Volume,
    ControllerUnpublishVolumeRequest.volume_id => Volume,
    ValidateVolumeCapabilitiesRequest.volume_id => Volume,
    ListVolumesRequest => Nothing,
    ControllerListVolumeHealthRequest => Nothing,
    ControllerGetVolumeHealthRequest.volume_id => Volume,
    ControllerGetVolumeRequest.volume_id => Volume,
    GetCapacityRequest => Nothing,
    ControllerGetCapabilitiesRequest => Nothing,
    CreateSnapshotRequest.name => Name,
    DeleteSnapshotRequest.snapshot_id => Name,
    ListSnapshotsRequest => Nothing,
    GetSnapshotRequest.snapshot_id => Name,
    ControllerExpandVolumeRequest.volume_id => Volume,
    ControllerModifyVolumeRequest.volume_id => Volume,
    GroupControllerGetCapabilitiesRequest => Nothing,
    CreateVolumeGroupSnapshotRequest.name => Name,
    DeleteVolumeGroupSnapshotRequest.group_snapshot_id => Name,
    GetVolumeGroupSnapshotRequest.group_snapshot_id => Name,
    NodeStageVolumeRequest.volume_id => Volume,
    NodeUnstageVolumeRequest.volume_id => Volume,
    NodePublishVolumeRequest.volume_id => Volume,
    NodeUnpublishVolumeRequest.volume_id => Volume,
    NodeGetVolumeStatsRequest.volume_id => Volume,
    NodeGetVolumeHealthRequest.volume_id => Volume,
    NodeGetStorageHealthRequest => Nothing,
    NodeExpandVolumeRequest.volume_id => Volume,
    NodeGetCapabilitiesRequest => Nothing,
    NodeGetInfoRequest => Nothing,
    InfoRequest => Nothing,
    RegistrationStatus => Nothing,
}
