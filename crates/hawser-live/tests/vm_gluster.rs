//! GlusterFS against a real cluster of one node: mounts, faults of the client, nothing left behind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hawser_core::attach::{Attach, Attached, Detach};
use hawser_core::{Change, Reason};
use hawser_live::lab::guest::file_suite::{
    BASE, assert_clean, clear, live_twice, options_at, path_of, reason,
};
use hawser_live::lab::guest::{Gluster, Leftovers, Volume, cmd, wait_for};
use serde_json::{Value, json};

/// One cluster for all tests.
static SHARED: Mutex<Option<Gluster>> = Mutex::new(None);

struct Bench {
    _cluster: MutexGuard<'static, Option<Gluster>>,
    folder: PathBuf,
    before: Leftovers,
}

impl Bench {
    fn new() -> Self {
        let mut cluster = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let before = clear();
        let fresh = cluster.is_none();
        cluster.get_or_insert_with(Gluster::new);
        let folder = Gluster::brick();
        if fresh {
            make_files();
        }
        Self { _cluster: cluster, folder, before }
    }

    fn volume(&self, name: &str, more: Value) -> Volume {
        let mut data = json!({
            "export": format!("{}:/{}", Gluster::ADDRESS, Gluster::VOLUME), "name": name,
            "mount_point_base": BASE,
        });
        for (key, value) in more.as_object().expect("an object") {
            data[key] = value.clone();
        }
        Volume::new("glusterfs", data)
    }

    /// The client goes a moment after its mount.
    #[track_caller]
    fn assert_clean(&self) {
        assert_clean(&self.before);
        wait_for("end of the client", Duration::from_secs(20), || {
            Gluster::clients(BASE).is_empty().then_some(())
        });
    }
}

/// A file in a volume must be made through a client.
fn make_files() {
    let folder = "/var/tmp/fill";
    fs::create_dir_all(folder).expect("a folder to mount on");
    let export = format!("{}:/{}", Gluster::ADDRESS, Gluster::VOLUME);
    cmd("mount.glusterfs").args([&export, folder]).ok();
    for name in ["volume-1", "volume-2"] {
        cmd("truncate").args(["-s", "16M", &format!("{folder}/{name}")]).ok();
    }
    cmd("umount").arg(folder).ok();
}

#[test]
fn a_volume_lives_twice() {
    let bench = Bench::new();
    let volume = bench.volume("volume-1", json!({}));
    live_twice(&volume, &bench.folder.join("volume-1"), "fuse.glusterfs", &bench.before);
    bench.assert_clean();
}

#[test]
fn without_a_name_the_volume_is_a_folder_and_readers_cannot_write() {
    let bench = Bench::new();
    let volume = bench.volume("", json!({ "name": null, "options": "-o noatime" }));
    let read_only = Attach { read_only: true, ..Attach::default() };

    let made = volume.connect_as(&read_only).unwrap();

    assert!(matches!(made.get(), Attached::Directory { .. }), "{made:?}");
    assert!(File::create(made.get().path().join("new")).is_err());
    volume.disconnect_as(&read_only, &Detach::default()).unwrap();
    bench.assert_clean();
}

#[test]
fn a_backup_server_is_asked_where_the_first_is_dead() {
    let bench = Bench::new();
    let dead = format!("127.0.1.9:/{}", Gluster::VOLUME);
    let both = format!("127.0.1.9,{}:/{}", Gluster::ADDRESS, Gluster::VOLUME);
    for more in
        [json!({ "export": dead, "backup_servers": [Gluster::ADDRESS] }), json!({ "export": both })]
    {
        let volume = bench.volume("volume-1", more.clone());

        let made = volume.connect().unwrap_or_else(|error| panic!("{more}: {error:?}"));

        assert!(path_of(&made).is_file(), "{}", options_at(&path_of(&made)));
        assert!(!volume.connect().unwrap().is_made());
        volume.disconnect().unwrap();
        bench.assert_clean();
    }
}

#[test]
fn what_is_wrong_is_told_apart_and_leaves_nothing() {
    let bench = Bench::new();
    for (more, wanted) in [
        (json!({ "export": format!("{}:/nothing", Gluster::ADDRESS) }), Reason::TargetNotFound),
        (
            json!({ "export": "127.0.1.9:/vols", "options": "-o server-port=1" }),
            Reason::PortalRefused,
        ),
        (json!({ "name": "volume-3" }), Reason::LunNotFound),
        (json!({ "export": "no-such-host.invalid:/vols" }), Reason::TargetUnreachable),
    ] {
        let begun = Instant::now();
        let error = bench.volume("volume-1", more.clone()).connect().unwrap_err();
        assert_eq!(error.reason(), Some(wanted), "{more}: {error:?}");
        assert!(begun.elapsed() < Duration::from_secs(40), "{more}: {:?}", begun.elapsed());
        bench.assert_clean();
    }
}

#[test]
fn volumes_share_a_mount_and_an_open_file_keeps_it() {
    let bench = Bench::new();
    let (one, two) = (bench.volume("volume-1", json!({})), bench.volume("volume-2", json!({})));
    one.connect().unwrap();
    let path = path_of(&two.connect().unwrap());
    assert_eq!(Gluster::clients(BASE).len(), 1);
    one.disconnect().unwrap();
    let file = File::options().write(true).open(&path).unwrap();

    assert_eq!(reason(two.disconnect()), Some(Reason::DeviceBusy));

    file.write_all_at(b"late", 0).unwrap();
    drop(file);
    assert_eq!(two.disconnect().unwrap(), Change::Made(()));
    assert_eq!(&fs::read(bench.folder.join("volume-2")).unwrap()[..4], b"late");
    bench.assert_clean();
}

#[test]
fn case_24_a_mount_whose_client_died_is_made_anew() {
    let bench = Bench::new();
    let volume = bench.volume("volume-1", json!({}));
    let path = path_of(&volume.connect().unwrap());
    let client = Gluster::clients(BASE)[0];
    cmd("kill").args(["-9", &client.to_string()]).ok();
    wait_for("end of the client", Duration::from_secs(10), || {
        Gluster::clients(BASE).is_empty().then_some(())
    });
    let health = volume.health().unwrap();
    assert!(health.message.contains("not connected"), "{health:?}");
    assert_eq!(reason(volume.disconnect()), Some(Reason::FlushFailed), "only by force");

    assert!(volume.connect().unwrap().is_made());

    assert!(path.is_file());
    volume.disconnect().unwrap();
    bench.assert_clean();
}

#[test]
fn a_client_that_hangs_stops_a_detach_and_force_takes_it_away() {
    let bench = Bench::new();
    let volume = bench.volume("volume-1", json!({}));
    volume.connect().unwrap();
    let client = Gluster::clients(BASE)[0].to_string();
    cmd("kill").args(["-STOP", &client]).ok();

    let begun = Instant::now();
    assert_eq!(reason(volume.disconnect()), Some(Reason::FlushFailed));
    assert_eq!(reason(volume.force(false)), Some(Reason::DataLost));

    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert_clean(&bench.before);
    cmd("kill").args(["-9", &client]).ok();
    volume.connect().unwrap();
    volume.disconnect().unwrap();
    bench.assert_clean();
}

#[test]
fn case_26_a_call_that_was_cut_off_is_finished_by_the_next() {
    let bench = Bench::new();
    let volume = bench.volume("volume-1", json!({}));
    for after in [300, 2500] {
        volume.connect_cut_off(Duration::from_millis(after));
        volume.connect().unwrap();
        volume.disconnect_cut_off(Duration::from_millis(after / 4));
        volume.disconnect().unwrap();
        bench.assert_clean();
    }
}
