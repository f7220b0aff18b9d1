//! What a new volume shall hold.

use hawser_api::csi::v1::VolumeContentSource;
use hawser_api::csi::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};

use crate::kubernetes::error::ClusterError;
use crate::kubernetes::names::SNAPSHOT_SOURCE_FINALIZER;
use crate::kubernetes::objects::{Claim, Content, DataSource, Key, Object, Snapshot};
use crate::kubernetes::office::Office;
use crate::kubernetes::{protect, quantity};

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
    // One that was being copied when it was deleted stays until the copies are made.
    if found.is_going() && !found.has_finalizer(SNAPSHOT_SOURCE_FINALIZER) {
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
    if mode.is_some_and(|mode| mode != wanted) && !is_true(content.annotation(MODE_CHANGE)) {
        let why = format!("snapshot {name} is of a volume of another mode than {wanted}");
        return Err(ClusterError::Wrong(why));
    }
    let status = content.status.unwrap_or_default();
    if let Some(least) = status.restore_size.filter(|least| *least > size) {
        let why = format!("{size} bytes are less than the {least} of snapshot {name}");
        return Err(ClusterError::Wrong(why));
    }
    match status.snapshot_handle {
        Some(handle) if !handle.is_empty() => {
            protect::hold(office, found).await?;
            Ok(handle)
        }
        Some(_) | None => not_yet("has no handle yet".into()),
    }
}

/// What sidecars take for a yes.
fn is_true(text: Option<&str>) -> bool {
    matches!(text, Some("1" | "t" | "T" | "true" | "TRUE" | "True"))
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kubernetes::objects::Volume;
    use crate::kubernetes::tests::desk::office;
    use crate::kubernetes::tests::fake::FakeApi;
    use crate::kubernetes::tests::rig::{DRIVER, LOCAL, claim};

    const GIB: i64 = 1 << 30;

    fn claim_from(group: &str, kind: &str, name: &str) -> Value {
        let mut wanted = claim("new", "gold", DRIVER);
        wanted["spec"]["dataSource"] = json!({ "apiGroup": group, "kind": kind, "name": name });
        wanted
    }

    fn read<K: Object>(object: Value) -> K {
        serde_json::from_value(object).unwrap()
    }

    /// What a claim in `shop` gets from its snapshot `s`, after somebody has changed both objects.
    async fn restored(
        tamper: impl FnOnce(&mut Value, &mut Value),
    ) -> Result<Option<VolumeContentSource>, ClusterError> {
        let api = FakeApi::new();
        let mut snapshot = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": { "name": "s", "namespace": "shop", "uid": "uid-s" },
            "status": { "boundVolumeSnapshotContentName": "content", "readyToUse": true },
        });
        let mut content = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
            "metadata": { "name": "content" },
            "spec": {
                "driver": DRIVER,
                "volumeSnapshotRef": { "namespace": "shop", "name": "s", "uid": "uid-s" },
            },
            "status": { "snapshotHandle": "snap-1", "readyToUse": true },
        });
        tamper(&mut snapshot, &mut content);
        api.put(snapshot);
        api.put(content);
        let wanted = claim_from("snapshot.storage.k8s.io", "VolumeSnapshot", "s");
        of(&office(&api), DRIVER, &read(wanted), GIB).await
    }

    /// CVE-2019-11255: whoever may write a VolumeSnapshot names the content of somebody else in it.
    #[tokio::test]
    async fn a_content_of_somebody_else_is_no_source() {
        let fine = restored(|_, _| {}).await.unwrap().unwrap();
        let snapshot = SnapshotSource { snapshot_id: "snap-1".into() };
        assert_eq!(fine.r#type, Some(Type::Snapshot(snapshot)));

        let theirs = |key: &'static str, value: &'static str| {
            restored(move |_, content| content["spec"]["volumeSnapshotRef"][key] = json!(value))
        };
        for refused in [
            theirs("namespace", "bank").await,
            theirs("name", "t").await,
            theirs("uid", "uid-t").await,
            theirs("uid", "").await,
            restored(|_, content| {
                content["spec"].as_object_mut().unwrap().remove("volumeSnapshotRef");
            })
            .await,
            restored(|snapshot, _| snapshot["metadata"]["uid"] = json!("made-anew")).await,
            restored(|_, content| content["spec"]["driver"] = json!(LOCAL)).await,
            restored(|_, content| content["spec"]["driver"] = json!("")).await,
        ] {
            assert!(matches!(refused, Err(ClusterError::Wrong(_))), "{refused:?}");
        }
        for waits in [
            restored(|snapshot, _| snapshot["status"] = json!({ "readyToUse": true })).await,
            restored(|snapshot, _| snapshot["status"]["readyToUse"] = json!(false)).await,
            restored(|snapshot, _| {
                snapshot["status"]["boundVolumeSnapshotContentName"] = json!("absent");
            })
            .await,
            restored(|_, content| content["status"] = json!({})).await,
        ] {
            assert!(matches!(waits, Err(ClusterError::NotYet(_))), "{waits:?}");
        }
    }

    #[tokio::test]
    async fn the_mode_of_a_volume_changes_only_where_the_content_allows_it() {
        let device = |allowed: Option<&'static str>| {
            restored(move |_, content| {
                content["spec"]["sourceVolumeMode"] = json!("Block");
                content["metadata"]["annotations"][MODE_CHANGE] = json!(allowed);
            })
        };

        for yes in ["1", "t", "T", "true", "TRUE", "True"] {
            assert!(device(Some(yes)).await.is_ok(), "{yes}");
        }
        for no in [None, Some(""), Some("0"), Some("false"), Some("yes"), Some("tRUE")] {
            assert!(matches!(device(no).await, Err(ClusterError::Wrong(_))), "{no:?}");
        }
    }

    /// What a claim in `shop` gets from its claim `old`, after somebody has changed that and its
    /// volume.
    async fn cloned(
        tamper: impl FnOnce(&mut Value, &mut Value, &mut Value),
    ) -> Result<Option<VolumeContentSource>, ClusterError> {
        let mut source = claim("old", "gold", DRIVER);
        source["metadata"]["uid"] = json!("uid-old");
        source["spec"]["volumeName"] = json!("pv");
        source["status"]["phase"] = json!("Bound");
        source["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = json!("yes");
        let mut volume = json!({
            "metadata": { "name": "pv" },
            "spec": {
                "capacity": { "storage": "1Gi" },
                "claimRef": { "namespace": "shop", "name": "old", "uid": "uid-old" },
                "csi": { "driver": DRIVER, "volumeHandle": "vol-1" },
            },
        });
        let mut wanted = claim_from("", "PersistentVolumeClaim", "old");
        tamper(&mut wanted, &mut source, &mut volume);
        let office = office(&FakeApi::new());
        office.tables.claims.tell_made(read(source));
        office.tables.volumes.tell_made(read::<Volume>(volume));
        of(&office, DRIVER, &read(wanted), GIB).await
    }

    /// CVE-2019-11255: whoever may write a claim or a volume copies the data of somebody else.
    #[tokio::test]
    async fn a_volume_of_somebody_else_is_no_source() {
        let fine = cloned(|_, _, _| {}).await.unwrap().unwrap();
        assert_eq!(fine.r#type, Some(Type::Volume(VolumeSource { volume_id: "vol-1".into() })));

        for refused in [
            cloned(|_, _, volume| volume["spec"]["claimRef"]["uid"] = json!("uid-bank")).await,
            cloned(|_, _, volume| volume["spec"]["claimRef"] = json!(null)).await,
            cloned(|_, _, volume| volume["spec"]["csi"]["driver"] = json!(LOCAL)).await,
            cloned(|_, _, volume| volume["spec"]["csi"] = json!(null)).await,
            cloned(|wanted, _, _| {
                let theirs = json!({
                    "kind": "PersistentVolumeClaim", "name": "old", "namespace": "bank",
                });
                wanted["spec"]["dataSourceRef"] = theirs;
            })
            .await,
        ] {
            assert!(matches!(refused, Err(ClusterError::Wrong(_))), "{refused:?}");
        }
        for waits in [
            cloned(|_, source, _| source["metadata"]["namespace"] = json!("bank")).await,
            cloned(|_, source, _| source["status"]["phase"] = json!("Pending")).await,
            cloned(|_, source, _| source["spec"]["volumeName"] = json!(null)).await,
            cloned(|_, source, _| source["spec"]["volumeName"] = json!("absent")).await,
        ] {
            assert!(matches!(waits, Err(ClusterError::NotYet(_))), "{waits:?}");
        }
    }
}
