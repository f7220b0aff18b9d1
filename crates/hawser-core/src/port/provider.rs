//! The provider port: one storage system.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::attach::Health;
use crate::attach::Identity;
use crate::change::Change;
use crate::class::{Ability, Capacity};
use crate::connection::ConnectionInfo;
use crate::doctor::Finding;
use crate::error::Result;
use crate::filesystem::FsKind;
use crate::id::{SnapshotId, VolumeId};
use crate::node::NodeRecord;
use crate::place::Place;
use crate::port::connector::Maturity;
use crate::port::progress::Progress;
use crate::size::ByteSize;
use crate::volume::Access;

/// Makes, removes and hands out volumes of one storage system.
///
/// # Contract
///
/// Every implementation passes `provider_contract!`:
/// - `create` is idempotent by [`Provision::id`]: repeated after any failure or crash it answers the
///   same volume, never a second one;
/// - a failed `create` with `Outcome::Nothing` or `RolledBack` leaves nothing behind;
/// - `delete` of something absent is `Change::Already`, and removes what a `create` that was cut
///   off may have left;
/// - `unpublish` answers only when the node can no longer write;
/// - a full pool is refused with `Kind::NoSpace` before anything is made;
/// - every future may be dropped at any `.await`; every call is safe afterwards.
///
/// Abilities are discovered by type: a provider that can take snapshots answers `Some(self)` from
/// [`Provider::snapshots`]. Capabilities in CSI, fields in REST and tables in the docs are computed
/// from that.
#[async_trait]
pub trait Provider: Send + Sync {
    /// What it says of itself.
    fn info(&self) -> &'static ProviderInfo;

    /// The handle that `create` will give to this volume: a function of the id alone, so that the
    /// journal can name what will be made.
    fn handle(&self, id: &VolumeId) -> String;

    /// What a volume is used as when nobody says.
    fn default_access(&self) -> Access;

    /// Refuses parameters and combinations that it cannot make, before anything is recorded, and
    /// answers the size that the volume will really have.
    async fn check(&self, wanted: &Provision) -> Result<ByteSize>;

    /// Makes a volume, empty or as a copy.
    async fn create(
        &self,
        wanted: &Provision,
        progress: &dyn Progress,
    ) -> Result<Change<Provisioned>>;

    /// Removes a volume and all that `create` may have left of it.
    async fn delete(&self, volume: &VolumeAtProvider) -> Result<Change<()>>;

    /// Lets a node use a volume and says how to reach it.
    async fn publish(
        &self,
        volume: &VolumeAtProvider,
        node: &NodeRecord,
        read_only: bool,
    ) -> Result<ConnectionInfo>;

    /// Takes the right back. `node` is all that is known of it; the node itself may be gone.
    async fn unpublish(&self, volume: &VolumeAtProvider, node: &NodeRecord) -> Result<Change<()>>;

    /// Whether the storage behind a volume works.
    async fn health(&self, volume: &VolumeAtProvider) -> Result<Health>;

    /// Points in time.
    fn snapshots(&self) -> Option<&dyn Snapshots> {
        None
    }

    /// True when [`Provision::source`] may be a volume.
    fn clones(&self) -> bool {
        false
    }

    /// Larger volumes.
    fn expand(&self) -> Option<&dyn Expand> {
        None
    }

    /// How much room there is.
    fn capacity(&self) -> Option<&dyn HasCapacity> {
        None
    }

    /// What the storage holds.
    fn inventory(&self) -> Option<&dyn Inventory> {
        None
    }

    /// Copies kept elsewhere.
    fn backup(&self) -> Option<&dyn Backup> {
        None
    }

    /// Snapshots of several volumes at one instant.
    fn groups(&self) -> Option<&dyn Groups> {
        None
    }

    /// Volumes that only some nodes can reach.
    fn placement(&self) -> Option<&dyn Placement> {
        None
    }

    /// Volumes that hold nothing.
    fn blanks(&self) -> Option<&dyn Blanks> {
        None
    }

    /// What it can do, computed from the methods above.
    fn abilities(&self) -> Vec<Ability> {
        [
            (self.snapshots().is_some(), Ability::Snapshots),
            (self.clones(), Ability::Clones),
            (self.expand().is_some(), Ability::Expand),
            (self.capacity().is_some(), Ability::Capacity),
            (self.inventory().is_some(), Ability::Inventory),
            (self.backup().is_some(), Ability::Backup),
            (self.groups().is_some(), Ability::Groups),
            (self.blanks().is_some(), Ability::Blanks),
            (self.placement().is_some(), Ability::Placement),
        ]
        .into_iter()
        .filter_map(|(can, ability)| can.then_some(ability))
        .collect()
    }
}

/// Points in time.
///
/// # Contract
///
/// `snapshot` is idempotent by id; the content is that of one instant between call and answer (the
/// caller freezes a mounted file system around it; see [`VolumeAtProvider::in_use`] for what cannot
/// be frozen). `delete_snapshot` of something absent is
/// `Change::Already`. Deleting a volume keeps its snapshots usable.
#[async_trait]
pub trait Snapshots: Send + Sync {
    /// The handle that `snapshot` will give: a function of the id alone.
    fn snapshot_handle(&self, id: &SnapshotId) -> String;

    /// Takes a snapshot.
    async fn snapshot(
        &self,
        volume: &VolumeAtProvider,
        id: &SnapshotId,
        progress: &dyn Progress,
    ) -> Result<Change<SnapshotAtProvider>>;

    /// Removes a snapshot and all that `snapshot` may have left of it.
    async fn delete_snapshot(&self, snapshot: &SnapshotAtProvider) -> Result<Change<()>>;
}

/// Larger volumes.
#[async_trait]
pub trait Expand: Send + Sync {
    /// Makes the volume at least so large and answers the new size. A volume that already is
    /// answers `Already`. Never shrinks.
    async fn expand(&self, volume: &VolumeAtProvider, size: ByteSize) -> Result<Change<ByteSize>>;
}

/// How much room there is.
#[async_trait]
pub trait HasCapacity: Send + Sync {
    /// Room now.
    async fn capacity(&self) -> Result<Capacity>;
}

/// What the storage holds.
#[async_trait]
pub trait Inventory: Send + Sync {
    /// The handles of all volumes and snapshots that it made.
    async fn list(&self) -> Result<Held>;

    /// Leftovers that belong to nothing; with `fix` removes those that are provably dead.
    async fn survey(&self, fix: bool) -> Result<Vec<Finding>>;
}

/// Copies kept elsewhere that can be restored into any class.
#[async_trait]
pub trait Backup: Send + Sync {
    /// A point-in-time reader over the content of a snapshot, as a path that can be opened.
    async fn open_snapshot(&self, snapshot: &SnapshotAtProvider) -> Result<std::path::PathBuf>;
}

/// Snapshots of several volumes at one instant. Who has this has [`Snapshots`] too: members are
/// removed one by one with [`Snapshots::delete_snapshot`].
///
/// # Contract
///
/// `snapshot_group` is idempotent by ids: where all members are there, it answers them as they are.
/// Where only some are, an earlier call was cut off, and the volumes may have changed since: all are
/// taken anew, so that no two members are of different calls. A call that failed with
/// `Outcome::Nothing` or `RolledBack` leaves no member. The caller holds the volumes still around
/// the call, from before the first is cut until after the last.
#[async_trait]
pub trait Groups: Send + Sync {
    /// Takes one snapshot of each volume, all of the same instant, in the order of `members`.
    async fn snapshot_group(
        &self,
        members: &[(VolumeAtProvider, SnapshotId)],
        progress: &dyn Progress,
    ) -> Result<Change<Vec<SnapshotAtProvider>>>;
}

/// Volumes that only some nodes can reach.
///
/// # Contract
///
/// A volume stays at the place that was chosen for it, and so do its snapshots and copies. Where a
/// place has no room, another is taken; where none has, it is `Kind::NoSpace`.
#[async_trait]
pub trait Placement: Send + Sync {
    /// Chooses where a volume will be made: reached from one of `wanted`, the earlier the better;
    /// anywhere when that is empty. Repeated, it may choose another; the caller records the first.
    async fn place(&self, wanted: &Provision, places: &[Place]) -> Result<Place>;

    /// Room at one place; nothing where no volume can be made.
    async fn capacity_at(&self, place: &Place) -> Result<Capacity>;
}

/// Volumes that hold nothing: what a creation left that was cut off before anybody recorded it can be
/// told from what somebody lost the record of.
///
/// # Contract
///
/// A volume is blank only when it is certain that it holds nothing: a new one is, as long as nobody
/// wrote into it. Whatever cannot be told is not blank. So `delete_blank` loses nothing, whoever's
/// volume it is.
#[async_trait]
pub trait Blanks: Send + Sync {
    /// The volumes that hold nothing, at one place or at all that can be asked now.
    async fn blanks(&self, at: Option<&Place>) -> Result<Vec<Blank>>;

    /// Removes a volume, and what a `create` of it that was cut off may have left, unless it holds
    /// something by now, which is `Kind::Precondition`. Absent is `Change::Already`.
    async fn delete_blank(&self, blank: &Blank) -> Result<Change<()>>;
}

/// A volume that holds nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Blank {
    /// Its id.
    pub id: VolumeId,
    /// Where it is.
    pub place: Option<Place>,
}

/// What a provider says of itself.
#[derive(Clone, Copy, Debug)]
pub struct ProviderInfo {
    /// The word in the settings: `provider = "local"`.
    pub name: &'static str,
    /// How well it is supported.
    pub maturity: Maturity,
    /// What it is, in one line.
    pub summary: &'static str,
}

/// A volume that is to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provision {
    /// Its id.
    pub id: VolumeId,
    /// How large it must be at least.
    pub size: ByteSize,
    /// Used as what.
    pub access: Access,
    /// A copy of what.
    pub source: Option<ProvisionSource>,
    /// Settings of the request.
    pub parameters: BTreeMap<String, String>,
    /// Where, once it is decided.
    pub place: Option<Place>,
}

/// What a new volume is a copy of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProvisionSource {
    /// A snapshot of the same class.
    Snapshot(SnapshotAtProvider),
    /// A volume of the same class; the caller holds it still, or says that it cannot
    /// ([`VolumeAtProvider::in_use`]).
    Volume(VolumeAtProvider),
}

/// A volume that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provisioned {
    /// The provider's own name.
    pub handle: String,
    /// How large it really is.
    pub size: ByteSize,
    /// What its device will say of itself, where that is known.
    pub identity: Option<Identity>,
}

/// A volume as its provider knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeAtProvider {
    /// Hawser's id.
    pub id: VolumeId,
    /// The provider's own name.
    pub handle: String,
    /// How large it is.
    pub size: ByteSize,
    /// Used as what.
    pub access: Access,
    /// Settings of the request that made it.
    pub parameters: BTreeMap<String, String>,
    /// Where it is.
    pub place: Option<Place>,
    /// Somebody may write to it, and nobody can hold that still: a copy of it is of one instant, or
    /// refused with `Kind::Precondition`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_use: bool,
}

/// A snapshot as its provider knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotAtProvider {
    /// Hawser's id.
    pub id: SnapshotId,
    /// The provider's own name.
    pub handle: String,
    /// The size of what was snapshotted.
    pub size: ByteSize,
    /// Where it is.
    pub place: Option<Place>,
}

/// What a storage system holds of ours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Handles of volumes.
    pub volumes: Vec<String>,
    /// Handles of snapshots.
    pub snapshots: Vec<String>,
}

/// The file system that an access asks for.
pub fn filesystem_of(access: Access) -> Option<FsKind> {
    match access {
        Access::Filesystem(kind) => Some(kind),
        Access::Block | Access::Folder => None,
    }
}
