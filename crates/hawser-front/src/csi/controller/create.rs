//! CreateVolume.

use hawser_api::csi::v1::volume_content_source::Type;
use hawser_api::csi::v1::{CreateVolumeRequest, CreateVolumeResponse, VolumeContentSource};
use hawser_core::name::{Alias, ClassName, Labels, Scope};
use hawser_core::port::control::Wait;
use hawser_core::snapshot::SnapshotRef;
use hawser_core::volume::{Access, SourceRef, Volume, VolumeRef, VolumeRequest};
use hawser_core::{ByteSize, Change, Error, Result};
use tracing::Span;

use super::{ControllerService, by_id};
use crate::csi::answer::{done, supported};
use crate::csi::deadline::Deadline;
use crate::csi::error::{CsiError, required};
use crate::csi::wire::{self, Parameters, Range};

/// For callers that have no wish.
const DEFAULT_SIZE: ByteSize = ByteSize::gib(1);

/// Makes a volume.
pub(super) async fn create(
    service: ControllerService,
    request: CreateVolumeRequest,
    deadline: Deadline,
) -> Result<CreateVolumeResponse> {
    let wanted = Wanted::read(request)?;
    wanted.check(&service).await?;
    let reply = service.control.create_volume(wanted.request.clone(), deadline.work).await;
    let change = done(reply.map_err(supported)?)?;
    Span::current().record("volume.id", change.get().id.as_str());
    if let Some(refusal) = wanted.refuses(&change) {
        if change.is_made() {
            take_back(&service, change.get(), deadline.work).await?;
        }
        return Err(refusal.into());
    }
    let volume = wire::volume(change.get());
    Ok(CreateVolumeResponse { volume: Some(volume) })
}

/// A request that was read, and what it says beyond what the control port takes.
struct Wanted {
    request: VolumeRequest,
    range: Range,
    block: bool,
    class: Option<String>,
}

impl Wanted {
    /// Checks everything that can be checked without looking, in the order of the specification.
    fn read(request: CreateVolumeRequest) -> Result<Self> {
        required("name", &request.name)?;
        let alias = Alias::new(Scope::Csi, request.name)?;
        let together = wire::of_many(request.volume_capabilities)?;
        let range = Range::read(request.capacity_range)?;
        let parameters = Parameters::read(request.parameters);
        let changed = wire::mutable_labels(request.mutable_parameters)?;
        let mut labels = parameters.labels;
        labels.extend(changed.iter().map(|(key, value)| (key.to_owned(), value.to_owned())));
        let places = wire::places(request.accessibility_requirements.as_ref())?;
        let source = request.volume_content_source.map(source).transpose()?;
        let size = match (&source, range.required) {
            // As large as the source.
            (Some(_), None) => None,
            (_, _) => Some(range.size_or(DEFAULT_SIZE)),
        };
        let class = match &parameters.class {
            None => None,
            Some(name) => Some(name.parse().map_err(Error::from)?),
        };
        let request = VolumeRequest {
            alias,
            class,
            size,
            access: together.access,
            sharing: together.sharing,
            source,
            labels: Labels::try_from(labels)?,
            parameters: parameters.rest,
            places,
            limit: range.limit,
        };
        Ok(Self { request, range, block: together.block, class: parameters.class })
    }

    /// Refuses a class that is not there or is for the other driver, and a source that holds something
    /// else than is asked for. Without a class, a copy stays in that of its source.
    async fn check(&self, service: &ControllerService) -> Result<()> {
        let origin = self.origin(service).await;
        if let Some((Access::Block, _)) = origin.as_ref().filter(|_| !self.block) {
            let why = "the source is a raw device, and a file system is asked for";
            return Err(CsiError::Mixed { why }.into());
        }
        let class = match (&self.class, &origin, &self.request.source) {
            (Some(class), ..) => Some(class.as_str()),
            (None, Some((_, class)), _) => Some(class.as_str()),
            (None, None, None) => None,
            // The engine says whether a source that is gone matters: what exists outlives it.
            (None, None, Some(_)) => return Ok(()),
        };
        let class = service.class(class).await??;
        Ok(service.check_driver(&class)?)
    }

    /// What the source is used as, and its class.
    async fn origin(&self, service: &ControllerService) -> Option<(Access, ClassName)> {
        match self.request.source.as_ref()? {
            SourceRef::Snapshot(snapshot) => {
                let found = service.control.get_snapshot(snapshot).await.ok()?;
                Some((found.access, found.class))
            }
            SourceRef::Volume(volume) => {
                let found = service.control.get_volume(volume).await.ok()?;
                Some((found.access, found.class))
            }
        }
    }

    /// Why what came of it is not what was asked for.
    fn refuses(&self, change: &Change<Volume>) -> Option<CsiError> {
        let volume = change.get();
        if (volume.access == Access::Block) != self.block {
            let (class, there) = (&volume.class, volume.access);
            return Some(match change {
                Change::Made(_) => {
                    let why = format!("class {class} makes volumes used as {there}");
                    CsiError::Unfit { volume: volume.id.clone(), why }
                }
                Change::Already(_) => CsiError::UsedOtherwise { volume: volume.id.clone(), there },
            });
        }
        let limit = self.range.limit.filter(|limit| volume.size > *limit)?;
        let (there, required) = (volume.size, self.range.size_or(DEFAULT_SIZE));
        Some(match change {
            Change::Made(_) => CsiError::AboveLimit { required, limit, there },
            Change::Already(_) => CsiError::LargerThere { volume: volume.id.clone(), there, limit },
        })
    }
}

/// Removes a volume that nobody was told of.
async fn take_back(service: &ControllerService, volume: &Volume, wait: Wait) -> Result<()> {
    let reply = service.control.delete_volume(&by_id(&volume.id), wait).await?;
    done(reply).map(drop)
}

/// What the volume is made from. A text that is no id names nothing that exists.
fn source(given: VolumeContentSource) -> Result<SourceRef, CsiError> {
    match given.r#type {
        None => Err(CsiError::Missing { field: "volume_content_source.type" }),
        Some(Type::Snapshot(source)) => {
            required("volume_content_source.snapshot.snapshot_id", &source.snapshot_id)?;
            let id = wire::snapshot_id(&source.snapshot_id)?;
            Ok(SourceRef::Snapshot(SnapshotRef::Id(id)))
        }
        Some(Type::Volume(source)) => {
            required("volume_content_source.volume.volume_id", &source.volume_id)?;
            let id = wire::volume_id(&source.volume_id)?;
            Ok(SourceRef::Volume(VolumeRef::Id(id)))
        }
    }
}
