//! The Container Storage Interface 1.13, and how a kubelet gets to know a driver: messages, servers
//! and clients, generated from `proto/` by `cargo xtask proto` and checked in.
//!
//! Maps are ordered. Messages that carry secrets have no `Debug`, so that nothing can print one.

/// `csi.v1`: Identity, Controller, GroupController, SnapshotMetadata, Node.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod v1 {
    include!("generated/csi.v1.rs");
}

/// The kubelet's registration of plug-ins.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod registration {
    include!("generated/pluginregistration.rs");
}
