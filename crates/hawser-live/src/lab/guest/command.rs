//! Programs in the guest: no shell, a limit on each, and everything said when one fails.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::child::{kill, wait};
use crate::process;

/// How long a program may take unless it is told otherwise.
const LIMIT: Duration = Duration::from_secs(60);

/// Each started program has a log of its own.
static STARTED: AtomicU32 = AtomicU32::new(1);

/// A program to run. Refuses to be made outside of a guest.
#[track_caller]
pub fn cmd(program: &str) -> Cmd {
    super::number();
    Cmd { program: program.into(), args: Vec::new(), input: Vec::new(), limit: LIMIT }
}

/// A program with its arguments; see [`cmd`].
#[derive(Clone, Debug)]
pub struct Cmd {
    program: String,
    args: Vec<OsString>,
    input: Vec<u8>,
    limit: Duration,
}

/// How a program ended.
#[derive(Debug)]
pub struct Done {
    /// Its exit code or signal.
    pub status: ExitStatus,
    /// What it said.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
}

impl Done {
    /// Its exit code; -1 when a signal ended it.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }
}

impl Cmd {
    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Gives it this on standard input.
    pub fn input(mut self, input: impl AsRef<[u8]>) -> Self {
        self.input = input.as_ref().to_owned();
        self
    }

    /// Allows it this long.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs it to its end, whatever that is. One that takes too long is killed and fails the test.
    #[track_caller]
    pub fn run(&self) -> Done {
        match self.try_run() {
            Ok(done) => done,
            Err(why) => panic!("{why}"),
        }
    }

    /// As [`Cmd::run`], for a drop, which must not panic: one that cannot be started or takes too
    /// long is answered in words.
    pub fn try_run(&self) -> Result<Done, String> {
        // Through files: a daemon that it leaves behind would hold a pipe open.
        let (mut out, mut err, mut input) = (scratch(), scratch(), scratch());
        input.write_all(&self.input).and_then(|()| input.rewind()).expect("a scratch file");
        let copy = |file: &File| file.try_clone().expect("a descriptor");
        let mut child = self.spawn(copy(&input), copy(&out), copy(&err))?;
        let status = wait(&mut child, self.limit);
        if status.is_none() {
            kill(&mut child);
        }
        let done = Done {
            status: status.unwrap_or_default(),
            stdout: read_back(&mut out),
            stderr: read_back(&mut err),
        };
        if status.is_none() {
            return Err(format!("{self} did not end within {:?}\n{}", self.limit, said(&done)));
        }
        Ok(done)
    }

    /// Runs it and answers what it said.
    ///
    /// # Panics
    ///
    /// When it fails, with everything that it said.
    #[track_caller]
    pub fn ok(&self) -> String {
        let done = self.run();
        assert!(done.status.success(), "{self}: {}\n{}", done.status, said(&done));
        done.stdout
    }

    /// Runs it and answers whether it succeeded.
    #[track_caller]
    pub fn succeeds(&self) -> bool {
        self.run().status.success()
    }

    /// Starts it and does not wait. It has to stay in the foreground; it is killed when dropped.
    #[track_caller]
    pub fn start(&self) -> Daemon {
        let name = self.program.rsplit('/').next().unwrap_or_default();
        let log = format!("/tmp/{name}-{}.log", STARTED.fetch_add(1, Ordering::Relaxed));
        let log = PathBuf::from(log);
        let file = File::options().create(true).append(true).open(&log).expect("a log file");
        let copy = file.try_clone().expect("a descriptor");
        let input = File::open("/dev/null").expect("every Linux has it");
        match self.spawn(input, file, copy) {
            Ok(child) => Daemon { child, what: self.to_string(), log },
            Err(why) => panic!("{why}"),
        }
    }

    fn spawn(&self, input: File, out: File, err: File) -> Result<Child, String> {
        let mut command = process::command(&self.program);
        command.args(&self.args).process_group(0);
        command.stdin(input).stdout(Stdio::from(out)).stderr(Stdio::from(err));
        command.spawn().map_err(|error| format!("{self} cannot be started: {error}"))
    }
}

impl std::fmt::Display for Cmd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.program)?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", arg.display()))
    }
}

/// A program that runs beside the test.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    what: String,
    log: PathBuf,
}

impl Daemon {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything that it said so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Panics when it has ended.
    #[track_caller]
    pub fn assert_alive(&mut self) {
        let ended = self.child.try_wait().expect("our own child");
        assert!(ended.is_none(), "{} ended: {ended:?}\n{}", self.what, self.log());
    }

    /// Sends it a signal.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("our own child is there");
    }

    /// Asks it to end and waits until it did.
    #[track_caller]
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        let ended = wait(&mut self.child, LIMIT);
        assert!(ended.is_some(), "{} does not end\n{}", self.what, self.log());
    }

    /// Kills it as a crash would, and waits until it is gone.
    pub fn kill(mut self) {
        kill(&mut self.child);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        kill(&mut self.child);
    }
}

fn scratch() -> File {
    tempfile::tempfile().expect("a scratch file")
}

fn read_back(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("a readable scratch file");
    String::from_utf8_lossy(&bytes).into_owned()
}

fn said(done: &Done) -> String {
    format!("{}{}", done.stdout, done.stderr)
}
