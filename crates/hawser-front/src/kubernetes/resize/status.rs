//! What claims and volumes say about an expansion: patches that change only what has changed.

use serde_json::{Value, json};

use super::decide::{Amount, NODE_PENDING, Progress};
use crate::kubernetes::names::{NODE_EXPANSION_NOT_REQUIRED, PRE_RESIZE_CAPACITY};
use crate::kubernetes::objects::{Claim, Condition, Object, STORAGE, Volume};
use crate::kubernetes::quantity;

const RESIZING: &str = "Resizing";
const CONTROLLER_ERROR: &str = "ControllerResizeError";

/// The conditions that are about expansion.
const ALL: [&str; 4] = [RESIZING, NODE_PENDING, CONTROLLER_ERROR, "NodeResizeError"];

/// The claim before the driver is asked to make its volume this large; `None` when it says so
/// already.
pub(super) fn begin(claim: &Claim, to: Amount<'_>, begun: bool) -> Option<Value> {
    let without: &[&str] = if begun { &[] } else { &ALL };
    let old = &claim.status.conditions;
    let conditions = Condition::merged(old, without, [Condition::truth(RESIZING, "")]);
    let marked = is_marked_done(claim);
    if begun && conditions == *old && !marked {
        return None;
    }
    let mut patch = json!({ "status": { "conditions": conditions } });
    if !begun {
        patch["status"]["allocatedResources"] = json!({ STORAGE: to.text });
        patch["status"]["allocatedResourceStatuses"] = json!({ STORAGE: Progress::CONTROLLER });
    }
    if marked {
        patch["metadata"]["annotations"] = json!({ NODE_EXPANSION_NOT_REQUIRED: null });
    }
    Some(patch)
}

/// The claim when a node has to go on; `None` when it has reached the size already.
pub(super) fn node_pending(claim: &Claim, reached: u64) -> Option<Value> {
    if has(claim, reached) {
        return None;
    }
    let wait = "the volume has grown; a node makes its file system grow when it is used there";
    let conditions = Condition::merged(
        &claim.status.conditions,
        &[CONTROLLER_ERROR],
        [Condition::truth(NODE_PENDING, wait)],
    );
    let mut patch = json!({ "status": {
        "conditions": conditions,
        "allocatedResourceStatuses": { STORAGE: Progress::NODE },
    } });
    if is_marked_done(claim) {
        patch["metadata"]["annotations"] = json!({ NODE_EXPANSION_NOT_REQUIRED: null });
    }
    Some(patch)
}

/// The claim when nothing is left to be done; `None` when it is like that.
pub(super) fn finished(claim: &Claim, reached: u64) -> Option<Value> {
    if has(claim, reached) && Progress::of(claim) == Progress::None {
        return None;
    }
    let conditions = Condition::merged(&claim.status.conditions, &ALL, []);
    let mut patch = json!({
        "metadata": { "annotations": { NODE_EXPANSION_NOT_REQUIRED: "true" } },
        "status": {
            "capacity": { STORAGE: quantity::text(reached) },
            "conditions": conditions,
        },
    });
    if Progress::of(claim) != Progress::None {
        patch["status"]["allocatedResourceStatuses"] = json!({ STORAGE: null });
    }
    Some(patch)
}

/// The claim when the driver has failed for good, at least this time.
pub(super) fn failed(claim: &Claim, infeasible: bool, why: &str) -> Option<Value> {
    let error = Condition::truth(CONTROLLER_ERROR, why);
    let conditions = Condition::merged(&claim.status.conditions, &[], [error]);
    let marked = !infeasible || Progress::of(claim) == Progress::ControllerInfeasible;
    if marked && conditions == claim.status.conditions {
        return None;
    }
    let mut patch = json!({ "status": { "conditions": conditions } });
    if infeasible {
        patch["status"]["allocatedResourceStatuses"] =
            json!({ STORAGE: Progress::CONTROLLER_INFEASIBLE });
    }
    Some(patch)
}

/// The volume when it is this large; `from` is what its claim has been so far. `None` when it says
/// so.
pub(super) fn volume(volume: &Volume, from: &str, reached: u64, node: bool) -> Option<Value> {
    let mut patch = json!({});
    if Amount::of(&volume.spec.capacity).map(|amount| amount.bytes) != Some(reached) {
        patch["spec"]["capacity"] = json!({ STORAGE: quantity::text(reached) });
    }
    // What is there is of an expansion that no node has ended.
    if node && volume.annotation(PRE_RESIZE_CAPACITY).is_none() {
        patch["metadata"]["annotations"] = json!({ PRE_RESIZE_CAPACITY: from });
    }
    patch.as_object().is_some_and(|patch| !patch.is_empty()).then_some(patch)
}

/// The volume when a node has done its part; `None` when it has not, or there was none.
pub(super) fn node_done(claim: &Claim, volume: &Volume) -> Option<Value> {
    volume.annotation(PRE_RESIZE_CAPACITY)?;
    let size = Amount::of(&volume.spec.capacity)?;
    has(claim, size.bytes)
        .then(|| json!({ "metadata": { "annotations": { PRE_RESIZE_CAPACITY: null } } }))
}

fn has(claim: &Claim, size: u64) -> bool {
    Amount::of(&claim.status.capacity).is_some_and(|amount| amount.bytes >= size)
}

fn is_marked_done(claim: &Claim) -> bool {
    claim.annotation(NODE_EXPANSION_NOT_REQUIRED).is_some()
}
