//! RBD against a real Ceph of one monitor and one OSD in the guest, with keys: the kernel's client
//! maps, grows and unmaps images, tells refusals apart, and leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "vm_rbd/bench.rs"]
mod bench;

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use hawser_core::attach::{Attach, Attached, Identity};
use hawser_core::{ByteSize, Change, Error, Kind, Outcome, Reason};
use hawser_live::lab::guest::faults::Kills;
use hawser_live::lab::guest::luks::keeps_a_secret;
use hawser_live::lab::guest::{Cut, Leftovers, Volume, cmd, settle, wait_for};
use serde_json::{Value, json};

use bench::{Bench, MOUNT, SHARED, ceph, data_with, mapped};

const LIMIT: Duration = Duration::from_secs(60);

fn volume_with(name: &str, more: Value) -> Volume {
    Volume::new("rbd", data_with(name, more))
}

fn volume(name: &str) -> Volume {
    volume_with(name, json!({}))
}

/// Maps an image as an administrator would, and answers the device's number.
#[track_caller]
fn map_by_hand(options: &str, image: &str) -> String {
    let listed = || -> Vec<String> {
        let entries = fs::read_dir("/sys/bus/rbd/devices").unwrap().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    let before = listed();
    let key = ceph().key("client.admin");
    let text = format!("{} name=admin,secret={key}{options} {image} -", ceph().monitor());
    fs::write("/sys/bus/rbd/add_single_major", text).unwrap();
    listed().into_iter().find(|number| !before.contains(number)).expect("a new device")
}

#[track_caller]
fn unmap_by_hand(number: &str) {
    settle();
    fs::write("/sys/bus/rbd/remove_single_major", number).unwrap();
}

fn device(attached: &Change<Attached>) -> PathBuf {
    attached.get().path().to_owned()
}

fn write(device: &Path, at: u64, byte: u8) {
    let file = File::options().write(true).open(device).unwrap();
    file.write_all_at(&[byte; 4096], at).unwrap();
    file.sync_all().unwrap();
}

fn size_of(device: &Path) -> u64 {
    cmd("blockdev").arg("--getsize64").arg(device).ok().trim().parse().unwrap()
}

#[track_caller]
fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> Error {
    result.expect_err("a refusal")
}

/// The whole life of an image, twice.
#[track_caller]
fn live_twice(bench: &Bench) {
    let volume = bench.volume();
    for round in 1..=2_u8 {
        let began = Instant::now();
        let made = volume.connect().unwrap();
        println!("round {round}: connected in {:?}", began.elapsed());
        assert!(made.is_made(), "round {round}");
        let node = device(&made);
        let before = 16 + 16 * u64::from(round);
        assert_eq!(size_of(&node), before << 20);
        let identity = made.get().identity().expect("it says what it is").value.clone();
        assert!(identity.starts_with(&format!("{}/volumes/", ceph().fsid)), "{identity}");

        write(&node, 8192, round);
        assert_eq!(ceph().read(bench.image, 8192, 4096), [round; 4096]);

        let after = before + 16;
        ceph().grow(bench.image, after);
        let began = Instant::now();
        assert_eq!(volume.extend().unwrap(), ByteSize::mib(after));
        println!("round {round}: grown in {:?}", began.elapsed());
        assert_eq!(size_of(&node), after << 20);
        assert_eq!(volume.extend().unwrap(), ByteSize::mib(after), "once more, the same");
        let last = (after << 20) - 4096;
        write(&node, last, round + 10);
        assert_eq!(ceph().read(bench.image, last, 4096), [round + 10; 4096]);

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
        bench.assert_clean();
    }
}

#[test]
fn it_lives_twice() {
    live_twice(&Bench::new("volumes/life"));
}

#[test]
fn with_the_usual_features_and_their_lock_it_lives_twice() {
    ceph().usual_image("volumes/usual", 32);
    settle();
    let before = Leftovers::snapshot();

    live_twice(&Bench { image: "volumes/usual", shared: false, before });
}

#[test]
fn the_second_messenger_and_the_keyring_of_the_host_work() {
    let bench = Bench::shared();
    let keyring = format!("[client.admin]\n\tkey = {}\n", ceph().key("client.admin"));
    fs::create_dir_all("/etc/ceph").unwrap();
    fs::write("/etc/ceph/lab.client.admin.keyring", &keyring).unwrap();
    let first = volume_with(SHARED, json!({ "secret": null, "keyring": keyring }));
    let second = volume_with(
        SHARED,
        json!({ "hosts": null, "ports": null, "secret": null, "cluster_name": "lab",
            "mon_addrs": [ceph().monitor_v2()], "ms_mode": "secure" }),
    );

    let made = second.connect().unwrap();
    write(&device(&made), 0, 7);
    let found = first.connect().unwrap();

    assert!(made.is_made());
    assert!(!found.is_made(), "the same image by another way is the same device");
    assert_eq!(found.get(), made.get());
    assert_eq!(mapped(), 1);
    assert!(second.disconnect().unwrap().is_made());
    fs::remove_file("/etc/ceph/lab.client.admin.keyring").unwrap();
    bench.assert_clean();
}

#[test]
fn a_file_system_in_use_goes_on_while_its_image_grows() {
    let bench = Bench::new("volumes/fs");
    let volume = bench.volume();
    let node = device(&volume.connect().unwrap());
    cmd("mkfs.ext4").args(["-q", "-m", "0"]).arg(&node).ok();
    fs::create_dir_all(MOUNT).unwrap();
    cmd("mount").arg(&node).arg(MOUNT).ok();
    ceph().grow("volumes/fs", 64);

    assert_eq!(volume.extend().unwrap(), ByteSize::mib(64));
    cmd("resize2fs").arg(&node).ok();

    fs::write("/mnt/rbd/big", vec![3; 40 << 20]).unwrap();
    cmd("sync").ok();
    let busy = refusal(volume.disconnect());
    assert_eq!(busy.reason(), Some(Reason::DeviceBusy), "{busy:?}");
    assert!(busy.sentence().contains(MOUNT), "{busy:?}");
    assert_eq!(refusal(volume.force(true)).reason(), Some(Reason::DeviceBusy));
    cmd("umount").arg(MOUNT).ok();
    assert!(cmd("e2fsck").args(["-f", "-n"]).arg(&node).succeeds());
    assert!(volume.disconnect().unwrap().is_made());
    fs::remove_dir(MOUNT).unwrap();
    bench.assert_clean();
}

#[test]
fn what_the_cluster_refuses_is_told_apart_and_leaves_nothing() {
    let bench = Bench::shared();
    ceph().image("volumes/strange", 16);
    ceph().rbd(&["feature", "enable", "volumes/strange", "exclusive-lock", "journaling"]);
    let with = |more: Value| volume_with(SHARED, more);
    let other_key = ceph().key("client.guest");
    let (auth, absent) = (Some(Reason::AuthFailed), Some(Reason::LunNotFound));

    for (what, volume, kind, reason) in [
        ("no image", volume("volumes/none"), Kind::NotFound, absent),
        ("no pool", volume("none/shared"), Kind::NotFound, absent),
        ("no namespace", volume("volumes/nons/shared"), Kind::NotFound, absent),
        ("no snapshot", volume("volumes/shared@none"), Kind::NotFound, absent),
        ("journaling", volume("volumes/strange"), Kind::Unsupported, None),
        ("another's key", with(json!({ "secret": other_key })), Kind::Denied, auth),
        ("no such user", with(json!({ "auth_username": "nobody" })), Kind::Denied, auth),
        ("no key", with(json!({ "secret": null, "auth_enabled": false })), Kind::Denied, auth),
        ("a text that is no key", with(json!({ "secret": "QUJD" })), Kind::Invalid, None),
        (
            "no right to the pool",
            with(json!({ "auth_username": "guest", "secret": other_key })),
            Kind::Denied,
            auth,
        ),
    ] {
        let began = Instant::now();
        let error = refusal(volume.connect());
        println!("{what}: {} ({:?})", error.sentence(), began.elapsed());
        assert_eq!(error.kind(), kind, "{what}: {error:?}");
        assert!(reason.is_none() || error.reason() == reason, "{what}: {error:?}");
        assert_eq!(error.outcome(), Outcome::Nothing, "{what}: {error:?}");
        assert!(!format!("{error:?}").contains(other_key), "{what}: the key is shown");
        assert_eq!(volume.disconnect().unwrap(), Change::Already(()));
        bench.assert_clean();
    }
    ceph().remove("volumes/strange");
}

#[test]
fn dead_monitors_are_given_up_in_time() {
    let bench = Bench::shared();
    let dead = volume_with(SHARED, json!({ "hosts": ["127.0.9.9"] }));
    let attach = Attach { deadline: Duration::from_secs(6), ..Attach::default() };
    let silent = Cut::silent("127.0.9.8:6789".parse::<SocketAddr>().unwrap());
    let hushed = volume_with(SHARED, json!({ "hosts": ["127.0.9.8"] }));

    for volume in [dead, hushed] {
        let began = Instant::now();
        let error = refusal(volume.connect_as(&attach));
        assert_eq!(error.reason(), Some(Reason::PortalTimeout), "{error:?}");
        assert_eq!(error.outcome(), Outcome::Nothing, "{error:?}");
        assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    }
    silent.mend();
    let both =
        volume_with(SHARED, json!({ "hosts": ["127.0.9.9", "10.77.0.1"], "ports": [6789, 6789] }));
    assert!(both.connect().unwrap().is_made(), "one of two monitors is enough");
    assert!(both.disconnect().unwrap().is_made());
    bench.assert_clean();
}

#[test]
fn an_osd_that_hangs_stops_the_caller_no_longer_than_asked() {
    let bench = Bench::shared();
    let volume = bench.volume();
    let attach = Attach { deadline: Duration::from_secs(4), ..Attach::default() };
    ceph().pause_osd();
    let began = Instant::now();

    let error = refusal(volume.connect_as(&attach));

    let took = began.elapsed();
    ceph().resume_osd();
    assert_eq!((error.kind(), error.outcome()), (Kind::Timeout, Outcome::Unknown), "{error:?}");
    assert!(took < Duration::from_secs(15), "{took:?}");
    // The kernel goes on with what it was told: the device comes when the OSD is back.
    wait_for("late device", LIMIT, || volume.lookup().unwrap());
    assert!(!volume.connect().unwrap().is_made());
    assert!(volume.disconnect().unwrap().is_made());
    bench.assert_clean();
}

#[test]
fn luks2_above_it_keeps_what_is_written_from_the_storage() {
    let bench = Bench::new("volumes/luks");

    keeps_a_secret("rbd", data_with(bench.image, json!({})), &Attach::default());

    bench.assert_clean();
}

#[test]
fn read_only_is_kept_by_the_kernel() {
    let bench = Bench::shared();
    let volume = bench.volume();
    let attach = Attach { read_only: true, ..Attach::default() };

    let node = device(&volume.connect_as(&attach).unwrap());

    let written = File::options().write(true).open(&node).and_then(|file| {
        file.write_all_at(&[1; 4096], 0)?;
        file.sync_all()
    });
    assert!(written.is_err(), "{written:?}");
    let error = refusal(volume.connect());
    assert_eq!(error.reason(), Some(Reason::DeviceReadOnly), "{error:?}");
    assert!(!volume.connect_as(&attach).unwrap().is_made());
    assert!(volume.disconnect().unwrap().is_made());
    bench.assert_clean();
}

#[test]
fn a_snapshot_is_a_device_of_its_own_with_what_was() {
    let bench = Bench::new("volumes/snap");
    let live = bench.volume();
    let node = device(&live.connect().unwrap());
    write(&node, 0, 1);
    ceph().rbd(&["snap", "create", "--no-progress", "volumes/snap@s1"]);
    write(&node, 0, 2);
    let snapshot = volume("volumes/snap@s1");

    let old = device(&snapshot.connect().unwrap());

    assert_ne!(old, node);
    let mut bytes = [0; 4096];
    File::open(&old).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [1; 4096]);
    assert!(File::options().write(true).open(&old).and_then(|f| f.write_at(&[9], 0)).is_err());
    assert!(snapshot.disconnect().unwrap().is_made());
    assert!(live.lookup().unwrap().is_some(), "the image itself stays");
    assert!(live.disconnect().unwrap().is_made());
    ceph().rbd(&["snap", "remove", "--no-progress", "volumes/snap@s1"]);
    bench.assert_clean();
}

#[test]
fn an_open_device_is_busy_and_goes_by_force() {
    let bench = Bench::shared();
    let volume = bench.volume();
    let node = device(&volume.connect().unwrap());
    let open = File::open(&node).unwrap();

    let error = refusal(volume.disconnect());
    assert_eq!(error.reason(), Some(Reason::DeviceBusy), "{error:?}");
    assert!(error.sentence().contains("vm_rbd"), "{error:?}");
    assert!(volume.force(false).unwrap().is_made());

    let read = open.read_at(&mut [0; 512], 1 << 20);
    assert!(matches!(read, Ok(0) | Err(_)), "it is gone: {read:?}");
    drop(open);
    bench.before.assert_restored_within(LIMIT);
}

#[test]
fn an_image_made_again_under_its_name_is_refused() {
    let bench = Bench::new("volumes/again");
    let mut volume = bench.volume();
    let made = volume.connect().unwrap().into_inner();
    volume.info.identity = made.identity().cloned();
    assert!(!volume.connect().unwrap().is_made());
    assert!(volume.disconnect().unwrap().is_made());
    ceph().remove("volumes/again");
    ceph().image("volumes/again", 32);

    let error = refusal(volume.connect());

    assert_eq!(error.reason(), Some(Reason::IdentityMismatch), "{error:?}");
    assert_eq!(error.outcome(), Outcome::RolledBack, "{error:?}");
    bench.assert_clean();
    let number = map_by_hand("", "volumes again");
    assert_eq!(refusal(volume.connect()).reason(), Some(Reason::IdentityMismatch));
    assert_eq!(refusal(volume.disconnect()).reason(), Some(Reason::IdentityMismatch));
    assert_eq!(mapped(), 1, "another's device stays");
    unmap_by_hand(&number);
    volume.info.identity = Some(Identity::new("rbd", "another-cluster/volumes/1"));
    assert_eq!(refusal(volume.connect()).reason(), Some(Reason::IdentityMismatch));
    bench.assert_clean();
}

#[test]
fn case_19_images_of_the_same_name_elsewhere_stay() {
    let bench = Bench::new("volumes/twin");
    ceph().image("others/twin", 16);
    ceph().rbd(&["namespace", "create", "volumes/ns"]);
    ceph().image("volumes/ns/twin", 16);
    let (pool, space) =
        (map_by_hand("", "others twin"), map_by_hand(",_pool_ns=ns", "volumes twin"));
    let volume = bench.volume();
    assert_eq!(volume.lookup().unwrap(), None);
    assert_eq!(volume.disconnect().unwrap(), Change::Already(()), "the others are not it");
    assert_eq!(mapped(), 2);

    let node = device(&volume.connect().unwrap());

    assert_eq!(size_of(&node), 32 << 20);
    assert_eq!(mapped(), 3);
    assert!(volume.disconnect().unwrap().is_made());
    assert_eq!(mapped(), 2);
    let theirs = volume_with("volumes/ns/twin", json!({}));
    assert!(!theirs.connect().unwrap().is_made(), "what an administrator mapped is found");
    for number in [pool, space] {
        unmap_by_hand(&number);
    }
    let mine = device(&theirs.connect().unwrap());
    assert_eq!(size_of(&mine), 16 << 20);
    assert!(theirs.disconnect().unwrap().is_made());
    ceph().remove("others/twin");
    ceph().remove("volumes/ns/twin");
    bench.assert_clean();
}

#[test]
fn two_connects_at_once_make_one_device() {
    let bench = Bench::shared();
    let connect = || volume(SHARED).connect().unwrap();

    let (first, second) = thread::scope(|scope| {
        let other = scope.spawn(connect);
        (connect(), other.join().unwrap())
    });

    assert_eq!(first.get(), second.get());
    assert_ne!(first.is_made(), second.is_made());
    assert_eq!(mapped(), 1);
    assert!(bench.volume().disconnect().unwrap().is_made());
    bench.assert_clean();
}

#[test]
fn case_26_a_call_that_is_killed_between_two_steps_is_made_good() {
    let bench = Bench::shared();

    Kills::of("RBD", &bench.asked(), &bench.before).some(3).run();

    bench.assert_clean();
}
