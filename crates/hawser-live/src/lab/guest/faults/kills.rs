//! SIGKILL between any two steps.
//!
//! `hawser connect` and `hawser disconnect` run as they are shipped, under `strace`, which sends
//! SIGKILL when a thread enters its Nth system call that can change anything outside the process:
//! writes, renames, removals, mounts, ioctls, messages to daemons, new processes. The call itself is
//! not carried out. A first run without a kill counts these calls, so that every N is tried where it
//! matters; a call that only wakes another thread changes nothing and is left out. So the points
//! follow the program, not the clock, which is what kills after a delay would do: on a slow or busy
//! machine those miss the short steps. Nothing in the program knows of it. The programs that it
//! started (`iscsiadm`, `drbdadm`) are not traced and go on alone, as after a real kill.
//!
//! The next run may share its work out among its threads in another way, so that none of them comes
//! to N, and it ends by itself. What counts is how many were killed: a third of all points at least, or
//! the test has failed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;

use super::tool::{Asked, Tally};
use crate::lab::guest::Leftovers;

/// Every call that can change anything outside the process.
const CHANGES: &str = "write,writev,pwrite64,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,\
    rmdir,symlink,symlinkat,link,linkat,fchmod,fsync,fdatasync,mount,umount2,move_mount,ioctl,connect,\
    sendto,sendmsg,clone,clone3,vfork,fork";

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

/// Kills of the program while it attaches and detaches one volume.
pub struct Kills<'a> {
    what: &'a str,
    asked: &'a Asked,
    before: &'a Leftovers,
    most: usize,
    sweep: &'a dyn Fn(),
}

impl<'a> Kills<'a> {
    /// Before every change that it makes; `before` is what everything has to be like afterwards.
    pub fn of(what: &'a str, asked: &'a Asked, before: &'a Leftovers) -> Self {
        Self { what, asked, before, most: usize::MAX, sweep: &|| () }
    }

    /// Before this many of them at most, evenly spread.
    pub fn some(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// Does this before anything is compared: takes away what belongs to no attach.
    pub fn sweep(self, sweep: &'a dyn Fn()) -> Self {
        Self { sweep, ..self }
    }

    /// Kills attaches and detaches.
    #[track_caller]
    pub fn run(&self) {
        self.connects();
        self.disconnects();
    }

    /// Kills attaches; the next call attaches, or detaches, in turn.
    #[track_caller]
    pub fn connects(&self) {
        let all = points(self.asked, "connect");
        self.asked.disconnect();
        self.kill("connect", all, || ());
    }

    /// The same for detaches.
    #[track_caller]
    pub fn disconnects(&self) {
        self.asked.connect();
        let all = points(self.asked, "disconnect");
        self.kill("disconnect", all, || drop(self.asked.connect()));
    }

    #[track_caller]
    fn kill(&self, verb: &'static str, all: Vec<usize>, prepare: impl Fn()) {
        (self.sweep)();
        self.before.assert_restored();
        let mut tally = Tally::of(&format!("{}: {verb}", self.what));
        let count = all.len();
        let tried = thinned(all, self.most);
        let mut kills = 0;
        for (turn, point) in tried.iter().enumerate() {
            prepare();
            kills += usize::from(killed(self.asked, verb, *point));
            if turn.is_multiple_of(2) {
                self.asked.connect();
            }
            self.asked.disconnect();
            (self.sweep)();
            tally.point(&format!("killed at {point}"), self.before);
        }
        let (what, tried) = (self.what, tried.len());
        println!("{what}: {verb}: {kills} kills at {tried} of {count} points");
        tally.close();
        assert!(kills >= tried.div_ceil(3), "{what}: {verb}: {kills} kills at {tried} points");
    }
}
