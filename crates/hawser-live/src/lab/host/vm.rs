//! A running guest.

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::Child;

use super::error::{Attempt, LabError, Result};
use super::image::Parts;
use super::program::{bound, tail};
use super::qemu::{self, Console, Port};
use super::tally::Tally;
use crate::lab::suites::Suite;

/// How much of a console is shown when a guest fails.
const SHOWN_LINES: usize = 40;

/// How long a guest may take to power off before it is killed.
const OFF_LIMIT: Duration = Duration::from_secs(10);

/// Signs of a kernel that went wrong and went on.
const COMPLAINTS: [&str; 4] = ["BUG: ", "Oops: ", "WARNING: ", "blocked for more than"];

/// One guest; killed when dropped.
pub(super) struct Vm {
    child: Child,
    started: Instant,
    guest: u8,
    console: PathBuf,
    /// It has come up.
    ready: Cell<bool>,
    out: UnixStream,
    control: (BufReader<OwnedReadHalf>, OwnedWriteHalf),
}

/// How a guest's job ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    /// From the start of QEMU until the job could start.
    pub(super) boot: Duration,
    /// The exit code of the test executable.
    pub(super) code: i32,
}

impl Vm {
    /// Starts it in the folder of a run, which has `initrd.img` and `job.img`.
    pub(super) async fn start(
        parts: &Parts,
        suite: &Suite,
        guest: u8,
        folder: &Path,
    ) -> Result<Self> {
        scratch_disks(suite, guest, folder)?;
        // The name of a socket is bounded, that of the cache is not: it is reached by a descriptor.
        let here = File::open(folder).attempt(|| format!("opening {}", folder.display()))?;
        let listen = |port| {
            let name = qemu::socket(port, guest);
            let path = format!("/proc/self/fd/{}/{name}", here.as_raw_fd());
            UnixListener::bind(path).attempt(|| format!("making the socket {name}"))
        };
        let (out, control) = (listen(Port::Out)?, listen(Port::Control)?);
        let mut command = bound("qemu-system-x86_64");
        command.args(qemu::args(parts, suite, guest, Console::File));
        command.current_dir(folder).env("TMPDIR", folder);
        let complaints = folder.join(format!("qemu{guest}"));
        let file = File::create(&complaints).attempt(|| "making a log of QEMU".into())?;
        command.stdout(Stdio::null()).stderr(file);
        let mut command = tokio::process::Command::from(command);
        let started = Instant::now();
        let mut child = command.kill_on_drop(true).spawn().attempt(|| "starting QEMU".into())?;
        let accept = async { tokio::try_join!(out.accept(), control.accept()) };
        let (out, control) = tokio::select! {
            both = accept => {
                let ((out, _), (control, _)) = both.attempt(|| "waiting for QEMU".into())?;
                (out, control)
            }
            status = child.wait() => {
                let status = status.attempt(|| "waiting for QEMU".into())?.to_string();
                let tail = fs::read_to_string(&complaints).unwrap_or_default();
                return Err(LabError::Step { what: "starting QEMU".into(), status, tail });
            }
        };
        let (read, write) = control.into_split();
        Ok(Self {
            child,
            started,
            guest,
            console: folder.join(qemu::console_file(guest)),
            ready: Cell::new(false),
            out,
            control: (BufReader::new(read), write),
        })
    }

    /// Follows the job to its end; every line that it says goes to `show`.
    pub(super) async fn follow(
        &mut self,
        tally: &RefCell<Tally>,
        show: impl Fn(&str),
    ) -> Result<Ended> {
        let (guest, started, console) = (self.guest, self.started, self.console.clone());
        let died = || LabError::Died { guest, console: console_tail(&console) };
        let (control, ready) = (&mut self.control.0, &self.ready);
        let ending = async {
            let mut boot = Duration::ZERO;
            let mut line = String::new();
            loop {
                line.clear();
                let count = control.read_line(&mut line).await;
                if count.attempt(|| format!("listening to guest {guest}"))? == 0 {
                    return Err(died());
                }
                let line = line.trim();
                if line == "ready" {
                    // By our own clock: that of a guest on a busy machine is off.
                    boot = started.elapsed();
                    ready.set(true);
                } else if let Some(code) = line.strip_prefix("exit ") {
                    return Ok(Ended { boot, code: code.parse().unwrap_or(-1) });
                }
            }
        };
        let out = &mut self.out;
        let pump = async {
            let mut bytes = [0; 8192];
            // What was said before the end is in the socket before the end is.
            while let Ok(count @ 1..) = out.read(&mut bytes).await {
                for line in tally.borrow_mut().take(&bytes[..count]) {
                    show(&line);
                }
            }
            // QEMU is gone; the control port says so too.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = pump => Err(died()),
            ended = ending => ended,
        }
    }

    /// Lets the guest power off, and kills it when it does not.
    pub(super) async fn off(mut self) {
        let asked = self.control.1.write_all(b"off\n").await;
        let gone = tokio::time::timeout(OFF_LIMIT, self.child.wait()).await;
        if asked.is_err() || gone.is_err() {
            let _ = self.child.kill().await;
        }
    }

    /// True when it has come up.
    pub(super) fn is_ready(&self) -> bool {
        self.ready.get()
    }

    /// The last lines of its console.
    pub(super) fn console(&self) -> String {
        console_tail(&self.console)
    }

    /// Lines of its console in which the kernel complained.
    pub(super) fn complaints(&self) -> Vec<String> {
        let text = fs::read(&self.console).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let bad = |line: &&str| COMPLAINTS.iter().any(|sign| line.contains(sign));
        text.lines().filter(bad).map(str::to_owned).collect()
    }
}

/// Runs a guest with a shell on this terminal until its user leaves it.
pub(super) async fn shell(parts: &Parts, suite: &Suite, folder: &Path) -> Result<()> {
    scratch_disks(suite, 1, folder)?;
    let mut command = bound("qemu-system-x86_64");
    command.args(qemu::args(parts, suite, 1, Console::Terminal));
    command.current_dir(folder).env("TMPDIR", folder).stdin(Stdio::inherit());
    let mut command = tokio::process::Command::from(command);
    let mut child = command.kill_on_drop(true).spawn().attempt(|| "starting QEMU".into())?;
    child.wait().await.map(drop).attempt(|| "waiting for QEMU".into())
}

fn scratch_disks(suite: &Suite, guest: u8, folder: &Path) -> Result<()> {
    for number in 1..=suite.scratch.count {
        let path = folder.join(qemu::scratch(guest, number));
        let made = File::create(&path).and_then(|file| file.set_len(suite.scratch.mib << 20));
        made.attempt(|| format!("making {}", path.display()))?;
    }
    Ok(())
}

fn console_tail(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    tail(&String::from_utf8_lossy(&text), SHOWN_LINES)
}
