//! The Container Storage Interface, 1.13: how Kubernetes, Nomad and others reach volumes.
//!
//! One process serves up to two drivers, each on a Unix socket of its own ([`serve`]): one whose
//! volumes are published to nodes, and one for storage on the nodes themselves, whose volumes nobody
//! publishes beforehand. The controller services are parse, one call of `Control`, answer. The node
//! service drives the node half of its own host and asks `Upstream` only for what it cannot know:
//! see `docs/adr/0013-the-csi-node-service-acts-by-itself.md`. Followed: the specification of 1.12
//! with the interface of 1.13, and what csi-sanity 5.5, the sidecars and the kubelet make of it.

mod answer;
mod call;
mod capabilities;
mod context;
mod controller;
mod crowd;
mod deadline;
mod driver;
mod endpoint;
mod error;
mod exclusive;
mod flags;
mod group;
mod identity;
mod inside;
mod listen;
mod metrics;
mod monitor;
mod node;
mod pages;
mod paths;
mod registration;
mod serve;
mod settings;
mod wire;

#[cfg(test)]
pub(crate) mod tests;

pub use endpoint::Endpoint;
pub use error::CsiError;
pub use inside::{Services, within};
pub use metrics::Metrics;
pub use monitor::serve_monitor;
pub use registration::KubeletAnswer;
pub use serve::serve;
pub use settings::{CsiDriver, CsiParts, CsiSettings, Registration};

use crate::Front;

/// The table line of this front end.
pub static FRONT: Front =
    Front { name: "csi", about: "Kubernetes and others, over the Container Storage Interface" };
