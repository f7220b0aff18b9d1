//! SMB 3.1.1 against Samba: plain and encrypted, faults, and nothing left behind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hawser_core::attach::{Attach, Attached, Detach};
use hawser_core::{Change, Kind, Reason};
use hawser_live::lab::guest::file_suite::{
    BASE, assert_clean, clear, live_twice, options_at, path_of, reason,
};
use hawser_live::lab::guest::{Cut, Leftovers, Samba, Volume, cmd};
use serde_json::{Value, json};

const SERVER: &str = "127.0.1.1";

/// One server for all tests.
static SHARED: Mutex<Option<Samba>> = Mutex::new(None);

struct Bench {
    _server: MutexGuard<'static, Option<Samba>>,
    folder: PathBuf,
    before: Leftovers,
}

impl Bench {
    fn new() -> Self {
        let mut server = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        server.get_or_insert_with(Samba::new);
        for share in ["vols", "open"] {
            for name in ["volume-1", "volume-2"] {
                let file = Samba::folder(share).join(name);
                let file = File::create(file).and_then(|file| file.set_len(16 << 20));
                file.expect("a volume at the server");
            }
        }
        Self { _server: server, folder: Samba::folder("vols"), before: clear() }
    }

    fn volume(&self, name: &str, more: Value) -> Volume {
        let mut data = json!({
            "export": format!("//{SERVER}/vols"), "name": name, "mount_point_base": BASE,
            "username": Samba::USER, "password": Samba::PASSWORD,
        });
        for (key, value) in more.as_object().expect("an object") {
            data[key] = value.clone();
        }
        Volume::new("smbfs", data)
    }

    #[track_caller]
    fn assert_clean(&self) {
        assert_clean(&self.before);
    }
}

#[test]
fn a_volume_lives_twice() {
    let bench = Bench::new();
    let volume = bench.volume("volume-1", json!({}));
    live_twice(&volume, &bench.folder.join("volume-1"), "vers=3.1.1", &bench.before);
}

#[test]
fn a_share_with_a_blank_in_its_name_is_known_again() {
    let bench = Bench::new();
    let file = Samba::folder("all vols").join("volume-1");
    File::create(&file).and_then(|file| file.set_len(16 << 20)).unwrap();
    let export = format!("//{SERVER}/all vols");
    let volume = bench.volume("volume-1", json!({ "export": export }));
    live_twice(&volume, &file, "vers=3.1.1", &bench.before);
}

#[test]
fn an_encrypted_volume_lives_twice() {
    let bench = Bench::new();
    let volume = bench.volume("volume-1", json!({ "options": "-o seal,noatime" }));
    live_twice(&volume, &bench.folder.join("volume-1"), ",seal", &bench.before);
}

#[test]
fn a_mount_in_the_clear_is_not_given_to_whoever_asks_for_encryption() {
    let bench = Bench::new();
    let plain = bench.volume("volume-1", json!({}));
    plain.connect().unwrap();

    let sealed = bench.volume("volume-2", json!({ "options": "-o seal" }));

    let error = sealed.connect().unwrap_err();
    assert!(error.sentence().contains("without the encryption"), "{error:?}");
    plain.disconnect().unwrap();
    bench.assert_clean();
}

#[test]
fn the_password_is_nowhere_to_be_read() {
    let bench = Bench::new();
    let volume = bench.volume("volume-1", json!({}));

    volume.connect().unwrap();

    let mut seen = fs::read_to_string("/proc/self/mountinfo").unwrap();
    for entry in fs::read_dir("/run/hawser/mounts").unwrap().flatten() {
        seen += &fs::read_to_string(entry.path()).unwrap();
    }
    for process in fs::read_dir("/proc").unwrap().flatten() {
        seen +=
            &String::from_utf8_lossy(&fs::read(process.path().join("cmdline")).unwrap_or_default());
    }
    assert!(!seen.contains("hunter2"), "the password is in {seen}");
    volume.disconnect().unwrap();
    bench.assert_clean();
}

#[test]
fn credentials_come_from_options_and_files() {
    let bench = Bench::new();
    let file = "/root/credentials";
    let text = format!("username={}\npassword={}\n", Samba::USER, Samba::PASSWORD);
    fs::write(file, text).unwrap();
    for options in [format!("-o credentials={file}"), format!("-o user={}", Samba::USER)] {
        let more = json!({ "options": options, "username": null,
            "password": if options.contains("user=") { json!(Samba::PASSWORD) } else { json!(null) } });
        let volume = bench.volume("volume-1", more);

        volume.connect().unwrap();

        volume.disconnect().unwrap();
        bench.assert_clean();
    }
}

#[test]
fn a_guest_gets_what_guests_may_have() {
    let bench = Bench::new();
    let guest = |share: &str| {
        bench.volume(
            "volume-1",
            json!({ "export": format!("//{SERVER}/{share}"),
            "options": "-o guest", "username": null, "password": null }),
        )
    };
    let volume = guest("open");
    let path = path_of(&volume.connect().unwrap());
    fs::write(&path, "as a guest").unwrap();
    volume.disconnect().unwrap();
    assert_eq!(fs::read(Samba::folder("open").join("volume-1")).unwrap(), b"as a guest");

    assert_eq!(reason(guest("vols").connect()), Some(Reason::AuthFailed));
    bench.assert_clean();
}

#[test]
fn what_is_wrong_is_told_apart_and_leaves_nothing() {
    let bench = Bench::new();
    for (more, wanted) in [
        (json!({ "password": "wrong" }), Reason::AuthFailed),
        (
            json!({ "username": "nobody-here", "export": format!("//{SERVER}/vols") }),
            Reason::AuthFailed,
        ),
        (json!({ "export": format!("//{SERVER}/nothing") }), Reason::TargetNotFound),
        (json!({ "name": "volume-3" }), Reason::LunNotFound),
        (json!({ "username": null }), Reason::InvalidParameters),
        (json!({ "export": "nas:/vols" }), Reason::InvalidParameters),
    ] {
        let error = bench.volume("volume-1", more.clone()).connect().unwrap_err();
        assert_eq!(error.reason(), Some(wanted), "{more}: {error:?}");
        assert!(!format!("{error:?}").contains("wrong"), "{error:?}");
        bench.assert_clean();
    }
}

#[test]
fn an_option_that_the_kernel_does_not_know_is_named() {
    let bench = Bench::new();

    let error = bench.volume("volume-1", json!({ "options": "-o nosuchoption" })).connect();

    let error = error.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{error:?}");
    assert!(error.sentence().contains("nosuchoption"), "{error:?}");
    bench.assert_clean();
}

#[test]
fn a_dead_server_is_told_within_seconds() {
    let bench = Bench::new();
    let cut = Cut::silent("127.0.1.2:445".parse().unwrap());
    let volume = bench.volume("volume-1", json!({ "export": "//127.0.1.2/vols" }));

    let begun = Instant::now();
    assert_eq!(reason(volume.connect()), Some(Reason::PortalTimeout));

    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    cut.mend();
    bench.assert_clean();
}

#[test]
fn a_server_is_reached_over_ipv6_and_by_name() {
    let bench = Bench::new();
    for server in ["fd00:1ab::1", "localhost"] {
        let volume = bench.volume("volume-1", json!({ "export": format!("//{server}/vols") }));

        let path = path_of(&volume.connect().unwrap());

        assert!(options_at(&path).contains("addr="), "{}", options_at(&path));
        assert!(!volume.connect().unwrap().is_made());
        volume.disconnect().unwrap();
        bench.assert_clean();
    }
}

#[test]
fn without_a_name_the_share_is_a_folder_and_readers_cannot_write() {
    let bench = Bench::new();
    let volume = bench.volume("", json!({ "name": null }));
    let read_only = Attach { read_only: true, ..Attach::default() };

    let made = volume.connect_as(&read_only).unwrap();

    assert!(matches!(made.get(), Attached::Directory { .. }), "{made:?}");
    let refused = File::create(made.get().path().join("new")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(30), "{refused}");
    volume.disconnect_as(&read_only, &Detach::default()).unwrap();
    bench.assert_clean();
}

#[test]
fn volumes_share_a_mount_and_an_open_file_keeps_it() {
    let bench = Bench::new();
    let (one, two) = (bench.volume("volume-1", json!({})), bench.volume("volume-2", json!({})));
    one.connect().unwrap();
    let path = path_of(&two.connect().unwrap());
    one.disconnect().unwrap();
    let file = File::options().write(true).open(&path).unwrap();

    assert_eq!(reason(two.disconnect()), Some(Reason::DeviceBusy));

    assert_eq!(two.force(false).unwrap(), Change::Made(()));
    file.write_all_at(b"late", 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(&fs::read(bench.folder.join("volume-2")).unwrap()[..4], b"late");
    bench.assert_clean();
}

#[test]
fn a_server_that_falls_silent_stops_a_detach_and_force_takes_it_away() {
    let bench = Bench::new();
    let volume = bench.volume("volume-1", json!({}));
    let path = path_of(&volume.connect().unwrap());
    fs::write(&path, "written").unwrap();
    let cut = Cut::silent(format!("{SERVER}:445").parse().unwrap());

    let begun = Instant::now();
    assert_eq!(reason(volume.disconnect()), Some(Reason::FlushFailed));
    assert_eq!(reason(volume.force(false)), Some(Reason::DataLost));

    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    bench.assert_clean();
    cut.mend();
    volume.connect().unwrap();
    volume.disconnect().unwrap();
    bench.assert_clean();
}

#[test]
fn case_24_a_mount_that_is_gone_is_noticed_and_made_anew() {
    let bench = Bench::new();
    let volume = bench.volume("volume-1", json!({}));
    let path = path_of(&volume.connect().unwrap());
    cmd("umount").arg(path.parent().unwrap()).ok();
    assert!(!volume.health().unwrap().healthy);

    assert!(volume.connect().unwrap().is_made());

    assert!(path.is_file());
    volume.disconnect().unwrap();
    bench.assert_clean();
}

#[test]
fn two_at_once_make_one_mount() {
    let bench = Bench::new();
    std::thread::scope(|scope| {
        for name in ["volume-1", "volume-2"] {
            let bench = &bench;
            scope.spawn(move || bench.volume(name, json!({})).connect().unwrap());
        }
    });

    let now = Leftovers::snapshot().of("mount");
    assert_eq!(now.difference(&bench.before.of("mount")).count(), 1, "{now:?}");
    for name in ["volume-1", "volume-2"] {
        bench.volume(name, json!({})).disconnect().unwrap();
    }
    bench.assert_clean();
}
