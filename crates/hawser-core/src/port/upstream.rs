//! The upstream port: the control half as a node sees it.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::attach::Attached;
use crate::connection::ConnectionInfo;
use crate::error::Result;
use crate::filesystem::Filesystem;
use crate::id::{PublicationId, VolumeId};
use crate::name::NodeId;
use crate::size::ByteSize;
use crate::volume::Access;

/// What a node asks of the control half, and tells it, when an orchestrator on the node's own host
/// says what is to be attached and mounted there, and not the control half.
///
/// Implemented in process by the engine, and across a link by the client of `hawser-api`.
///
/// # Contract
///
/// - every call is idempotent and may be repeated after any failure;
/// - a volume that an operation holds is `Kind::Busy`; absent is `Kind::NotFound`;
/// - a right is given by the same rules as [`Control::publish`](super::Control::publish): a second
///   node does not get a volume with one writer.
#[async_trait]
pub trait Upstream: Send + Sync {
    /// Everything this node needs to use a volume. A volume that is not published to the node is
    /// published now where the claim says so, else it is `Kind::Precondition`.
    async fn grant(&self, claim: &Claim) -> Result<Grant>;

    /// Records what the node did or found. A device of another identity than the record's is
    /// `Kind::Precondition`, and so is a file system that is to be made where the record says that
    /// there was one.
    async fn report(&self, report: &Report) -> Result<()>;

    /// Gives back a right that was made by [`Upstream::grant`]; not published is fine.
    async fn release(&self, volume: &VolumeId, node: &NodeId) -> Result<()>;
}

/// Which volume a node wants to use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Which volume.
    pub volume: VolumeId,
    /// Which node.
    pub node: NodeId,
    /// Without the right to write. Where the right is there already, it says what it is.
    pub read_only: bool,
    /// Publish it to the node if it is not: for classes whose volumes nobody publishes beforehand,
    /// because they are part of the node. A volume that other nodes reach, too, is not published so.
    pub publish: bool,
}

/// What a node needs to use a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Which volume.
    pub volume: VolumeId,
    /// The right.
    pub publication: PublicationId,
    /// Without the right to write.
    pub read_only: bool,
    /// How to reach it. Secrets do not travel with this type's JSON; the link sends them beside it.
    pub info: ConnectionInfo,
    /// What it is used as.
    pub access: Access,
    /// What must be inside, and how far making it has come.
    pub filesystem: Option<Filesystem>,
    /// How large it is.
    pub size: ByteSize,
}

/// Something that a node did or found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Of which volume.
    pub volume: VolumeId,
    /// By right of which publication.
    pub publication: PublicationId,
    /// On which node.
    pub node: NodeId,
    /// What.
    pub fact: Fact,
}

/// What a node did or found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type", content = "value")]
pub enum Fact {
    /// The volume is there, as this.
    Attached(Attached),
    /// The device was read and is blank; its file system will be made when this is answered.
    FormatBegins,
    /// The file system is made, and nothing was mounted yet.
    Formatted,
    /// The volume was taken from the node.
    Detached,
}
