//! The registry as files: its contract, and what the files look like.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail with their test")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hawser_connect::FileRegistry;
use hawser_core::Kind;
use hawser_core::id::PublicationId;
use hawser_core::port::Registry;
use hawser_testkit::contract::registry::{RegistryRig, full_record};
use rustix::fs::{FlockOperation, flock};

fn open(dir: &Path) -> FileRegistry {
    FileRegistry::open(&dir.join("run"), &dir.join("lock")).unwrap()
}

fn rig() -> RegistryRig {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().to_path_buf();
    let spoil = move |publication: &PublicationId| {
        let path = at.join(format!("run/attachments/{publication}.json"));
        fs::write(&path, b"{\"format\":1,\"record\":{\"publi").unwrap();
        move || fs::read(&path).ok()
    };
    RegistryRig::new(Arc::new(open(dir.path())), Arc::new(open(dir.path())), spoil, dir)
}

hawser_testkit::registry_contract!(rig());

#[tokio::test]
async fn a_write_whose_caller_went_away_lands_before_what_comes_next() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(dir.path());
    let record = full_record();
    let folder = fs::File::open(dir.path().join("run/attachments")).unwrap();
    flock(&folder, FlockOperation::LockExclusive).unwrap();
    let limit = Duration::from_millis(50);
    // It waits for the folder; who asked for it does not.
    assert!(tokio::time::timeout(limit, registry.put(&record)).await.is_err());

    let next = registry.get(&record.publication);
    let early = tokio::time::timeout(limit, next).await;
    flock(&folder, FlockOperation::Unlock).unwrap();

    assert!(early.is_err(), "{early:?}");
    assert!(registry.get(&record.publication).await.unwrap().is_some());
}

#[tokio::test]
async fn files_and_folders_are_private_and_hold_no_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("run/attachments");
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let registry = open(dir.path());
    let record = full_record();

    registry.put(&record).await.unwrap();

    let file = folder.join(format!("{}.json", record.publication));
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o7777, 0o700);
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o600);
    assert!(text.contains("\"format\": 1") && !text.contains("hunter2"), "{text}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left aside");
}

#[tokio::test]
async fn every_stranger_is_listed_with_its_reason_and_none_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(dir.path());
    let folder = dir.path().join("run/attachments");
    let id = || folder.join(format!("{}.json", PublicationId::generate()));
    let record = full_record();
    registry.put(&record).await.unwrap();
    let good = folder.join(format!("{}.json", record.publication));
    let (newer, pipe, large) = (id(), id(), id());
    fs::write(&newer, r#"{"format":99,"record":{}}"#).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    fs::File::create(&large).unwrap().set_len(64 << 30).unwrap();
    fs::write(id(), "").unwrap();
    fs::copy(&good, id()).unwrap();
    symlink(&good, id()).unwrap();
    fs::create_dir(id()).unwrap();
    fs::write(folder.join("README"), "hello").unwrap();
    fs::write(folder.join("pub-x.json"), "{}").unwrap();

    let listed = registry.list().await.unwrap();

    assert_eq!(listed.records.len(), 1);
    assert_eq!(listed.unreadable.len(), 9, "{listed:?}");
    let why = |path: &Path| {
        let found = listed.unreadable.iter().find(|(at, _)| at == path);
        found.map(|(_, why)| why.clone()).unwrap_or_default()
    };
    assert!(why(&newer).contains("newer"), "{}", why(&newer));
    assert!(why(&pipe).contains("no plain file"), "{}", why(&pipe));
    assert!(why(&large).contains("larger"), "{}", why(&large));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 10);
}

#[tokio::test]
async fn what_a_dead_writer_left_is_no_record_and_goes() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(dir.path());
    let half = dir.path().join("run/attachments/.new-pub-x");
    fs::write(&half, "half").unwrap();

    let listed = registry.list().await.unwrap();
    open(dir.path());

    assert!(listed.records.is_empty() && listed.unreadable.is_empty(), "{listed:?}");
    assert!(!half.exists(), "abandoned");
}

#[tokio::test]
async fn what_a_living_writer_has_aside_stays() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path());
    let folder = dir.path().join("run/attachments");
    let half = folder.join(".new-pub-x");
    let writer = fs::File::open(&folder).unwrap();
    writer.lock().unwrap();
    fs::write(&half, "half").unwrap();

    std::thread::scope(|scope| {
        let other = scope.spawn(|| open(dir.path()));
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(half.exists() && !other.is_finished(), "its writer is alive");
        drop(writer);
    });

    assert!(!half.exists(), "now it is abandoned");
}

#[tokio::test]
async fn a_failed_write_keeps_the_old_record_and_leaves_nothing_aside() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(dir.path());
    let record = full_record();
    registry.put(&record).await.unwrap();
    let folder = dir.path().join("run/attachments");
    fs::remove_dir_all(&folder).unwrap();

    let error = registry.put(&record).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.sentence().contains(record.publication.as_str()), "{error:?}");
    assert!(registry.list().await.is_err(), "a lost folder is not an empty one");
}

#[tokio::test]
async fn released_locks_leave_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(dir.path());

    let guard = registry.lock("volume/v1").await.unwrap();
    assert_eq!(fs::read_dir(dir.path().join("lock")).unwrap().count(), 1);
    drop(guard);

    assert_eq!(fs::read_dir(dir.path().join("lock")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_symlink_in_the_place_of_a_lock_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(dir.path());
    symlink(dir.path().join("victim"), dir.path().join("lock/v.lock")).unwrap();

    let error = registry.lock("v").await.err().unwrap();

    assert!(error.sentence().contains("v.lock"), "{error:?}");
    assert!(!dir.path().join("victim").exists());
}

#[test]
fn a_file_in_the_place_of_the_folder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("attachments"), "").unwrap();

    assert!(FileRegistry::open(dir.path(), &dir.path().join("lock")).is_err());
}
