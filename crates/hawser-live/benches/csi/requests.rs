//! What claims cost the API server, from its audit log.

use std::collections::BTreeMap;

use hawser_live::cluster::Request;
use hawser_live::cluster::driver::ACCOUNT;

/// What nobody asks for because of a claim: signs of life, and what a program asks of itself.
const BACKGROUND: [&str; 4] = ["leases", "nodes", "nodes/status", "csinodes"];

/// Requests of some time, by who made them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    /// Without watches, leases and other signs of life.
    pub(crate) counted: BTreeMap<String, usize>,
    /// All of them.
    pub(crate) all: usize,
}

impl Requests {
    pub(crate) fn of(requests: &[Request]) -> Self {
        let mut counted: BTreeMap<String, usize> = BTreeMap::new();
        for request in requests.iter().filter(|request| counts(request)) {
            *counted.entry(spoken(request.who()).to_owned()).or_default() += 1;
        }
        Self { counted, all: requests.len() }
    }

    /// How many count.
    pub(crate) fn total(&self) -> usize {
        self.counted.values().sum()
    }

    /// So many for each of `claims`, and who made them.
    pub(crate) fn shown(&self, claims: usize) -> String {
        let each = |count: usize| count as f64 / claims as f64;
        let mut parts: Vec<(&str, f64)> =
            self.counted.iter().map(|(who, count)| (who.as_str(), each(*count))).collect();
        parts.sort_by(|one, other| other.1.total_cmp(&one.1));
        // What is asked once or twice in a run is no part of a claim's price worth a name.
        let parts = parts.iter().filter(|(_, count)| *count >= 0.05);
        let parts: Vec<String> = parts.map(|(who, count)| format!("{who}:{count:.1}")).collect();
        format!("{:.2}({})", each(self.total()), parts.join(","))
    }
}

/// True for what a claim may be the reason of. Asking for no object is looking at what the server has.
fn counts(request: &Request) -> bool {
    let resource = request.resource.as_str();
    request.verb != "watch" && !resource.is_empty() && !BACKGROUND.contains(&resource)
}

/// A short name of who asks.
fn spoken(who: &str) -> &str {
    match who {
        ACCOUNT => "hawser",
        "hawser-live" => "user",
        "kube-controller-manager" => "controllers",
        other => other,
    }
}
