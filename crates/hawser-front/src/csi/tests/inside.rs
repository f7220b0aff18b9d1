//! A driver without a socket, for tests of whoever calls it in process.

use std::sync::Arc;

use super::fake::{FakeControl, FakeUpstream, Storage, abilities};
use crate::csi::{CsiDriver, CsiParts, CsiSettings, Metrics, Services};

/// The controller of a driver over a control half in memory.
pub(crate) fn services(driver: CsiDriver, control: &Arc<FakeControl>) -> Services {
    let parts = CsiParts {
        abilities: abilities(),
        control: Some(control.clone()),
        node: None,
        upstream: Arc::new(FakeUpstream::new(control.clone())),
        metrics: Metrics::new("1.2.3"),
    };
    let endpoint = "/nowhere/csi.sock".parse().expect("a path is an endpoint");
    Services::new(parts, CsiSettings::new(driver, endpoint, "n1".parse().expect("a node id")))
}

/// A control half in memory.
pub(crate) fn control() -> Arc<FakeControl> {
    Arc::new(FakeControl::new(Storage::default()))
}
