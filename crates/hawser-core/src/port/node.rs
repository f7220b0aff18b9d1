//! The node port: the half that acts on one host, and how the other half finds it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::attach::{Attach, AttachRecord, Attached, Detach, Health};
use crate::change::Change;
use crate::connection::ConnectionInfo;
use crate::doctor::Finding;
use crate::error::Result;
use crate::filesystem::{FormatState, FsKind};
use crate::id::{PublicationId, VolumeId};
use crate::name::NodeId;
use crate::node::NodeRecord;
use crate::port::host::FsUsage;
use crate::port::library::Library;
use crate::port::pools::Pools;
use crate::size::ByteSize;

/// For how long a node holds a volume still for somebody who has fallen silent. Long enough for a link
/// that is made anew, short enough that programs which write survive it.
pub const FREEZE_LIMIT: Duration = Duration::from_secs(60);

/// The node half: attaches, formats, mounts and grows on one host.
///
/// Implemented in process by the engine, and across a link by the client of `hawser-api`.
///
/// # Contract
///
/// - every call is idempotent and safe to repeat after any failure or crash;
/// - the attachment record is written before the host is touched and again before the answer;
/// - a device whose identity differs from the expected one is refused by name, before format, mount,
///   grow and detach;
/// - calls for one publication exclude each other; calls for different ones do not wait.
#[async_trait]
pub trait Node: Send + Sync {
    /// What this node is and has.
    async fn describe(&self) -> Result<NodeRecord>;

    /// Brings the volume to this host.
    async fn attach(&self, work: &AttachWork) -> Result<Change<Attached>>;

    /// Takes it away. Mounts that are still there are `Kind::Busy`; not attached is `Already`.
    async fn detach(&self, publication: &PublicationId, detach: &Detach) -> Result<Change<()>>;

    /// Makes a file system in two calls, with the volume's record written in between. With
    /// [`FormatState::Never`] it only reads: `Already` says that the device is blank, anything else
    /// is refused. With [`FormatState::Started`], which the caller records after that answer and
    /// before this call, it makes the file system, over a blank device or over a torso of its own.
    /// So a device that was never seen blank is never written to.
    async fn format(&self, work: &FormatWork) -> Result<Change<()>>;

    /// Shows an attached volume in a folder.
    async fn mount(&self, work: &MountWork) -> Result<Change<()>>;

    /// Takes the volume out of a folder; not mounted there is `Already`.
    async fn unmount(
        &self,
        publication: &PublicationId,
        target: &std::path::Path,
    ) -> Result<Change<()>>;

    /// Makes host and file system see a larger volume, at least `size`; answers the device's size.
    async fn extend(&self, publication: &PublicationId, size: ByteSize) -> Result<ByteSize>;

    /// Stops writes to a mounted volume; not mounted is `Already`. They go on by themselves
    /// [`FREEZE_LIMIT`] after the last call: who wants it longer asks again in time, and learns from
    /// `Made` that it was not held without a break.
    async fn freeze(&self, publication: &PublicationId) -> Result<Change<()>>;

    /// Lets writes go on.
    async fn thaw(&self, publication: &PublicationId) -> Result<Change<()>>;

    /// Everything attached on this host, by whatever instance.
    async fn attachments(&self) -> Result<Vec<AttachRecord>>;

    /// How full a volume is, asked of the file system that is mounted at `target`, or of the device
    /// shown there; not there is `Kind::NotFound`. A server that does not answer makes this
    /// `Kind::Unavailable` within seconds.
    async fn usage(&self, publication: &PublicationId, target: &std::path::Path)
    -> Result<FsUsage>;

    /// Whether an attachment works.
    async fn health(&self, publication: &PublicationId) -> Result<Health>;

    /// Things on this host that do not belong together; with `fix` repairs what is provably ours
    /// and unused.
    async fn survey(&self, fix: bool) -> Result<Vec<Finding>>;

    /// The same host for programs that know a volume by its outside name alone, where this node
    /// serves them.
    fn library(&self) -> Option<&dyn Library> {
        None
    }

    /// The storage on this node itself, where it has classes of its own.
    fn pools(&self) -> Option<&dyn Pools> {
        None
    }
}

/// How the control half finds a node. In process there is one; across links, whoever has dialled in.
#[async_trait]
pub trait Nodes: Send + Sync {
    /// The node with this id; `Kind::Unavailable` when it is not connected.
    async fn get(&self, id: &NodeId) -> Result<Arc<dyn Node>>;

    /// The ids of all nodes that are connected.
    async fn ids(&self) -> Result<Vec<NodeId>>;
}

/// An attachment to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachWork {
    /// For which publication.
    pub publication: PublicationId,
    /// Of which volume.
    pub volume: VolumeId,
    /// How to reach it. Secrets do not travel with this type's JSON; the link sends them beside it.
    pub info: ConnectionInfo,
    /// How to attach.
    pub attach: Attach,
}

/// A file system to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormatWork {
    /// On which attachment.
    pub publication: PublicationId,
    /// Which one.
    pub fs: FsKind,
    /// With which id.
    pub uuid: Uuid,
    /// What the volume's record says: `Never` only looks, `Started` makes, `Done` is refused.
    pub state: FormatState,
}

/// A mount to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountWork {
    /// Of which attachment.
    pub publication: PublicationId,
    /// On which folder; made if it is missing.
    pub target: PathBuf,
    /// Without the right to write.
    pub read_only: bool,
    /// Options beyond the default ones.
    pub flags: Vec<String>,
    /// What must be on the device; `None` for folders, which are bound, and for devices.
    pub filesystem: Option<(FsKind, Uuid)>,
    /// The device itself is shown, in a file.
    #[serde(default)]
    pub raw: bool,
    /// This group may write everything on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
}
