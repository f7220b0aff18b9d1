//! CreateSnapshot, DeleteSnapshot, ListSnapshots and GetSnapshot.

use hawser_api::csi::v1::{
    CreateSnapshotRequest, CreateSnapshotResponse, DeleteSnapshotRequest, DeleteSnapshotResponse,
    GetSnapshotRequest, GetSnapshotResponse, ListSnapshotsRequest, ListSnapshotsResponse,
    list_snapshots_response,
};
use hawser_core::name::{Alias, Scope};
use hawser_core::page::PageRequest;
use hawser_core::snapshot::{Snapshot, SnapshotRef, SnapshotRequest, SnapshotState};
use hawser_core::volume::VolumeRef;
use hawser_core::{Kind, Result};

use super::ControllerService;
use crate::csi::answer::{done, supported};
use crate::csi::deadline::Deadline;
use crate::csi::error::{CsiError, required};
use crate::csi::pages::Wanted;
use crate::csi::wire;

/// Takes a snapshot.
pub(super) async fn create(
    service: ControllerService,
    request: CreateSnapshotRequest,
    deadline: Deadline,
) -> Result<CreateSnapshotResponse> {
    required("name", &request.name)?;
    required("source_volume_id", &request.source_volume_id)?;
    if request.accessibility_requirements.is_some() {
        return Err(CsiError::UnsupportedField { field: "accessibility_requirements" }.into());
    }
    let alias = Alias::new(Scope::Csi, request.name)?;
    let labels = wire::labels_of(request.parameters)?;
    let volume = VolumeRef::Id(wire::volume_id(&request.source_volume_id)?);
    let request = SnapshotRequest { alias, volume, labels };
    let reply = service.control.create_snapshot(request, deadline.work).await;
    let snapshot = done(reply.map_err(supported)?)?.into_inner();
    Ok(CreateSnapshotResponse { snapshot: Some(wire::snapshot(&snapshot)) })
}

/// Removes a snapshot. What is not there, or never could be, is fine.
pub(super) async fn delete(
    service: ControllerService,
    request: DeleteSnapshotRequest,
    deadline: Deadline,
) -> Result<DeleteSnapshotResponse> {
    required("snapshot_id", &request.snapshot_id)?;
    if let Ok(id) = wire::snapshot_id(&request.snapshot_id) {
        let snapshot = SnapshotRef::Id(id);
        done(service.control.delete_snapshot(&snapshot, deadline.work).await?)?;
    }
    Ok(DeleteSnapshotResponse {})
}

/// A snapshot by the text of its id; `None` when there is none.
async fn find(service: &ControllerService, id: &str) -> Result<Option<Snapshot>> {
    let Ok(id) = wire::snapshot_id(id) else { return Ok(None) };
    match service.control.get_snapshot(&SnapshotRef::Id(id)).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// One snapshot, also one that is not ready yet.
pub(super) async fn get(
    service: &ControllerService,
    request: GetSnapshotRequest,
) -> Result<GetSnapshotResponse> {
    required("snapshot_id", &request.snapshot_id)?;
    let id = wire::snapshot_id(&request.snapshot_id)?;
    let found = service.control.get_snapshot(&SnapshotRef::Id(id)).await?;
    Ok(GetSnapshotResponse { snapshot: Some(wire::snapshot(&found)) })
}

/// Snapshots, oldest first, whoever made them. A filter that nothing matches gives an empty list.
pub(super) async fn list(
    service: &ControllerService,
    request: ListSnapshotsRequest,
) -> Result<ListSnapshotsResponse> {
    let wanted = Wanted::read(request.max_entries, &request.starting_token)?;
    let of = match request.source_volume_id.as_str() {
        "" => None,
        text => match wire::volume_id(text) {
            Ok(id) => Some(id),
            Err(_) => return Ok(ListSnapshotsResponse::default()),
        },
    };
    if !request.snapshot_id.is_empty() {
        let found = find(service, &request.snapshot_id).await?.filter(is_cut);
        let found = found.filter(|found| of.as_ref().is_none_or(|of| found.volume == *of));
        return Ok(answer(found.as_slice(), None));
    }
    let of = of.map(VolumeRef::Id);
    let list = |page: PageRequest| {
        let of = of.as_ref();
        async move { service.control.list_snapshots(of, &page).await }
    };
    let (found, next) = wanted.collect(list, is_cut).await?;
    Ok(answer(&found, next))
}

fn answer(found: &[Snapshot], next: Option<String>) -> ListSnapshotsResponse {
    let entry = |snapshot: &Snapshot| list_snapshots_response::Entry {
        snapshot: Some(wire::snapshot(snapshot)),
    };
    ListSnapshotsResponse {
        entries: found.iter().map(entry).collect(),
        next_token: next.unwrap_or_default(),
    }
}

/// True when a list has the snapshot: one that is being taken is not there for anybody yet.
fn is_cut(snapshot: &Snapshot) -> bool {
    match snapshot.state {
        SnapshotState::Creating => false,
        SnapshotState::Ready | SnapshotState::Deleting => true,
    }
}
