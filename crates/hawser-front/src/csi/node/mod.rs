//! The Node service: it drives the node half of its own host, so that pods start while the control
//! half restarts, and asks upstream for what only the control half knows.
//!
//! Every change runs in a task that outlives its call, alone with its volume. What was attached for
//! which volume is in the attachment records of the host, so a call needs no more than the volume's
//! id, also after a restart.

mod expand;
mod grant;
mod health;
mod info;
mod publish;
mod stage;
mod stats;
mod unpublish;
mod unstage;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use hawser_api::csi::v1::node_server::Node as NodeServer;
use hawser_api::csi::v1::*;
use hawser_core::attach::{AttachRecord, AttachState};
use hawser_core::error::Error;
use hawser_core::filesystem::FsKind;
use hawser_core::id::{PublicationId, VolumeId};
use hawser_core::port::Node;
use hawser_core::port::upstream::{Fact, Grant, Report};
use hawser_core::volume::Access;
use hawser_core::{Kind, Result};
use tonic::{Request, Response, Status};
use tracing::warn;
use uuid::Uuid;

use super::driver::Driver;
use super::error::{CsiError, cut};
use super::paths;
use super::settings::CsiDriver;
use super::wire::Use;

pub(super) use health::health_entries;

/// A control half that does not take a report in this time is told later: a pod is waiting.
const SHORT: Duration = Duration::from_secs(5);
/// For reports without which the work cannot go on. An operation on the volume may have to end first.
const LONG: Duration = Duration::from_secs(60);

/// The node service of one driver.
#[derive(Clone)]
pub(super) struct NodeService {
    pub(super) driver: Arc<Driver>,
    pub(super) node: Arc<dyn Node>,
}

/// What must be known of a volume to show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    access: Access,
    filesystem: Option<(FsKind, Uuid)>,
}

impl From<&Grant> for Known {
    fn from(grant: &Grant) -> Self {
        let filesystem = grant.filesystem.as_ref().map(|inside| (inside.kind, inside.uuid));
        Self { access: grant.access, filesystem }
    }
}

/// What was learned when volumes were staged, for calls that are told less. Lost with the process,
/// and then asked for again.
#[derive(Debug, Default)]
pub(super) struct Staged(Mutex<BTreeMap<VolumeId, Known>>);

impl Staged {
    fn keep(&self, volume: &VolumeId, known: Known) {
        self.all().insert(volume.clone(), known);
    }

    fn get(&self, volume: &VolumeId) -> Option<Known> {
        self.all().get(volume).copied()
    }

    fn forget(&self, volume: &VolumeId) {
        self.all().remove(volume);
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<VolumeId, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeService {
    fn is_local(&self) -> bool {
        self.driver.settings.driver == CsiDriver::Local
    }

    /// A path of the request, by the rules for paths.
    fn path(&self, field: &'static str, text: &str) -> Result<PathBuf, CsiError> {
        paths::check(self.driver.settings.kubelet_dir.as_deref(), field, text)
    }

    /// What this host has of a volume, by whatever right.
    async fn records(&self, volume: &VolumeId) -> Result<Vec<AttachRecord>> {
        let all = self.node.attachments().await?;
        Ok(all.into_iter().filter(|record| record.volume == *volume).collect())
    }

    /// What this host has of a volume that is shown at a path. `Kind::NotFound` when it is not there;
    /// whether the path could be there at all is not asked.
    async fn record_at(&self, volume: &VolumeId, path: &str) -> Result<AttachRecord> {
        let found = self.records(volume).await?.into_iter().find(|record| shows(record, path));
        let missing = || CsiError::NotThere { volume: volume.clone(), path: cut(path) };
        found.ok_or_else(|| missing().into())
    }

    /// Tells the control half. One that cannot be reached, or is at work on the volume, hears of it
    /// when the node dials in again: the work here goes on.
    async fn report(
        &self,
        volume: &VolumeId,
        publication: &PublicationId,
        fact: Fact,
    ) -> Result<()> {
        match self.tell_within(SHORT, volume, publication, fact).await {
            Err(error) if can_wait(&error) => {
                warn!(reason = error.sentence(), "the control half was not told");
                Ok(())
            }
            told => told,
        }
    }

    /// Tells the control half that a volume left this host. That is so, whatever it says to it.
    async fn report_gone(&self, volume: &VolumeId, publication: &PublicationId) {
        if let Err(error) = self.tell_within(SHORT, volume, publication, Fact::Detached).await {
            warn!(reason = error.sentence(), "the control half was not told");
        }
    }

    /// Tells the control half, or fails.
    async fn tell(&self, volume: &VolumeId, publication: &PublicationId, fact: Fact) -> Result<()> {
        self.tell_within(LONG, volume, publication, fact).await
    }

    async fn tell_within(
        &self,
        limit: Duration,
        volume: &VolumeId,
        publication: &PublicationId,
        fact: Fact,
    ) -> Result<()> {
        let report = Report {
            volume: volume.clone(),
            publication: publication.clone(),
            node: self.driver.settings.node_id.clone(),
            fact,
        };
        match tokio::time::timeout(limit, self.driver.parts.upstream.report(&report)).await {
            Ok(told) => told,
            Err(_) => Err(Error::new(Kind::Timeout, "the control half does not take a report")),
        }
    }
}

fn can_wait(error: &Error) -> bool {
    match error.kind() {
        Kind::Unavailable | Kind::Timeout | Kind::Busy => true,
        Kind::Invalid
        | Kind::NotFound
        | Kind::Exists
        | Kind::Precondition
        | Kind::OutOfRange
        | Kind::NoSpace
        | Kind::Unauthenticated
        | Kind::Denied
        | Kind::Unsupported
        | Kind::Internal => error.is_unknown(),
    }
}

fn shows(record: &AttachRecord, path: &str) -> bool {
    record.mounts.iter().any(|mount| mount.target == Path::new(path))
}

/// True when a volume is staged: attached, and shown in its staging folder unless it is a device.
fn is_staged(record: &AttachRecord, usage: &Use, staging: &Path) -> bool {
    let shown = || record.mounts.iter().any(|mount| mount.target == *staging && mount.ready);
    let there = record.state == AttachState::Attached && record.attached.is_some();
    there && (*usage == Use::Block || shown())
}

/// A call that this driver does not have.
fn unimplemented<T>(call: &str) -> Result<T, Status> {
    Err(Status::unimplemented(format!("this driver has no {call}")))
}

#[async_trait]
impl NodeServer for NodeService {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        let this = self.clone();
        let work = move |request, _| stage::stage(this, request);
        self.driver.change("NodeStageVolume", request, work).await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        let this = self.clone();
        let work = move |request, _| unstage::unstage(this, request);
        self.driver.change("NodeUnstageVolume", request, work).await
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let this = self.clone();
        let work = move |request, _| publish::publish(this, request);
        self.driver.change("NodePublishVolume", request, work).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let this = self.clone();
        let work = move |request, _| unpublish::unpublish(this, request);
        self.driver.change("NodeUnpublishVolume", request, work).await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        self.driver
            .read("NodeGetVolumeStats", request, |request, _| stats::get(self, request))
            .await
    }

    async fn node_get_volume_health(
        &self,
        request: Request<NodeGetVolumeHealthRequest>,
    ) -> Result<Response<NodeGetVolumeHealthResponse>, Status> {
        if !self.driver.settings.health {
            return unimplemented("NodeGetVolumeHealth");
        }
        let work = |request, _| health::volume(self, request);
        self.driver.read("NodeGetVolumeHealth", request, work).await
    }

    async fn node_get_storage_health(
        &self,
        request: Request<NodeGetStorageHealthRequest>,
    ) -> Result<Response<NodeGetStorageHealthResponse>, Status> {
        if !self.driver.settings.health {
            return unimplemented("NodeGetStorageHealth");
        }
        let work = |_, _| health::storage(self);
        self.driver.read("NodeGetStorageHealth", request, work).await
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        let this = self.clone();
        let work = move |request, _| expand::expand(this, request);
        self.driver.change("NodeExpandVolume", request, work).await
    }

    async fn node_get_capabilities(
        &self,
        request: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let capabilities = self.driver.node_capabilities();
        let answer = NodeGetCapabilitiesResponse { capabilities };
        self.driver.read("NodeGetCapabilities", request, |_, _| async { Ok(answer) }).await
    }

    async fn node_get_info(
        &self,
        request: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        self.driver.read("NodeGetInfo", request, |_, _| info::get(self)).await
    }
}
