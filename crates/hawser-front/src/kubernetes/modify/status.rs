//! What claims say about a change of attributes: patches that change only what has changed.

use serde_json::{Value, json};

use super::decide::{IN_PROGRESS, INFEASIBLE, MODIFYING, PENDING, target};
use crate::kubernetes::objects::{Claim, Condition};

const ERROR: &str = "ModifyVolumeError";

/// Why a change has not come about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure<'a> {
    /// The code of the driver's answer.
    pub(super) code: &'a str,
    pub(super) why: &'a str,
    /// What becomes of it.
    pub(super) verdict: Verdict,
}

/// What a failure means for the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The driver may still be at work.
    Open,
    /// The driver is not at work.
    Final,
    /// The driver is not at work, and cannot do it.
    Infeasible,
}

/// The claim before the driver is asked; `None` when it says so already.
pub(super) fn begin(claim: &Claim, class: &str) -> Option<Value> {
    let condition = Condition::truth(MODIFYING, format!("class {class} is being applied"));
    let conditions = Condition::merged(&claim.status.conditions, &[], [condition]);
    written(claim, class, IN_PROGRESS, conditions)
}

/// The claim when the class does not exist; `None` when it says so already.
pub(super) fn pending(claim: &Claim) -> Option<Value> {
    let said = claim.status.modify_volume_status.as_ref();
    let said = said.is_some_and(|status| status.status == PENDING);
    (!said).then(|| json!({ "status": { "modifyVolumeStatus": { "status": PENDING } } }))
}

/// The claim when the driver has not applied the class; `None` when it says so already.
pub(super) fn failed(claim: &Claim, class: &str, failure: Failure<'_>) -> Option<Value> {
    let Failure { code, why, verdict } = failure;
    let (status, words) = match verdict {
        Verdict::Open => (IN_PROGRESS, format!("class {class} is still being applied")),
        Verdict::Final => (IN_PROGRESS, format!("class {class} is tried again")),
        Verdict::Infeasible => (INFEASIBLE, format!("class {class} cannot be applied")),
    };
    let error = Condition { reason: Some(code.to_owned()), ..Condition::truth(ERROR, why) };
    let new = [Condition::truth(MODIFYING, words), error];
    let conditions = Condition::merged(&claim.status.conditions, &[], new);
    written(claim, class, status, conditions)
}

fn written(claim: &Claim, class: &str, status: &str, conditions: Vec<Condition>) -> Option<Value> {
    let said = claim.status.modify_volume_status.as_ref();
    let said = said.is_some_and(|said| said.status == status && target(said) == Some(class));
    if said && conditions == claim.status.conditions {
        return None;
    }
    Some(json!({ "status": {
        "modifyVolumeStatus": { "status": status, "targetVolumeAttributesClassName": class },
        "conditions": conditions,
    } }))
}

/// The claim when its volume has the attributes of the class; `None` when it says so already.
pub(super) fn finished(claim: &Claim, class: &str) -> Option<Value> {
    if claim.status.modify_volume_status.is_none() && claim.current_attributes() == Some(class) {
        return None;
    }
    let conditions = Condition::merged(&claim.status.conditions, &[MODIFYING, ERROR], []);
    Some(json!({ "status": {
        "modifyVolumeStatus": null,
        "currentVolumeAttributesClassName": class,
        "conditions": conditions,
    } }))
}

/// The claim when nobody wants the change any more; `None` when it says so already. How the last
/// try ended stays: what the volume is like now is not known better.
pub(super) fn called_off(claim: &Claim) -> Option<Value> {
    let conditions = Condition::merged(&claim.status.conditions, &[MODIFYING], []);
    (conditions != claim.status.conditions)
        .then(|| json!({ "status": { "conditions": conditions } }))
}
