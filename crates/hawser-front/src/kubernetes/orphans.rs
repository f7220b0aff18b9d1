//! Volumes that were made for claims which nobody knows any more.
//!
//! A process that is killed between making a volume and writing its object is followed by one that
//! goes on, as long as the claim is there. When the claim went meanwhile, nothing in the cluster names
//! the volume. It is removed if nothing was ever written into it: a volume whose object a person
//! removed in order to keep its data must stay, and looks the same otherwise.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use hawser_api::csi::v1::DeleteVolumeRequest;
use hawser_api::csi::v1::controller_server::Controller;
use hawser_core::filesystem::FormatState;
use hawser_core::name::Scope;
use hawser_core::page::PageRequest;
use hawser_core::port::Control;
use hawser_core::port::control::VolumeFilter;
use hawser_core::volume::{Volume as Known, VolumeState};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::objects::Object;
use super::office::{CALL_LIMIT, Office};
use crate::csi::within;

/// How often it is looked for them; the first time at start.
const ROUND: Duration = Duration::from_secs(600);

/// Removes volumes that nobody knows any more.
pub(super) struct Orphans {
    office: Arc<Office>,
}

impl Orphans {
    pub(super) fn new(office: Arc<Office>) -> Arc<Self> {
        Arc::new(Self { office })
    }

    /// Works until it is told to stop.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
        loop {
            if let Err(error) = self.round().await {
                warn!(error = %error.sentence(), "volumes without a claim were not looked for");
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(ROUND) => {}
            }
        }
    }

    async fn round(&self) -> hawser_core::Result<()> {
        let Some(services) = self.office.drivers.first() else { return Ok(()) };
        let (Some(control), Some(controller)) = (services.control(), services.controller()) else {
            return Ok(());
        };
        for volume in self.unknown(&*control).await? {
            let request = DeleteVolumeRequest {
                volume_id: volume.id.to_string(),
                ..DeleteVolumeRequest::default()
            };
            match controller.delete_volume(within(CALL_LIMIT, request)).await {
                Ok(_) => info!(volume.id = %volume.id, "removed: its claim went while it was made"),
                Err(status) => {
                    warn!(volume.id = %volume.id, reason = status.message(), "not removed")
                }
            }
        }
        Ok(())
    }

    async fn unknown(&self, control: &dyn Control) -> hawser_core::Result<Vec<Known>> {
        let mut unknown = Vec::new();
        let mut page = PageRequest::largest();
        loop {
            let found = control.list_volumes(&VolumeFilter::default(), &page).await?;
            let forgotten = found.items.into_iter().filter(holds_nothing);
            unknown.extend(forgotten);
            let Some(token) = found.next else { break };
            page.token = Some(token);
        }
        if unknown.is_empty() {
            return Ok(unknown);
        }
        let tables = &self.office.tables;
        let claims = tables.claims.all(|_| true);
        let claims: HashSet<&str> = claims.iter().map(|claim| claim.uid()).collect();
        let volumes = tables.volumes.all(|volume| volume.csi().is_some());
        let handles = volumes.iter().filter_map(|volume| volume.csi());
        let handles: HashSet<&str> = handles.map(|csi| csi.volume_handle.as_str()).collect();
        unknown.retain(|volume| {
            let claim = claim_of(volume);
            claim.is_some_and(|uid| !claims.contains(uid)) && !handles.contains(volume.id.as_str())
        });
        Ok(unknown)
    }
}

/// The uid of the claim that a volume was made for.
fn claim_of(volume: &Known) -> Option<&str> {
    let mut names = volume.aliases.iter().filter(|alias| alias.scope() == Scope::Csi);
    names.find_map(|alias| alias.name().strip_prefix("pvc-"))
}

/// True when it is certain that nobody has written into it: it was never formatted, is at rest, and
/// is no copy of anything.
fn holds_nothing(volume: &Known) -> bool {
    let blank = volume.filesystem.as_ref().is_some_and(|inside| inside.state == FormatState::Never);
    blank
        && volume.state == VolumeState::Ready
        && volume.publications.is_empty()
        && volume.operation.is_none()
        && volume.source.is_none()
}
