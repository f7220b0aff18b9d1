//! Volumes that were made for claims which nobody knows any more.
//!
//! A process that is killed between making a volume and writing its object is followed by one that
//! goes on, as long as the claim is there. When the claim went meanwhile, nothing in the cluster names
//! the volume. It is removed if nothing was ever written into it: a volume whose object a person
//! removed in order to keep its data must stay, and looks the same otherwise. So must a copy, which
//! holds something from the beginning.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use hawser_api::csi::v1::DeleteVolumeRequest;
use hawser_api::csi::v1::controller_server::Controller;
use hawser_core::Timestamp;
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

/// How old a volume without a file system must be. That nobody has written into it is known from the
/// record alone, so whoever may be about to hand it out is left far more time than that takes.
const AGE: Duration = Duration::from_secs(60);

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
            let young = self.round().await.unwrap_or_else(|error| {
                warn!(error = %error.sentence(), "volumes without a claim were not looked for");
                false
            });
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(if young { AGE } else { ROUND }) => {}
            }
        }
    }

    /// Answers true when there is one that is too young to be removed.
    async fn round(&self) -> hawser_core::Result<bool> {
        let Some(services) = self.office.drivers.first() else { return Ok(false) };
        let (Some(control), Some(controller)) = (services.control(), services.controller()) else {
            return Ok(false);
        };
        let unknown = self.unknown(&*control).await?;
        let (old, young): (Vec<_>, Vec<_>) = unknown.into_iter().partition(is_of_age);
        for volume in old {
            if !self.has_no_object(&volume).await {
                continue;
            }
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
        Ok(!young.is_empty())
    }

    /// Asks the API server itself: the watch may be late. What is not known is not so.
    async fn has_no_object(&self, volume: &Known) -> bool {
        let Some(uid) = claim_of(volume) else { return false };
        match self.office.has_volume(&format!("pvc-{uid}")).await {
            Ok(has) => !has,
            Err(error) => {
                warn!(volume.id = %volume.id, reason = error.sentence(), "not removed");
                false
            }
        }
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

/// The uid of the claim that a volume was made for; `None` for one that somebody calls otherwise, too.
fn claim_of(volume: &Known) -> Option<&str> {
    let [alias] = &*volume.aliases else { return None };
    let uid = alias.name().strip_prefix("pvc-").filter(|_| alias.scope() == Scope::Csi)?;
    uid.chars().all(|c| c.is_ascii_alphanumeric() || c == '-').then_some(uid)
}

/// True when it is certain that nobody has written into it: it was never formatted, or nobody was ever
/// given the right to use it; it is at rest, and is no copy of anything.
fn holds_nothing(volume: &Known) -> bool {
    let blank = match &volume.filesystem {
        Some(inside) => inside.state == FormatState::Never,
        None => volume.untouched,
    };
    blank
        && volume.state == VolumeState::Ready
        && volume.publications.is_empty()
        && volume.operation.is_none()
        && volume.source.is_none()
}

fn is_of_age(volume: &Known) -> bool {
    let age = Duration::try_from(Timestamp::now().duration_since(volume.created));
    volume.filesystem.is_some() || age.is_ok_and(|age| age >= AGE)
}
