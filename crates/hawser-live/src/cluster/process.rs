//! A program that runs in the namespaces of a cluster.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::error::{Attempt, ClusterError, Result};
use super::namespace::children;
use super::program::{SHOWN_LINES, file_tail};
use crate::child;

/// How long a killed program may take to be gone.
const DEATH_LIMIT: Duration = Duration::from_secs(10);

/// How long the way into the namespaces may take.
const ENTER_LIMIT: Duration = Duration::from_secs(10);

/// Parts of a second in which `/proc` counts the time of processes, the same on every Linux.
const TICKS: u32 = 100;

/// The program; killed when dropped. Its log stays with the cluster.
#[derive(Debug)]
pub struct Process {
    name: String,
    /// The program is a child of this one, which brings it into the namespaces and ends as it does.
    enter: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a command of the namespaces; it says what it says to `NAME.log` in the folder.
    pub(super) fn start(name: &str, command: &mut Command, folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let open = || {
            let file = OpenOptions::new().append(true).create(true).open(&log);
            file.attempt(|| format!("opening {}", log.display()))
        };
        command.stdin(Stdio::null()).stdout(open()?).stderr(open()?);
        let enter = command.spawn().attempt(|| format!("starting {name}"))?;
        Ok(Self { name: name.to_owned(), enter, log })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id as the machine counts; none when it has ended.
    pub fn pid(&mut self) -> Option<u32> {
        let begun = Instant::now();
        while self.ended().is_none() && begun.elapsed() < ENTER_LIMIT {
            if let Some(pid) = children(self.enter.id()).first() {
                return Some(*pid);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    /// How it ended; none while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.enter.try_wait().ok().flatten()
    }

    /// An error with the end of its log when it has ended.
    pub fn check(&mut self) -> Result<()> {
        let Some(status) = self.ended() else { return Ok(()) };
        Err(ClusterError::Ended {
            name: self.name.clone(),
            status,
            tail: self.log_end(SHOWN_LINES),
        })
    }

    /// Sends it a signal; nothing happens when it has ended.
    pub fn signal(&mut self, signal: Signal) {
        let pid = self.pid().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(pid) = pid {
            // It may end in this moment.
            let _ = kill_process(pid, signal);
        }
    }

    /// Asks it to end, and waits until it did.
    pub fn stop(&mut self, limit: Duration) -> Result<()> {
        self.signal(Signal::TERM);
        if child::wait(&mut self.enter, limit).is_some() {
            return Ok(());
        }
        let tail = self.log_end(SHOWN_LINES);
        self.kill();
        Err(ClusterError::Slow { what: format!("stopping {}", self.name), limit, tail })
    }

    /// Kills it as a crash would, and waits until it is gone.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        if child::wait(&mut self.enter, DEATH_LIMIT).is_none() {
            // It never came into the namespaces, or hangs in the kernel.
            let _ = self.enter.kill();
            let _ = self.enter.wait();
        }
    }

    /// Its resident memory; nothing when it has ended.
    pub fn resident_kib(&mut self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()?)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// How much time of a processor it has used, itself and the kernel for it; nothing when it has
    /// ended.
    pub fn processor_time(&mut self) -> Option<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()?)).ok()?;
        time_in(&stat)
    }

    /// Where it says what it says.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of it.
    pub fn log_end(&self, count: usize) -> String {
        file_tail(&self.log, count)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.kill();
        }
    }
}

/// The time in a line of `/proc/PID/stat`, of the program and of the kernel for it.
fn time_in(stat: &str) -> Option<Duration> {
    // The name of the program may hold anything; the two times are 11 words behind what follows it.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut words = rest.split(' ').skip(11);
    let mut next = || words.next()?.parse::<u32>().ok();
    Some(Duration::from_secs(1) * (next()? + next()?) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_process_is_that_of_the_program_and_of_the_kernel() {
        let stat = "17 (a) b) S 5 17 17 0 -1 4194560 900 0 0 0 120 30 7 7 20 0 4 0 1000 0";
        assert_eq!(time_in(stat), Some(Duration::from_millis(1500)));
        assert_eq!(time_in("nonsense"), None);
    }
}
