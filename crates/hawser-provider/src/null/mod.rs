//! A provider that makes nothing: for benchmarks of everything above it, and to try the API.
//!
//! Every call succeeds at once (or after `latency` milliseconds) and nothing is remembered, so
//! 100 000 volumes cost it nothing, and every call is idempotent because it has no effect. A volume
//! of it cannot be attached: `publish` answers protocol `NULL`, which no connector takes.
//!
//! It can do what needs no memory and no content: snapshots, clones, expand, capacity, groups. It
//! has no inventory (it could only say "nothing", and every volume would look lost) and no backup
//! (there is nothing to read).

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hawser_core::attach::Health;
use hawser_core::class::Capacity;
use hawser_core::connection::{ConnectionInfo, Protocol};
use hawser_core::id::{SnapshotId, VolumeId};
use hawser_core::node::NodeRecord;
use hawser_core::port::Progress;
use hawser_core::port::connector::Maturity;
use hawser_core::port::provider::{
    Expand, Groups, HasCapacity, Provider, ProviderInfo, Provision, ProvisionSource, Provisioned,
    SnapshotAtProvider, Snapshots, VolumeAtProvider,
};
use hawser_core::volume::Access;
use hawser_core::{ByteSize, Change, Classify, Kind, Result};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{Deps, ProviderType};

static INFO: ProviderInfo = ProviderInfo {
    name: "null",
    maturity: Maturity::Stable,
    summary: "makes nothing and succeeds: for benchmarks and for trying the API",
};

/// The largest volume of it: what a device of Linux can have.
const LARGEST: ByteSize = ByteSize::bytes(i64::MAX as u64);

/// What a class of provider `null` may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// How many milliseconds each call takes.
    #[serde(default)]
    latency: u32,
    /// The largest volume it says yes to; the sum is not limited, since nothing is remembered.
    #[serde(default = "unlimited")]
    capacity: ByteSize,
}

fn unlimited() -> ByteSize {
    LARGEST
}

#[derive(Debug, thiserror::Error)]
enum NullError {
    #[error("provider null takes no parameters, and {name:?} was given")]
    UnknownParameter { name: String },
    #[error("a volume of {size} is larger than the capacity of {capacity}")]
    Full { size: ByteSize, capacity: ByteSize },
    #[error("a volume of {size} cannot hold a copy of {origin}, which has {needed}")]
    SmallerThanSource { size: ByteSize, origin: String, needed: ByteSize },
    #[error("handle {handle:?} is not of this provider: {id} has the handle {id:?}")]
    OtherHandle { handle: String, id: String },
}

impl Classify for NullError {
    fn kind(&self) -> Kind {
        match self {
            Self::UnknownParameter { .. } | Self::OtherHandle { .. } => Kind::Invalid,
            Self::Full { .. } => Kind::NoSpace,
            Self::SmallerThanSource { .. } => Kind::OutOfRange,
        }
    }
}

/// The kind of storage; [`ProviderType::open`] gives one that answers by its settings.
pub struct Null;

#[async_trait]
impl ProviderType for Null {
    fn info(&self) -> &'static ProviderInfo {
        &INFO
    }

    async fn open(&self, settings: Map<String, Value>, _deps: &Deps) -> Result<Arc<dyn Provider>> {
        Ok(Arc::new(Nothing { settings: crate::parse_settings(INFO.name, settings)? }))
    }
}

/// One configured `null` class.
struct Nothing {
    settings: Settings,
}

impl Nothing {
    async fn work(&self) {
        if self.settings.latency > 0 {
            tokio::time::sleep(Duration::from_millis(self.settings.latency.into())).await;
        }
    }

    fn fits(&self, size: ByteSize) -> Result<(), NullError> {
        let capacity = self.settings.capacity;
        if size > capacity { Err(NullError::Full { size, capacity }) } else { Ok(()) }
    }
}

#[async_trait]
impl Provider for Nothing {
    fn info(&self) -> &'static ProviderInfo {
        &INFO
    }

    fn handle(&self, id: &VolumeId) -> String {
        id.to_string()
    }

    fn default_access(&self) -> Access {
        Access::Block
    }

    async fn check(&self, wanted: &Provision) -> Result<ByteSize> {
        if let Some(name) = wanted.parameters.keys().next() {
            let name = name.chars().take(64).collect();
            return Err(NullError::UnknownParameter { name }.into());
        }
        let (origin, needed) = match &wanted.source {
            None => return Ok(wanted.size),
            Some(ProvisionSource::Snapshot(from)) => (from.id.to_string(), from.size),
            Some(ProvisionSource::Volume(from)) => (from.id.to_string(), from.size),
        };
        if wanted.size < needed {
            let size = wanted.size;
            return Err(NullError::SmallerThanSource { size, origin, needed }.into());
        }
        Ok(wanted.size)
    }

    async fn create(
        &self,
        wanted: &Provision,
        _progress: &dyn Progress,
    ) -> Result<Change<Provisioned>> {
        let size = self.check(wanted).await?;
        self.fits(size)?;
        self.work().await;
        Ok(Change::Made(Provisioned { handle: self.handle(&wanted.id), size, identity: None }))
    }

    async fn delete(&self, volume: &VolumeAtProvider) -> Result<Change<()>> {
        same_handle(&volume.handle, volume.id.as_str())?;
        self.work().await;
        Ok(Change::Already(()))
    }

    async fn publish(
        &self,
        volume: &VolumeAtProvider,
        _node: &NodeRecord,
        _read_only: bool,
    ) -> Result<ConnectionInfo> {
        same_handle(&volume.handle, volume.id.as_str())?;
        self.work().await;
        let mut data = Map::new();
        data.insert("volume_id".into(), json!(volume.id));
        Ok(ConnectionInfo::new(Protocol::new("NULL"), data, None))
    }

    /// Nothing can be written, so nothing has to be taken back.
    async fn unpublish(&self, volume: &VolumeAtProvider, _node: &NodeRecord) -> Result<Change<()>> {
        same_handle(&volume.handle, volume.id.as_str())?;
        self.work().await;
        Ok(Change::Already(()))
    }

    async fn health(&self, _volume: &VolumeAtProvider) -> Result<Health> {
        Ok(Health::good())
    }

    fn snapshots(&self) -> Option<&dyn Snapshots> {
        Some(self)
    }

    fn clones(&self) -> bool {
        true
    }

    fn expand(&self) -> Option<&dyn Expand> {
        Some(self)
    }

    fn capacity(&self) -> Option<&dyn HasCapacity> {
        Some(self)
    }

    fn groups(&self) -> Option<&dyn Groups> {
        Some(self)
    }
}

#[async_trait]
impl Snapshots for Nothing {
    fn snapshot_handle(&self, id: &SnapshotId) -> String {
        id.to_string()
    }

    async fn snapshot(
        &self,
        volume: &VolumeAtProvider,
        id: &SnapshotId,
        _progress: &dyn Progress,
    ) -> Result<Change<SnapshotAtProvider>> {
        same_handle(&volume.handle, volume.id.as_str())?;
        self.work().await;
        let handle = self.snapshot_handle(id);
        let (size, place) = (volume.size, volume.place.clone());
        Ok(Change::Made(SnapshotAtProvider { id: id.clone(), handle, size, place }))
    }

    async fn delete_snapshot(&self, snapshot: &SnapshotAtProvider) -> Result<Change<()>> {
        same_handle(&snapshot.handle, snapshot.id.as_str())?;
        self.work().await;
        Ok(Change::Already(()))
    }
}

#[async_trait]
impl Expand for Nothing {
    async fn expand(&self, volume: &VolumeAtProvider, size: ByteSize) -> Result<Change<ByteSize>> {
        same_handle(&volume.handle, volume.id.as_str())?;
        self.fits(size)?;
        self.work().await;
        // What the caller knows is all that is known.
        if volume.size >= size { Ok(Change::Already(volume.size)) } else { Ok(Change::Made(size)) }
    }
}

#[async_trait]
impl HasCapacity for Nothing {
    async fn capacity(&self) -> Result<Capacity> {
        let capacity = self.settings.capacity;
        Ok(Capacity {
            total: capacity,
            available: capacity,
            promised: ByteSize::ZERO,
            used: ByteSize::ZERO,
            largest_volume: capacity,
        })
    }
}

#[async_trait]
impl Groups for Nothing {
    async fn snapshot_group(
        &self,
        members: &[(VolumeAtProvider, SnapshotId)],
        progress: &dyn Progress,
    ) -> Result<Change<Vec<SnapshotAtProvider>>> {
        let mut taken = Vec::with_capacity(members.len());
        for (volume, id) in members {
            taken.push(self.snapshot(volume, id, progress).await?.into_inner());
        }
        Ok(Change::Made(taken))
    }
}

fn same_handle(handle: &str, id: &str) -> Result<(), NullError> {
    if handle == id {
        return Ok(());
    }
    let handle = handle.chars().take(64).collect();
    Err(NullError::OtherHandle { handle, id: id.to_owned() })
}
