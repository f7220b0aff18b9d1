//! What a user of one machine feels: `make bench-core`.
//!
//! Everything goes through the shipped program with its shipped defaults: `hawser up` as a process
//! with its store on the disk that the build is on, and clients on its socket. Each figure is one
//! line, `bench NAME: ours=… peer=… ratio=… bar=… ok|short`, as it is found and once more at the end.
//! A figure that is short is a figure, not a failure; only a bench that cannot run fails.

mod copies;
mod load;
mod pool;
mod process;

use std::path::PathBuf;
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

use hawser_live::process::binary;
use hawser_live::report::{self, Report};

/// The parts of the bench; `cargo bench … -- PART` runs one alone.
const PARTS: [&str; 3] = ["idle", "load", "copies"];

/// Where the benches keep their data: beside the program, so on the disk of the build.
fn place() -> PathBuf {
    binary().parent().expect("the program is in a folder").to_owned()
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` runs this with `--test`, to see that it starts; it does.
    if args.iter().any(|arg| arg == "--test") {
        return ExitCode::SUCCESS;
    }
    let asked: Vec<&str> =
        args.iter().map(String::as_str).filter(|arg| !arg.starts_with("--")).collect();
    if let Some(unknown) = asked.iter().find(|part| !PARTS.contains(part)) {
        eprintln!("there is no part {unknown:?}; the parts are: {}", PARTS.join(", "));
        return ExitCode::FAILURE;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        // Left by return and not by signal, so that every ground is cleared.
        let mut stop = signal(SignalKind::terminate()).expect("a signal handler");
        tokio::select! {
            () = run(&asked) => ExitCode::SUCCESS,
            _ = tokio::signal::ctrl_c() => ExitCode::FAILURE,
            _ = stop.recv() => ExitCode::FAILURE,
        }
    })
}

async fn run(asked: &[&str]) {
    let wanted = |part| asked.is_empty() || asked.contains(&part);
    let mut report = Report::default();
    report::say_machine(&place());
    if wanted("idle") {
        process::idle(&mut report).await;
    }
    if wanted("load") {
        load::run(&mut report).await;
    }
    if wanted("copies") {
        if rustix::process::geteuid().is_root() {
            for kind in pool::KINDS {
                copies::run(&mut report, &kind).await;
            }
        } else {
            println!("copies are left out: pools of their own need root");
        }
    }
    report.print();
}
