//! LOCAL in the guest: images over loop devices in the form of `file_path`, and logical volumes of
//! LVM, thick and thin; with what LVM does behind one's back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use hawser_core::attach::{Attach, Attached, Identity};
use hawser_core::{ByteSize, Change, Error, Kind, Outcome, Reason};
use hawser_live::lab::guest::faults::{Asked, Kills};
use hawser_live::lab::guest::{Leftovers, Volume, cmd, modprobe, scratch, settle};
use serde_json::{Value, json};

const VG: &str = "labvg";
const IMAGE: &str = "/var/tmp/local.img";
const LIMIT: Duration = Duration::from_secs(60);

fn device(attached: &Change<Attached>) -> PathBuf {
    attached.get().path().to_owned()
}

fn write(device: &Path, at: u64, byte: u8) {
    let file = File::options().write(true).open(device).unwrap();
    file.write_all_at(&[byte; 4096], at).unwrap();
    file.sync_all().unwrap();
}

#[track_caller]
fn assert_reads(device: &Path, at: u64, byte: u8) {
    let mut bytes = [0; 4096];
    File::open(device).unwrap().read_exact_at(&mut bytes, at).unwrap();
    assert_eq!(bytes, [byte; 4096]);
}

fn size_of(device: &Path) -> u64 {
    cmd("blockdev").arg("--getsize64").arg(device).ok().trim().parse().unwrap()
}

#[track_caller]
fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> Error {
    result.expect_err("a refusal")
}

fn image_with(more: Value) -> Volume {
    let mut data = json!({ "filePath": IMAGE, "directIo": true, "offset": 0, "sizeLimit": 0 });
    for (key, value) in more.as_object().unwrap() {
        data[key] = value.clone();
    }
    Volume::new("local", data)
}

/// A new image, and what there was before it was attached.
fn image(mib: u64) -> (Volume, Leftovers) {
    File::create(IMAGE).unwrap().set_len(mib << 20).unwrap();
    (image_with(json!({})), Leftovers::snapshot())
}

fn lv_with(name: &str, more: Value) -> Volume {
    let mut data = json!({ "vg_name": VG, "lv_name": name });
    for (key, value) in more.as_object().unwrap() {
        data[key] = value.clone();
    }
    Volume::new("local", data)
}

/// A volume group on a scratch disk, for one test.
struct Group {
    before: Leftovers,
}

impl Group {
    fn new() -> Self {
        modprobe(&["dm_mod", "dm_thin_pool", "dm_snapshot"]);
        let disk = fs::canonicalize(scratch(1)).unwrap();
        cmd("wipefs").args(["-a", "-q"]).arg(&disk).ok();
        cmd("vgcreate").args(["-y", VG]).arg(&disk).ok();
        settle();
        Self { before: Leftovers::snapshot() }
    }

    /// A volume that is not active.
    fn thick(&self, name: &str, mib: u64) -> String {
        let size = format!("{mib}m");
        cmd("lvcreate").args(["-y", "-an", "-Zn", "-n", name, "-L", &size, VG]).ok();
        settle();
        format!("{VG}/{name}")
    }

    fn thin(&self, name: &str, mib: u64) -> String {
        let pool = format!("{VG}/pool");
        cmd("lvcreate").args(["-y", "-T", "-L", "128m", &pool]).ok();
        let size = format!("{mib}m");
        cmd("lvcreate").args(["-y", "-T", "-V", &size, "-n", name, &pool]).ok();
        cmd("vgchange").args(["-an", VG]).ok();
        settle();
        format!("{VG}/{name}")
    }

    #[track_caller]
    fn assert_clean(&self) {
        self.before.assert_restored_within(LIMIT);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        cmd("umount").args(["-l", "/mnt/lv"]).run();
        cmd("vgremove").args(["-f", "-y", "guestvg"]).run();
        let removed = cmd("vgremove").args(["-f", "-y", VG]).run();
        assert!(removed.status.success() || thread::panicking(), "{}", removed.stderr);
        for entry in fs::read_dir("/run/hawser").into_iter().flatten().flatten() {
            if thread::panicking() {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// The whole life of a logical volume, twice.
#[track_caller]
fn live_twice(group: &Group, path: &str, volume: &Volume) {
    let mut size = 32;
    for round in 1..=2_u8 {
        let began = Instant::now();
        let made = volume.connect().unwrap();
        println!("round {round}: connected in {:?}", began.elapsed());
        assert!(made.is_made(), "round {round}");
        let node = device(&made);
        assert!(node.to_string_lossy().starts_with("/dev/dm-"), "{node:?}");
        assert_eq!(size_of(&node), size << 20);
        if round == 2 {
            assert_reads(&node, 8192, 1);
        }
        write(&node, 8192, round);

        size += 16;
        cmd("lvextend").args(["-L", &format!("{size}m"), path]).ok();
        let began = Instant::now();
        assert_eq!(volume.extend().unwrap(), ByteSize::mib(size));
        println!("round {round}: grown in {:?}", began.elapsed());
        assert_eq!(size_of(&node), size << 20);
        write(&node, (size << 20) - 4096, round + 10);
        assert_reads(&node, 8192, round);

        let again = volume.connect().unwrap();
        assert!(!again.is_made());
        assert_eq!(device(&again), node);
        assert!(volume.health().unwrap().healthy, "{:?}", volume.health());
        assert_eq!(volume.lookup().unwrap().as_ref(), Some(again.get()));
        let began = Instant::now();
        assert_eq!(volume.disconnect().unwrap(), Change::Made(()));
        println!("round {round}: disconnected in {:?}", began.elapsed());
        assert_eq!(volume.disconnect().unwrap(), Change::Already(()));
        assert_eq!(volume.lookup().unwrap(), None);
        assert!(!volume.health().unwrap().healthy);
        group.assert_clean();
    }
}

#[test]
fn an_image_lives_twice() {
    let (volume, before) = image(32);
    let mut size = 32;
    for round in 1..=2_u8 {
        let made = volume.connect().unwrap();
        assert!(made.is_made());
        let node = device(&made);
        assert_eq!(size_of(&node), size << 20);
        write(&node, 4096, round);
        size += 16;
        File::options().write(true).open(IMAGE).unwrap().set_len(size << 20).unwrap();
        assert_eq!(volume.extend().unwrap(), ByteSize::mib(size));
        assert_eq!(size_of(&node), size << 20);
        write(&node, (size << 20) - 4096, round);
        assert!(!volume.connect().unwrap().is_made());
        assert!(volume.health().unwrap().healthy);
        assert!(volume.disconnect().unwrap().is_made());
        assert!(!volume.disconnect().unwrap().is_made());
        assert_reads(Path::new(IMAGE), 4096, round);
        assert_reads(Path::new(IMAGE), (size << 20) - 4096, round);
        before.assert_restored();
    }
}

#[test]
fn an_image_has_the_sectors_that_were_asked_for_and_no_part_of_a_file_is_one() {
    let (_, before) = image(32);
    let volume = image_with(json!({ "logicalBlockSize": 4096 }));

    let node = device(&volume.connect().unwrap());

    assert_eq!(cmd("blockdev").arg("--getss").arg(&node).ok().trim(), "4096");
    assert!(volume.disconnect().unwrap().is_made());
    for (field, value) in [("offset", 4096), ("sizeLimit", 8192)] {
        let error = refusal(image_with(json!({ field: value })).connect());
        assert_eq!(error.kind(), Kind::Unsupported, "{error:?}");
        let snake = field.replace('L', "_l");
        assert!(error.sentence().contains(&snake), "{error:?}");
    }
    before.assert_restored();
}

#[test]
fn case_23_an_open_image_is_not_taken_away() {
    let (volume, before) = image(16);
    let node = device(&volume.connect().unwrap());
    let open = File::open(&node).unwrap();

    let error = refusal(volume.disconnect());

    assert_eq!(error.kind(), Kind::Busy, "{error:?}");
    assert_eq!(size_of(&node), 16 << 20, "it works on");
    drop(open);
    assert!(volume.disconnect().unwrap().is_made());
    before.assert_restored_within(LIMIT);
}

#[test]
fn a_thick_volume_lives_twice() {
    let group = Group::new();
    let path = group.thick("v1", 32);

    live_twice(&group, &path, &lv_with("v1", json!({})));
}

#[test]
fn a_thin_volume_lives_twice_and_its_pool_goes_with_it() {
    let group = Group::new();
    let path = group.thin("t1", 32);

    live_twice(&group, &path, &lv_with("t1", json!({ "exclusive": true })));
}

#[test]
fn a_snapshot_that_is_skipped_at_activation_is_attached() {
    let group = Group::new();
    let path = group.thin("t1", 32);
    let origin = lv_with("t1", json!({}));
    write(&device(&origin.connect().unwrap()), 0, 1);
    cmd("lvcreate").args(["-y", "-s", "-n", "s1", &path]).ok();
    write(&device(&origin.connect().unwrap()), 0, 2);
    let snapshot = lv_with("s1", json!({ "access_mode": "ro" }));

    let node = device(&snapshot.connect().unwrap());

    assert_reads(&node, 0, 1);
    assert!(File::options().write(true).open(&node).and_then(|f| f.write_at(&[9], 0)).is_err());
    assert!(origin.disconnect().unwrap().is_made());
    assert_reads(&node, 0, 1);
    assert!(snapshot.disconnect().unwrap().is_made());
    group.assert_clean();
}

#[test]
fn what_was_active_before_stays_active() {
    let group = Group::new();
    let path = group.thick("v1", 16);
    let volume = lv_with("v1", json!({}));
    let idle = lv_with("v1", json!({ "activate": false }));
    assert_eq!(refusal(idle.connect()).kind(), Kind::Precondition);
    cmd("lvchange").args(["-ay", &path]).ok();
    settle();
    let active = Leftovers::snapshot();

    assert!(!volume.connect().unwrap().is_made());
    assert!(!idle.connect().unwrap().is_made());
    let attach = Attach { read_only: true, ..Attach::default() };
    assert_eq!(refusal(volume.connect_as(&attach)).kind(), Kind::Unsupported);
    assert_eq!(volume.disconnect().unwrap(), Change::Already(()));

    active.assert_restored();
    cmd("lvchange").args(["-an", &path]).ok();
    group.assert_clean();
}

#[test]
fn read_only_is_kept_while_the_volume_grows() {
    let group = Group::new();
    let path = group.thick("v1", 16);
    let volume = lv_with("v1", json!({}));
    let attach = Attach { read_only: true, ..Attach::default() };
    let node = device(&volume.connect_as(&attach).unwrap());
    let refused = || {
        let file = File::options().write(true).open(&node);
        file.and_then(|file| file.write_at(&[1; 4096], 0)).is_err()
    };
    assert!(refused());

    cmd("lvextend").args(["-L", "32m", &path]).ok();

    assert_eq!(volume.extend().unwrap(), ByteSize::mib(32));
    assert!(refused(), "a new table does not make it writable");
    assert_eq!(refusal(volume.connect()).reason(), Some(Reason::DeviceReadOnly));
    assert!(volume.disconnect_as(&attach, &Default::default()).unwrap().is_made());
    group.assert_clean();
}

#[test]
fn what_is_absent_or_no_volume_to_use_is_refused() {
    let group = Group::new();
    group.thin("t1", 16);

    for (volume, kind) in [
        (lv_with("none", json!({})), Kind::NotFound),
        (lv_with("v1", json!({ "vg_name": "nogroup" })), Kind::NotFound),
        (lv_with("pool", json!({})), Kind::Invalid),
        (lv_with("--yes", json!({})), Kind::Invalid),
    ] {
        let error = refusal(volume.connect());
        println!("{}", error.sentence());
        assert_eq!(error.kind(), kind, "{error:?}");
        assert_eq!(error.outcome(), Outcome::Nothing, "{error:?}");
        group.assert_clean();
    }
}

#[test]
fn a_volume_made_again_under_its_name_is_refused() {
    let group = Group::new();
    let path = group.thick("v1", 16);
    let mut volume = lv_with("v1", json!({}));
    let made = volume.connect().unwrap().into_inner();
    volume.info.identity = made.identity().cloned();
    assert!(!volume.connect().unwrap().is_made());
    assert!(volume.disconnect().unwrap().is_made());
    cmd("lvremove").args(["-f", "-y", &path]).ok();
    group.thick("v1", 16);

    let error = refusal(volume.connect());

    assert_eq!(error.reason(), Some(Reason::IdentityMismatch), "{error:?}");
    group.assert_clean();
    volume.info.identity = Some(Identity::new("lvm", "another"));
    assert_eq!(refusal(volume.connect()).reason(), Some(Reason::IdentityMismatch));
    group.assert_clean();
}

#[test]
fn a_mounted_or_open_volume_is_busy() {
    let group = Group::new();
    group.thick("v1", 32);
    let volume = lv_with("v1", json!({}));
    let node = device(&volume.connect().unwrap());
    cmd("mkfs.ext4").arg("-q").arg(&node).ok();
    fs::create_dir_all("/mnt/lv").unwrap();
    cmd("mount").arg(&node).arg("/mnt/lv").ok();

    let error = refusal(volume.disconnect());
    assert_eq!(error.reason(), Some(Reason::DeviceBusy), "{error:?}");
    assert!(error.sentence().contains("/mnt/lv"), "{error:?}");
    cmd("umount").arg("/mnt/lv").ok();
    let open = File::open(&node).unwrap();
    let error = refusal(volume.disconnect());
    assert!(error.sentence().contains("vm_local"), "{error:?}");
    drop(open);

    assert!(volume.disconnect().unwrap().is_made());
    group.assert_clean();
}

#[test]
fn case_14_what_lvm_activates_on_an_attached_volume_keeps_it() {
    let (volume, before) = image(64);
    let node = device(&volume.connect().unwrap());
    // As a guest does with its disk; the host's LVM sees it, and takes it for its own.
    cmd("vgcreate").args(["-y", "guestvg"]).arg(&node).ok();
    cmd("lvcreate").args(["-y", "-Zn", "-n", "root", "-L", "16m", "guestvg"]).ok();
    settle();

    let error = refusal(volume.disconnect());
    assert_eq!(error.kind(), Kind::Busy, "{error:?}");
    let forced = refusal(volume.force(false));
    assert_eq!(forced.kind(), Kind::Busy, "not even by force: {forced:?}");
    assert!(Path::new("/dev/guestvg/root").exists(), "the guest's volume works on");

    cmd("vgchange").args(["-an", "guestvg"]).ok();
    assert!(volume.disconnect().unwrap().is_made());
    before.assert_restored_within(LIMIT);
}

#[test]
fn two_connects_at_once_activate_once() {
    let group = Group::new();
    group.thick("v1", 16);
    let connect = || lv_with("v1", json!({})).connect().unwrap();

    let (first, second) = thread::scope(|scope| {
        let other = scope.spawn(connect);
        (connect(), other.join().unwrap())
    });

    assert_eq!(first.get(), second.get());
    assert_ne!(first.is_made(), second.is_made());
    assert!(lv_with("v1", json!({})).disconnect().unwrap().is_made());
    group.assert_clean();
}

#[test]
fn case_26_a_call_that_is_killed_between_two_steps_is_made_good() {
    let (_, before) = image(16);
    let image = json!({ "file_path": IMAGE, "volume_id": "image" });
    Kills::of("LOCAL, an image", &Asked::over("local", image, &[]), &before).some(3).run();

    let group = Group::new();
    group.thick("v1", 16);
    let volume = json!({ "vg_name": VG, "lv_name": "v1", "volume_id": "v1" });
    Kills::of("LOCAL, a volume of LVM", &Asked::over("local", volume, &[]), &group.before)
        .some(3)
        .run();
}

#[test]
fn case_26_an_attach_that_was_cut_off_is_made_good() {
    let group = Group::new();
    group.thick("v1", 16);
    let volume = lv_with("v1", json!({}));
    let began = Instant::now();
    volume.connect().unwrap();
    let whole = began.elapsed();
    volume.disconnect().unwrap();
    for step in 0..6 {
        volume.connect_cut_off(whole * step / 6);
        if step % 2 == 0 {
            volume.connect().unwrap();
        }
        volume.disconnect().unwrap();
        group.assert_clean();
    }
}
