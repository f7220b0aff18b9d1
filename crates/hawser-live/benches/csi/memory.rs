//! What a node pays for the driver: our process, which registers itself with the kubelet, while the
//! controller is another one; at rest, and when pods have come and gone.

use std::time::Duration;

use hawser_live::cluster::driver::objects::{Binding, claim, pod, pod_of, storage_class};
use hawser_live::cluster::driver::{
    Chart, Crowd, Driver, Half, Hawser, LOCAL, PODS, Records, Stamps, install, wait_gone,
    wait_leader, wait_running,
};
use hawser_live::cluster::{Cluster, Options};
use hawser_live::report::{Report, mebibytes};
use serde_json::json;

use crate::stand::CLASS;

/// The bar.
const NODE_KIB: f64 = 15.0 * 1024.0;

/// Pods that come and go.
const PODS_OF_A_NODE: usize = 5;

/// How long a process is left alone before it is looked at.
const REST: Duration = Duration::from_secs(2);

pub(crate) fn run(report: &mut Report) {
    let mut cluster = Cluster::start(Options::nodes(1));
    install(&cluster, Chart::Alone, Stamps::ByPolicy);
    let controller = Hawser::new(Half::Controller).default_settings().without_sidecars();
    let controller = Driver::start(&mut cluster, controller.records(Records::Cluster));
    let mut node = Driver::start(&mut cluster, Hawser::new(Half::Node).default_settings());
    wait_leader(&mut cluster);
    let mut look = |report: &mut Report, name: &str| {
        std::thread::sleep(REST);
        let kib = node.process().resident_kib().expect("the node runs");
        report.at_most(name, kib as f64, NODE_KIB, mebibytes);
    };
    look(report, "memory-node");
    let class = storage_class(CLASS, LOCAL, Binding::WaitForFirstConsumer, json!({}));
    cluster.kubectl().apply_json(&[class]);
    let names: Vec<String> = (0..PODS_OF_A_NODE).map(|number| format!("pod-{number}")).collect();
    for name in &names {
        let claim = claim(name, CLASS, "32Mi", json!({}));
        cluster.kubectl().apply_json(&[claim, pod(name, name)]);
    }
    names.iter().for_each(|name| drop(wait_running(&mut cluster, name)));
    Crowd::of(&cluster).delete(PODS, &names);
    names.iter().for_each(|name| wait_gone(&mut cluster, &pod_of(name)));
    look(report, "memory-node-after-pods");
    node.stop();
    controller.stop();
}
