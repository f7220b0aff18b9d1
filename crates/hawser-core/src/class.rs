//! A class: a named, configured provider.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::name::ClassName;
use crate::size::ByteSize;

/// A named, configured provider, as people see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    /// What callers ask for.
    pub name: ClassName,
    /// Which provider stands behind it.
    pub provider: String,
    /// Its settings without secrets.
    pub settings: BTreeMap<String, String>,
    /// What it can do beyond create and delete.
    pub abilities: Vec<Ability>,
    /// True for the class that is used when none is named.
    pub default: bool,
}

/// Something a provider may or may not be able to do; computed from its type, never configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ability {
    /// Points in time.
    Snapshots,
    /// A volume as a copy of another.
    Clones,
    /// Larger volumes.
    Expand,
    /// Says how much room there is.
    Capacity,
    /// Lists what the storage system holds.
    Inventory,
    /// Copies kept elsewhere.
    Backup,
    /// Snapshots of several volumes at one instant.
    Groups,
    /// Volumes that only some nodes can reach.
    Placement,
    /// Tells which of its volumes hold nothing.
    Blanks,
}

/// How much room a class has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// What the pool could hold if it were empty, with overcommit.
    pub total: ByteSize,
    /// What may still be promised to new volumes.
    pub available: ByteSize,
    /// What is promised to the volumes and snapshots that exist.
    pub promised: ByteSize,
    /// What is really used on the medium.
    pub used: ByteSize,
    /// The largest volume that can be made now.
    pub largest_volume: ByteSize,
}

impl Capacity {
    /// No room and nothing in it: where there is no storage.
    pub const NONE: Self = Self {
        total: ByteSize::ZERO,
        available: ByteSize::ZERO,
        promised: ByteSize::ZERO,
        used: ByteSize::ZERO,
        largest_volume: ByteSize::ZERO,
    };

    /// The room of two pools together. No volume is in both, so the largest one is that of one.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            total: self.total.saturating_add(other.total),
            available: self.available.saturating_add(other.available),
            promised: self.promised.saturating_add(other.promised),
            used: self.used.saturating_add(other.used),
            largest_volume: self.largest_volume.max(other.largest_volume),
        }
    }
}
