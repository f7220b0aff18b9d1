//! The pools port: the storage that a node itself has, for the control half.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::attach::Health;
use crate::change::Change;
use crate::class::{Ability, Capacity};
use crate::connection::ConnectionInfo;
use crate::doctor::Finding;
use crate::error::{Classify, Kind, Result};
use crate::id::{SnapshotId, VolumeId};
use crate::name::ClassName;
use crate::node::NodeRecord;
use crate::port::Provider;
use crate::port::progress::Silent;
use crate::port::provider::{
    Blank, Held, Provision, Provisioned, SnapshotAtProvider, VolumeAtProvider,
};
use crate::size::ByteSize;

/// The classes whose storage is on one node: [`Provider`] calls as data, so that
/// they can cross a link.
///
/// # Contract
///
/// That of the provider behind each class; a class that the node does not have is
/// `Kind::Precondition`.
#[async_trait]
pub trait Pools: Send + Sync {
    /// Does one call on the storage of a class.
    async fn call(&self, class: &ClassName, call: PoolCall) -> Result<PoolAnswer>;
}

/// One call of a provider or of one of its abilities.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "call", content = "of")]
pub enum PoolCall {
    /// [`Provider::check`]
    Check(Provision),
    /// [`Provider::create`]
    Create(Provision),
    /// [`Provider::delete`]
    Delete(VolumeAtProvider),
    /// [`Provider::publish`]
    Publish {
        /// Which volume.
        volume: VolumeAtProvider,
        /// To whom.
        node: Box<NodeRecord>,
        /// Without the right to write.
        read_only: bool,
    },
    /// [`Provider::unpublish`]
    Unpublish {
        /// Which volume.
        volume: VolumeAtProvider,
        /// From whom.
        node: Box<NodeRecord>,
    },
    /// [`Provider::health`]
    Health(VolumeAtProvider),
    /// [`Snapshots::snapshot`](super::provider::Snapshots::snapshot)
    Snapshot {
        /// Of which volume.
        volume: VolumeAtProvider,
        /// As which snapshot.
        id: SnapshotId,
    },
    /// [`Snapshots::delete_snapshot`](super::provider::Snapshots::delete_snapshot)
    DeleteSnapshot(SnapshotAtProvider),
    /// [`Groups::snapshot_group`](super::provider::Groups::snapshot_group)
    SnapshotGroup(Vec<(VolumeAtProvider, SnapshotId)>),
    /// [`Expand::expand`](super::provider::Expand::expand)
    Expand {
        /// Which volume.
        volume: VolumeAtProvider,
        /// To at least so much.
        size: ByteSize,
    },
    /// [`HasCapacity::capacity`](super::provider::HasCapacity::capacity)
    Capacity,
    /// [`Inventory::list`](super::provider::Inventory::list)
    List,
    /// [`Inventory::survey`](super::provider::Inventory::survey)
    Survey {
        /// Repair what is provably dead.
        fix: bool,
    },
    /// [`Blanks::blanks`](super::provider::Blanks::blanks), of this node
    Blanks,
    /// [`Blanks::delete_blank`](super::provider::Blanks::delete_blank)
    DeleteBlank(Blank),
}

impl PoolCall {
    /// True when nobody knows what became of the storage once the link is lost during this call.
    pub fn changes(&self) -> bool {
        match self {
            Self::Create(_)
            | Self::Delete(_)
            | Self::Publish { .. }
            | Self::Unpublish { .. }
            | Self::Snapshot { .. }
            | Self::DeleteSnapshot(_)
            | Self::SnapshotGroup(_)
            | Self::Expand { .. }
            | Self::Survey { fix: true }
            | Self::DeleteBlank(_) => true,
            Self::Check(_)
            | Self::Health(_)
            | Self::Capacity
            | Self::List
            | Self::Survey { fix: false }
            | Self::Blanks => false,
        }
    }

    /// Does the call on the provider that stands behind a class. An ability that the provider lacks
    /// is `Kind::Unsupported`. How far a copy has come is not told: the answer is all that crosses.
    pub async fn run(&self, provider: &dyn Provider) -> Result<PoolAnswer> {
        let lacks = |ability| PoolError::Lacks { provider: provider.info().name, ability };
        Ok(match self {
            Self::Check(wanted) => PoolAnswer::Size(provider.check(wanted).await?),
            Self::Create(wanted) => PoolAnswer::Created(provider.create(wanted, &Silent).await?),
            Self::Delete(volume) => PoolAnswer::Gone(provider.delete(volume).await?),
            Self::Publish { volume, node, read_only } => {
                PoolAnswer::Published(provider.publish(volume, node, *read_only).await?)
            }
            Self::Unpublish { volume, node } => {
                PoolAnswer::Gone(provider.unpublish(volume, node).await?)
            }
            Self::Health(volume) => PoolAnswer::Health(provider.health(volume).await?),
            Self::Snapshot { volume, id } => {
                let snapshots = provider.snapshots().ok_or_else(|| lacks(Ability::Snapshots))?;
                PoolAnswer::Snapshot(snapshots.snapshot(volume, id, &Silent).await?)
            }
            Self::DeleteSnapshot(snapshot) => {
                let snapshots = provider.snapshots().ok_or_else(|| lacks(Ability::Snapshots))?;
                PoolAnswer::Gone(snapshots.delete_snapshot(snapshot).await?)
            }
            Self::SnapshotGroup(members) => {
                let groups = provider.groups().ok_or_else(|| lacks(Ability::Groups))?;
                PoolAnswer::Snapshots(groups.snapshot_group(members, &Silent).await?)
            }
            Self::Expand { volume, size } => {
                let expand = provider.expand().ok_or_else(|| lacks(Ability::Expand))?;
                PoolAnswer::Expanded(expand.expand(volume, *size).await?)
            }
            Self::Capacity => {
                let capacity = provider.capacity().ok_or_else(|| lacks(Ability::Capacity))?;
                PoolAnswer::Capacity(capacity.capacity().await?)
            }
            Self::List => {
                let inventory = provider.inventory().ok_or_else(|| lacks(Ability::Inventory))?;
                PoolAnswer::Held(inventory.list().await?)
            }
            Self::Survey { fix } => {
                let inventory = provider.inventory().ok_or_else(|| lacks(Ability::Inventory))?;
                PoolAnswer::Findings(inventory.survey(*fix).await?)
            }
            Self::Blanks => {
                let blanks = provider.blanks().ok_or_else(|| lacks(Ability::Blanks))?;
                let found = blanks.blanks(None).await?;
                PoolAnswer::Blanks(found.into_iter().map(|blank| blank.id).collect())
            }
            Self::DeleteBlank(blank) => {
                let blanks = provider.blanks().ok_or_else(|| lacks(Ability::Blanks))?;
                PoolAnswer::Gone(blanks.delete_blank(blank).await?)
            }
        })
    }
}

/// Why a call cannot be done on a provider.
#[derive(Debug, thiserror::Error)]
enum PoolError {
    #[error("provider {provider} cannot do what was asked: it lacks {ability:?}")]
    Lacks { provider: &'static str, ability: Ability },
}

impl Classify for PoolError {
    fn kind(&self) -> Kind {
        match self {
            Self::Lacks { .. } => Kind::Unsupported,
        }
    }
}

/// What a call answers; each call has its own kind of answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "answer", content = "value")]
pub enum PoolAnswer {
    /// Of [`PoolCall::Check`].
    Size(ByteSize),
    /// Of [`PoolCall::Create`].
    Created(Change<Provisioned>),
    /// Of [`PoolCall::Delete`], [`PoolCall::Unpublish`], [`PoolCall::DeleteSnapshot`] and
    /// [`PoolCall::DeleteBlank`].
    Gone(Change<()>),
    /// Of [`PoolCall::Publish`]. Secrets do not travel with this type's JSON; storage on the node
    /// itself has none.
    Published(ConnectionInfo),
    /// Of [`PoolCall::Health`].
    Health(Health),
    /// Of [`PoolCall::Snapshot`].
    Snapshot(Change<SnapshotAtProvider>),
    /// Of [`PoolCall::SnapshotGroup`].
    Snapshots(Change<Vec<SnapshotAtProvider>>),
    /// Of [`PoolCall::Expand`].
    Expanded(Change<ByteSize>),
    /// Of [`PoolCall::Capacity`].
    Capacity(Capacity),
    /// Of [`PoolCall::List`].
    Held(Held),
    /// Of [`PoolCall::Survey`].
    Findings(Vec<Finding>),
    /// Of [`PoolCall::Blanks`]; all of them are at this node.
    Blanks(Vec<VolumeId>),
}
