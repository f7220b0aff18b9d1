//! Claims to Bound: how many a second, how soon each, and what they cost everybody.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hawser_live::cluster::Limits;
use hawser_live::cluster::driver::objects::{claim, phase};
use hawser_live::cluster::driver::{CLAIMS, Stamps};
use hawser_live::report::{Figure, Report};
use serde_json::json;

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
    /// From the first request until the last claim is bound.
    seconds: f64,
    /// For each claim, from the request for it until it is bound.
    each: Vec<f64>,
    requests: Requests,
    /// Milliseconds of a processor for each claim, by process.
    processor: BTreeMap<String, f64>,
    /// KiB, by process of the side, the driver first.
    memory: Vec<(String, u64)>,
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
                ((*name).to_owned(), self.processor.get(*name).copied().unwrap_or_default())
            })
            .collect();
        let sum = parts.iter().map(|(_, time)| time).sum();
        (sum, format!("{sum:.2}ms({})", list(&parts, "ms")))
    }

    fn memory_of(&self) -> (f64, String) {
        let parts: Vec<(String, f64)> =
            self.memory.iter().map(|(name, kib)| (name.clone(), *kib as f64 / 1024.0)).collect();
        let sum: f64 = parts.iter().map(|(_, mebibytes)| mebibytes).sum();
        (sum, format!("{sum:.1}MiB({})", list(&parts, "MiB")))
    }
}

fn measure(side: Side, limits: Limits, count: usize) -> Took {
    let mut stand = Stand::start(side, limits);
    let bound = stand.crowd.follow(CLAIMS, |claim| phase(claim) == "Bound");
    let names: Vec<String> = (0..count).map(|number| format!("claim-{number}")).collect();
    let claims = names.iter().map(|name| claim(name, CLASS, "8Mi", json!({}))).collect();
    let (requests, times) = (stand.cluster.requests().len(), stand.times());
    let begun = Instant::now();

    let asked = stand.crowd.create(CLAIMS, claims);
    let seen = bound.wait(&names, LIMIT);

    let last = seen.values().max().copied().unwrap_or(begun);
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
    };
    println!("{side:?}, limits {limits:?}: {}", took.shown().1);
    took
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
        at_least(report, &name("-with-sidecars"), beside.shown(), peer.shown(), None);
        costs(report, word, &alone, &peer);
        if limits == Limits::Raised {
            let unstamped = measure(Side::Alone(Stamps::ByControllers), limits, count);
            at_least(report, &name("-without-policy"), unstamped.shown(), peer.shown(), None);
            requests(
                report,
                "claim-requests-without-policy",
                &unstamped,
                &peer,
                REQUESTS_UNSTAMPED,
            );
        }
    }
}

/// What a claim costs the server, the processors and the memory.
fn costs(report: &mut Report, word: &str, alone: &Took, peer: &Took) {
    requests(report, &format!("claim-requests-{word}"), alone, peer, REQUESTS);
    let (ours, theirs) = (
        alone.processor_of(&["hawser"]),
        peer.processor_of(&["hostpathplugin", "csi-provisioner"]),
    );
    at_most(report, &format!("claim-processor-{word}"), ours, theirs, Some(PROCESSOR));
    let everything = |took: &Took| {
        let parts: Vec<(String, f64)> =
            took.processor.iter().map(|(name, time)| (name.clone(), *time)).collect();
        list(&parts, "ms")
    };
    let figure =
        Figure { ours: everything(alone), peer: Some(everything(peer)), ..Figure::default() };
    report.add(&format!("claim-processor-{word}-everybody"), figure);
    let name = format!("memory-controller-{word}");
    at_most(report, &name, alone.memory_of(), peer.memory_of(), Some(MEMORY));
}

fn requests(report: &mut Report, name: &str, ours: &Took, peer: &Took, bar: f64) {
    let each = |took: &Took, count: usize| count as f64 / took.claims as f64;
    let own = each(ours, ours.requests.total());
    let figure = Figure {
        ours: ours.requests.shown(ours.claims),
        peer: Some(peer.requests.shown(peer.claims)),
        ratio: Some(own / each(peer, peer.requests.total())),
        bar: Some((format!("<={bar:.2}"), own <= bar)),
    };
    report.add(name, figure);
    let figure = Figure {
        ours: format!("{:.2}", each(ours, ours.requests.all)),
        peer: Some(format!("{:.2}", each(peer, peer.requests.all))),
        ..Figure::default()
    };
    report.add(&format!("{name}-with-watches-and-leases"), figure);
}
