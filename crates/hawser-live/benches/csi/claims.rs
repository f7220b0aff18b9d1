//! Claims to Bound: how many a second, how soon each, and what they cost everybody.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hawser_live::cluster::Limits;
use hawser_live::cluster::driver::objects::{claim, phase};
use hawser_live::cluster::driver::{CLAIMS, Stamps, VOLUMES};
use hawser_live::report::{Figure, Report};
use serde_json::{Value, json};

use crate::figures::{at_least, at_most, list, part_of};
use crate::requests::Requests;
use crate::stand::{CLASS, Side, Stand};

/// How long all of them may take: a stock cluster binds four a second.
const LIMIT: Duration = Duration::from_secs(900);

/// How long events and the like are waited for that come after a claim is bound.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// Bars: times the peer's rate with stock limits and with raised ones; requests for each claim with
/// the admission policy and without; a third of the peer's processor time, a quarter of its memory.
const STOCK: f64 = 10.0;
const RAISED: f64 = 1.25;
const REQUESTS: f64 = 7.0;
const REQUESTS_UNSTAMPED: f64 = 8.0;
const PROCESSOR: f64 = 1.0 / 3.0;
const MEMORY: f64 = 0.25;

/// What one side took.
struct Took {
    claims: usize,
    /// From the first request until the last claim and the last volume are bound.
    seconds: f64,
    /// For each claim, from the request for it until it is bound.
    each: Vec<f64>,
    requests: Requests,
    /// Milliseconds of a processor for each claim, by process.
    processor: BTreeMap<String, f64>,
    /// KiB, by process of the side, the driver first.
    memory: Vec<(String, u64)>,
    /// The same of the cluster.
    cluster_memory: Vec<(String, u64)>,
}

impl Took {
    fn rate(&self) -> f64 {
        self.claims as f64 / self.seconds
    }

    fn shown(&self) -> (f64, String) {
        let (middle, slow) = (part_of(&self.each, 0.5), part_of(&self.each, 0.99));
        (self.rate(), format!("{:.1}/s(p50:{middle:.2}s,p99:{slow:.2}s)", self.rate()))
    }

    /// Processor time for each claim of these, and their names.
    fn processor_of(&self, names: &[&str]) -> (f64, String) {
        let parts: Vec<(String, f64)> = names
            .iter()
            .map(|name| {
                let time = self.processor.get(*name);
                let time = time.unwrap_or_else(|| panic!("nothing is known of {name}"));
                ((*name).to_owned(), *time)
            })
            .collect();
        let sum = parts.iter().map(|(_, time)| time).sum();
        (sum, format!("{sum:.2}ms({})", list(&parts, "ms")))
    }

    /// Processor time for each claim of everybody.
    fn processor_of_all(&self) -> (f64, String) {
        self.processor_of(&self.processor.keys().map(String::as_str).collect::<Vec<_>>())
    }

    /// What the side has in memory.
    fn memory(&self) -> (f64, String) {
        mebibytes(&self.memory)
    }

    /// The side and the cluster.
    fn memory_of_all(&self) -> (f64, String) {
        let all: Vec<_> = self.memory.iter().chain(&self.cluster_memory).cloned().collect();
        mebibytes(&all)
    }
}

fn mebibytes(kib: &[(String, u64)]) -> (f64, String) {
    let parts: Vec<(String, f64)> =
        kib.iter().map(|(name, kib)| (name.clone(), *kib as f64 / 1024.0)).collect();
    let sum: f64 = parts.iter().map(|(_, mebibytes)| mebibytes).sum();
    (sum, format!("{sum:.1}MiB({})", list(&parts, "MiB")))
}

fn measure(side: Side, limits: Limits, count: usize) -> Took {
    let mut stand = Stand::start(side, limits);
    let is_bound = |object: &Value| phase(object) == "Bound";
    let (bound, volumes) =
        (stand.crowd.follow(CLAIMS, is_bound), stand.crowd.follow(VOLUMES, is_bound));
    let names: Vec<String> = (0..count).map(|number| format!("claim-{number}")).collect();
    let claims = names.iter().map(|name| claim(name, CLASS, "8Mi", json!({}))).collect();
    let (requests, times) = (stand.cluster.requests().len(), stand.times());
    let begun = Instant::now();

    let asked = stand.crowd.create(CLAIMS, claims);
    let seen = bound.wait(&names, LIMIT);
    let their_volumes: Vec<String> = stand.crowd.list(CLAIMS).iter().map(volume_of).collect();
    let volumes = volumes.wait(&their_volumes, LIMIT);

    let last = seen.values().chain(volumes.values()).max().copied().unwrap_or(begun);
    std::thread::sleep(AFTERWARDS);
    let after = stand.times();
    let processor = after.into_iter().map(|(name, time)| {
        let took = time.saturating_sub(times.get(&name).copied().unwrap_or_default());
        (name, took.as_secs_f64() * 1e3 / count as f64)
    });
    let each = names.iter().map(|name| (seen[name] - asked[name]).as_secs_f64());
    let took = Took {
        claims: count,
        seconds: (last - begun).as_secs_f64(),
        each: each.collect(),
        requests: Requests::of(&stand.cluster.requests()[requests..]),
        processor: processor.collect(),
        memory: stand.memory(),
        cluster_memory: stand.cluster_memory(),
    };
    println!("{side:?}, limits {limits:?}: {}", took.shown().1);
    took
}

fn volume_of(claim: &Value) -> String {
    claim["spec"]["volumeName"].as_str().expect("a claim that is bound names its volume").to_owned()
}

pub(crate) fn run(report: &mut Report, count: usize) {
    for limits in [Limits::Stock, Limits::Raised] {
        let (word, bar) = match limits {
            Limits::Stock => ("stock", STOCK),
            Limits::Raised => ("raised", RAISED),
        };
        let peer = measure(Side::Peer, limits, count);
        let beside = measure(Side::Sidecars, limits, count);
        let alone = measure(Side::Alone(Stamps::ByPolicy), limits, count);
        let name = |what: &str| format!("claims-{word}{what}");
        at_least(report, &name(""), alone.shown(), peer.shown(), Some(bar));
        costs(report, word, &alone, &peer);
        at_least(report, &name("-with-sidecars"), beside.shown(), peer.shown(), None);
        costs_with_sidecars(report, word, &beside, &peer);
        if limits == Limits::Raised {
            let unstamped = measure(Side::Alone(Stamps::ByControllers), limits, count);
            at_least(report, &name("-without-policy"), unstamped.shown(), peer.shown(), None);
            let bar = Some(REQUESTS_UNSTAMPED);
            requests(report, "claim-requests-without-policy", &unstamped, &peer, bar);
        }
    }
}

/// What a claim costs the server, the processors and the memory.
fn costs(report: &mut Report, word: &str, alone: &Took, peer: &Took) {
    requests(report, &format!("claim-requests-{word}"), alone, peer, Some(REQUESTS));
    let theirs = peer.processor_of(&["hostpathplugin", "csi-provisioner"]);
    let name = format!("claim-processor-{word}");
    at_most(report, &name, alone.processor_of(&["hawser"]), theirs, Some(PROCESSOR));
    let name = format!("memory-controller-{word}");
    at_most(report, &name, alone.memory(), peer.memory(), Some(MEMORY));
    of_everybody(report, word, alone, peer);
}

/// The same of our driver beside the peer's sidecars, for which there are no bars.
fn costs_with_sidecars(report: &mut Report, word: &str, beside: &Took, peer: &Took) {
    let word = format!("{word}-with-sidecars");
    requests(report, &format!("claim-requests-{word}"), beside, peer, None);
    of_everybody(report, &word, beside, peer);
}

/// Processor time and memory of everything that runs, the cluster's parts included.
fn of_everybody(report: &mut Report, word: &str, ours: &Took, peer: &Took) {
    let name = format!("claim-processor-{word}-everybody");
    at_most(report, &name, ours.processor_of_all(), peer.processor_of_all(), None);
    let name = format!("memory-{word}-everybody");
    at_most(report, &name, ours.memory_of_all(), peer.memory_of_all(), None);
}

fn requests(report: &mut Report, name: &str, ours: &Took, peer: &Took, bar: Option<f64>) {
    let each = |took: &Took, count: usize| count as f64 / took.claims as f64;
    let own = each(ours, ours.requests.total());
    let figure = Figure {
        ours: ours.requests.shown(ours.claims),
        peer: Some(peer.requests.shown(peer.claims)),
        ratio: Some(own / each(peer, peer.requests.total())),
        bar: bar.map(|bar| (format!("<={bar:.2}"), own <= bar)),
    };
    report.add(name, figure);
    let figure = Figure {
        ours: format!("{:.2}", each(ours, ours.requests.all)),
        peer: Some(format!("{:.2}", each(peer, peer.requests.all))),
        ..Figure::default()
    };
    report.add(&format!("{name}-with-watches-and-leases"), figure);
}
