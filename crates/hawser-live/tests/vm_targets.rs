//! Targets that go at every stage of an attach and of a detach. Whatever happens, the next call
//! finishes the job, and nothing is left.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use hawser_live::lab::guest::san::{San, names};
use hawser_live::lab::guest::{Cut, Leftovers};

use hawser_live::lab::guest::faults::{Asked, Stage, TWO, Tally};

/// Shorter than the two minutes that a session waits for its target by itself.
fn be_impatient() {
    for session in names("/sys/class/iscsi_session") {
        let _ = fs::write(format!("/sys/class/iscsi_session/{session}/recovery_tmo"), "3");
    }
}

/// A call that must answer in time, whatever it answers.
#[track_caller]
fn answers(asked: &Asked, verb: &'static str) -> bool {
    let begun = Instant::now();
    let done = asked.run(verb);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(100), "{verb} took {took:?}: {}", done.stderr);
    assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
    done.status.success()
}

/// Takes away what a failed call may have left, with the target back.
#[track_caller]
fn make_good(asked: &Asked, tally: &mut Tally, name: &str, turn: usize, before: &Leftovers) {
    if turn.is_multiple_of(2) {
        asked.connect();
    }
    asked.disconnect();
    tally.point(name, before);
}

#[test]
fn a_target_that_falls_silent_at_any_stage_of_an_attach_leaves_nothing() {
    let san = San::new(&TWO[..1], 1);
    let asked = Asked::one(&san);
    let mut tally = Tally::of("targets gone during connect");
    for (turn, stage) in Stage::ALL.into_iter().enumerate() {
        let portal = san.target.portals()[0];
        thread::scope(|scope| {
            let work = scope.spawn(|| answers(&asked, "connect"));
            stage.wait(&work);
            let cut = Cut::silent(portal);
            be_impatient();
            let done = work.join().expect("it answers");
            println!(
                "silent at {stage:?}: connect {}",
                if done { "was through" } else { "failed" }
            );
            cut.mend();
        });
        make_good(&asked, &mut tally, &format!("silent at {stage:?}"), turn, &san.before);
    }
    tally.close();
}

#[test]
fn a_target_that_is_switched_off_at_any_stage_of_an_attach_leaves_nothing() {
    let mut san = San::new(&TWO[..1], 1);
    let asked = Asked::one(&san);
    let mut tally = Tally::of("targets off during connect");
    for (turn, stage) in Stage::ALL.into_iter().enumerate() {
        thread::scope(|scope| {
            let work = scope.spawn(|| answers(&asked, "connect"));
            stage.wait(&work);
            san.target.disable();
            be_impatient();
            let done = work.join().expect("it answers");
            println!("off at {stage:?}: connect {}", if done { "was through" } else { "failed" });
        });
        san.target.enable();
        make_good(&asked, &mut tally, &format!("off at {stage:?}"), turn, &san.before);
    }
    tally.close();
}

#[test]
fn a_target_that_goes_before_or_during_a_detach_leaves_nothing() {
    let san = San::new(&TWO[..1], 1);
    let asked = Asked::one(&san);
    let mut tally = Tally::of("targets gone during disconnect");
    for (turn, after) in [0, 60, 150, 300].into_iter().enumerate() {
        asked.connect();
        be_impatient();
        let portal = san.target.portals()[0];
        thread::scope(|scope| {
            let early = (after == 0).then(|| Cut::silent(portal));
            let work = scope.spawn(|| answers(&asked, "disconnect"));
            thread::sleep(Duration::from_millis(after));
            let cut = early.unwrap_or_else(|| Cut::silent(portal));
            let done = work.join().expect("it answers");
            println!(
                "silent after {after} ms: disconnect {}",
                if done { "done" } else { "failed" }
            );
            cut.mend();
        });
        make_good(&asked, &mut tally, &format!("silent after {after} ms"), turn, &san.before);
    }
    tally.close();
}
