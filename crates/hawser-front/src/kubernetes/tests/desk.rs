//! What controllers share, for tests of one of them alone.

use std::sync::Arc;

use super::fake::FakeApi;
use crate::csi::CsiDriver;
use crate::csi::tests::inside::{control, services};
use crate::kubernetes::cluster::Cluster;
use crate::kubernetes::events::Events;
use crate::kubernetes::office::{Office, Tables};

/// Both drivers over a control half in memory, and a cluster of which nothing is known yet.
pub(in crate::kubernetes) fn office(api: &FakeApi) -> Arc<Office> {
    crate::logged::keep();
    let cluster = Arc::new(Cluster::new(api.client()));
    let (events, _) = Events::new(cluster.clone(), "test".into(), false);
    let control = control();
    let drivers = [CsiDriver::Published, CsiDriver::Local];
    Arc::new(Office {
        cluster,
        tables: Tables::default(),
        events,
        drivers: drivers.map(|driver| services(driver, &control)).to_vec(),
        namespace: "hawser-system".into(),
    })
}
