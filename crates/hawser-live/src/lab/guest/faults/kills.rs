//! SIGKILL between any two steps.
//!
//! `hawser connect` and `hawser disconnect` run as they are shipped, under `strace`, which sends
//! SIGKILL when a thread enters its Nth system call that can change anything outside the process:
//! writes, renames, removals, ioctls, messages to daemons, new processes. The call itself is not
//! carried out. A first run without a kill counts these calls, so that every N is tried where it
//! matters; a call that only wakes another thread changes nothing and is left out. So the points
//! follow the program, not the clock, which is what kills after a delay would do: on a slow or busy
//! machine those miss the short steps. Nothing in the program knows of it. The programs that it
//! started (`iscsiadm`) are not traced and go on alone, as after a real kill.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;

use super::tool::{Asked, Tally};
use crate::lab::guest::san::San;

/// Every call that can change anything outside the process.
const CHANGES: &str = "write,writev,pwrite64,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,\
    rmdir,symlink,symlinkat,link,linkat,fchmod,fsync,fdatasync,ioctl,connect,sendto,sendmsg,clone,\
    clone3,vfork,fork";

const TRACE: &str = "/tmp/changes.trace";

/// strace that follows threads, not programs.
fn strace(more: &[String]) -> Vec<String> {
    let words = ["strace", "-f", "-b", "execve", "-qq", "--seccomp-bpf"];
    words.into_iter().map(str::to_owned).chain(more.iter().cloned()).collect()
}

/// At which of its changes a thread can be killed, found by a run that nobody disturbs.
fn points(asked: &Asked, verb: &'static str) -> Vec<usize> {
    let trace = strace(&["-o".into(), TRACE.into(), "-e".into(), format!("trace={CHANGES}")]);
    asked.below(trace, verb).ok();
    let text = fs::read_to_string(TRACE).expect("a trace");
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut points = BTreeSet::new();
    for line in text.lines() {
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        if call.starts_with("<...") || call.starts_with("+++") || call.starts_with("---") {
            continue;
        }
        let count = counts.entry(thread).or_default();
        *count += 1;
        // Eight bytes that begin with a one: a thread wakes another.
        if !call.contains("\"\\1\\0\\0\\0\\0\\0\\0\\0\"") {
            points.insert(*count);
        }
    }
    assert!(points.len() > 5, "{verb} changed hardly anything:\n{text}");
    points.into_iter().collect()
}

/// Runs a command that is killed before a thread makes its Nth change; true when it was.
fn killed(asked: &Asked, verb: &'static str, point: usize) -> bool {
    let inject = format!("inject={CHANGES}:signal=KILL:when={point}");
    let words = strace(&["-o".into(), "/dev/null".into(), "-e".into(), inject]);
    let done = asked.below(words, verb).run();
    let by_signal = done.status.signal() == Some(9) || done.code() == 128 + 9;
    assert!(by_signal || done.status.success(), "{verb} at {point}: {}", done.stderr);
    by_signal
}

/// Some of the points, evenly.
fn thinned(points: Vec<usize>, most: usize) -> Vec<usize> {
    let step = points.len().div_ceil(most).max(1);
    points.into_iter().step_by(step).collect()
}

/// Kills attaches, at `most` points; the next call attaches, or detaches, in turn.
#[track_caller]
pub fn kill_connects(what: &'static str, san: &San, asked: &Asked, most: usize) {
    let all = points(asked, "connect");
    asked.disconnect();
    san.assert_clean();
    let mut tally = Tally::of(what);
    let count = all.len();
    for (turn, point) in thinned(all, most).into_iter().enumerate() {
        killed(asked, "connect", point);
        if turn.is_multiple_of(2) {
            asked.connect();
        }
        asked.disconnect();
        tally.point(&format!("killed at {point}"), &san.before);
    }
    println!("{what}: {count} points there are");
    tally.close();
}

/// The same for detaches.
#[track_caller]
pub fn kill_disconnects(what: &'static str, san: &San, asked: &Asked, most: usize) {
    asked.connect();
    let all = points(asked, "disconnect");
    san.assert_clean();
    let mut tally = Tally::of(what);
    let count = all.len();
    for (turn, point) in thinned(all, most).into_iter().enumerate() {
        asked.connect();
        killed(asked, "disconnect", point);
        if turn.is_multiple_of(2) {
            asked.connect();
        }
        asked.disconnect();
        tally.point(&format!("killed at {point}"), &san.before);
    }
    println!("{what}: {count} points there are");
    tally.close();
}
