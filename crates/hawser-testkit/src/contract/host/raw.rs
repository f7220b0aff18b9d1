//! Rules about devices that are shown in files.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hawser_core::port::host::{HostMount, LoopDevice, MountSource, SeenKind};
use hawser_core::{ByteSize, Change, Kind, Reason};

use super::HostRig;

const LIMIT: Duration = Duration::from_secs(10);

fn raw(device: &LoopDevice, target: &Path) -> HostMount {
    HostMount {
        source: MountSource::Raw { device: device.device.clone() },
        target: target.to_owned(),
        read_only: false,
        flags: Vec::new(),
    }
}

impl HostRig {
    async fn file(&self, name: &str) -> PathBuf {
        let target = self.scratch.join(name);
        let made = self.host.make_target_file(&target).await.expect("make a file");
        assert_eq!(made, Change::Made(()));
        target
    }

    async fn kind_of(&self, path: &Path) -> Option<SeenKind> {
        self.host.look(path, LIMIT).await.expect("look").map(|seen| seen.kind)
    }
}

/// A file is made once, empty and for its owner alone, and goes once.
pub async fn target_files_are_made_and_removed_once(rig: HostRig) {
    let target = rig.file("target").await;

    let again = rig.host.make_target_file(&target).await.expect("make again");
    assert_eq!(again, Change::Already(()));
    let meta = fs::metadata(&target).expect("stat");
    assert_eq!((meta.is_file(), meta.len()), (true, 0));
    assert_eq!(meta.permissions().mode() & 0o7777, 0o600);

    let removed = rig.host.remove_target(&target).await.expect("remove");
    let again = rig.host.remove_target(&target).await.expect("remove again");
    assert_eq!((removed, again), (Change::Made(()), Change::Already(())));
    assert!(rig.names(&rig.scratch).is_empty());
}

/// A file that somebody has written to is taken as it is, and is never removed.
pub async fn a_target_file_with_something_in_it_stays(rig: HostRig) {
    let target = rig.scratch.join("target");
    fs::write(&target, "data").expect("write");

    let made = rig.host.make_target_file(&target).await.expect("there");
    let removed = rig.host.remove_target(&target).await.expect("left alone");

    assert_eq!((made, removed), (Change::Already(()), Change::Already(())));
    assert_eq!(fs::read_to_string(&target).expect("read"), "data");
}

/// Not in the place of a folder, through a link, without a parent, or by a path that is not plain.
pub async fn a_target_file_is_made_where_a_file_can_be(rig: HostRig) {
    let folder = rig.folder("folder");
    let link = rig.scratch.join("link");
    symlink(rig.scratch.join("nothing"), &link).expect("symlink");

    let on_folder = rig.host.make_target_file(&folder).await.expect_err("a folder");
    assert_eq!(on_folder.kind(), Kind::Precondition, "{on_folder:?}");
    assert!(rig.host.make_target_file(&link).await.is_err());
    let lost = rig.host.make_target_file(&rig.scratch.join("no/such")).await.expect_err("lost");
    assert_eq!(lost.kind(), Kind::NotFound, "{lost:?}");
    for path in [PathBuf::from("relative"), rig.scratch.join("a/../b")] {
        let error = rig.host.make_target_file(&path).await.expect_err("not plain");
        assert_eq!(error.kind(), Kind::Invalid, "{path:?}: {error:?}");
    }
    assert_eq!(rig.names(&rig.scratch), ["folder", "link"]);
}

/// A device is shown in a file once, can be told from the table, and goes once.
pub async fn a_device_is_shown_in_a_file_once(rig: HostRig) {
    if rig.lacks_privileges().await {
        return;
    }
    let device = rig.attached("disk", ByteSize::mib(4)).await;
    let target = rig.file("target").await;

    let first = rig.host.mount(&raw(&device, &target)).await.expect("show");
    let second = rig.host.mount(&raw(&device, &target)).await.expect("show again");
    assert_eq!((first, second), (Change::Made(()), Change::Already(())));
    assert_eq!(rig.kind_of(&target).await, Some(SeenKind::BlockDevice));
    let table = rig.host.mounts().await.expect("table");
    let shown: Vec<_> = table.iter().filter(|entry| entry.binds(&device.device, &table)).collect();
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert_eq!((&shown[0].target, shown[0].read_only()), (&target, false));
    let made = rig.host.make_target_file(&target).await.expect("there");
    let removed = rig.host.remove_target(&target).await.expect("in use");
    assert_eq!((made, removed), (Change::Already(()), Change::Already(())));

    let first = rig.host.unmount(&target).await.expect("unmount");
    let second = rig.host.unmount(&target).await.expect("unmount again");
    assert_eq!((first, second), (Change::Made(()), Change::Already(())));
    assert_eq!(rig.kind_of(&target).await, Some(SeenKind::File));
    assert!(rig.host.remove_target(&target).await.expect("remove").is_made());
    rig.host.detach_loop(&device, false).await.expect("detach");
}

/// A device that is shown somewhere is in use.
pub async fn a_shown_device_is_not_detached(rig: HostRig) {
    if rig.lacks_privileges().await {
        return;
    }
    let device = rig.attached("disk", ByteSize::mib(4)).await;
    let target = rig.file("target").await;
    rig.host.mount(&raw(&device, &target)).await.expect("show");

    for force in [false, true] {
        let busy = rig.host.detach_loop(&device, force).await.expect_err("shown");
        assert_eq!((busy.kind(), busy.reason()), (Kind::Busy, Some(Reason::DeviceBusy)));
    }

    rig.host.unmount(&target).await.expect("unmount");
    assert!(rig.host.detach_loop(&device, false).await.expect("detach").is_made());
}

/// Only a device is shown, and only in a plain file; file systems are not mounted on files.
pub async fn a_device_is_shown_in_plain_files_only(rig: HostRig) {
    if rig.lacks_privileges().await {
        return;
    }
    let device = rig.attached("disk", ByteSize::mib(4)).await;
    let (folder, file) = (rig.folder("folder"), rig.file("file").await);
    let link = rig.scratch.join("link");
    symlink(&file, &link).expect("symlink");

    let on_folder = rig.host.mount(&raw(&device, &folder)).await.expect_err("a folder");
    assert_eq!(on_folder.kind(), Kind::Precondition, "{on_folder:?}");
    assert!(rig.host.mount(&raw(&device, &link)).await.is_err());
    let absent = rig.host.mount(&raw(&device, &rig.scratch.join("absent"))).await;
    assert_eq!(absent.expect_err("absent").kind(), Kind::NotFound);
    let no_device = LoopDevice { device: folder.clone(), ..device.clone() };
    assert!(rig.host.mount(&raw(&no_device, &file)).await.is_err());
    let on_file = rig.host.mount(&super::bind(&folder, &file)).await.expect_err("a file");
    assert_eq!(on_file.kind(), Kind::Precondition, "{on_file:?}");

    for target in [&folder, &file] {
        assert!(rig.mounted_at(target).await.is_none(), "{target:?}");
    }
    rig.host.detach_loop(&device, false).await.expect("detach");
}

/// What a file shows is not replaced by another device or another access.
pub async fn another_device_or_access_in_a_file_is_refused(rig: HostRig) {
    if rig.lacks_privileges().await {
        return;
    }
    let device = rig.attached("disk", ByteSize::mib(4)).await;
    let other = rig.attached("other", ByteSize::mib(4)).await;
    let target = rig.file("target").await;
    let read_only = HostMount { read_only: true, ..raw(&device, &target) };
    rig.host.mount(&read_only).await.expect("show");
    assert!(rig.mounted_at(&target).await.expect("a mount").read_only());

    let others = HostMount { read_only: true, ..raw(&other, &target) };
    for request in [raw(&device, &target), others] {
        let error = rig.host.mount(&request).await.expect_err("taken");
        assert_eq!(error.kind(), Kind::Precondition, "{request:?}: {error:?}");
    }
    assert_eq!(rig.host.mount(&read_only).await.expect("the same"), Change::Already(()));

    rig.host.unmount(&target).await.expect("unmount");
    assert!(rig.mounted_at(&target).await.is_none(), "nothing was stacked");
    for device in [device, other] {
        rig.host.detach_loop(&device, false).await.expect("detach");
    }
}
