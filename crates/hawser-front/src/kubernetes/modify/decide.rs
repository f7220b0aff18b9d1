//! Which class of attributes a volume is to have next.
//!
//! A claim may name another class while an earlier one is being applied. What may be at work comes
//! to its end first; what has failed for good makes way. The rules are those of the sidecar, so
//! that either can go on where the other stopped.

use crate::kubernetes::objects::{Claim, ModifyStatus};

/// The condition of a claim whose volume is being changed.
pub(super) const MODIFYING: &str = "ModifyingVolume";

/// The driver is at work, or was.
pub(super) const IN_PROGRESS: &str = "InProgress";
/// The class does not exist yet.
pub(super) const PENDING: &str = "Pending";
/// The driver cannot do it.
pub(super) const INFEASIBLE: &str = "Infeasible";

/// What is to be done about the attributes of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step<'a> {
    /// They are as they are to be.
    Nothing,
    /// Nobody wants a change any more, and none is at work.
    CallOff,
    /// What was begun has to come to its end.
    GoOn(&'a str),
    /// This class is wanted.
    Begin(&'a str),
}

/// What is to be done. `failed`: the driver has failed at the last class that it was asked for, and
/// is not at work.
pub(super) fn next(claim: &Claim, failed: bool) -> Step<'_> {
    let wanted = claim.wanted_attributes();
    let status = claim.status.modify_volume_status.as_ref();
    if status.is_none() && wanted == claim.current_attributes() {
        return Step::Nothing;
    }
    let at_work = status.filter(|status| status.status == IN_PROGRESS).and_then(target);
    match (at_work, wanted) {
        (Some(target), None) => Step::GoOn(target),
        (Some(target), Some(_)) if !failed => Step::GoOn(target),
        (Some(_) | None, Some(wanted)) => Step::Begin(wanted),
        (None, None) if claim.has_condition(MODIFYING) => Step::CallOff,
        (None, None) => Step::Nothing,
    }
}

/// The class that is being applied.
pub(super) fn target(status: &ModifyStatus) -> Option<&str> {
    status.target_volume_attributes_class_name.as_deref().filter(|name| !name.is_empty())
}
