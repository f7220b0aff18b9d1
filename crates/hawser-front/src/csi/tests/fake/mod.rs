//! Storage, control half and host in memory: small, and honest about kinds.

mod control;
mod groups;
mod node;
mod upstream;

pub(crate) use control::{FakeControl, abilities};
pub(super) use node::{FakeNode, unknown};
pub(super) use upstream::{FakeUpstream, PASSWORD};

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hawser_core::filesystem::FsKind;
use hawser_core::id::VolumeId;
use hawser_core::{ByteSize, Error, Kind, Result};
use uuid::Uuid;

/// What the storage holds: both halves see it, as they do in the world.
#[derive(Clone, Default)]
pub(crate) struct Storage(Arc<Mutex<BTreeMap<VolumeId, Disk>>>);

#[derive(Clone, Copy, Default)]
pub(super) struct Disk {
    pub(super) size: ByteSize,
    pub(super) content: Option<(FsKind, Uuid)>,
}

impl Storage {
    pub(super) fn disks(&self) -> MutexGuard<'_, BTreeMap<VolumeId, Disk>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that no driver makes.
fn not_here<T>() -> Result<T> {
    Err(Error::new(Kind::Internal, "a driver does not call this"))
}

fn missing(what: &str, name: &dyn std::fmt::Display) -> Error {
    Error::new(Kind::NotFound, format!("{what} {name} does not exist"))
}
