//! Devices shown in files, groups of mounted file systems, and how full a dead one is.

use std::os::unix::fs::FileTypeExt;

use super::*;

impl Bench {
    async fn file(&self, name: &str) -> PathBuf {
        let target = self.base.join(name);
        assert!(self.host.make_target_file(&target).await.unwrap().is_made());
        target
    }

    async fn entry(&self, target: &Path) -> hawser_core::port::host::MountEntry {
        let table = self.host.mounts().await.unwrap();
        table.into_iter().find(|entry| entry.target == target).unwrap()
    }
}

fn raw(device: &LoopDevice, target: &Path) -> HostMount {
    HostMount {
        source: MountSource::Raw { device: device.device.clone() },
        target: target.to_owned(),
        read_only: false,
        flags: Vec::new(),
    }
}

fn write(path: &Path, byte: u8) -> std::io::Result<()> {
    let file = fs::OpenOptions::new().write(true).open(path)?;
    file.write_all_at(&[byte; 512], 0)?;
    file.sync_all()
}

#[tokio::test]
async fn loop_a_device_is_read_and_written_through_the_file_that_shows_it() {
    let Some(bench) = Bench::new().await else { return };
    let device = bench.attach(&bench.image("disk", 4)).await;
    let target = bench.file("target").await;

    assert_eq!(bench.host.mount(&raw(&device, &target)).await.unwrap(), Change::Made(()));
    assert_eq!(bench.host.mount(&raw(&device, &target)).await.unwrap(), Change::Already(()));

    let seen = fs::metadata(&target).unwrap();
    assert!(seen.file_type().is_block_device());
    assert_eq!(seen.rdev(), fs::metadata(&device.device).unwrap().rdev());
    let table = bench.host.mounts().await.unwrap();
    let entry = bench.entry(&target).await;
    assert!(entry.binds(&device.device, &table) && !entry.shows_removed(), "{entry:?}");
    write(&target, 7).unwrap();
    assert_eq!(fs::read(&device.backing_file).unwrap()[..512], [7; 512]);
    assert!(!bench.host.make_target_file(&target).await.unwrap().is_made());
    assert!(!bench.host.remove_target(&target).await.unwrap().is_made());

    assert_eq!(bench.host.unmount(&target).await.unwrap(), Change::Made(()));
    assert_eq!(bench.host.remove_target(&target).await.unwrap(), Change::Made(()));
    assert!(!target.exists() && device.device.exists());
    bench.host.detach_loop(&device, false).await.unwrap();
}

#[tokio::test]
async fn loop_a_device_shown_by_a_name_that_is_a_link_is_the_device() {
    let Some(bench) = Bench::new().await else { return };
    let device = bench.attach(&bench.image("disk", 4)).await;
    let target = bench.file("target").await;
    let link = bench.base.join("by-id");
    std::os::unix::fs::symlink(&device.device, &link).unwrap();
    let named = LoopDevice { device: link, ..device.clone() };

    bench.host.mount(&raw(&named, &target)).await.unwrap();

    assert_eq!(bench.host.mount(&raw(&device, &target)).await.unwrap(), Change::Already(()));
    assert!(fs::metadata(&target).unwrap().file_type().is_block_device());
}

#[tokio::test]
async fn loop_a_raw_device_without_the_right_to_write_needs_the_devices_own_mark() {
    let Some(bench) = Bench::new().await else { return };
    let device = bench.attach(&bench.image("disk", 4)).await;
    let target = bench.file("target").await;
    bench.host.mount(&HostMount { read_only: true, ..raw(&device, &target) }).await.unwrap();
    assert!(bench.entry(&target).await.read_only());
    let other = bench.host.mount(&raw(&device, &target)).await.unwrap_err();
    assert_eq!(other.kind(), Kind::Precondition, "{other:?}");
    // What the mount says does not hold for a device.
    write(&target, 1).unwrap();

    bench.host.disks().set_read_only(&device.device, true).await.unwrap();

    assert!(write(&target, 2).is_err());
    assert_eq!(fs::read(&target).unwrap()[..512], [1; 512]);
    let listed = bench.host.loop_devices().await.unwrap();
    assert!(listed.contains(&device), "it was attached writable: {listed:?}");
    let again = bench.host.attach_loop(&request(&device.backing_file)).await.unwrap();
    assert_eq!(again, Change::Already(device.clone()));
    bench.host.disks().set_read_only(&device.device, false).await.unwrap();
    write(&target, 3).unwrap();
}

#[tokio::test]
async fn loop_a_mark_that_somebody_left_on_a_number_does_not_stay() {
    let Some(bench) = Bench::new().await else { return };
    let device = bench.attach(&bench.image("one", 4)).await;
    bench.host.disks().set_read_only(&device.device, true).await.unwrap();
    bench.host.detach_loop(&device, false).await.unwrap();

    // Most likely of the same number; the first free one is taken.
    let next = bench.attach(&bench.image("two", 4)).await;

    write(&next.device, 5).unwrap();
    // Not for whoever comes next, where nobody came yet.
    let listed = bench.host.loop_devices().await.unwrap();
    if listed.iter().all(|other| other.device != device.device) {
        let _ = bench.host.disks().set_read_only(&device.device, false).await;
    }
}

#[tokio::test]
async fn loop_a_device_that_is_shown_is_not_detached() {
    let Some(bench) = Bench::new().await else { return };
    let device = bench.attach(&bench.image("disk", 4)).await;
    let target = bench.file("target").await;
    bench.host.mount(&raw(&device, &target)).await.unwrap();

    let busy = bench.host.detach_loop(&device, true).await.unwrap_err();

    assert_eq!((busy.kind(), busy.reason()), (Kind::Busy, Some(Reason::DeviceBusy)), "{busy:?}");
    assert!(busy.sentence().contains("target"), "{busy:?}");
    bench.host.unmount(&target).await.unwrap();
    bench.host.detach_loop(&device, false).await.unwrap();
}

#[tokio::test]
async fn loop_an_open_device_keeps_the_file_that_shows_it() {
    let Some(bench) = Bench::new().await else { return };
    let device = bench.attach(&bench.image("disk", 4)).await;
    let target = bench.file("target").await;
    bench.host.mount(&raw(&device, &target)).await.unwrap();
    let opened = fs::File::open(&target).unwrap();

    let busy = bench.host.unmount(&target).await.unwrap_err();

    assert_eq!(busy.kind(), Kind::Busy, "{busy:?}");
    drop(opened);
    bench.host.unmount(&target).await.unwrap();
}

#[tokio::test]
async fn loop_a_raw_device_is_shown_in_a_plain_file_only() {
    let Some(bench) = Bench::new().await else { return };
    let device = bench.attach(&bench.image("disk", 4)).await;
    let (folder, link) = (bench.base.join("folder"), bench.base.join("link"));
    fs::create_dir(&folder).unwrap();
    let file = bench.file("file").await;
    std::os::unix::fs::symlink(&file, &link).unwrap();

    let on_folder = bench.host.mount(&raw(&device, &folder)).await.unwrap_err();
    let on_link = bench.host.mount(&raw(&device, &link)).await.unwrap_err();
    let absent = bench.host.mount(&raw(&device, &bench.base.join("absent"))).await.unwrap_err();
    let source = MountSource::Raw { device: bench.base.join("file") };
    let no_device = HostMount { source, ..raw(&device, &file) };
    let no_device = bench.host.mount(&no_device).await.unwrap_err();

    assert_eq!(on_folder.kind(), Kind::Precondition, "{on_folder:?}");
    assert_eq!(on_link.kind(), Kind::Invalid, "{on_link:?}");
    assert_eq!(absent.kind(), Kind::NotFound, "{absent:?}");
    assert_eq!(no_device.kind(), Kind::Invalid, "{no_device:?}");
    assert!(fs::metadata(&file).unwrap().is_file());
}

#[tokio::test]
async fn loop_a_clone_of_xfs_is_mounted_beside_its_original() {
    let Some(bench) = Bench::new().await else { return };
    let (device, target) = bench.mounted("disk", FsKind::Xfs, 320).await;
    fs::write(target.join("file"), "data").unwrap();
    bench.host.freeze(&target).await.unwrap();
    let copy = bench.base.join("copy");
    bench.host.copy_file(&device.backing_file, &copy, &Silent).await.unwrap();
    bench.host.thaw(&target).await.unwrap();
    let clone = bench.attach(&copy).await;
    let second = bench.base.join("second");
    bench.host.make_target(&second).await.unwrap();

    bench.host.mount(&mount(&clone, FsKind::Xfs, &second)).await.unwrap();

    let uuids = [&device, &clone].map(|device| bench.host.probe(&device.device));
    let [original, copied] = uuids;
    assert_eq!(original.await.unwrap(), copied.await.unwrap(), "one UUID for both");
    assert_eq!(fs::read_to_string(second.join("file")).unwrap(), "data");
    let entry = bench.entry(&second).await;
    assert!(entry.super_options.contains(&"nouuid".into()), "{entry:?}");
}

#[tokio::test]
async fn loop_mounts_give_no_rights_of_this_host() {
    let Some(bench) = Bench::new().await else { return };
    let (_, target) = bench.mounted("disk", FsKind::Ext4, 16).await;

    let entry = bench.entry(&target).await;

    for option in ["nosuid", "nodev"] {
        assert!(entry.options.iter().any(|own| own == option), "{option}: {entry:?}");
    }
}

#[tokio::test]
async fn loop_a_mounted_file_system_is_given_to_a_group_and_what_is_mounted_in_it_is_not() {
    let Some(bench) = Bench::new().await else { return };
    let (_, target) = bench.mounted("disk", FsKind::Ext4, 16).await;
    let (given, other) = (target.join("given"), target.join("other"));
    for folder in [&given, &other, &given.join("tmpfs"), &given.join("bound")] {
        fs::create_dir(folder).unwrap();
    }
    for file in [given.join("file"), other.join("theirs")] {
        fs::write(file, "x").unwrap();
    }
    let tmpfs = given.join("tmpfs");
    rustix::mount::mount("none", &tmpfs, "tmpfs", MountFlags::empty(), c"size=1m").unwrap();
    // The same file system, and still another mount.
    rustix::mount::mount_bind(&other, given.join("bound")).unwrap();

    assert!(bench.host.give_to_group(&given, 54_321).await.unwrap().is_made());
    assert!(!bench.host.give_to_group(&given, 54_321).await.unwrap().is_made());

    let group = |path: &Path| fs::metadata(path).unwrap().gid();
    assert_eq!((group(&given), group(&given.join("file"))), (54_321, 54_321));
    assert_eq!((group(&tmpfs), group(&other), group(&other.join("theirs"))), (0, 0, 0));
    assert_eq!(fs::metadata(&given).unwrap().mode() & 0o2070, 0o2070);
}

#[tokio::test]
async fn loop_how_many_files_fit_is_told() {
    let Some(bench) = Bench::new().await else { return };
    let (_, target) = bench.mounted("disk", FsKind::Ext4, 16).await;
    let before = bench.host.usage(&target).await.unwrap();

    for number in 0..10 {
        fs::write(target.join(format!("file{number}")), "").unwrap();
    }

    let after = bench.host.usage(&target).await.unwrap();
    assert!(before.files > 1000, "{before:?}");
    assert_eq!((after.files, before.files_free - after.files_free), (before.files, 10));
}
