//! Rules about the kernel's parts that hold on every host, with and without privileges.

use std::time::Duration;

use hawser_core::port::kernel::LockMode;

use super::HostRig;
use crate::fake_host::kernel::errno::{ENOENT, ENOTBLK};

const SHORT: Duration = Duration::from_secs(5);

/// What is not there is nothing, and no error.
pub async fn looking_at_nothing_is_nothing(rig: HostRig) {
    let path = rig.scratch.join("no/such/thing");
    let files = rig.host.files();

    assert_eq!(files.read(&path).expect("read"), None);
    assert!(files.list(&path).expect("list").is_empty());
    assert_eq!(files.resolve(&path).expect("resolve"), None);
    assert_eq!(files.device_number(&path).expect("look"), None);
    assert!(!files.remove(&path).await.expect("remove"));
}

/// Settings replace what was there, are made only where nothing is, and their folder stays until it
/// is empty.
pub async fn settings_are_stored_made_and_removed(rig: HostRig) {
    let folder = rig.scratch.join("settings");
    let file = folder.join("one");
    let files = rig.host.files();

    files.store(&file, b" first\n\0", 0o600).await.expect("store");
    assert_eq!(files.read_text(&file).expect("read").as_deref(), Some("first"));
    assert!(!files.create(&file, b"second", 0o600).await.expect("create"));
    assert_eq!(files.read(&file).expect("read").as_deref(), Some(&b" first\n\0"[..]));
    files.store(&file, b"third", 0o600).await.expect("store again");
    assert_eq!(files.list(&folder).expect("list"), ["one"]);
    files.remove(&folder).await.expect_err("a folder with something in it");
    assert!(files.remove(&file).await.expect("remove"));
    assert!(!files.remove(&file).await.expect("remove again"));
    assert!(files.create(&file, b"fourth", 0o600).await.expect("create"));
    assert_eq!(files.read(&file).expect("read").as_deref(), Some(&b"fourth"[..]));
    assert!(files.remove(&file).await.expect("remove"));
    assert!(files.remove(&folder).await.expect("remove an empty folder"));
}

/// A write to a file of the kernel that is not there is refused and makes none.
pub async fn writing_never_makes_a_file(rig: HostRig) {
    let path = rig.scratch.join("absent");

    let error = rig.host.files().write(&path, b"1", SHORT).await.expect_err("no such file");

    assert_eq!(error.errno(), Some(ENOENT), "{error:?}");
    assert_eq!(rig.host.files().resolve(&path).expect("resolve"), None);
}

/// Only block devices are opened as such.
pub async fn what_is_no_device_is_not_opened(rig: HostRig) {
    let (absent, plain) = (rig.scratch.join("absent"), rig.scratch.join("plain"));
    rig.host.files().store(&plain, b"data", 0o600).await.expect("store");

    for (path, errno) in [(absent, ENOENT), (plain, ENOTBLK)] {
        let opened = rig.host.disks().open(&path).await.map(drop);
        assert_eq!(opened.expect_err("no device").errno(), Some(errno), "{}", path.display());
        let asked = rig.host.disks().is_claimed(&path).await;
        assert_eq!(asked.expect_err("no device").errno(), Some(errno), "{}", path.display());
    }
}

/// A name of a lock that no other test uses.
fn lock_name(rig: &HostRig, what: &str) -> String {
    format!("contract-{what}-{}", rig.scratch.display()).replace(['/', '.'], "-")
}

/// Any number share a lock, or one has it alone.
pub async fn locks_are_shared_or_alone(rig: HostRig) {
    if rig.lacks_privileges().await {
        return;
    }
    let name = lock_name(&rig, "shared");
    let lock = |mode| rig.host.locks().lock(&name, mode);
    let soon = Duration::from_millis(100);

    let one = lock(LockMode::Shared).await.expect("share");
    let two = lock(LockMode::Shared).await.expect("share");
    assert!(tokio::time::timeout(soon, lock(LockMode::Exclusive)).await.is_err());
    drop((one, two));
    let alone = lock(LockMode::Exclusive).await.expect("alone");
    assert!(tokio::time::timeout(soon, lock(LockMode::Shared)).await.is_err());
    assert!(tokio::time::timeout(soon, lock(LockMode::Exclusive)).await.is_err());
    drop(alone);

    lock(LockMode::Shared).await.map(drop).expect("share again");
}

/// Who stops waiting does not get the lock later and keep it.
pub async fn a_waiter_for_a_lock_may_be_dropped(rig: HostRig) {
    if rig.lacks_privileges().await {
        return;
    }
    let name = lock_name(&rig, "dropped");
    let held = rig.host.locks().lock(&name, LockMode::Exclusive).await.expect("alone");
    for _ in 0..3 {
        let waiter = rig.host.locks().lock(&name, LockMode::Exclusive);
        assert!(tokio::time::timeout(Duration::from_millis(20), waiter).await.is_err());
    }
    drop(held);

    let next = rig.host.locks().lock(&name, LockMode::Exclusive);
    tokio::time::timeout(SHORT, next).await.expect("nobody else has it").map(drop).expect("alone");
}

/// A wait is over at its limit at the latest, whether or not there are events.
pub async fn a_wait_for_events_ends_at_its_limit(rig: HostRig) {
    let mut events = rig.host.events().subscribe();

    let waited = tokio::time::timeout(SHORT, events.changed(Duration::from_millis(60))).await;

    assert!(waited.is_ok(), "it still waits");
}
