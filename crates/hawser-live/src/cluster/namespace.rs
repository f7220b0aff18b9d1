//! The namespaces that a cluster runs in: mounts that nobody else sees, and processes that all end
//! with the first one. The network is the machine's, so that tests reach the cluster on loopback.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::error::{Attempt, ClusterError, Result};
use super::program::{Need, PATH, SHOWN_LINES, file_tail, of_machine};
use crate::child;

/// What is used of the machine.
pub(super) const NEEDS: &[Need] = &[
    ("setpriv", "util-linux"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("losetup", "mount"),
    ("mount", "mount"),
    ("tar", "tar"),
    ("ldd", "libc-bin"),
];

/// How long the first process may take to set up its mounts.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// How long killed processes may take to be gone.
const GONE_LIMIT: Duration = Duration::from_secs(20);

/// The namespaces of one cluster; everything in them ends when this is dropped.
pub(super) struct Namespace {
    holder: Child,
    init: u32,
    /// Keeps the mounts when the last process is gone, so that what uses them can be looked for.
    _mounts: Option<File>,
    /// The kernel kills the holder when the thread that started it ends, and a test may hand its
    /// cluster to another thread: this one does nothing but live as long as the cluster does.
    keeper: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Namespace {
    /// Starts the first process. The folder of the run is `place` in there.
    pub(super) fn start(script: &Path, run: &Path, place: &str) -> Result<Self> {
        let log = run.join("namespace.log");
        let complaints = File::create(&log).attempt(|| format!("making {}", log.display()))?;
        let mut command = of_machine("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private"]);
        command.args(["--pid", "--fork", "--kill-child=KILL", "--mount-proc", "sh"]).arg(script);
        command.env("RUN", run).env("PLACE", place);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(complaints);
        let (tell, told) = mpsc::channel();
        let (stop, stopped) = mpsc::channel::<()>();
        let keeper = std::thread::spawn(move || {
            if tell.send(command.spawn()).is_ok() {
                // An error too: the other end is gone, and so is the cluster.
                let _ = stopped.recv();
            }
        });
        let what = || "starting the namespaces".to_owned();
        let died = || std::io::Error::other("the thread that starts them died");
        let holder = told.recv().map_err(|_| died()).flatten().attempt(what)?;
        let keeper = Some((stop, keeper));
        let mut namespace = Self { holder, init: 0, _mounts: None, keeper };
        namespace.wait_ready(&log)?;
        let file = format!("/proc/{}/ns/mnt", namespace.init);
        namespace._mounts = Some(File::open(&file).attempt(|| format!("opening {file}"))?);
        Ok(namespace)
    }

    fn wait_ready(&mut self, log: &Path) -> Result<()> {
        let what = || "waiting for the namespaces".to_owned();
        let limit = Timespec::try_from(READY_LIMIT).ok();
        let mut said = [0; 64];
        let mut count = 0;
        if let Some(out) = &mut self.holder.stdout {
            let polled = poll(&mut [PollFd::new(out, PollFlags::IN)], limit.as_ref());
            if polled.map_err(std::io::Error::from).attempt(what)? > 0 {
                count = out.read(&mut said).attempt(what)?;
            }
        }
        let first = children(self.holder.id()).first().copied();
        match first.filter(|_| said[..count].starts_with(b"ready")) {
            Some(init) => {
                self.init = init;
                Ok(())
            }
            None => Err(ClusterError::Waited {
                what: "namespaces of the cluster".into(),
                limit: READY_LIMIT,
                state: file_tail(log, SHOWN_LINES),
            }),
        }
    }

    /// A program that starts in there, with nothing of our environment but the path.
    pub(super) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = of_machine("nsenter");
        command.arg(format!("--target={}", self.init)).args(["--mount", "--pid", "--"]);
        command.arg(program).env("PATH", PATH);
        command
    }

    /// Where the machine sees a path of the namespace, mounts and all.
    pub(super) fn seen(&self, path: &Path) -> PathBuf {
        let mut seen = format!("/proc/{}/root", self.init);
        seen.push_str(&path.to_string_lossy());
        seen.into()
    }

    /// The mount table in there.
    pub(super) fn mount_table(&self) -> String {
        fs::read_to_string(format!("/proc/{}/mountinfo", self.init)).unwrap_or_default()
    }

    /// Ends every process in there and waits until they are gone; the mounts stay until this is
    /// dropped. Answers the processes that stay nevertheless.
    pub(super) fn end(&mut self) -> Vec<String> {
        let whose = fs::read_link(format!("/proc/{}/ns/mnt", self.init)).ok();
        // The kernel then kills its child, the first process, and that one's end kills the rest.
        let _ = self.holder.kill();
        child::wait(&mut self.holder, GONE_LIMIT);
        let Some(whose) = whose else { return Vec::new() };
        let begun = Instant::now();
        loop {
            let left = processes_of(&whose);
            if left.is_empty() || begun.elapsed() > GONE_LIMIT {
                return left;
            }
            // Nobody is told of the end of other processes' children.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        child::wait(&mut self.holder, GONE_LIMIT);
        if let Some((stop, keeper)) = self.keeper.take() {
            drop(stop);
            // It ends by itself, and has nothing to say.
            let _ = keeper.join();
        }
    }
}

/// The processes that another one has started, as the machine counts them.
pub(super) fn children(parent: u32) -> Vec<u32> {
    let of_parent = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        parent_in(&stat) == Some(parent)
    };
    processes().filter(of_parent).collect()
}

/// The parent in a line of `/proc/PID/stat`; the name of the program may hold anything.
fn parent_in(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Processes with these mounts, as lines.
fn processes_of(mounts: &Path) -> Vec<String> {
    let line = |pid: u32| {
        let theirs = fs::read_link(format!("/proc/{pid}/ns/mnt")).ok()?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        (theirs == mounts).then(|| format!("process {pid} {}", name.trim()))
    };
    processes().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_any_name() {
        assert_eq!(parent_in("17 (a) b) S 5 17 17 0 -1"), Some(5));
        assert_eq!(parent_in("nonsense"), None);
    }

    #[test]
    fn a_child_of_ours_is_found() {
        let mut child = of_machine("sleep").arg("60").spawn().unwrap();
        assert!(children(std::process::id()).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
