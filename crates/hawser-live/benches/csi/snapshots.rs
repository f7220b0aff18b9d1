//! Many snapshots of one claim until all are ready.

use std::time::{Duration, Instant};

use hawser_live::cluster::Limits;
use hawser_live::cluster::driver::objects::{claim, snapshot, snapshot_class};
use hawser_live::cluster::driver::{SNAPSHOTS, Stamps, wait_bound};
use hawser_live::report::Report;
use serde_json::json;

use crate::figures::{at_most, part_of};
use crate::stand::{CLASS, Side, Stand};

/// How long all of them may take: with stock limits it is a minute and a half.
const LIMIT: Duration = Duration::from_secs(900);

/// Not longer than the peer.
const BAR: f64 = 1.0;

fn measure(side: Side, limits: Limits, count: usize) -> (f64, String) {
    let mut stand = Stand::start(side, limits);
    let class = snapshot_class(CLASS, stand.driver());
    stand.cluster.kubectl().apply_json(&[class, claim("source", CLASS, "32Mi", json!({}))]);
    wait_bound(&mut stand.cluster, "source");
    let ready = stand.crowd.follow(SNAPSHOTS, |found| found["status"]["readyToUse"] == true);
    let names: Vec<String> = (0..count).map(|number| format!("snapshot-{number}")).collect();
    let all = names.iter().map(|name| snapshot(name, CLASS, "source")).collect();
    let begun = Instant::now();

    let asked = stand.crowd.create(SNAPSHOTS, all);
    let seen = ready.wait(&names, LIMIT);

    let last = seen.values().max().copied().unwrap_or(begun);
    let seconds = (last - begun).as_secs_f64();
    let each: Vec<f64> =
        names.iter().map(|name| (seen[name] - asked[name]).as_secs_f64()).collect();
    (seconds, format!("{seconds:.1}s(p50:{:.1}s)", part_of(&each, 0.5)))
}

pub(crate) fn run(report: &mut Report, count: usize) {
    for (word, limits) in [("stock", Limits::Stock), ("raised", Limits::Raised)] {
        let peer = measure(Side::Peer, limits, count);
        let ours = measure(Side::Alone(Stamps::ByPolicy), limits, count);
        at_most(report, &format!("snapshots-{count}-{word}"), ours, peer, Some(BAR));
    }
}
