//! Kubernetes without sidecars: one process does for our drivers what external-provisioner,
//! -attacher, -resizer and -snapshotter do for others, and binds claims itself.
//!
//! Objects, names, annotations and finalizers are those of the sidecars, so that one can change over
//! to them and back at any time. The drivers are called in process, by the same calls of CSI that
//! sidecars make. One watch of each kind of object keeps one table; what changes puts keys
//! into the queue of each controller that cares, and a controller compares what an object
//! asks for with what there is. Why it is made like this:
//! `docs/adr/0014-one-controller-instead-of-sidecars.md`.

mod attach;
mod bound;
mod capability;
mod capacity;
mod cluster;
mod error;
mod events;
mod lease;
mod modify;
mod names;
mod objects;
mod office;
mod orphans;
mod protect;
mod provision;
mod quantity;
mod queue;
mod remove;
mod resize;
mod run;
mod secrets;
mod snapshots;
mod table;
mod taint;
#[cfg(test)]
mod tests;
mod topology;
mod verdicts;
mod waiters;

pub use error::ClusterError;
pub use kube::Client;
pub use lease::Leadership;
pub use run::{KubernetesParts, KubernetesSettings, run};

use crate::Front;

/// The table line of this front end.
pub static FRONT: Front =
    Front { name: "kubernetes", about: "claims, attachments and snapshots of a cluster" };
