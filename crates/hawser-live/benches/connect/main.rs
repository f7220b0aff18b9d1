//! Attach and detach over iSCSI, against os-brick and against a floor: `make bench-connect`.
//!
//! Runs in a guest of the lab, in which the target is too. Three sides take turns at the same
//! volumes: Hawser's library in this process, os-brick's library in a Python process that has loaded
//! everything, and a script that logs in with records that are there and waits for the link of udev.
//! Between two turns everything comes to rest. Each figure is one line, `bench NAME: ours=… peer=…
//! ratio=… bar=… ok|short`; one that is short is a figure, not a failure.

mod floor;
mod iscsid;
mod ours;
mod peer;
mod place;
mod programs;
mod sides;
mod turns;

use std::process::{ExitCode, Stdio};
use std::time::Instant;

use hawser_live::lab::guest;
use hawser_live::process::{self, binary};
use hawser_live::report::{self, Figure, Report, median, milliseconds};

use floor::Floor;
use ours::Ours;
use peer::Peer;
use place::Ways;
use programs::Programs;
use turns::{Turns, figures};

/// The parts of the bench; `lab bench connect -- PART` runs one alone.
const PARTS: [&str; 6] = ["properties", "iscsid", "one", "two", "one-crowd", "two-crowd"];

/// How many attach at once in a crowd.
const CROWD: usize = 32;

/// Medians of so many.
const ROUNDS: usize = 10;

/// A crowd takes minutes, with os-brick most of them.
const CROWD_ROUNDS: usize = 3;
const PEER_CROWD_ROUNDS: usize = 1;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` runs this with `--test`, to see that it starts; it does.
    if args.iter().any(|arg| arg == "--test") {
        return ExitCode::SUCCESS;
    }
    if !std::path::Path::new("/run/lab/guest").exists() {
        eprintln!("this bench runs in a guest of the lab: make bench-connect");
        return ExitCode::FAILURE;
    }
    let asked: Vec<&str> =
        args.iter().map(String::as_str).filter(|arg| !arg.starts_with("--")).collect();
    if let Some(unknown) = asked.iter().find(|part| !PARTS.contains(part)) {
        eprintln!("there is no part {unknown:?}; the parts are: {}", PARTS.join(", "));
        return ExitCode::FAILURE;
    }
    run(&asked);
    ExitCode::SUCCESS
}

fn run(asked: &[&str]) {
    let wanted = |part: &str| asked.is_empty() || asked.contains(&part);
    let mut report = Report::default();
    report::say_machine(&binary());
    let _iscsid = guest::iscsid();
    let crowd = PARTS.iter().any(|part| part.ends_with("-crowd") && wanted(part));
    let volumes = place::volumes(if crowd { CROWD } else { 1 });
    let mut floor = Floor::new(&volumes);
    // Before anything that it has to follow, and after what it must not.
    let programs = Programs::follow();
    let (mut ours, mut peer) = (Ours::new(), Peer::start());
    if wanted("properties") {
        properties(&mut report, &programs, &ours, &mut peer);
    }
    if wanted("iscsid") {
        iscsid::run(&mut report, &volumes[0], &mut floor);
    }
    let (one, all): (Vec<_>, Vec<_>) = (volumes.iter().take(1).collect(), volumes.iter().collect());
    let mut part = |name: &str, ways, report: &mut Report| {
        if !wanted(name) {
            return;
        }
        let crowd = name.ends_with("-crowd");
        let rounds = if crowd { [CROWD_ROUNDS, PEER_CROWD_ROUNDS] } else { [ROUNDS, ROUNDS] };
        let turns = Turns {
            programs: &programs,
            volumes: if crowd { &all } else { &one },
            ways,
            rounds: rounds[0],
            peer_rounds: rounds[1],
        };
        figures(report, name, &turns.run(&mut ours, &mut peer, &mut floor));
    };
    part("one", Ways::One, &mut report);
    part("one-crowd", Ways::One, &mut report);
    // It would take the disks of a single path.
    let _multipathd = guest::multipathd();
    part("two", Ways::Two, &mut report);
    part("two-crowd", Ways::Two, &mut report);
    report.print();
}

/// The library against the library, and the command against the command.
fn properties(report: &mut Report, programs: &Programs, ours: &Ours, peer: &mut Peer) {
    let (mut own, mut their, mut own_command, mut their_command) = Default::default();
    let mut counts = [0; 4];
    for round in 0..=ROUNDS {
        let take = |times: &mut Vec<f64>, count: &mut usize, work: &mut dyn FnMut() -> f64| {
            programs.clear();
            let took = work();
            *count = programs.count();
            if round > 0 {
                times.push(took);
            }
        };
        let [first, second, third, fourth] = &mut counts;
        take(&mut own, first, &mut || ours.properties().as_secs_f64());
        take(&mut their, second, &mut || peer.properties().as_secs_f64());
        let mut hawser = process::command(binary());
        hawser.args(["properties", "--multipath"]);
        take(&mut own_command, third, &mut || timed(&mut hawser));
        let mut python = peer::command();
        python.arg("properties");
        take(&mut their_command, fourth, &mut || timed(&mut python));
    }
    let mut add = |name: &str, own: Vec<f64>, their: Vec<f64>, counts: [usize; 2]| {
        let (own, their) = (median(own), median(their));
        let ratio = own / their;
        let figure = Figure {
            ours: milliseconds(own),
            peer: Some(milliseconds(their)),
            ratio: Some(ratio),
            bar: Some(("0.05".into(), ratio <= 0.05)),
        };
        report.add(name, figure);
        turns::programs(report, name, counts[0], counts[1], None);
    };
    add("properties-library", own, their, [counts[0], counts[1]]);
    add("properties-command", own_command, their_command, [counts[2], counts[3]]);
}

/// Seconds that a command takes from its start to its end.
fn timed(command: &mut std::process::Command) -> f64 {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let begun = Instant::now();
    let output = command.output().expect("a program of the guest");
    let took = begun.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    took
}
