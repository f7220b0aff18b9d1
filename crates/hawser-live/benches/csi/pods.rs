//! A pod with a claim of its own, from the request for both until it is ready; one after the other.

use std::time::{Duration, Instant};

use hawser_live::cluster::Limits;
use hawser_live::cluster::driver::objects::{claim, has_condition, pod};
use hawser_live::cluster::driver::{CLAIMS, PODS, Stamps};
use hawser_live::report::Report;
use serde_json::{Value, json};

use crate::figures::{at_most, part_of};
use crate::stand::{CLASS, Side, Stand};

/// How long one of them may take.
const LIMIT: Duration = Duration::from_secs(180);

/// Not longer than the peer.
const BAR: f64 = 1.0;

fn is_ready(pod: &Value) -> bool {
    has_condition(pod, "Ready")
}

/// Starts pods one after the other; answers what each took. They stay.
fn start(stand: &Stand, count: usize) -> Vec<f64> {
    let ready = stand.crowd.follow(PODS, is_ready);
    let one = |number: usize| {
        let name = format!("pod-{number}");
        let asked = stand.crowd.create(CLAIMS, vec![claim(&name, CLASS, "32Mi", json!({}))]);
        stand.crowd.create(PODS, vec![pod(&name, &name)]);
        let seen = ready.wait(std::slice::from_ref(&name), LIMIT);
        (seen[&name] - asked[&name]).as_secs_f64()
    };
    (0..count).map(one).collect()
}

/// Deletes them, and waits until they and their mounts are gone.
fn end(stand: &Stand, count: usize) {
    let names: Vec<String> = (0..count).map(|number| format!("pod-{number}")).collect();
    stand.crowd.delete(PODS, &names);
    let begun = Instant::now();
    while !stand.crowd.list(PODS).is_empty() || !stand.cluster.volume_traces().is_empty() {
        let traces = stand.cluster.volume_traces();
        assert!(begun.elapsed() < LIMIT, "after {LIMIT:?} there is still {traces:#?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn measure(side: Side, count: usize) -> (f64, String) {
    let stand = Stand::start(side, Limits::Stock);
    let each = start(&stand, count);
    end(&stand, count);
    let middle = part_of(&each, 0.5);
    (middle, format!("{middle:.2}s(p99:{:.2}s)", part_of(&each, 0.99)))
}

pub(crate) fn run(report: &mut Report, count: usize) {
    let peer = measure(Side::Peer, count);
    let ours = measure(Side::Alone(Stamps::ByPolicy), count);
    at_most(report, &format!("pod-ready-p50-of-{count}"), ours, peer, Some(BAR));
}
