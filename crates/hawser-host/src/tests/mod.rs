//! The host on real devices. Tests named `loop_` need root and skip without it.

mod network;
mod raw;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hawser_core::filesystem::FsKind;
use hawser_core::port::Host;
use hawser_core::port::host::{Content, HostMount, LoopAttach, LoopDevice, MountSource};
use hawser_core::port::progress::{Progress, Silent};
use hawser_core::{ByteSize, Change, Kind, Reason};
use hawser_testkit::contract::host::HostRig;
use rustix::mount::{MountFlags, UnmountFlags};
use uuid::Uuid;

use crate::facts::may_resize_ext4;
use crate::mount::table;
use crate::{HostSettings, LinuxHost, block::loop_device, sys};

/// A folder that leaves no mount, loop device or file behind, also after a panic.
struct Scratch {
    folder: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().canonicalize().expect("its real path")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let base = self.path();
        for entry in table::read().unwrap_or_default().iter().rev() {
            if entry.target.starts_with(&base) {
                if let Ok(folder) = fs::File::open(&entry.target) {
                    let _ = sys::thaw(&folder);
                }
                let unmount = |flags| rustix::mount::unmount(&entry.target, flags);
                let _ = unmount(UnmountFlags::NOFOLLOW).or_else(|_| unmount(UnmountFlags::DETACH));
            }
        }
        for device in loop_device::list().unwrap_or_default() {
            if device.backing_file.starts_with(&base) {
                // What was unmounted while busy lets go of its device a little later.
                for _ in 0..20 {
                    match loop_device::detach(&device, true) {
                        Ok(_) => break,
                        Err(_) => std::thread::sleep(Duration::from_millis(50)),
                    }
                }
            }
        }
    }
}

fn rig() -> HostRig {
    let scratch = Scratch::new();
    let path = scratch.path();
    HostRig::new(Arc::new(LinuxHost::new(HostSettings::default())), path, scratch)
}

hawser_testkit::host_contract!(rig());

/// A host, a folder and the means to make devices; `None` without root.
struct Bench {
    host: LinuxHost,
    base: PathBuf,
    _scratch: Scratch,
}

impl Bench {
    async fn new() -> Option<Self> {
        let host = LinuxHost::new(HostSettings::default());
        if !host.facts().await.unwrap().privileged {
            println!("skipped: needs root");
            return None;
        }
        let scratch = Scratch::new();
        Some(Self { host, base: scratch.path(), _scratch: scratch })
    }

    fn image(&self, name: &str, mib: u64) -> PathBuf {
        let path = self.base.join(name);
        fs::File::create_new(&path).unwrap().set_len(mib << 20).unwrap();
        path
    }

    async fn attach(&self, file: &Path) -> LoopDevice {
        self.host.attach_loop(&request(file)).await.unwrap().into_inner()
    }

    async fn formatted(&self, name: &str, fs: FsKind, mib: u64) -> (LoopDevice, Uuid) {
        let device = self.attach(&self.image(name, mib)).await;
        let uuid = Uuid::new_v4();
        self.host.make_filesystem(&device.device, fs, uuid).await.unwrap();
        (device, uuid)
    }

    async fn mounted(&self, name: &str, fs: FsKind, mib: u64) -> (LoopDevice, PathBuf) {
        let (device, _) = self.formatted(name, fs, mib).await;
        let target = self.base.join(format!("{name}.mount"));
        self.host.make_target(&target).await.unwrap();
        self.host.mount(&mount(&device, fs, &target)).await.unwrap();
        (device, target)
    }
}

fn request(file: &Path) -> LoopAttach {
    LoopAttach { file: file.to_owned(), mark: "test".into(), read_only: false, sector_size: 512 }
}

fn mount(device: &LoopDevice, fs: FsKind, target: &Path) -> HostMount {
    HostMount {
        source: MountSource::Device { device: device.device.clone(), fs },
        target: target.to_owned(),
        read_only: false,
        flags: Vec::new(),
    }
}

async fn life_of(fs: FsKind, mib: u64) {
    let Some(bench) = Bench::new().await else { return };
    let (device, uuid) = bench.formatted("disk", fs, mib).await;
    let content = bench.host.probe(&device.device).await.unwrap();
    assert_eq!(content, Content::Filesystem { fs, uuid: Some(uuid) });
    bench.host.check_filesystem(&device.device, fs).await.unwrap();
    let target = bench.base.join("target");
    bench.host.make_target(&target).await.unwrap();
    let request = mount(&device, fs, &target);
    assert_eq!(bench.host.mount(&request).await.unwrap(), Change::Made(()));
    assert_eq!(bench.host.mount(&request).await.unwrap(), Change::Already(()));
    fs::write(target.join("file"), "data").unwrap();
    let before = bench.host.usage(&target).await.unwrap().total;

    let file = fs::OpenOptions::new().write(true).open(&device.backing_file).unwrap();
    file.set_len((2 * mib) << 20).unwrap();
    assert_eq!(bench.host.resize_loop(&device).await.unwrap(), ByteSize::mib(2 * mib));
    let grow = || bench.host.grow_filesystem(&device.device, fs, &target);
    assert_eq!(grow().await.unwrap(), Change::Made(()));
    assert_eq!(grow().await.unwrap(), Change::Already(()));
    assert!(bench.host.usage(&target).await.unwrap().total > before);

    assert_eq!(bench.host.freeze(&target).await.unwrap(), Change::Made(()));
    assert_eq!(bench.host.freeze(&target).await.unwrap(), Change::Already(()));
    let copy = bench.base.join("copy");
    bench.host.copy_file(&device.backing_file, &copy, &Silent).await.unwrap();
    assert_eq!(bench.host.thaw(&target).await.unwrap(), Change::Made(()));
    assert_eq!(bench.host.thaw(&target).await.unwrap(), Change::Already(()));

    let clone = bench.attach(&copy).await;
    assert_eq!(bench.host.check_filesystem(&clone.device, fs).await.unwrap(), Change::Already(()));
    let second = bench.base.join("second");
    bench.host.make_target(&second).await.unwrap();
    if fs == FsKind::Btrfs {
        // btrfs tells devices apart by UUID only; its copy waits until the original is away.
        bench.host.unmount(&target).await.unwrap();
        bench.host.detach_loop(&device, false).await.unwrap();
    }
    bench.host.mount(&mount(&clone, fs, &second)).await.unwrap();
    assert_eq!(fs::read_to_string(second.join("file")).unwrap(), "data");

    bench.host.unmount(&second).await.unwrap();
    assert_eq!(bench.host.detach_loop(&clone, false).await.unwrap(), Change::Made(()));
    if fs != FsKind::Btrfs {
        bench.host.unmount(&target).await.unwrap();
        assert_eq!(bench.host.detach_loop(&device, false).await.unwrap(), Change::Made(()));
    }
}

#[tokio::test]
async fn loop_ext4_lives_grows_and_is_copied_while_frozen() {
    life_of(FsKind::Ext4, 64).await;
}

#[tokio::test]
async fn loop_xfs_lives_grows_and_is_copied_while_frozen() {
    life_of(FsKind::Xfs, 320).await;
}

#[tokio::test]
async fn loop_btrfs_lives_grows_and_is_copied_while_frozen() {
    life_of(FsKind::Btrfs, 256).await;
}

/// As a container has it: its folder is a second mount of what is staged.
#[tokio::test]
async fn loop_ext4_that_is_mounted_twice_grows_in_place_or_says_what_is_missing() {
    let Some(bench) = Bench::new().await else { return };
    let (device, target) = bench.mounted("disk", FsKind::Ext4, 64).await;
    let second = bench.base.join("second");
    fs::create_dir(&second).unwrap();
    rustix::mount::mount_bind(&target, &second).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&device.backing_file).unwrap();
    file.set_len(128 << 20).unwrap();
    bench.host.resize_loop(&device).await.unwrap();

    let grown = bench.host.grow_filesystem(&device.device, FsKind::Ext4, &target).await;

    if may_resize_ext4() {
        assert_eq!(grown.unwrap(), Change::Made(()));
    } else {
        let error = grown.unwrap_err();
        assert_eq!((error.kind(), error.reason()), (Kind::Precondition, Some(Reason::DeviceBusy)));
        let text = error.to_string();
        assert!(text.contains("CAP_SYS_RESOURCE") && text.contains("second"), "{text}");
    }
    let mounts = table::read().unwrap();
    for folder in [&target, &second] {
        assert!(mounts.iter().any(|entry| entry.target == **folder), "{folder:?} is unmounted");
    }
}

#[tokio::test]
async fn loop_a_copy_on_xfs_shares_its_blocks() {
    let Some(bench) = Bench::new().await else { return };
    let (_, target) = bench.mounted("pool", FsKind::Xfs, 320).await;
    let from = target.join("from");
    fs::write(&from, vec![5_u8; 8 << 20]).unwrap();
    fs::create_dir(target.join("tree")).unwrap();
    fs::copy(&from, target.join("tree/file")).unwrap();

    let file = bench.host.copy_file(&from, &target.join("to"), &Silent).await.unwrap();
    let tree =
        bench.host.copy_tree(&target.join("tree"), &target.join("second"), &Silent).await.unwrap();

    assert!(file.shared && tree.shared, "{file:?} {tree:?}");
    assert_eq!(file.bytes, ByteSize::ZERO);
    assert!(fs::read(&from).unwrap() == fs::read(target.join("second/file")).unwrap());
}

#[tokio::test]
async fn loop_a_file_that_is_open_keeps_the_mount_and_is_named() {
    let Some(bench) = Bench::new().await else { return };
    let (_, target) = bench.mounted("disk", FsKind::Ext4, 16).await;
    let file = fs::File::create(target.join("file")).unwrap();

    let busy = bench.host.unmount(&target).await.unwrap_err();

    assert_eq!(busy.kind(), Kind::Busy);
    assert!(busy.sentence().contains(&format!("({})", std::process::id())), "{busy:?}");
    drop(file);
    assert_eq!(bench.host.unmount(&target).await.unwrap(), Change::Made(()));
}

#[tokio::test]
async fn loop_a_device_that_is_open_is_not_detached() {
    let Some(bench) = Bench::new().await else { return };
    let device = bench.attach(&bench.image("disk", 4)).await;
    let opened = fs::File::open(&device.device).unwrap();

    for force in [false, true] {
        let busy = bench.host.detach_loop(&device, force).await.unwrap_err();

        assert_eq!(busy.kind(), Kind::Busy);
        assert_eq!(busy.reason(), Some(Reason::DeviceBusy), "{busy:?}");
        assert!(bench.host.loop_devices().await.unwrap().contains(&device));
    }
    drop(opened);
    assert_eq!(bench.host.detach_loop(&device, false).await.unwrap(), Change::Made(()));
}

#[tokio::test]
async fn loop_what_cannot_be_written_out_keeps_the_device_and_is_lost_by_force_only() {
    let Some(bench) = Bench::new().await else { return };
    let full = bench.base.join("full");
    fs::create_dir(&full).unwrap();
    // A file system with room for a quarter of the image: the rest is cached, and never fits.
    rustix::mount::mount("none", &full, "tmpfs", MountFlags::empty(), c"size=1m").unwrap();
    let device = bench.attach(&bench.image("full/disk", 4)).await;
    let write = |byte| {
        let node = fs::OpenOptions::new().write(true).open(&device.device).unwrap();
        node.write_all_at(&vec![byte; 2 << 20], 0).unwrap();
    };

    write(1);
    let kept = bench.host.detach_loop(&device, false).await.unwrap_err();
    assert_eq!(kept.reason(), Some(Reason::FlushFailed), "{kept:?}");
    assert!(bench.host.loop_devices().await.unwrap().contains(&device));
    write(2);
    let lost = bench.host.detach_loop(&device, true).await.unwrap_err();

    assert_eq!(lost.reason(), Some(Reason::DataLost), "{lost:?}");
    assert!(lost.is_unknown());
    assert!(!bench.host.loop_devices().await.unwrap().contains(&device));
    assert_eq!(bench.host.detach_loop(&device, true).await.unwrap(), Change::Already(()));
}

#[tokio::test]
async fn loop_a_device_is_found_when_its_file_has_moved_or_gone() {
    let Some(bench) = Bench::new().await else { return };
    let file = bench.image("disk", 4);
    let device = bench.attach(&file).await;
    let moved = bench.base.join("moved");
    fs::rename(&file, &moved).unwrap();

    let again = bench.host.attach_loop(&request(&moved)).await.unwrap();
    assert!(!again.is_made());
    assert_eq!(again.get().device, device.device);

    fs::remove_file(&moved).unwrap();
    let listed = bench.host.loop_devices().await.unwrap();
    let gone = listed.iter().find(|other| other.device == device.device).unwrap();
    assert!(gone.backing_file.to_string_lossy().ends_with(" (deleted)"));
    assert_eq!(bench.host.detach_loop(again.get(), false).await.unwrap(), Change::Made(()));
}

#[tokio::test]
async fn loop_a_file_with_a_device_of_another_owner_is_refused() {
    let Some(bench) = Bench::new().await else { return };
    let file = bench.image("disk", 4);
    let device = bench.attach(&file).await;

    let other = LoopAttach { mark: "other".into(), ..request(&file) };
    let read_only = LoopAttach { read_only: true, ..request(&file) };

    for request in [other, read_only] {
        let error = bench.host.attach_loop(&request).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Precondition, "{error:?}");
    }
    bench.host.detach_loop(&device, false).await.unwrap();
}

#[tokio::test]
async fn loop_sector_size_and_access_are_as_asked() {
    let Some(bench) = Bench::new().await else { return };
    let file = bench.image("disk", 4);
    let asked = LoopAttach { read_only: true, sector_size: 4096, ..request(&file) };

    let device = bench.host.attach_loop(&asked).await.unwrap().into_inner();

    assert!(device.read_only && device.sector_size == 4096, "{device:?}");
    let written = fs::OpenOptions::new()
        .write(true)
        .open(&device.device)
        .and_then(|node| node.write_all_at(&[1; 4096], 0).and_then(|()| node.sync_all()));
    assert!(written.is_err());
    bench.host.detach_loop(&device, false).await.unwrap();
}

#[tokio::test]
async fn loop_writes_after_the_probe_cache_are_seen() {
    let Some(bench) = Bench::new().await else { return };
    let file = bench.image("disk", 8);
    let device = bench.attach(&file).await;
    assert_eq!(bench.host.probe(&device.device).await.unwrap(), Content::Blank);

    // Behind the back of the device's page cache, as another host on shared storage would.
    let backing = fs::OpenOptions::new().write(true).open(&file).unwrap();
    backing.write_all_at(b"x", 12345).unwrap();
    backing.sync_all().unwrap();

    assert_eq!(bench.host.probe(&device.device).await.unwrap(), Content::Data);
    bench.host.detach_loop(&device, false).await.unwrap();
}

#[tokio::test]
async fn loop_a_foreign_signature_is_told_by_its_type() {
    let Some(bench) = Bench::new().await else { return };
    let file = bench.image("disk", 8);
    let backing = fs::OpenOptions::new().write(true).open(&file).unwrap();
    backing.write_all_at(b"LUKS\xba\xbe\x00\x01", 0).unwrap();
    let device = bench.attach(&file).await;

    let content = bench.host.probe(&device.device).await.unwrap();

    assert_eq!(content, Content::Other("crypto_LUKS".into()));
    bench.host.detach_loop(&device, false).await.unwrap();
}

#[tokio::test]
async fn loop_a_refused_mount_says_why_in_the_kernels_words() {
    let Some(bench) = Bench::new().await else { return };
    let (device, _) = bench.formatted("disk", FsKind::Ext4, 16).await;
    let target = bench.base.join("target");
    bench.host.make_target(&target).await.unwrap();
    let odd =
        HostMount { flags: vec!["nonsense=1".into()], ..mount(&device, FsKind::Ext4, &target) };

    let error = bench.host.mount(&odd).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Invalid, "{error:?}");
    assert!(error.sentence().contains("nonsense"), "{error:?}");
    let wrong = bench.host.mount(&mount(&device, FsKind::Xfs, &target)).await.unwrap_err();
    assert_eq!(wrong.kind(), Kind::Precondition, "{wrong:?}");
    bench.host.detach_loop(&device, false).await.unwrap();
}

#[tokio::test]
async fn loop_options_of_a_bind_hold_from_the_first_instant() {
    let Some(bench) = Bench::new().await else { return };
    let (source, target) = (bench.base.join("source"), bench.base.join("target"));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&target).unwrap();
    let request = HostMount {
        source: MountSource::Bind { path: source },
        target: target.clone(),
        read_only: true,
        flags: vec!["nosuid".into(), "nodev".into(), "noexec".into(), "noatime".into()],
    };

    bench.host.mount(&request).await.unwrap();

    let table = bench.host.mounts().await.unwrap();
    let entry = table.iter().find(|entry| entry.target == target).unwrap();
    for option in ["ro", "nosuid", "nodev", "noexec", "noatime"] {
        assert!(entry.options.iter().any(|own| own == option), "{option}: {entry:?}");
    }
    let error = fs::write(target.join("file"), "x").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(30), "EROFS");
    bench.host.unmount(&target).await.unwrap();
}

#[tokio::test]
async fn loop_a_damaged_ext4_is_repaired_or_needs_a_person() {
    let Some(bench) = Bench::new().await else { return };
    let (device, _) = bench.formatted("disk", FsKind::Ext4, 16).await;
    let backing = fs::OpenOptions::new().write(true).open(&device.backing_file).unwrap();
    // Everything after the superblock: block groups, bitmaps and the inodes' table.
    backing.write_all_at(&vec![0xa5; 200 << 10], 4096).unwrap();
    backing.sync_all().unwrap();
    let node = fs::File::open(&device.device).unwrap();
    sys::flush_buffers(&node).unwrap();
    drop(node);

    let error = bench.host.check_filesystem(&device.device, FsKind::Ext4).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Precondition, "{error:?}");
    bench.host.detach_loop(&device, false).await.unwrap();
}

#[tokio::test]
async fn loop_a_mounted_filesystem_is_not_checked() {
    let Some(bench) = Bench::new().await else { return };
    let (device, target) = bench.mounted("disk", FsKind::Ext4, 16).await;

    let busy = bench.host.check_filesystem(&device.device, FsKind::Ext4).await.unwrap_err();

    assert_eq!(busy.kind(), Kind::Busy);
    let error = bench.host.grow_filesystem(&device.device, FsKind::Ext4, &bench.base).await;
    assert_eq!(error.unwrap_err().kind(), Kind::Precondition, "not what is mounted there");
    bench.host.unmount(&target).await.unwrap();
}

#[tokio::test]
async fn loop_a_freeze_that_nobody_waits_for_is_thawed() {
    let Some(bench) = Bench::new().await else { return };
    let (_, target) = bench.mounted("disk", FsKind::Ext4, 16).await;
    for _ in 0..20 {
        let freeze = bench.host.freeze(&target);
        let _ = tokio::time::timeout(Duration::from_micros(50), freeze).await;
    }

    // Whatever each of them came to, a caller that starts anew can make it right.
    tokio::time::sleep(Duration::from_millis(300)).await;
    bench.host.thaw(&target).await.unwrap();
    fs::write(target.join("file"), "data").unwrap();
}

#[tokio::test]
async fn loop_a_second_mount_may_be_read_only_beside_a_writable_one() {
    let kinds = [(FsKind::Ext4, 32), (FsKind::Xfs, 320), (FsKind::Btrfs, 128)];
    for (number, (fs, mib)) in kinds.into_iter().enumerate() {
        let Some(bench) = Bench::new().await else { return };
        let (device, writable) = bench.mounted(&format!("disk{number}"), fs, mib).await;
        let target = bench.base.join("second");
        bench.host.make_target(&target).await.unwrap();
        let second = HostMount { read_only: true, ..mount(&device, fs, &target) };

        let made = bench.host.mount(&second).await.unwrap();
        let again = bench.host.mount(&second).await.unwrap();
        fs::write(writable.join("file"), "new").unwrap();

        assert!(made.is_made() && !again.is_made(), "{fs}");
        assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "new");
        let refused = fs::write(target.join("file"), "other").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "{fs}");
    }
}

#[tokio::test]
async fn loop_racing_mounts_never_stack() {
    let Some(bench) = Bench::new().await else { return };
    let (source, target) = (bench.base.join("source"), bench.base.join("target"));
    fs::create_dir(&source).unwrap();
    fs::create_dir(&target).unwrap();
    let request = HostMount {
        source: MountSource::Bind { path: source },
        target: target.clone(),
        read_only: false,
        flags: Vec::new(),
    };
    let host = Arc::new(bench.host);
    let racers: Vec<_> = (0..8)
        .map(|_| {
            let (host, request) = (Arc::clone(&host), request.clone());
            tokio::spawn(async move { host.mount(&request).await })
        })
        .collect();
    let mut made = 0;
    for racer in racers {
        match racer.await.unwrap() {
            Ok(change) => made += usize::from(change.is_made()),
            Err(error) => assert_eq!(error.kind(), Kind::Busy),
        }
    }

    assert_eq!(made, 1);
    let table = host.mounts().await.unwrap();
    assert_eq!(table.iter().filter(|entry| entry.target == target).count(), 1);
    host.unmount(&target).await.unwrap();
}

#[tokio::test]
async fn an_image_file_is_probed_like_a_device() {
    let host = LinuxHost::new(HostSettings::default());
    let scratch = Scratch::new();
    let image = scratch.path().join("image");
    let file = fs::File::create_new(&image).unwrap();
    file.set_len(0).unwrap();
    assert!(host.probe(&image).await.is_err(), "nothing to read is not blank");
    // Not a multiple of any sector size.
    file.set_len((9 << 20) + 100).unwrap();
    assert_eq!(host.probe(&image).await.unwrap(), Content::Blank);

    file.write_all_at(b"x", (9 << 20) + 99).unwrap();

    assert_eq!(host.probe(&image).await.unwrap(), Content::Data);
}

#[tokio::test]
async fn progress_of_a_copy_is_heard_and_ends_at_the_whole() {
    #[derive(Default)]
    struct Heard(std::sync::Mutex<Vec<(u64, u64)>>);
    impl Progress for Heard {
        fn step(&self, _: &str) {}
        fn amount(&self, done: u64, total: u64) {
            self.0.lock().unwrap().push((done, total));
        }
    }
    let host = LinuxHost::new(HostSettings::default());
    let scratch = Scratch::new();
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::write(&from, vec![1_u8; 20 << 20]).unwrap();
    let heard = Heard::default();

    let copied = host.copy_file(&from, &to, &heard).await.unwrap();

    if !copied.shared {
        assert_eq!(heard.0.lock().unwrap().last(), Some(&(20 << 20, 20 << 20)));
    }
    assert_eq!(
        fs::metadata(&to).unwrap().mode() & 0o777,
        fs::metadata(&from).unwrap().mode() & 0o777
    );
}
