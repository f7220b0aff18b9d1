//! Volumes on the wire.

use std::collections::BTreeMap;

use hawser_core::attach::{Health, Identity};
use hawser_core::filesystem::{Filesystem, FormatState, FsKind};
use hawser_core::id::{OperationId, SnapshotId, VolumeId};
use hawser_core::name::{Alias, ClassName, Labels, Scope};
use hawser_core::place::Place;
use hawser_core::volume::{Access, Sharing, Source, SourceRef, Volume, VolumeRequest, VolumeState};
use hawser_core::{ByteSize, Error, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::mirror::mirror;
use super::publications::PublicationView;
use super::{reference, schema};

mirror!(
    /// A file system that Hawser makes, checks, mounts and grows.
    #[schema(as = FsKind)]
    FsKindView = FsKind {
        /// The default.
        Ext4,
        /// For large volumes; copies share blocks.
        Xfs,
        /// Checksums and its own snapshots inside.
        Btrfs,
    }
);

mirror!(
    /// Who may use a volume at the same time.
    #[schema(as = Sharing)]
    SharingView = Sharing {
        /// One node, which may write.
        SingleWriter,
        /// Many nodes, none of which writes.
        ManyReaders,
        /// Many nodes, all of which may write.
        ManyWriters,
    }
);

mirror!(
    /// Where a volume is in its life.
    #[schema(as = VolumeState)]
    VolumeStateView = VolumeState {
        /// Being made.
        Creating,
        /// Can be used.
        Ready,
        /// Being removed.
        Deleting,
    }
);

mirror!(
    /// How far the making of a file system has come.
    #[schema(as = FormatState)]
    FormatStateView = FormatState {
        /// Not begun.
        Never,
        /// About to run, or running.
        Started,
        /// Made.
        Done,
    }
);

mirror!(
    /// A world that has names of its own.
    #[schema(as = Scope)]
    ScopeView = Scope {
        /// This API and the command line.
        Native,
        /// CSI.
        Csi,
        /// heketi.
        Heketi,
        /// Docker's volume plugin.
        Docker,
        /// Kubernetes FlexVolume.
        Flex,
        /// A Kubernetes PersistentVolume.
        Pv,
    }
);

/// What a volume is used as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "mode", content = "fs", deny_unknown_fields)]
#[schema(as = Access)]
pub enum AccessView {
    /// A raw device.
    Block,
    /// A block device with this file system on it.
    Filesystem(FsKindView),
    /// A folder that the storage system itself serves.
    Folder,
}

impl From<Access> for AccessView {
    fn from(access: Access) -> Self {
        match access {
            Access::Block => Self::Block,
            Access::Filesystem(kind) => Self::Filesystem(kind.into()),
            Access::Folder => Self::Folder,
        }
    }
}

impl From<AccessView> for Access {
    fn from(access: AccessView) -> Self {
        match access {
            AccessView::Block => Self::Block,
            AccessView::Filesystem(kind) => Self::Filesystem(kind.into()),
            AccessView::Folder => Self::Folder,
        }
    }
}

/// What a volume was made from, by id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceView {
    /// A snapshot.
    Snapshot(SnapshotId),
    /// Another volume.
    Volume(VolumeId),
}

impl From<Source> for SourceView {
    fn from(source: Source) -> Self {
        match source {
            Source::Snapshot(id) => Self::Snapshot(id),
            Source::Volume(id) => Self::Volume(id),
        }
    }
}

impl From<SourceView> for Source {
    fn from(source: SourceView) -> Self {
        match source {
            SourceView::Snapshot(id) => Self::Snapshot(id),
            SourceView::Volume(id) => Self::Volume(id),
        }
    }
}

/// The file system inside a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Filesystem)]
pub struct FilesystemView {
    /// Which one.
    pub kind: FsKindView,
    /// Its UUID.
    #[schema(value_type = String, example = "6b1c0f1e-8f0a-4f43-9d6c-0c2f5d8f2a11")]
    pub uuid: Uuid,
    /// How far making it has come.
    pub state: FormatStateView,
}

impl From<Filesystem> for FilesystemView {
    fn from(fs: Filesystem) -> Self {
        Self { kind: fs.kind.into(), uuid: fs.uuid, state: fs.state.into() }
    }
}

impl From<FilesystemView> for Filesystem {
    fn from(fs: FilesystemView) -> Self {
        Self { kind: fs.kind.into(), uuid: fs.uuid, state: fs.state.into() }
    }
}

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Identity)]
pub struct IdentityView {
    /// Which kind of id.
    pub scheme: String,
    /// The id.
    pub value: String,
}

impl From<Identity> for IdentityView {
    fn from(identity: Identity) -> Self {
        Self { scheme: identity.scheme, value: identity.value }
    }
}

impl From<IdentityView> for Identity {
    fn from(identity: IdentityView) -> Self {
        Self { scheme: identity.scheme, value: identity.value }
    }
}

/// Whether something works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Health)]
pub struct HealthView {
    /// Nothing is wrong.
    pub healthy: bool,
    /// What is wrong, or that nothing is.
    pub message: String,
}

impl From<Health> for HealthView {
    fn from(health: Health) -> Self {
        Self { healthy: health.healthy, message: health.message }
    }
}

impl From<HealthView> for Health {
    fn from(health: HealthView) -> Self {
        Self { healthy: health.healthy, message: health.message }
    }
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Volume)]
pub struct VolumeView {
    /// Its id.
    #[schema(value_type = String, example = "vol-01k5zzzzzzzzzzzzzzzzzzzzzz")]
    pub id: VolumeId,
    /// The name to show and to use in paths.
    pub name: String,
    /// All names, the one it was made with first.
    #[schema(schema_with = schema::aliases)]
    pub aliases: Vec<Alias>,
    /// Where it lives.
    #[schema(value_type = String)]
    pub class: ClassName,
    /// How large it is.
    #[schema(schema_with = schema::size)]
    pub size: ByteSize,
    /// What it is used as.
    pub access: AccessView,
    /// Who may write at the same time.
    pub sharing: SharingView,
    /// What it was made from, by id.
    #[schema(value_type = Option<CreateSource>)]
    pub source: Option<SourceView>,
    /// Free pairs.
    #[schema(value_type = BTreeMap<String, String>)]
    pub labels: Labels,
    /// Settings for the provider, as given at creation.
    pub parameters: BTreeMap<String, String>,
    /// The provider's own name for it.
    pub handle: String,
    /// Where it can be reached from; everywhere when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    pub place: Option<Place>,
    /// Where it is in its life.
    pub state: VolumeStateView,
    /// What is inside.
    pub filesystem: Option<FilesystemView>,
    /// What its device must say of itself.
    pub identity: Option<IdentityView>,
    /// Who may use it, and what they made of that.
    pub publications: Vec<PublicationView>,
    /// The operation that holds it now.
    #[schema(value_type = Option<String>)]
    pub operation: Option<OperationId>,
    /// When it was asked for.
    #[schema(value_type = String, format = DateTime)]
    pub created: Timestamp,
}

impl From<Volume> for VolumeView {
    fn from(volume: Volume) -> Self {
        Self {
            name: volume.display_name(),
            id: volume.id,
            aliases: volume.aliases,
            class: volume.class,
            size: volume.size,
            access: volume.access.into(),
            sharing: volume.sharing.into(),
            source: volume.source.map(Into::into),
            labels: volume.labels,
            parameters: volume.parameters,
            handle: volume.handle,
            place: volume.place,
            state: volume.state.into(),
            filesystem: volume.filesystem.map(Into::into),
            identity: volume.identity.map(Into::into),
            publications: volume.publications.into_iter().map(Into::into).collect(),
            operation: volume.operation,
            created: volume.created,
        }
    }
}

impl From<VolumeView> for Volume {
    fn from(view: VolumeView) -> Self {
        Self {
            id: view.id,
            aliases: view.aliases,
            class: view.class,
            size: view.size,
            access: view.access.into(),
            sharing: view.sharing.into(),
            source: view.source.map(Into::into),
            labels: view.labels,
            parameters: view.parameters,
            handle: view.handle,
            place: view.place,
            state: view.state.into(),
            filesystem: view.filesystem.map(Into::into),
            identity: view.identity.map(Into::into),
            publications: view.publications.into_iter().map(Into::into).collect(),
            // Not told: what holds it against a volume that nobody needs is the engine's own matter.
            untouched: false,
            operation: view.operation,
            created: view.created,
        }
    }
}

/// What a new volume is made from: an id or a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Source)]
pub enum CreateSource {
    /// A snapshot.
    Snapshot(String),
    /// Another volume, as it is at that moment.
    Volume(String),
}

/// The body of `POST /v1/volumes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// What to call it; the request is idempotent by this name.
    #[schema(example = "data")]
    pub name: String,
    /// Whose name it is; this API's own when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ScopeView>,
    /// Where; the default class when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// How large; with a source it may be left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::optional_size_text, required = false)]
    pub size: Option<ByteSize>,
    /// Used as what; as the source or as the class says when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessView>,
    /// Who may write; one node when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<SharingView>,
    /// From what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<CreateSource>,
    /// Free pairs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Settings for the provider.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// From where it must be reached, the better places first: from at least one of them. Anywhere
    /// when left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<BTreeMap<String, String>>)]
    pub places: Vec<Place>,
}

impl TryFrom<CreateVolume> for VolumeRequest {
    type Error = Error;

    fn try_from(body: CreateVolume) -> Result<Self, Error> {
        let source = match body.source {
            Some(CreateSource::Snapshot(text)) => {
                Some(SourceRef::Snapshot(reference::snapshot(&text)?))
            }
            Some(CreateSource::Volume(text)) => Some(SourceRef::Volume(reference::volume(&text)?)),
            None => None,
        };
        Ok(Self {
            alias: Alias::new(body.scope.map_or(Scope::Native, Into::into), body.name)?,
            class: body.class.map(ClassName::try_from).transpose()?,
            size: body.size,
            access: body.access.map(Into::into),
            sharing: body.sharing.map(Into::into).unwrap_or_default(),
            source,
            labels: Labels::try_from(body.labels)?,
            parameters: body.parameters,
            places: body.places,
            limit: None,
        })
    }
}

impl From<VolumeRequest> for CreateVolume {
    fn from(request: VolumeRequest) -> Self {
        let scope = request.alias.scope();
        Self {
            name: request.alias.name().to_owned(),
            scope: (scope != Scope::Native).then(|| scope.into()),
            class: request.class.map(Into::into),
            size: request.size,
            access: request.access.map(Into::into),
            sharing: Some(request.sharing.into()),
            source: request.source.map(|source| match source {
                SourceRef::Snapshot(snapshot) => CreateSource::Snapshot(snapshot.to_string()),
                SourceRef::Volume(volume) => CreateSource::Volume(volume.to_string()),
            }),
            labels: request.labels.into(),
            parameters: request.parameters,
            places: request.places,
        }
    }
}

/// The body of `POST /v1/volumes/{volume}/expand`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpandVolume {
    /// How large it shall be at least.
    #[schema(schema_with = schema::size_text)]
    pub size: ByteSize,
}

/// The body of `PATCH /v1/volumes/{volume}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchVolume {
    /// Labels to add or change, or (`null`) to remove; others stay.
    pub labels: BTreeMap<String, Option<String>>,
}
