//! The whole life of volumes on a real Kubernetes: claimed, mounted, copied, grown, changed, deleted;
//! and afterwards nothing is left of them. Once for everybody who can do the sidecars' work. `make
//! e2e-cluster NAME=cluster_life` runs it, and a machine that cannot is a failure.

#[path = "cluster_life/life.rs"]
mod life;

use hawser_live::cluster::driver::{
    ATTACHED, Chart, Driver, Half, Hawser, LOCAL, Records, Sidecar, Stamps, install,
    snapshot_controller,
};
use hawser_live::cluster::{Cluster, Limits, Options};

use life::live;

/// A node, and the controller of snapshots, which is nobody's sidecar.
fn options() -> Options {
    Options::nodes(1).snapshots().program("snapshot-controller")
}

/// With these sidecars too.
fn with(sidecars: &[Sidecar]) -> Options {
    sidecars.iter().fold(options(), |options, sidecar| options.program(sidecar.program()))
}

/// One process does everything: the driver, the node, and the work of four sidecars.
fn alone(csi: &str) {
    let mut cluster = Cluster::start(options());
    install(&cluster, Chart::Alone, Stamps::ByPolicy);
    let hawser = Hawser::new(Half::Both).without_sidecars().records(Records::Cluster);
    let mut driver = Driver::start(&mut cluster, hawser);
    driver.add(snapshot_controller(&cluster, Limits::Raised));

    live(&mut cluster, &driver, csi);

    driver.stop();
    cluster.end();
}

/// Upstream's sidecars call the driver.
fn with_sidecars(csi: &str, sidecars: &[Sidecar]) {
    let mut cluster = Cluster::start(with(sidecars));
    install(&cluster, Chart::WithSidecars, Stamps::ByControllers);
    let mut driver = Driver::start(&mut cluster, Hawser::new(Half::Both));
    driver.add_sidecars(&cluster, csi, sidecars, Limits::Raised);
    driver.add(snapshot_controller(&cluster, Limits::Raised));

    live(&mut cluster, &driver, csi);

    driver.stop();
    cluster.end();
}

#[test]
fn cluster_life_of_attached_volumes_without_sidecars() {
    alone(ATTACHED);
}

#[test]
fn cluster_life_of_volumes_of_the_node_without_sidecars() {
    alone(LOCAL);
}

#[test]
fn cluster_life_of_volumes_of_the_node_with_sidecars() {
    with_sidecars(LOCAL, &Sidecar::OF_NODES);
}

#[test]
fn cluster_life_of_attached_volumes_with_sidecars() {
    with_sidecars(ATTACHED, &Sidecar::ALL);
}

/// The Deployment and the DaemonSet that users apply, in real pods.
#[test]
fn cluster_life_in_pods_of_the_manifests() {
    let mut cluster = Cluster::start(options());
    let mut driver = Driver::in_pods(&mut cluster);
    driver.add(snapshot_controller(&cluster, Limits::Raised));

    for csi in [ATTACHED, LOCAL] {
        live(&mut cluster, &driver, csi);
    }

    driver.stop();
    cluster.end();
}
