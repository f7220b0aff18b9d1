//! Locks between processes: this test binary runs itself again as the other process.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail with their test")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use hawser_connect::FileRegistry;
use hawser_core::port::Registry;
use hawser_core::port::registry::LockGuard;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(20);
const A_WHILE: Duration = Duration::from_millis(150);

/// How the child learns its folder and what to do.
const PART: &str = "HAWSER_TEST_LOCK_DIR";

fn open(dir: &Path) -> FileRegistry {
    FileRegistry::open(&dir.join("run"), &dir.join("lock")).unwrap()
}

/// Another process that takes the lock `v`, says so, and holds it until its input ends.
struct Other {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Other {
    #[expect(clippy::disallowed_methods, reason = "the other process is this test binary")]
    fn start(dir: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "other_process", "--nocapture"])
            .env(PART, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { input: child.stdin.take(), output, child }
    }

    /// Waits until the other process holds the lock.
    fn holds(&mut self) {
        let mut line = String::new();
        while !line.contains("locked") {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the other process ended");
        }
    }

    fn release(&mut self) {
        let mut input = self.input.take().unwrap();
        input.write_all(b"go\n").unwrap();
        drop(input);
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other process of the tests below; run by itself it has nothing to do.
#[tokio::test]
async fn other_process() {
    #[expect(clippy::disallowed_methods, reason = "the parent test names the folder")]
    let Some(dir) = std::env::var_os(PART) else { return };
    let registry = open(Path::new(&dir));

    let guard = registry.lock("v").await.unwrap();
    println!("\nlocked");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    drop(guard);
}

async fn lock(registry: &FileRegistry) -> Option<Box<dyn LockGuard>> {
    timeout(A_WHILE, registry.lock("v")).await.ok().map(|guard| guard.unwrap())
}

#[tokio::test]
async fn a_lock_is_held_against_another_process_until_it_lets_go() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(dir.path());
    let mut other = Other::start(dir.path());
    other.holds();

    assert!(lock(&registry).await.is_none(), "two processes hold one lock");
    let waiting = registry.lock("v");
    other.release();

    timeout(SOON, waiting).await.expect("released").unwrap();
}

#[tokio::test]
async fn a_killed_process_holds_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(dir.path());
    let mut other = Other::start(dir.path());
    other.holds();
    assert!(lock(&registry).await.is_none());

    other.child.kill().unwrap();

    timeout(SOON, registry.lock("v")).await.expect("the kernel let go").unwrap();
}

#[tokio::test]
async fn another_process_waits_for_ours() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(dir.path());
    let guard = registry.lock("v").await.unwrap();
    let mut other = Other::start(dir.path());
    std::thread::sleep(A_WHILE);
    assert!(other.child.try_wait().unwrap().is_none(), "it got our lock and ended");

    drop(guard);
    other.holds();

    assert!(lock(&registry).await.is_none());
    other.release();
}

#[tokio::test]
async fn a_waiter_that_gave_up_does_not_take_the_lock_from_the_next_process() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(dir.path());
    let mut other = Other::start(dir.path());
    other.holds();
    for _ in 0..3 {
        assert!(lock(&registry).await.is_none());
    }
    assert!(waiting_threads() <= 1, "one thread waits, however many gave up");

    other.release();

    let mut next = Other::start(dir.path());
    next.holds();
    assert!(lock(&registry).await.is_none());
    next.release();
    timeout(SOON, registry.lock("v")).await.expect("free again").unwrap();
}

/// Threads of this process that wait for a lock of this test's registry.
fn waiting_threads() -> usize {
    fs::read_dir("/proc/self/task")
        .unwrap()
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("comm")).ok())
        .filter(|name| name.trim() == "hawser-lock")
        .count()
}
