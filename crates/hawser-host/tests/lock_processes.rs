//! Locks between processes: this test binary runs itself again as the other process.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail with their test")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use hawser_core::port::kernel::{LockMode, Locks};
use hawser_core::port::registry::LockGuard;
use hawser_host::FileLocks;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(20);
const A_WHILE: Duration = Duration::from_millis(150);

/// The tests of this file run side by side, and each may have one thread that waits.
const MOST_THREADS: usize = 6;

/// How the child learns its folder and what to do.
const PART: &str = "HAWSER_TEST_LOCK_DIR";
const SHARED: &str = "HAWSER_TEST_LOCK_SHARED";

fn open(dir: &Path) -> FileLocks {
    FileLocks::open(&dir.join("lock")).unwrap()
}

/// Another process that takes the lock `v`, says so, and holds it until its input ends.
struct Other {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Other {
    fn start(dir: &Path) -> Self {
        Self::start_with(dir, PART)
    }

    fn start_shared(dir: &Path) -> Self {
        Self::start_with(dir, SHARED)
    }

    #[expect(clippy::disallowed_methods, reason = "the other process is this test binary")]
    fn start_with(dir: &Path, part: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "other_process", "--nocapture"])
            .env(part, dir)
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
    let (dir, mode) = match (std::env::var_os(PART), std::env::var_os(SHARED)) {
        (Some(dir), _) => (dir, LockMode::Exclusive),
        (None, Some(dir)) => (dir, LockMode::Shared),
        (None, None) => return,
    };
    let locks = open(Path::new(&dir));

    let guard = locks.lock("v", mode).await.unwrap();
    println!("\nlocked");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    drop(guard);
}

async fn lock_as(locks: &FileLocks, mode: LockMode) -> Option<Box<dyn LockGuard>> {
    timeout(A_WHILE, locks.lock("v", mode)).await.ok().map(|guard| guard.unwrap())
}

async fn lock(locks: &FileLocks) -> Option<Box<dyn LockGuard>> {
    lock_as(locks, LockMode::Exclusive).await
}

#[tokio::test]
async fn a_lock_is_held_against_another_process_until_it_lets_go() {
    let dir = tempfile::tempdir().unwrap();
    let locks = open(dir.path());
    let mut other = Other::start(dir.path());
    other.holds();

    assert!(lock(&locks).await.is_none(), "two processes hold one lock");
    let waiting = locks.lock("v", LockMode::Exclusive);
    other.release();

    timeout(SOON, waiting).await.expect("released").unwrap();
}

#[tokio::test]
async fn a_killed_process_holds_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let locks = open(dir.path());
    let mut other = Other::start(dir.path());
    other.holds();
    assert!(lock(&locks).await.is_none());

    other.child.kill().unwrap();

    timeout(SOON, locks.lock("v", LockMode::Exclusive)).await.expect("the kernel let go").unwrap();
}

#[tokio::test]
async fn another_process_waits_for_ours() {
    let dir = tempfile::tempdir().unwrap();
    let locks = open(dir.path());
    let guard = locks.lock("v", LockMode::Exclusive).await.unwrap();
    let mut other = Other::start(dir.path());
    std::thread::sleep(A_WHILE);
    assert!(other.child.try_wait().unwrap().is_none(), "it got our lock and ended");

    drop(guard);
    other.holds();

    assert!(lock(&locks).await.is_none());
    other.release();
}

#[tokio::test]
async fn a_waiter_that_gave_up_does_not_take_the_lock_from_the_next_process() {
    let dir = tempfile::tempdir().unwrap();
    let locks = open(dir.path());
    let mut other = Other::start(dir.path());
    other.holds();
    for _ in 0..20 {
        let soon = Duration::from_millis(10);
        assert!(timeout(soon, locks.lock("v", LockMode::Exclusive)).await.is_err());
    }
    assert!(waiting_threads() <= MOST_THREADS, "one thread waits, however many gave up");

    other.release();

    let mut next = Other::start(dir.path());
    next.holds();
    assert!(lock(&locks).await.is_none());
    next.release();
    timeout(SOON, locks.lock("v", LockMode::Exclusive)).await.expect("free again").unwrap();
}

#[tokio::test]
async fn processes_share_a_lock_and_keep_out_one_that_would_be_alone() {
    let dir = tempfile::tempdir().unwrap();
    let locks = open(dir.path());
    let mut others = [Other::start_shared(dir.path()), Other::start_shared(dir.path())];
    others.iter_mut().for_each(Other::holds);

    let ours = lock_as(&locks, LockMode::Shared).await.expect("shared by all");
    drop(ours);
    assert!(lock(&locks).await.is_none(), "alone beside two that share it");
    let waiting = locks.lock("v", LockMode::Exclusive);
    others[0].release();
    others[1].child.kill().unwrap();

    drop(timeout(SOON, waiting).await.expect("both are gone").unwrap());
    assert_eq!(fs::read_dir(dir.path().join("lock")).unwrap().count(), 0, "a file is left");
}

#[tokio::test]
async fn many_that_wait_to_share_wait_on_one_thread() {
    let dir = tempfile::tempdir().unwrap();
    let locks = open(dir.path());
    let mut other = Other::start(dir.path());
    other.holds();

    let mut waiting: Vec<_> =
        (0..20).map(|_| Box::pin(locks.lock("v", LockMode::Shared))).collect();
    for waiter in &mut waiting {
        assert!(timeout(Duration::from_millis(10), waiter).await.is_err());
    }
    tokio::time::sleep(A_WHILE).await;
    let threads = waiting_threads();
    other.release();

    assert!(threads <= MOST_THREADS, "{threads} threads wait for one lock");
    let mut guards = Vec::new();
    for waiter in waiting {
        guards.push(timeout(SOON, waiter).await.expect("shared").unwrap());
    }
}

/// Threads of this process that wait for a lock of this test's locks.
fn waiting_threads() -> usize {
    fs::read_dir("/proc/self/task")
        .unwrap()
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("comm")).ok())
        .filter(|name| name.trim() == "hawser-lock")
        .count()
}
