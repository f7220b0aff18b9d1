//! udevd and multipathd that stop midway, files that cannot be written, and clocks that jump.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use hawser_live::lab::guest::san::San;
use hawser_live::lab::guest::{cmd, settle};

use hawser_live::lab::guest::faults::{Asked, MAPS, Stage, TWO, Tally};

/// A process that stands still while this lives.
struct Still {
    pids: Vec<String>,
}

impl Still {
    /// The first one of this name, and its children.
    #[track_caller]
    fn new(name: &str) -> Self {
        let pids = cmd("pidof").arg(name).ok();
        let pids: Vec<String> = pids.split_whitespace().map(str::to_owned).collect();
        assert!(!pids.is_empty(), "{name} does not run");
        cmd("kill").arg("-STOP").args(&pids).ok();
        Self { pids }
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        let _ = cmd("kill").arg("-CONT").args(&self.pids).try_run();
    }
}

/// A call that answers in time; true when it worked.
#[track_caller]
fn answers(asked: &Asked, verb: &'static str) -> bool {
    let begun = Instant::now();
    let done = asked.run(verb);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(100), "{verb} took {took:?}: {}", done.stderr);
    done.status.success()
}

#[test]
fn an_attach_over_one_path_does_not_need_udevd() {
    let san = San::new(&TWO[..1], 1);
    let asked = Asked::one(&san);
    let mut tally = Tally::of("udevd stopped, one path");
    for stage in Stage::ALL {
        let still = thread::scope(|scope| {
            let work = scope.spawn(|| answers(&asked, "connect"));
            stage.wait(&work);
            let still = Still::new("systemd-udevd");
            assert!(work.join().expect("it answers"), "udevd stopped at {stage:?}");
            still
        });
        assert!(answers(&asked, "disconnect"), "udevd stopped at {stage:?}");
        drop(still);
        settle();
        tally.point(&format!("{stage:?}"), &san.before);
    }
    tally.close();
}

#[test]
fn an_attach_of_a_map_answers_in_time_without_udevd_and_without_multipathd() {
    let san = San::with_multipath(&TWO, 1, MAPS);
    let asked = Asked::all(&san);
    let mut tally = Tally::of("udevd or multipathd stopped, two paths");
    for daemon in ["systemd-udevd", "multipathd"] {
        for (turn, stage) in [Stage::Begin, Stage::Session, Stage::Disk].into_iter().enumerate() {
            thread::scope(|scope| {
                let work = scope.spawn(|| answers(&asked, "connect"));
                stage.wait(&work);
                let still = Still::new(daemon);
                let done = work.join().expect("it answers");
                let word = if done { "worked" } else { "failed" };
                println!("{daemon} stopped at {stage:?}: connect {word}");
                drop(still);
            });
            settle();
            if turn.is_multiple_of(2) {
                asked.connect();
            }
            asked.disconnect();
            tally.point(&format!("{daemon} at {stage:?}"), &san.before);
        }
        asked.connect();
        let still = Still::new(daemon);
        let done = answers(&asked, "disconnect");
        println!("{daemon} stopped: disconnect {}", if done { "worked" } else { "failed" });
        drop(still);
        settle();
        asked.disconnect();
        tally.point(&format!("{daemon} at disconnect"), &san.before);
    }
    tally.close();
}

#[test]
fn multipathd_may_be_started_anew_at_any_stage() {
    let mut san = San::with_multipath(&TWO, 1, MAPS);
    let asked = Asked::all(&san);
    let mut tally = Tally::of("multipathd started anew");
    for stage in [Stage::Begin, Stage::Session, Stage::Disk] {
        let done = thread::scope(|scope| {
            let work = scope.spawn(|| answers(&asked, "connect"));
            stage.wait(&work);
            san.stop_multipathd();
            san.start_multipathd();
            work.join().expect("it answers")
        });
        println!(
            "multipathd anew at {stage:?}: connect {}",
            if done { "worked" } else { "failed" }
        );
        asked.connect();
        san.stop_multipathd();
        san.start_multipathd();
        asked.disconnect();
        tally.point(&format!("{stage:?}"), &san.before);
    }
    tally.close();
}

#[test]
fn iscsid_may_be_started_anew_under_a_volume() {
    let mut san = San::new(&TWO[..1], 1);
    let asked = Asked::one(&san);
    let mut tally = Tally::of("iscsid started anew");
    // Not in the middle of a login: the kernel keeps such a session for ever, without a name, and
    // iscsid itself cannot find it again.
    for stage in [Stage::Begin, Stage::Disk] {
        let done = thread::scope(|scope| {
            let work = scope.spawn(|| answers(&asked, "connect"));
            stage.wait(&work);
            san.restart_iscsid();
            work.join().expect("it answers")
        });
        println!("iscsid anew at {stage:?}: connect {}", if done { "worked" } else { "failed" });
        asked.connect();
        san.restart_iscsid();
        asked.disconnect();
        tally.point(&format!("{stage:?}"), &san.before);
    }
    tally.close();
}

#[test]
fn a_database_that_cannot_be_written_is_told_and_leaves_nothing() {
    let san = San::new(&TWO[..1], 1);
    let asked = Asked::one(&san);
    let mut tally = Tally::of("/etc/iscsi read-only");
    cmd("mount").args(["--bind", "/etc/iscsi", "/etc/iscsi"]).ok();
    cmd("mount").args(["-o", "remount,bind,ro", "/etc/iscsi"]).ok();

    let refused = asked.run("connect");
    cmd("umount").arg("/etc/iscsi").ok();

    assert!(!refused.status.success(), "it worked: {}", refused.stdout);
    assert!(refused.stderr.contains("/etc/iscsi"), "{}", refused.stderr);
    tally.point("refused", &san.before);
    asked.connect();
    asked.disconnect();
    tally.point("worked", &san.before);
    tally.close();
}

#[test]
fn a_clock_that_jumps_changes_nothing() {
    let san = San::new(&TWO[..1], 1);
    let asked = Asked::one(&san);
    let mut tally = Tally::of("clock jumps");
    for jump in ["+2 days", "-4 days", "+2 days"] {
        thread::scope(|scope| {
            let work = scope.spawn(|| answers(&asked, "connect"));
            Stage::Session.wait(&work);
            cmd("date").args(["-s", jump]).ok();
            assert!(work.join().expect("it answers"), "{jump}");
        });
        asked.disconnect();
        tally.point(jump, &san.before);
    }
    tally.close();
    assert!(fs::exists("/run/lab/guest").expect("the guest is as it was"));
}
