//! The shipped program as a process: started on a folder of its own, killed, started again.
//!
//! Everything that a test makes is below its [`Ground`]. Whatever happens to the test, dropping the
//! ground unmounts, detaches and removes what is there, and touches nothing that is elsewhere.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use hawser_api::{Endpoint, RestClient};
use hawser_core::port::Control;
use tempfile::TempDir;

use crate::traces;

/// How long the program may take until it serves.
const START_LIMIT: Duration = Duration::from_secs(30);

/// How long one command may take.
const COMMAND_LIMIT: Duration = Duration::from_secs(120);

/// How much of a log is shown when a test fails.
const SHOWN_LINES: usize = 80;

/// True when loop devices can be made and mounted; else says why the test does not run.
#[track_caller]
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        hawser_testkit::skip("needs root for loop devices and mounts");
    }
    root
}

/// The program that the same build made: beside the folder of the test executables.
pub fn binary() -> PathBuf {
    let own = std::env::current_exe().expect("a running program has a path");
    let built = own.parent().and_then(Path::parent).map(|folder| folder.join("hawser"));
    let path = built.expect("test executables are two folders deep");
    assert!(
        path.is_file(),
        "{} is missing: build it with `cargo build`, or run the tests with `cargo test --workspace`",
        path.display()
    );
    path
}

/// Any program by its path or bare name; for what tests start beside the one they test.
#[expect(clippy::disallowed_methods, reason = "tests start the program that they test")]
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(program)
}

/// A folder on a real disk for one test: state, mount points and logs.
pub struct Ground {
    dir: TempDir,
    /// Without links, as the kernel spells it.
    path: PathBuf,
}

impl Ground {
    /// An empty ground. Below `/var/tmp`, which is on a disk where `/tmp` may be in memory.
    pub fn new() -> Self {
        let place = Path::new("/var/tmp");
        if place.is_dir() { Self::below(place) } else { Self::below(&std::env::temp_dir()) }
    }

    /// An empty ground in this folder, for who has to know which disk it is on.
    pub fn below(place: &Path) -> Self {
        let dir = tempfile::Builder::new().prefix("hawser-live-").tempdir_in(place);
        let dir = dir.expect("a temporary folder can be made");
        let path = dir.path().canonicalize().expect("it was just made");
        fs::create_dir(path.join("mnt")).expect("the ground can be written");
        Self { dir, path }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The state folder of the server.
    pub fn state(&self) -> PathBuf {
        self.path.join("state")
    }

    /// The socket of the server.
    pub fn socket(&self) -> PathBuf {
        self.state().join("hawser.sock")
    }

    /// The folder of the mount points; nothing else is in it.
    pub fn mounts(&self) -> PathBuf {
        self.path.join("mnt")
    }

    /// A client of the server.
    pub fn client(&self) -> RestClient {
        RestClient::new(Endpoint::Unix(self.socket()))
    }

    /// Starts `hawser` with these arguments and does not wait. The log goes to `NAME.log`.
    pub fn start(&self, name: &'static str, args: &[&str]) -> Program {
        Program::start(name, &mut self.hawser(args), &self.path)
    }

    /// Starts `hawser up` on the state folder and waits until it is ready.
    pub async fn up(&self, args: &[&str]) -> Program {
        let mut all = vec!["up"];
        all.extend(args);
        let mut program = self.start("up", &all);
        program.wait_ready(&self.client()).await;
        program
    }

    /// Runs one command of `hawser` to its end.
    pub fn run(&self, args: &[&str]) -> Ran {
        run(&mut self.hawser(args), &self.path)
    }

    /// As [`Ground::run`]; a command that fails fails the test.
    #[track_caller]
    pub fn ok(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert!(
            ran.status.success(),
            "hawser {}: {}\n{}{}",
            args.join(" "),
            ran.status,
            ran.stdout,
            ran.stderr
        );
        ran.stdout
    }

    /// The program with this ground's state folder and nothing else in its environment.
    pub fn hawser(&self, args: &[&str]) -> Command {
        let mut command = command(binary());
        command
            .args(args)
            .current_dir(&self.path)
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HAWSER_STATE_DIR", self.state());
        command
    }

    /// Panics when a loop device, a mount or an attachment record of this ground is left.
    #[track_caller]
    pub fn assert_no_traces(&self) {
        let found = traces::of(&self.path);
        assert!(found.is_empty(), "left behind: {found:#?}");
    }
}

impl Default for Ground {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        traces::remove(&self.path);
        // What cannot be removed is named by the temporary folder's own error, which nobody sees.
        if let Err(error) = fs::remove_dir_all(self.dir.path()) {
            hawser_testkit::skip::say(&format!("{} is left: {error}", self.path.display()));
        }
    }
}

/// How a command ended.
#[derive(Debug)]
pub struct Ran {
    /// Its exit code or signal.
    pub status: ExitStatus,
    /// What it said.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
}

/// Runs a command to its end; one that does not end in time is killed and fails the test. What it
/// says goes through files in `folder`, so that it never waits for a reader.
pub fn run(command: &mut Command, folder: &Path) -> Ran {
    let (mut out, mut err) = (scratch(folder), scratch(folder));
    let copies = (out.try_clone().expect("a descriptor"), err.try_clone().expect("a descriptor"));
    let spawned = command.stdin(Stdio::null()).stdout(copies.0).stderr(copies.1).spawn();
    let mut child = spawned.expect("the command can be started");
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("our own child") {
            break status;
        }
        if begun.elapsed() > COMMAND_LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{command:?} did not end within {COMMAND_LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    Ran { status, stdout: read_back(&mut out), stderr: read_back(&mut err) }
}

fn scratch(folder: &Path) -> File {
    tempfile::tempfile_in(folder).expect("a scratch file")
}

fn read_back(file: &mut File) -> String {
    use std::io::{Read, Seek};
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("a readable scratch file");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A running `hawser`; killed when dropped. Declare it after its ground, so that it ends first.
pub struct Program {
    child: Child,
    name: &'static str,
    log: PathBuf,
}

impl Program {
    /// Starts any command that stays in the foreground; its log goes to `NAME.log` in the folder.
    pub fn start(name: &'static str, command: &mut Command, folder: &Path) -> Self {
        let log = folder.join(format!("{name}.log"));
        let open = || OpenOptions::new().append(true).create(true).open(&log);
        let (out, err) = (open().expect("a log file"), open().expect("a log file"));
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn();
        Self { child: child.expect("the program can be started"), name, log }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How it ended; none while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("our own child")
    }

    /// Waits until the server is ready; panics with its log when it ends or takes too long.
    pub async fn wait_ready(&mut self, client: &RestClient) {
        let begun = Instant::now();
        loop {
            if matches!(client.ready().await, Ok(true)) {
                return;
            }
            if let Some(status) = self.child.try_wait().expect("our own child") {
                panic!("{} ended before it was ready: {status}\n{}", self.name, self.log_end());
            }
            let waited = begun.elapsed();
            assert!(waited < START_LIMIT, "{} is not ready\n{}", self.name, self.log_end());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Kills it as a power cut would, and waits until it is gone.
    pub fn kill(&mut self) {
        self.child.kill().expect("our own child can be killed");
        self.child.wait().expect("our own child");
    }

    /// Asks it to stop and waits until it did; panics when it complains or takes too long.
    pub fn stop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("our own child");
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("our own child") {
                assert!(status.success(), "{} stopped with {status}", self.name);
                return;
            }
            assert!(begun.elapsed() < START_LIMIT, "{} does not stop", self.name);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Panics when it has ended.
    #[track_caller]
    pub fn assert_alive(&mut self) {
        let ended = self.child.try_wait().expect("our own child");
        assert!(ended.is_none(), "{} ended: {ended:?}", self.name);
    }

    /// Its resident memory.
    pub fn resident_kib(&self) -> u64 {
        self.status_kib("VmRSS:")
    }

    /// The most that it ever had.
    pub fn most_resident_kib(&self) -> u64 {
        self.status_kib("VmHWM:")
    }

    fn status_kib(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("the process is there");
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.and_then(|number| number.parse().ok()).expect("a number of KiB")
    }

    /// Where it says what it says.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of its log.
    pub fn log_end(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if std::thread::panicking() {
            hawser_testkit::skip::say(&format!("log of {}:\n{}", self.name, self.log_end()));
        }
        // It may have ended already; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
