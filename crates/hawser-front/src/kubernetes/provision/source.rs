//! What a new volume shall hold.

use hawser_api::csi::v1::VolumeContentSource;
use hawser_api::csi::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};

use crate::kubernetes::error::ClusterError;
use crate::kubernetes::objects::{Claim, Content, DataSource, Key, Object, Snapshot};
use crate::kubernetes::office::Office;
use crate::kubernetes::quantity;

/// Lets a snapshot of a device become a file system, and the other way round.
const MODE_CHANGE: &str = "snapshot.storage.kubernetes.io/allow-volume-mode-change";

/// What a claim names as its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kubernetes) enum Named<'a> {
    Nothing,
    Snapshot(&'a str),
    Claim(&'a str),
    /// Somebody else fills volumes from such things.
    Foreign(&'a str),
}

/// What a claim names as its source. `dataSourceRef` can name more, and wins.
pub(in crate::kubernetes) fn named(claim: &Claim) -> Result<Named<'_>, ClusterError> {
    let spec = &claim.spec;
    let Some(source) = spec.data_source_ref.as_ref().or(spec.data_source.as_ref()) else {
        return Ok(Named::Nothing);
    };
    let DataSource { api_group, kind, name, namespace } = source;
    if namespace.as_ref().is_some_and(|there| !there.is_empty() && *there != claim.key().namespace)
    {
        let why = "sources in other namespaces are not supported";
        return Err(ClusterError::Wrong(why.into()));
    }
    if name.is_empty() {
        return Err(ClusterError::Wrong("the source of the claim has no name".into()));
    }
    Ok(match (api_group.as_deref().unwrap_or_default(), kind.as_str()) {
        ("snapshot.storage.k8s.io", "VolumeSnapshot") => Named::Snapshot(name),
        ("", "PersistentVolumeClaim") => Named::Claim(name),
        (_, kind) => Named::Foreign(kind),
    })
}

/// The source as the driver knows it.
pub(super) async fn of(
    office: &Office,
    driver: &str,
    claim: &Claim,
    size: i64,
) -> Result<Option<VolumeContentSource>, ClusterError> {
    let kind = match named(claim)? {
        Named::Nothing | Named::Foreign(_) => return Ok(None),
        Named::Snapshot(name) => {
            let snapshot_id = snapshot(office, driver, claim, name, size).await?;
            Type::Snapshot(SnapshotSource { snapshot_id })
        }
        Named::Claim(name) => {
            let volume_id = volume(office, driver, claim, name, size)?;
            Type::Volume(VolumeSource { volume_id })
        }
    };
    Ok(Some(VolumeContentSource { r#type: Some(kind) }))
}

async fn snapshot(
    office: &Office,
    driver: &str,
    claim: &Claim,
    name: &str,
    size: i64,
) -> Result<String, ClusterError> {
    let key = Key::within(claim.key().namespace, name);
    let not_yet = |why: String| Err(ClusterError::NotYet(format!("snapshot {name} {why}")));
    // Not watched: they are read when a volume is made from one, and then must be as they are now.
    let Some(found) = office.cluster.get::<Snapshot>(&key).await? else {
        return not_yet("does not exist".into());
    };
    if found.is_going() {
        return not_yet("is being deleted".into());
    }
    let bound = found.status.bound_volume_snapshot_content_name.as_deref();
    let Some(content) = bound.filter(|_| found.status.ready_to_use == Some(true)) else {
        return not_yet("is not ready".into());
    };
    let Some(content) = office.cluster.get::<Content>(&Key::global(content)).await? else {
        return not_yet(format!("has lost its content {content}"));
    };
    let owner = &content.spec.volume_snapshot_ref;
    if (owner.namespace.as_str(), owner.name.as_str(), owner.uid.as_str())
        != (key.namespace.as_str(), name, found.uid())
    {
        // Whoever may write one of the two objects could otherwise read others' data.
        let why = format!("the content of snapshot {name} belongs to another snapshot");
        return Err(ClusterError::Wrong(why));
    }
    if content.spec.driver != driver {
        let why = format!("snapshot {name} is of driver {}", content.spec.driver);
        return Err(ClusterError::Wrong(why));
    }
    let mode = content.spec.source_volume_mode.as_deref();
    let wanted = if claim.is_block() { "Block" } else { "Filesystem" };
    if mode.is_some_and(|mode| mode != wanted) && content.annotation(MODE_CHANGE) != Some("true") {
        let why = format!("snapshot {name} is of a volume of another mode than {wanted}");
        return Err(ClusterError::Wrong(why));
    }
    let status = content.status.unwrap_or_default();
    if let Some(least) = status.restore_size.filter(|least| *least > size) {
        let why = format!("{size} bytes are less than the {least} of snapshot {name}");
        return Err(ClusterError::Wrong(why));
    }
    match status.snapshot_handle {
        Some(handle) if !handle.is_empty() => Ok(handle),
        Some(_) | None => not_yet("has no handle yet".into()),
    }
}

fn volume(
    office: &Office,
    driver: &str,
    claim: &Claim,
    name: &str,
    size: i64,
) -> Result<String, ClusterError> {
    let key = Key::within(claim.key().namespace, name);
    let not_yet = |why: &str| Err(ClusterError::NotYet(format!("the source, claim {name}, {why}")));
    let Some(source) = office.tables.claims.get(&key) else { return not_yet("does not exist") };
    if source.is_going() {
        return not_yet("is being deleted");
    }
    let volume = source.volume_name().and_then(|volume| office.tables.volumes.named(volume));
    let Some(volume) = volume.filter(|_| source.is_bound()) else {
        return not_yet("is not bound");
    };
    let wrong = |why: String| Err(ClusterError::Wrong(format!("the source, claim {name}, {why}")));
    let owner = volume.spec.claim_ref.as_ref();
    if owner.is_none_or(|owner| owner.uid != source.uid()) {
        return wrong("is not who its volume is bound to".into());
    }
    let Some(csi) = volume.csi().filter(|csi| csi.driver == driver) else {
        return wrong(format!("has a volume of another driver than {driver}"));
    };
    if source.is_block() != claim.is_block() {
        return wrong("has another volume mode".into());
    }
    let there = volume.spec.capacity.get(crate::kubernetes::objects::STORAGE);
    let there = there.and_then(|there| quantity::bytes(there)).unwrap_or_default();
    if u64::try_from(size).unwrap_or_default() < there {
        return wrong(format!("has {there} bytes, and only {size} are asked for"));
    }
    Ok(csi.volume_handle.clone())
}
