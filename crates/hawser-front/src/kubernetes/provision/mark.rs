//! The annotation that says whose a claim is: an admission policy puts it on a claim as it is written,
//! or the controller-manager does later, with a request for each.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::bind::Turn;
use crate::kubernetes::names::{BETA_STORAGE_PROVISIONER, SELECTED_NODE, STORAGE_PROVISIONER};
use crate::kubernetes::objects::{Claim, Key, Object};
use crate::kubernetes::table::Changed;

/// The driver that a claim is marked with.
pub(super) fn mark(claim: &Claim) -> Option<&str> {
    claim.annotation(STORAGE_PROVISIONER).or(claim.annotation(BETA_STORAGE_PROVISIONER))
}

/// Claims that were seen before they were marked, and are not bound.
#[derive(Default)]
pub(super) struct MarkedLate(Mutex<HashSet<Key>>);

impl MarkedLate {
    fn lock(&self) -> MutexGuard<'_, HashSet<Key>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A claim has changed.
    pub(super) fn heard(&self, changed: &Changed<Claim>) {
        match changed.now.as_deref() {
            Some(claim) if mark(claim).is_none() => drop(self.lock().insert(changed.key.clone())),
            Some(claim) if !claim.is_bound() && !is_marked_as_chosen(changed, claim) => {}
            Some(_) | None => drop(self.lock().remove(&changed.key)),
        }
    }

    /// How long the controller-manager has to say that the volume of this claim is bound.
    pub(super) fn turn(&self, key: &Key) -> Turn {
        if self.lock().contains(key) { Turn::Long } else { Turn::Short }
    }
}

/// True when the mark came together with the node of the first pod: the policy put it there as the
/// scheduler wrote the node, which is the earliest that it does so for a claim that waits for its pod.
/// The controller-manager sees the node first.
fn is_marked_as_chosen(changed: &Changed<Claim>, now: &Claim) -> bool {
    let chosen = |claim: &Claim| claim.annotation(SELECTED_NODE).is_some();
    chosen(now)
        && changed.before.as_deref().is_some_and(|before| mark(before).is_none() && !chosen(before))
}
