//! The object of a volume that was made.

use std::collections::BTreeMap;

use hawser_api::csi::v1::Volume as Made;
use serde_json::{Value, json};

use super::request::{Wanted, volume_name};
use crate::kubernetes::names::{
    DELETION_SECRET, DELETION_SECRET_NAMESPACE, MODIFY_SECRET, MODIFY_SECRET_NAMESPACE,
    PROVISIONED_BY, PROVISIONER_FINALIZER, PROVISIONER_IDENTITY,
};
use crate::kubernetes::objects::{
    Claim, ClaimRef, CsiSource, Key, Object, STORAGE, SecretRef, StorageClass, VolumeSpec,
};
use crate::kubernetes::{quantity, topology};

/// Kubernetes' own default.
const DELETE: &str = "Delete";

/// The object, which names its claim from the beginning: nobody else can have it.
pub(super) fn volume(claim: &Claim, class: &StorageClass, wanted: &Wanted, made: &Made) -> Value {
    let policy = class.reclaim_policy.as_deref().unwrap_or(DELETE);
    let finalizers: &[&str] = if policy == DELETE { &[PROVISIONER_FINALIZER] } else { &[] };
    let spec = VolumeSpec {
        access_modes: claim.spec.access_modes.clone(),
        capacity: BTreeMap::from([(STORAGE.to_owned(), quantity::text(size(wanted, made)))]),
        claim_ref: Some(reference(claim)),
        csi: Some(CsiSource {
            volume_handle: made.volume_id.clone(),
            volume_attributes: attributes(wanted, made),
            ..wanted.csi.clone()
        }),
        mount_options: class.mount_options.clone(),
        node_affinity: topology::affinity(&made.accessible_topology),
        persistent_volume_reclaim_policy: Some(policy.to_owned()),
        storage_class_name: Some(class.name().to_owned()),
        // A claim may name the empty class, a volume may not.
        volume_attributes_class_name: claim.wanted_attributes().map(str::to_owned),
        volume_mode: claim.spec.volume_mode.clone(),
    };
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": volume_name(claim),
            "annotations": annotations(wanted),
            "finalizers": finalizers,
        },
        "spec": spec,
    })
}

/// How large it is; as large as was asked for when the driver does not say.
pub(super) fn size(wanted: &Wanted, made: &Made) -> u64 {
    let asked = wanted.request.capacity_range.as_ref().map_or(0, |range| range.required_bytes);
    let there = if made.capacity_bytes == 0 { asked } else { made.capacity_bytes };
    u64::try_from(there).unwrap_or_default()
}

/// A claim as its volume names it.
fn reference(claim: &Claim) -> ClaimRef {
    let Key { namespace, name } = claim.key();
    ClaimRef {
        kind: "PersistentVolumeClaim".into(),
        api_version: "v1".into(),
        namespace,
        name,
        uid: claim.uid().to_owned(),
        resource_version: claim.meta_version(),
    }
}

fn attributes(wanted: &Wanted, made: &Made) -> BTreeMap<String, String> {
    let mut attributes: BTreeMap<_, _> = made.volume_context.clone().into_iter().collect();
    attributes.insert(PROVISIONER_IDENTITY.to_owned(), wanted.csi.driver.clone());
    attributes
}

fn annotations(wanted: &Wanted) -> BTreeMap<&'static str, String> {
    let name = |secret: &Option<SecretRef>| secret.clone().unwrap_or_default();
    let (deletion, modify) = (name(&wanted.deletion_secret), name(&wanted.modify_secret));
    let mut annotations = BTreeMap::from([
        (PROVISIONED_BY, wanted.csi.driver.clone()),
        // Also when there are none: deleting must not look for the class to find out.
        (DELETION_SECRET, deletion.name),
        (DELETION_SECRET_NAMESPACE, deletion.namespace),
    ]);
    if wanted.modify_secret.is_some() {
        annotations.insert(MODIFY_SECRET, modify.name);
        annotations.insert(MODIFY_SECRET_NAMESPACE, modify.namespace);
    }
    annotations
}
