//! NFS against the kernel's own server: versions 3, 4.1 and 4.2, faults, and nothing left behind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "vm_nfs/bench.rs"]
mod bench;

use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use hawser_core::attach::{Attach, Attached, Detach};
use hawser_core::{ByteSize, Change, Kind, Reason};
use hawser_live::lab::guest::faults::Kills;
use hawser_live::lab::guest::file_suite::{BASE, options_at, path_of, reason};
use hawser_live::lab::guest::{Cut, Leftovers, Volume, cmd, wait_for};
use serde_json::json;

use bench::{Bench, SERVER};

#[test]
fn version_4_2_is_the_first_choice_and_lives_twice() {
    let bench = Bench::new();
    bench.live_twice(&bench.volume("volume-1"), "vers=4.2");
}

#[test]
fn version_4_1_lives_twice() {
    let bench = Bench::new();
    let volume = bench.volume_of(SERVER, "volume-1", json!({ "options": "-o vers=4.1,noatime" }));
    bench.live_twice(&volume, "vers=4.1");
}

#[test]
fn version_3_lives_twice() {
    let bench = Bench::new();
    let volume = bench.volume_of(SERVER, "volume-1", json!({ "options": "-o vers=3" }));
    bench.live_twice(&volume, "vers=3");
}

#[test]
fn a_folder_with_a_blank_in_its_name_is_known_again() {
    let mut bench = Bench::new();
    let folder = bench.server().export("all vols");
    fs::write(folder.join("volume-1"), "data").unwrap();
    for options in ["-o vers=4.2", "-o vers=3"] {
        let export = format!("{SERVER}:/srv/nfs/all vols");
        let more = json!({ "export": export, "options": options });
        let volume = bench.volume_of(SERVER, "volume-1", more);

        let path = path_of(&volume.connect().unwrap());

        assert_eq!(fs::read(path).unwrap(), b"data", "{options}");
        assert!(!volume.connect().unwrap().is_made(), "{options}");
        assert!(volume.health().unwrap().healthy, "{options}");
        assert!(volume.disconnect().unwrap().is_made(), "{options}");
        bench.assert_clean();
    }
    bench.server().unexport("all vols");
}

#[test]
fn version_4_0_is_mounted_when_it_is_asked_for() {
    let bench = Bench::new();
    let volume = bench.volume_of(SERVER, "volume-1", json!({ "options": "-o vers=4.0" }));

    let made = volume.connect().unwrap();

    let options = options_at(&path_of(&made));
    assert!(options.contains("vers=4.0") && options.contains("clientaddr=127."), "{options}");
    volume.disconnect().unwrap();
    bench.assert_clean();
}

#[test]
fn an_older_server_is_spoken_to_in_its_version() {
    let mut bench = Bench::without(&["4.2"]);
    let volume = bench.volume("volume-1");
    let made = volume.connect().unwrap();
    assert!(options_at(&path_of(&made)).contains("vers=4.1"));
    volume.disconnect().unwrap();
    bench.assert_clean();

    bench.server().set_without(&["4", "4.0", "4.1", "4.2"]);
    let made = volume.connect().unwrap();
    assert!(options_at(&path_of(&made)).contains("vers=3"));
    volume.disconnect().unwrap();
    bench.assert_clean();
}

#[test]
fn a_version_that_the_server_does_not_speak_is_not_replaced_by_another() {
    let bench = Bench::without(&["4.2"]);
    let volume = bench.volume_of(SERVER, "volume-1", json!({ "options": "-o vers=4.2" }));

    let error = volume.connect().unwrap_err();

    assert!(error.sentence().contains("does not speak the version"), "{error:?}");
    bench.assert_clean();
}

#[test]
fn a_server_is_reached_over_ipv6_and_by_name() {
    let bench = Bench::new();
    for (server, shown) in [("[fd00:1ab::1]", "addr=fd00:1ab::1"), ("localhost", "addr=")] {
        let volume = bench.volume_of(server, "volume-1", json!({}));

        let made = volume.connect().unwrap();

        let options = options_at(&path_of(&made));
        assert!(options.contains(shown), "{server}: {options}");
        assert_eq!(volume.connect().unwrap(), Change::Already(made.into_inner()));
        volume.disconnect().unwrap();
        bench.assert_clean();
    }
}

#[test]
fn one_server_by_two_names_has_two_mounts_that_go_by_themselves() {
    let bench = Bench::new();
    fs::write("/etc/hosts", format!("127.0.0.1 localhost\n{SERVER} nas other\n")).unwrap();
    let volumes = ["nas", "other"].map(|server| bench.volume_of(server, "volume-1", json!({})));

    // The kernel has one file system for both and shows the first name for both.
    let paths = volumes.each_ref().map(|volume| path_of(&volume.connect().unwrap()));
    assert_ne!(paths[0], paths[1]);
    for volume in &volumes {
        assert!(!volume.connect().unwrap().is_made());
        assert!(volume.health().unwrap().healthy);
    }

    for volume in &volumes {
        assert_eq!(volume.disconnect().unwrap(), Change::Made(()));
    }
    bench.assert_clean();
}

#[test]
fn without_a_name_the_export_is_a_folder() {
    let bench = Bench::new();
    let data = json!({ "export": format!("{SERVER}:/srv/nfs/vols"), "mount_point_base": BASE });
    let volume = Volume::new("nfs", data);

    let made = volume.connect().unwrap();

    assert!(matches!(made.get(), Attached::Directory { .. }), "{made:?}");
    assert!(made.get().path().join("volume-2").is_file());
    assert_eq!(volume.extend().unwrap(), ByteSize::ZERO);
    volume.disconnect().unwrap();
    bench.assert_clean();
}

#[test]
fn without_a_base_the_mount_is_below_the_run_folder() {
    let bench = Bench::new();
    let data = json!({ "export": format!("{SERVER}:/srv/nfs/vols"), "name": "volume-1" });
    let volume = Volume::new("nfs", data);

    let made = volume.connect().unwrap();

    assert!(made.get().path().starts_with("/run/hawser/mnt"), "{made:?}");
    volume.disconnect().unwrap();
    bench.assert_clean();
}

#[test]
fn readers_are_refused_to_write_and_stand_beside_writers() {
    let bench = Bench::new();
    let volume = bench.volume("volume-1");
    let read_only = Attach { read_only: true, ..Attach::default() };
    let writer = path_of(&volume.connect().unwrap());

    let reader = path_of(&volume.connect_as(&read_only).unwrap());

    let refused = File::options().write(true).open(&reader).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(30), "{refused}");
    File::options().write(true).open(&writer).unwrap().write_all(b"still").unwrap();
    volume.disconnect_as(&read_only, &Detach::default()).unwrap();
    volume.disconnect().unwrap();
    bench.assert_clean();
}

#[test]
fn volumes_share_a_mount_and_the_last_one_takes_it_away() {
    let bench = Bench::new();
    let (one, two) = (bench.volume("volume-1"), bench.volume("volume-2"));
    one.connect().unwrap();
    let path = path_of(&two.connect().unwrap());

    one.disconnect().unwrap();

    fs::write(&path, "still there").unwrap();
    two.disconnect().unwrap();
    bench.assert_clean();
}

#[test]
fn a_mount_of_os_brick_is_used_and_left() {
    let mut bench = Bench::new();
    // What os-brick runs for this export.
    let export = format!("{SERVER}:/srv/nfs/vols");
    let sum = cmd("md5sum").input(&export).ok();
    let target = Path::new(BASE).join(sum.split(' ').next().unwrap());
    fs::create_dir_all(&target).unwrap();
    let options = "vers=4,minorversion=2";
    cmd("mount").args(["-t", "nfs", "-o", options, &export]).arg(&target).ok();
    bench.before = Leftovers::snapshot();
    let volume = bench.volume("volume-1");

    assert_eq!(path_of(&volume.connect().unwrap()), target.join("volume-1"));
    volume.disconnect().unwrap();

    bench.before.assert_restored();
    cmd("umount").arg(&target).ok();
    fs::remove_dir_all(BASE).unwrap();
}

#[test]
fn what_is_not_there_or_not_allowed_is_told_apart_and_leaves_nothing() {
    let mut bench = Bench::new();
    bench.server().export_to("10.99.99.99", "theirs", "rw");
    let absent = bench.volume("volume-3");
    assert_eq!(reason(absent.connect()), Some(Reason::LunNotFound));
    bench.assert_clean();
    for (export, options, reasons) in [
        ("/srv/nfs/nothing", "-o vers=4.2", &[Reason::TargetNotFound][..]),
        ("/srv/nfs/nothing", "-o vers=3", &[Reason::TargetNotFound, Reason::AuthFailed]),
        // Version 4 does not show what one may not have.
        ("/srv/nfs/theirs", "-o vers=4.2", &[Reason::AuthFailed, Reason::TargetNotFound]),
        ("/srv/nfs/theirs", "-o vers=3", &[Reason::AuthFailed]),
    ] {
        let export = format!("{SERVER}:{export}");
        let more = json!({ "export": export, "options": options });
        let found = reason(bench.volume_of(SERVER, "volume-1", more).connect());
        assert!(
            found.is_some_and(|found| reasons.contains(&found)),
            "{export} {options}: {found:?}"
        );
        bench.assert_clean();
    }
}

#[test]
fn a_dead_server_is_told_within_seconds() {
    let bench = Bench::new();
    let portal = "127.0.1.2:2049".parse().unwrap();
    let volume = bench.volume_of("127.0.1.2", "volume-1", json!({}));
    type Way = (fn(SocketAddr) -> Cut, Reason);
    let cuts: [Way; 2] =
        [(Cut::refused, Reason::PortalRefused), (Cut::silent, Reason::PortalTimeout)];
    for (cut, wanted) in cuts {
        let cut = cut(portal);
        let begun = Instant::now();
        assert_eq!(reason(volume.connect()), Some(wanted));
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        bench.assert_clean();
        cut.mend();
    }
    let nobody = bench.volume_of("no-such-host.invalid", "volume-1", json!({}));
    assert_eq!(reason(nobody.connect()), Some(Reason::TargetUnreachable));
    bench.assert_clean();
}

#[test]
fn something_else_at_the_place_is_refused_and_left() {
    let mut bench = Bench::new();
    let volume = bench.volume("volume-1");
    let target = path_of(&volume.connect().unwrap()).parent().unwrap().to_owned();
    volume.disconnect().unwrap();
    fs::create_dir_all(&target).unwrap();
    cmd("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&target).ok();
    fs::write(target.join("volume-1"), "another's").unwrap();
    bench.before = Leftovers::snapshot();

    assert_eq!(reason(volume.connect()), Some(Reason::IdentityMismatch));
    assert_eq!(volume.disconnect().unwrap(), Change::Already(()));

    bench.before.assert_restored();
    cmd("umount").arg(&target).ok();
    fs::remove_dir_all(BASE).unwrap();
}

#[test]
fn an_open_file_keeps_its_mount_unless_forced() {
    let bench = Bench::new();
    let volume = bench.volume("volume-1");
    let path = path_of(&volume.connect().unwrap());
    let file = File::options().read(true).write(true).open(&path).unwrap();

    let error = volume.disconnect().unwrap_err();
    assert_eq!(error.reason(), Some(Reason::DeviceBusy), "{error:?}");
    assert!(!volume.connect().unwrap().is_made());

    // Whoever has it open goes on; nobody else finds it.
    assert_eq!(volume.force(false).unwrap(), Change::Made(()));
    file.write_all_at(b"late", 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(&fs::read(bench.folder.join("volume-1")).unwrap()[..4], b"late");
    bench.assert_clean();
}

#[test]
fn a_loop_device_over_a_file_keeps_its_mount() {
    let bench = Bench::new();
    let volume = bench.volume("volume-1");
    let path = path_of(&volume.connect().unwrap());
    let device = cmd("losetup").args(["-f", "--show"]).arg(&path).ok();

    for result in [volume.disconnect(), volume.force(true)] {
        assert_eq!(reason(result), Some(Reason::DeviceBusy));
    }

    cmd("losetup").args(["-d", device.trim()]).ok();
    // udev may be reading it still.
    wait_for("end of the loop device", Duration::from_secs(10), || {
        cmd("losetup").arg("-a").ok().is_empty().then_some(())
    });
    volume.disconnect().unwrap();
    bench.assert_clean();
}

#[test]
fn a_server_that_falls_silent_stops_a_detach_and_force_takes_it_away() {
    let bench = Bench::new();
    let volume = bench.volume("volume-1");
    let path = path_of(&volume.connect().unwrap());
    fs::write(&path, "written").unwrap();
    let cut = Cut::silent(format!("{SERVER}:2049").parse().unwrap());

    let begun = Instant::now();
    assert_eq!(reason(volume.disconnect()), Some(Reason::FlushFailed));
    assert_eq!(reason(volume.connect()), Some(Reason::TargetUnreachable));
    assert!(!volume.health().unwrap().healthy);
    let lost = volume.force(false);
    assert_eq!(reason(lost), Some(Reason::DataLost));
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    bench.assert_clean();
    assert_eq!(volume.disconnect().unwrap(), Change::Already(()));
    assert_eq!(reason(volume.connect()), Some(Reason::PortalTimeout));
    bench.assert_clean();

    cut.mend();
    volume.connect().unwrap();
    volume.disconnect().unwrap();
    bench.assert_clean();
}

#[test]
fn case_24_a_mount_that_is_gone_is_noticed_and_made_anew() {
    let bench = Bench::new();
    let volume = bench.volume("volume-1");
    let path = path_of(&volume.connect().unwrap());
    let target = path.parent().unwrap();
    let mounted = fs::metadata(target).unwrap();
    cmd("umount").arg(target).ok();

    // What is below is another file system, closed to everybody but root.
    let below = fs::metadata(target).unwrap();
    assert_ne!(mounted.dev(), below.dev());
    assert_eq!(below.permissions().mode() & 0o7777, 0);
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups", "touch"];
    assert!(!cmd("setpriv").args(user).arg(&path).succeeds(), "an ordinary user writes below");
    assert!(!volume.health().unwrap().healthy);
    assert_eq!(volume.lookup().unwrap(), None);

    assert!(volume.connect().unwrap().is_made());
    assert_eq!(fs::metadata(target).unwrap().dev(), mounted.dev());
    volume.disconnect().unwrap();
    bench.assert_clean();
}

#[test]
fn case_24_a_stale_mount_is_made_anew() {
    let mut bench = Bench::new();
    let volume = bench.volume("volume-1");
    let path = path_of(&volume.connect().unwrap());
    // The same name, another folder: what the client holds is no more. It is made before the old one
    // goes, because the handle of an export is its inode's number, and that could be given again.
    bench.server().unexport("vols");
    let another = bench.folder.with_extension("another");
    fs::create_dir(&another).unwrap();
    fs::remove_dir_all(&bench.folder).unwrap();
    fs::rename(&another, &bench.folder).unwrap();
    bench.server().export("vols");
    fs::write(bench.folder.join("volume-1"), "new").unwrap();
    let health = volume.health().unwrap();
    assert!(health.message.contains("Stale"), "{health:?}");

    assert!(volume.connect().unwrap().is_made());

    assert_eq!(fs::read(&path).unwrap(), b"new");
    volume.disconnect().unwrap();
    bench.assert_clean();
}

#[test]
fn several_at_once_make_one_mount() {
    let bench = Bench::new();
    let attached: Vec<_> = std::thread::scope(|scope| {
        let names = ["volume-1", "volume-2", "volume-1", "volume-2"];
        let threads =
            names.map(|name| scope.spawn(|| bench.volume(name).connect().map(|a| path_of(&a))));
        threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
    });

    assert_eq!(attached[0], attached[2]);
    assert_eq!(attached[1], attached[3]);
    let now = Leftovers::snapshot().of("mount");
    assert_eq!(now.difference(&bench.before.of("mount")).count(), 1, "{now:?}");
    bench.volume("volume-1").disconnect().unwrap();
    bench.volume("volume-2").disconnect().unwrap();
    bench.assert_clean();
}

#[test]
fn case_26_a_call_that_is_killed_between_two_steps_is_made_good() {
    let bench = Bench::new();

    Kills::of("NFS", &bench.asked(), &bench.before).some(3).run();

    bench.assert_clean();
}

#[test]
fn case_26_a_call_that_was_cut_off_is_finished_by_the_next() {
    let bench = Bench::new();
    let volume = bench.volume("volume-1");
    for step in 0..16 {
        let after = Duration::from_millis(step * 18);
        volume.connect_cut_off(after);
        if step % 2 == 0 {
            volume.connect().unwrap();
        }
        volume.disconnect_cut_off(after / 2);
        volume.disconnect().unwrap();
        bench.assert_clean();
    }
}

#[test]
fn bad_options_are_refused_before_anything_is_done() {
    let bench = Bench::new();
    for options in ["-o vers=9", "-t ext4", "-o bind", "-o port=x"] {
        let volume = bench.volume_of(SERVER, "volume-1", json!({ "options": options }));
        let error = volume.connect().unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{options}: {error:?}");
        assert!(error.sentence().contains("options"), "{options}: {error:?}");
    }
    let unknown = bench.volume_of(SERVER, "volume-1", json!({ "options": "-o nosuchoption" }));
    let error = unknown.connect().unwrap_err();
    assert!(error.sentence().contains("nosuchoption"), "{error:?}");
    bench.assert_clean();
}
