use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use hawser_core::Kind;
use proptest::prelude::*;
use tokio::time::timeout;

use super::*;

const SOON: Duration = Duration::from_secs(20);
const A_WHILE: Duration = Duration::from_millis(100);

async fn soon(locks: &FileLocks, mode: LockMode) -> Guard {
    timeout(SOON, locks.take("t", mode)).await.expect("the lock is free").unwrap()
}

async fn at_once(locks: &FileLocks, mode: LockMode) -> Option<Guard> {
    timeout(A_WHILE, locks.take("t", mode)).await.ok().map(|guard| guard.unwrap())
}

/// Two that know nothing of each other's queues, as two processes would.
fn two(dir: &Path) -> [FileLocks; 2] {
    [FileLocks::new(dir), FileLocks::new(dir)]
}

fn files(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[test]
fn different_names_have_different_files() {
    let long = "x".repeat(5000);
    let names = ["a", "A", "a/b", "a%2Fb", "a.b", ".", "..", "", "%", "\0", "ü", "+", &long];

    let files: BTreeSet<_> = names.iter().map(|name| file_name(name)).collect();

    assert_eq!(files.len(), names.len());
    assert!(files.iter().all(|file| !file.starts_with('.')), "{files:?}");
}

#[test]
fn dead_queues_are_swept() {
    let dir = tempfile::tempdir().unwrap();
    let locks = FileLocks::open(dir.path()).unwrap();

    for number in 0..10_000 {
        drop(locks.queue(&number.to_string()));
    }

    assert!(locks.queues.lock().unwrap().by_name.len() <= SWEEP_FROM);
}

#[tokio::test]
async fn many_share_a_lock_and_the_last_one_removes_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = two(dir.path());

    let guards = [
        soon(&a, LockMode::Shared).await,
        soon(&a, LockMode::Shared).await,
        soon(&b, LockMode::Shared).await,
    ];

    assert!(at_once(&a, LockMode::Exclusive).await.is_none(), "shared in this process");
    assert!(at_once(&FileLocks::new(dir.path()), LockMode::Exclusive).await.is_none());
    for guard in guards {
        assert_eq!(files(dir.path()), 1, "removed while others hold it");
        drop(guard);
    }
    drop(soon(&a, LockMode::Exclusive).await);
    assert_eq!(files(dir.path()), 0);
}

#[tokio::test]
async fn one_that_shares_waits_for_one_that_is_alone() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = two(dir.path());
    let alone = soon(&a, LockMode::Exclusive).await;

    assert!(at_once(&a, LockMode::Shared).await.is_none());
    assert!(at_once(&b, LockMode::Shared).await.is_none());
    drop(alone);

    let _first = soon(&a, LockMode::Shared).await;
    let _second = soon(&b, LockMode::Shared).await;
}

#[tokio::test]
async fn nobody_overtakes_one_that_waits_to_be_alone() {
    let dir = tempfile::tempdir().unwrap();
    let locks = FileLocks::new(dir.path());
    let first = soon(&locks, LockMode::Shared).await;
    let mut alone = Box::pin(locks.take("t", LockMode::Exclusive));
    assert!(timeout(A_WHILE, &mut alone).await.is_err());

    assert!(at_once(&locks, LockMode::Shared).await.is_none(), "a latecomer came first");
    drop(first);

    let alone = timeout(SOON, alone).await.expect("its turn").unwrap();
    assert!(at_once(&locks, LockMode::Shared).await.is_none());
    drop(alone);
    let _latecomer = soon(&locks, LockMode::Shared).await;
}

#[test]
fn those_that_come_and_go_never_meet_one_that_is_alone() {
    use std::sync::atomic::{AtomicI32, Ordering};
    let dir = tempfile::tempdir().unwrap();
    let inside = AtomicI32::new(0);
    let rounds = async |locks: FileLocks, number: usize| {
        for round in 0..60 {
            let alone = (round + number).is_multiple_of(5);
            let mode = if alone { LockMode::Exclusive } else { LockMode::Shared };
            let guard = timeout(SOON, locks.take("t", mode)).await.expect("no lock is lost");
            let step = if alone { 1000 } else { 1 };
            let before = inside.fetch_add(step, Ordering::SeqCst);
            assert!(before == 0 || (!alone && before < 1000), "{before} with {mode:?}");
            std::thread::yield_now();
            inside.fetch_sub(step, Ordering::SeqCst);
            drop(guard.unwrap());
        }
    };

    std::thread::scope(|threads| {
        for number in 0..8 {
            let (rounds, dir) = (&rounds, dir.path());
            threads.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.unwrap().block_on(rounds(FileLocks::new(dir), number));
            });
        }
    });

    assert_eq!(files(dir.path()), 0);
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_is_no_concern_before_the_first_lock() {
    let locks = FileLocks::new(Path::new("/proc/no-such-folder/lock"));

    let error = Locks::lock(&locks, "v", LockMode::Exclusive).await.err().unwrap();

    assert!(error.sentence().contains("making the folder of lock files"), "{error:?}");
    assert!(FileLocks::open(Path::new("/proc/no-such-folder/lock")).is_err());
}

#[tokio::test]
async fn a_folder_that_was_cleaned_away_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/lock");
    let locks = FileLocks::open(&path).unwrap();
    fs::remove_dir(&path).unwrap();

    drop(soon(&locks, LockMode::Exclusive).await);

    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_folder_that_others_can_write_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let open = dir.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(dir.path(), &link).unwrap();

    for path in [open, link] {
        assert_eq!(FileLocks::open(&path).unwrap_err().kind(), Kind::Denied, "{path:?}");
    }
}

proptest! {
    #[test]
    fn any_name_is_one_plain_file_name(name in "\\PC{0,400}", other in "\\PC{0,8}") {
        let file = file_name(&name);

        prop_assert!(file.len() <= 255 && !file.starts_with('.'));
        prop_assert!(file.bytes().all(|b| b.is_ascii_graphic() && b != b'/'));
        prop_assert_eq!(file == file_name(&other), name == other);
    }
}
