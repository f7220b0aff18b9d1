//! Claims, snapshots and pods on a real Kubernetes, against csi-driver-host-path and upstream's
//! sidecars: `make bench-csi`.
//!
//! Each side has a cluster of its own, all of one version, on this machine, one after the other: with
//! the limits that Kubernetes and the sidecars ship, and with all of them raised. Ours is the shipped
//! program without settings, which does the sidecars' work itself and keeps its records in the cluster,
//! or leaves that work to the same sidecars. Each figure is one line, `bench NAME: ours=… peer=…
//! ratio=… bar=… ok|short`, as it is found and once more at the end; one that is short is a figure, not
//! a failure.

mod claims;
mod figures;
mod memory;
mod pods;
mod requests;
mod sanity;
mod snapshots;
mod stand;

use std::process::ExitCode;

use hawser_live::process::binary;
use hawser_live::report::{self, Report};

/// The parts of the bench; `cargo bench … -- PART` runs one alone.
const PARTS: [&str; 5] = ["claims", "snapshots", "pods", "memory", "sanity"];

/// How much of everything is made.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) claims: usize,
    pub(crate) snapshots: usize,
    pub(crate) pods: usize,
    pub(crate) sanity_runs: usize,
}

const WHOLE: Sizes = Sizes { claims: 500, snapshots: 50, pods: 20, sanity_runs: 3 };

/// To see that it runs.
const QUICK: Sizes = Sizes { claims: 20, snapshots: 5, pods: 3, sanity_runs: 1 };

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` runs this with `--test`, to see that it starts; it does.
    if args.iter().any(|arg| arg == "--test") {
        return ExitCode::SUCCESS;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("this bench needs root: it runs a Kubernetes with pods");
        return ExitCode::FAILURE;
    }
    let asked: Vec<&str> =
        args.iter().map(String::as_str).filter(|arg| !arg.starts_with("--")).collect();
    if let Some(unknown) = asked.iter().find(|part| !PARTS.contains(part)) {
        eprintln!("there is no part {unknown:?}; the parts are: {}", PARTS.join(", "));
        return ExitCode::FAILURE;
    }
    let sizes = if args.iter().any(|arg| arg == "--quick") { QUICK } else { WHOLE };
    run(&asked, sizes);
    ExitCode::SUCCESS
}

fn run(asked: &[&str], sizes: Sizes) {
    let wanted = |part| asked.is_empty() || asked.contains(&part);
    let mut report = Report::default();
    report::say_machine(&binary());
    if wanted("claims") {
        claims::run(&mut report, sizes.claims);
    }
    if wanted("snapshots") {
        snapshots::run(&mut report, sizes.snapshots);
    }
    if wanted("pods") {
        pods::run(&mut report, sizes.pods);
    }
    if wanted("memory") {
        memory::run(&mut report);
    }
    if wanted("sanity") {
        sanity::run(&mut report, sizes.sanity_runs);
    }
    report.print();
}
