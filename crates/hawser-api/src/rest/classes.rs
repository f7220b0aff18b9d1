//! Classes and their capacity on the wire.

use std::collections::BTreeMap;

use hawser_core::ByteSize;
use hawser_core::class::{Ability, Capacity, Class};
use hawser_core::name::ClassName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::mirror::mirror;
use super::schema;

mirror!(
    /// Something a class may or may not be able to do.
    #[schema(as = Ability)]
    AbilityView = Ability {
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
);

/// A named, configured provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Class)]
pub struct ClassView {
    /// What callers ask for.
    #[schema(value_type = String)]
    pub name: ClassName,
    /// Which provider stands behind it.
    pub provider: String,
    /// Its settings without secrets.
    pub settings: BTreeMap<String, String>,
    /// What it can do beyond create and delete.
    pub abilities: Vec<AbilityView>,
    /// True for the class that is used when none is named.
    pub default: bool,
}

impl From<Class> for ClassView {
    fn from(class: Class) -> Self {
        Self {
            name: class.name,
            provider: class.provider,
            settings: class.settings,
            abilities: class.abilities.into_iter().map(Into::into).collect(),
            default: class.default,
        }
    }
}

impl From<ClassView> for Class {
    fn from(view: ClassView) -> Self {
        Self {
            name: view.name,
            provider: view.provider,
            settings: view.settings,
            abilities: view.abilities.into_iter().map(Into::into).collect(),
            default: view.default,
        }
    }
}

/// How much room a class has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Capacity)]
pub struct CapacityView {
    /// What the pool could hold if it were empty, with overcommit.
    #[schema(schema_with = schema::size)]
    pub total: ByteSize,
    /// What may still be promised to new volumes.
    #[schema(schema_with = schema::size)]
    pub available: ByteSize,
    /// What is promised to the volumes and snapshots that exist.
    #[schema(schema_with = schema::size)]
    pub promised: ByteSize,
    /// What is really used on the medium.
    #[schema(schema_with = schema::size)]
    pub used: ByteSize,
    /// The largest volume that can be made now.
    #[schema(schema_with = schema::size)]
    pub largest_volume: ByteSize,
}

impl From<Capacity> for CapacityView {
    fn from(capacity: Capacity) -> Self {
        Self {
            total: capacity.total,
            available: capacity.available,
            promised: capacity.promised,
            used: capacity.used,
            largest_volume: capacity.largest_volume,
        }
    }
}

impl From<CapacityView> for Capacity {
    fn from(view: CapacityView) -> Self {
        Self {
            total: view.total,
            available: view.available,
            promised: view.promised,
            used: view.used,
            largest_volume: view.largest_volume,
        }
    }
}
