//! How much room there is: asked of the driver, and written down.

use hawser_api::csi::v1::{GetCapacityRequest, GetCapacityResponse, Topology};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use super::plan::Pair;
use crate::kubernetes::names::{DRIVER_LABEL, MANAGED_BY, MANAGED_BY_LABEL, RESERVED};
use crate::kubernetes::objects::{Capacity, StorageClass};
use crate::kubernetes::quantity;

/// What a driver says of a class in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    available: u64,
    largest: Option<u64>,
}

impl From<GetCapacityResponse> for Room {
    fn from(answer: GetCapacityResponse) -> Self {
        let bytes = |number: i64| u64::try_from(number).unwrap_or_default();
        Self {
            available: bytes(answer.available_capacity),
            largest: answer.maximum_volume_size.map(bytes),
        }
    }
}

/// The question. As upstream it names no capability: a class with a file system that there is not
/// shall be refused with its reason, not starved.
pub(super) fn request(pair: &Pair, class: &StorageClass) -> GetCapacityRequest {
    let own = |key: &str| !key.starts_with(RESERVED) && !key.eq_ignore_ascii_case("fstype");
    let parameters = class.parameters.clone().into_iter().filter(|(key, _)| own(key));
    GetCapacityRequest {
        volume_capabilities: Vec::new(),
        parameters: parameters.collect(),
        accessible_topology: pair.segment.clone().map(|segments| Topology { segments }),
    }
}

/// A new object.
pub(super) fn object(
    pair: &Pair,
    namespace: &str,
    room: Room,
    owner: Option<&OwnerReference>,
) -> Value {
    let mut object = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {
            "name": pair.object_name(),
            "namespace": namespace,
            "labels": { DRIVER_LABEL: pair.driver, MANAGED_BY_LABEL: MANAGED_BY },
        },
        "storageClassName": pair.class,
        "nodeTopology": { "matchLabels": pair.segment },
        "capacity": quantity::text(room.available),
    });
    if let Some(largest) = room.largest {
        object["maximumVolumeSize"] = quantity::text(largest).into();
    }
    if let Some(owner) = owner {
        object["metadata"]["ownerReferences"] = json!([owner]);
    }
    object
}

/// What is to be changed of an object; `None` when it says it already.
pub(super) fn patch(
    object: &Capacity,
    room: Room,
    owner: Option<&OwnerReference>,
) -> Option<Value> {
    let mut patch = json!({});
    let read = |text: &Option<String>| text.as_deref().and_then(quantity::bytes);
    if read(&object.capacity) != Some(room.available) {
        patch["capacity"] = quantity::text(room.available).into();
    }
    if read(&object.maximum_volume_size) != room.largest {
        patch["maximumVolumeSize"] = room.largest.map(quantity::text).into();
    }
    let owners = object.metadata.owner_references.as_deref().unwrap_or_default();
    if let Some(owner) = owner
        && !owners.iter().any(|there| there.uid == owner.uid)
    {
        // One that is controlled by somebody else goes with that: only one can be.
        let others = owners.iter().filter(|there| there.controller != Some(true));
        let all: Vec<_> = others.chain([owner]).collect();
        let revision = &object.metadata.resource_version;
        patch["metadata"] = json!({ "resourceVersion": revision, "ownerReferences": all });
    }
    (patch != json!({})).then_some(patch)
}
