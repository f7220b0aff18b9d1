//! The GroupController service: snapshots of several volumes, all of one instant. Served where at
//! least one class can take them.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use hawser_api::csi::v1::group_controller_server::GroupController;
use hawser_api::csi::v1::*;
use hawser_core::group::{Group, GroupRef, GroupRequest};
use hawser_core::name::{Alias, Scope};
use hawser_core::port::Control;
use hawser_core::volume::VolumeRef;
use hawser_core::{Kind, Result};
use tonic::{Request, Response, Status};

use super::answer::{done, supported};
use super::deadline::Deadline;
use super::driver::Driver;
use super::error::{CsiError, required};
use super::wire;

/// The group controller of one driver.
#[derive(Clone)]
pub(crate) struct GroupService {
    pub(super) driver: Arc<Driver>,
    pub(super) control: Arc<dyn Control>,
}

#[async_trait]
impl GroupController for GroupService {
    async fn group_controller_get_capabilities(
        &self,
        request: Request<GroupControllerGetCapabilitiesRequest>,
    ) -> Result<Response<GroupControllerGetCapabilitiesResponse>, Status> {
        let capabilities = self.driver.group_capabilities();
        let answer = GroupControllerGetCapabilitiesResponse { capabilities };
        let work = |_, _| async { Ok(answer) };
        self.driver.read("GroupControllerGetCapabilities", request, work).await
    }

    async fn create_volume_group_snapshot(
        &self,
        request: Request<CreateVolumeGroupSnapshotRequest>,
    ) -> Result<Response<CreateVolumeGroupSnapshotResponse>, Status> {
        let this = self.clone();
        let work = move |request, deadline| create(this, request, deadline);
        self.driver.change("CreateVolumeGroupSnapshot", request, work).await
    }

    async fn delete_volume_group_snapshot(
        &self,
        request: Request<DeleteVolumeGroupSnapshotRequest>,
    ) -> Result<Response<DeleteVolumeGroupSnapshotResponse>, Status> {
        let this = self.clone();
        let work = move |request, deadline| delete(this, request, deadline);
        self.driver.change("DeleteVolumeGroupSnapshot", request, work).await
    }

    async fn get_volume_group_snapshot(
        &self,
        request: Request<GetVolumeGroupSnapshotRequest>,
    ) -> Result<Response<GetVolumeGroupSnapshotResponse>, Status> {
        self.driver.read("GetVolumeGroupSnapshot", request, |request, _| get(self, request)).await
    }
}

async fn create(
    service: GroupService,
    request: CreateVolumeGroupSnapshotRequest,
    deadline: Deadline,
) -> Result<CreateVolumeGroupSnapshotResponse> {
    required("name", &request.name)?;
    if request.source_volume_ids.is_empty() {
        return Err(CsiError::Missing { field: "source_volume_ids" }.into());
    }
    let each = request.source_volume_ids.iter().collect::<BTreeSet<_>>();
    if each.len() < request.source_volume_ids.len() {
        return Err(CsiError::Mixed { why: "a volume is named twice" }.into());
    }
    let alias = Alias::new(Scope::Csi, request.name)?;
    let labels = wire::labels_of(request.parameters)?;
    let volumes = request
        .source_volume_ids
        .iter()
        .map(|id| wire::volume_id(id).map(VolumeRef::Id))
        .collect::<Result<Vec<_>, _>>()?;
    let request = GroupRequest { alias, volumes, labels };
    let reply = service.control.create_group(request, deadline.work).await;
    let group = done(reply.map_err(supported)?)?.into_inner();
    Ok(CreateVolumeGroupSnapshotResponse { group_snapshot: Some(wire::group(&group)) })
}

/// What is not there, or never could be, is fine, whatever snapshots are named.
async fn delete(
    service: GroupService,
    request: DeleteVolumeGroupSnapshotRequest,
    deadline: Deadline,
) -> Result<DeleteVolumeGroupSnapshotResponse> {
    required("group_snapshot_id", &request.group_snapshot_id)?;
    let Ok(id) = wire::group_id(&request.group_snapshot_id) else {
        return Ok(DeleteVolumeGroupSnapshotResponse {});
    };
    let group = GroupRef::Id(id);
    match service.control.get_group(&group).await {
        Ok(found) => check_members(&found, &request.snapshot_ids)?,
        Err(error) if error.kind() == Kind::NotFound => {}
        Err(error) => return Err(error),
    }
    done(service.control.delete_group(&group, deadline.work).await?)?;
    Ok(DeleteVolumeGroupSnapshotResponse {})
}

async fn get(
    service: &GroupService,
    request: GetVolumeGroupSnapshotRequest,
) -> Result<GetVolumeGroupSnapshotResponse> {
    required("group_snapshot_id", &request.group_snapshot_id)?;
    let id = wire::group_id(&request.group_snapshot_id)?;
    let found = service.control.get_group(&GroupRef::Id(id)).await?;
    check_members(&found, &request.snapshot_ids)?;
    Ok(GetVolumeGroupSnapshotResponse { group_snapshot: Some(wire::group(&found)) })
}

/// Refuses a list that is not that of the group.
fn check_members(group: &Group, named: &[String]) -> Result<(), CsiError> {
    let named: BTreeSet<&str> = named.iter().map(String::as_str).collect();
    let there: BTreeSet<&str> = group.snapshots.iter().map(|one| one.id.as_str()).collect();
    if named == there {
        return Ok(());
    }
    Err(CsiError::OtherMembers { group: group.id.clone() })
}
