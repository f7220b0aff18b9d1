//! Publications, attachments and mounts on the wire.

use std::path::{Path, PathBuf};

use hawser_core::attach::Attached;
use hawser_core::connection::ConnectionInfo;
use hawser_core::id::PublicationId;
use hawser_core::name::NodeId;
use hawser_core::publication::{MountPoint, MountRequest, Publication, PublicationState};
use hawser_core::{ByteSize, Error, Kind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::mirror::mirror;
use super::schema;
use super::volumes::IdentityView;

mirror!(
    /// Where a publication is in its life.
    #[schema(as = PublicationState)]
    PublicationStateView = PublicationState {
        /// The storage system is being told.
        Publishing,
        /// The node may use the volume.
        Published,
        /// The right is being taken back.
        Unpublishing,
    }
);

/// What a node made of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "type")]
#[schema(as = Attached)]
pub enum AttachedView {
    /// A block device.
    Block {
        /// Its node in `/dev`.
        device: String,
        /// What it says of itself.
        identity: Option<IdentityView>,
        /// How large it is.
        #[schema(schema_with = schema::size)]
        size: ByteSize,
    },
    /// A folder.
    Directory {
        /// Where.
        path: String,
    },
    /// A file in a folder.
    File {
        /// Where.
        path: String,
    },
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

impl From<Attached> for AttachedView {
    fn from(attached: Attached) -> Self {
        match attached {
            Attached::Block { device, identity, size } => {
                Self::Block { device: text(&device), identity: identity.map(Into::into), size }
            }
            Attached::Directory { path } => Self::Directory { path: text(&path) },
            Attached::File { path } => Self::File { path: text(&path) },
        }
    }
}

impl From<AttachedView> for Attached {
    fn from(view: AttachedView) -> Self {
        match view {
            AttachedView::Block { device, identity, size } => {
                Self::Block { device: device.into(), identity: identity.map(Into::into), size }
            }
            AttachedView::Directory { path } => Self::Directory { path: path.into() },
            AttachedView::File { path } => Self::File { path: path.into() },
        }
    }
}

/// A place in a node's file tree where a volume is seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = MountPoint)]
pub struct MountPointView {
    /// The folder.
    pub target: String,
    /// Without the right to write.
    pub read_only: bool,
    /// Options beyond the default ones.
    pub flags: Vec<String>,
    /// False while it is being made or removed.
    pub ready: bool,
}

impl From<MountPoint> for MountPointView {
    fn from(mount: MountPoint) -> Self {
        Self {
            target: text(&mount.target),
            read_only: mount.read_only,
            flags: mount.flags,
            ready: mount.ready,
        }
    }
}

impl From<MountPointView> for MountPoint {
    fn from(view: MountPointView) -> Self {
        Self {
            target: view.target.into(),
            read_only: view.read_only,
            flags: view.flags,
            ready: view.ready,
        }
    }
}

/// The right of one node to use a volume, and what that node made of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Publication)]
pub struct PublicationView {
    /// Its id.
    #[schema(value_type = String)]
    pub id: PublicationId,
    /// Who may use the volume.
    #[schema(value_type = String)]
    pub node: NodeId,
    /// Without the right to write.
    pub read_only: bool,
    /// What is attached and mounted is up to the node, where an orchestrator says so.
    #[serde(default)]
    pub node_led: bool,
    /// The node asked for it by itself, and gives it back by itself.
    #[serde(default)]
    pub claimed: bool,
    /// No other node has it at the same time, whatever the volume bears.
    #[serde(default)]
    pub single_node: bool,
    /// Reaching the volume takes secrets, which are not in `info`.
    #[serde(default)]
    pub needs_secrets: bool,
    /// Where it is in its life.
    pub state: PublicationStateView,
    /// How to reach the volume, without secrets; present once published.
    #[schema(schema_with = schema::connection_info)]
    pub info: Option<ConnectionInfo>,
    /// What the node has; present once attached.
    pub attached: Option<AttachedView>,
    /// Where the node shows it.
    pub mounts: Vec<MountPointView>,
}

impl From<Publication> for PublicationView {
    fn from(publication: Publication) -> Self {
        Self {
            id: publication.id,
            node: publication.node,
            read_only: publication.read_only,
            node_led: publication.node_led,
            claimed: publication.claimed,
            single_node: publication.single_node,
            needs_secrets: publication.needs_secrets,
            state: publication.state.into(),
            info: publication.info.map(|info| info.without_secrets()),
            attached: publication.attached.map(Into::into),
            mounts: publication.mounts.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<PublicationView> for Publication {
    fn from(view: PublicationView) -> Self {
        Self {
            id: view.id,
            node: view.node,
            read_only: view.read_only,
            node_led: view.node_led,
            claimed: view.claimed,
            single_node: view.single_node,
            needs_secrets: view.needs_secrets,
            state: view.state.into(),
            info: view.info,
            attached: view.attached.map(Into::into),
            mounts: view.mounts.into_iter().map(Into::into).collect(),
        }
    }
}

/// The body of `PUT …/publications/{node}` and `PUT …/attachments/{node}`; may be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishVolume {
    /// Without the right to write.
    #[serde(default)]
    pub read_only: bool,
}

/// The body of `POST /v1/volumes/{volume}/mounts`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MountVolume {
    /// On which node.
    pub node: String,
    /// On which folder; absolute, made if it is missing.
    #[schema(example = "/srv/data")]
    pub target: String,
    /// Without the right to write.
    #[serde(default)]
    pub read_only: bool,
    /// Options beyond the default ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
}

impl TryFrom<MountVolume> for MountRequest {
    type Error = Error;

    fn try_from(body: MountVolume) -> Result<Self, Error> {
        Ok(Self {
            node: body.node.parse()?,
            target: target(&body.target)?,
            read_only: body.read_only,
            flags: body.flags,
        })
    }
}

impl From<MountRequest> for MountVolume {
    fn from(request: MountRequest) -> Self {
        Self {
            node: request.node.into(),
            target: text(&request.target),
            read_only: request.read_only,
            flags: request.flags,
        }
    }
}

/// The kernel's limit for a path, `PATH_MAX`.
const LONGEST_PATH: usize = 4096;

/// A mount target from outside. `Kind::Invalid` unless it is absolute, without NUL and `..`.
pub fn target(text: &str) -> Result<PathBuf, Error> {
    let shown: String = text.chars().take(80).collect();
    let refuse = |why: &str| {
        Err(Error::new(Kind::Invalid, format!("mount target {shown:?} is not allowed: {why}")))
    };
    if text.len() >= LONGEST_PATH {
        return refuse("it is longer than a path can be");
    }
    if text.contains('\0') {
        return refuse("it contains a NUL");
    }
    if !text.starts_with('/') {
        return refuse("it must be absolute");
    }
    if text.split('/').any(|part| part == "..") {
        return refuse("it must not contain ..");
    }
    Ok(PathBuf::from(text))
}
