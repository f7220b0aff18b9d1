//! A real Kubernetes for tests, on this machine and out of its sight; and csi-sanity.
//!
//! Its programs are built once, from versions that are pinned in `lab/cluster.versions`, into a cache
//! outside of the tree ([`Place`]). A [`Cluster`] starts etcd, the API server and, as its [`Options`]
//! say, controllers and nodes with real pods, all in namespaces of their own that end with it. Tests
//! talk to it through the real [`Kubectl`]. [`driver`] starts CSI drivers beside it. [`sanity`] runs
//! csi-sanity against a driver, which needs no cluster. How to use it: `docs/cluster.md`.

mod build;
mod cgroups;
mod control;
mod debian;
pub mod driver;
mod end;
mod error;
mod image;
mod kubectl;
mod leftovers;
mod namespace;
mod node;
mod options;
mod pki;
mod place;
mod ports;
mod process;
mod program;
mod requests;
mod running;
pub mod sanity;
mod start;
mod versions;
mod waiting;
mod watch;

pub use error::{ClusterError, Result, chain};
pub use image::{Image, image};
pub use kubectl::{Kubectl, Object};
pub use node::{BUSYBOX, PAUSE, node_name};
pub use options::{Data, Limits, Options};
pub use place::Place;
pub use process::Process;
pub use program::Done;
pub use requests::{Request, by_agent};
pub use running::{Cluster, Part};

/// Progress of steps that take longer than a moment. Past libtest's capture, which shows nothing of
/// a test that passes.
pub(crate) fn say(line: &str) {
    hawser_testkit::skip::say(&format!("cluster: {line}"));
}
