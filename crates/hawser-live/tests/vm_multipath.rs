//! iSCSI over several paths against LIO, with dm-multipath and multipathd: whole lives, paths that go
//! and come back under load, and every way to lose data that a map knows.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "vm_multipath/later.rs"]
mod later;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use hawser_core::attach::{Attach, Attached, Detach, Multipath};
use hawser_core::{ByteSize, Change, Reason};
use hawser_live::lab::guest::paths::{all, connect, disconnect, forced, paths, usable};
use hawser_live::lab::guest::san::{self, IQN, San, disks, names, read, write};
use hawser_live::lab::guest::{Load, Volume, cmd, lio, refusal, settle, wait_for};
use serde_json::json;

const TWO: [&str; 2] = ["127.0.1.1:3260", "127.0.1.2:3260"];
const FOUR: [&str; 4] = ["127.0.1.1:3260", "127.0.1.2:3260", "127.0.1.3:3260", "127.0.1.4:3260"];
const LIMIT: Duration = Duration::from_secs(60);

/// What is set up: which volumes become maps, what a map without a path does, how maps are called.
fn configuration(find: &str, no_path: &str, friendly: &str) -> String {
    format!(
        "defaults {{\n find_multipaths {find}\n polling_interval 1\n no_path_retry {no_path}\n \
         user_friendly_names {friendly}\n}}\n\
         overrides {{\n no_path_retry {no_path}\n}}\n\
         blacklist {{\n devnode \"^(vd|loop|dm-|ram|nvme|nbd)\"\n}}\n"
    )
}

fn plain() -> String {
    configuration("no", "5", "no")
}

fn san(portals: &[&str], volumes: usize) -> San {
    San::with_multipath(portals, volumes, &plain())
}

fn volume(san: &San, number: u16) -> Volume {
    Volume::new("iscsi", san.all_ways(number))
}

fn device(attached: &Change<Attached>) -> PathBuf {
    attached.get().path().to_owned()
}

/// The wwids that multipathd remembers.
fn remembered() -> Vec<String> {
    let text = fs::read_to_string("/etc/multipath/wwids").unwrap_or_default();
    text.lines().filter(|line| line.starts_with('/')).map(str::to_owned).collect()
}

#[test]
fn a_volume_over_two_paths_lives_twice_and_leaves_nothing() {
    let san = san(&TWO, 1);
    let disk = &san.disks[0];
    let mut size = 32;

    for round in 0..2_u8 {
        let volume = volume(&san, 1);
        let made = volume.connect_as(&all()).expect("connect");
        let map = device(&made);
        assert!(made.is_made() && map.to_string_lossy().starts_with("/dev/dm-"), "{made:?}");
        assert_eq!((paths(&map).len(), usable(&map)), (2, 2));
        let pattern = vec![0x50 + round; 8192];
        write(&map, 8192, &pattern);
        assert_eq!(disk.read(8192, 8192), pattern, "it reached the storage");

        assert_eq!(volume.connect_as(&all()).expect("again"), Change::Already(made.get().clone()));
        assert_eq!(volume.lookup().expect("lookup").as_ref(), Some(made.get()));
        let health = volume.health().expect("health");
        assert!(health.healthy, "{health:?}");

        size += 32;
        disk.grow(size);
        assert_eq!(volume.extend().expect("extend"), ByteSize::mib(size));
        let last = (size << 20) - 4096;
        write(&map, last, &[0x77; 4096]);
        assert_eq!(disk.read(last, 4096), vec![0x77; 4096], "the new end is usable");

        disconnect(&volume);
        san.assert_clean();
        let again = volume.disconnect_as(&all(), &Detach::default()).expect("again");
        assert_eq!(again, Change::Already(()));
        san.assert_clean();
    }
}

#[test]
fn four_portals_are_four_paths() {
    let san = san(&FOUR, 1);
    let volume = volume(&san, 1);

    let map = connect(&volume);

    assert_eq!((paths(&map).len(), usable(&map)), (4, 4));
    write(&map, 0, &[4; 4096]);
    assert_eq!(san.disks[0].read(0, 4096), vec![4; 4096]);
    disconnect(&volume);
    san.assert_clean();
}

#[test]
fn one_portal_leads_to_all_by_discovery_with_credentials() {
    let san = san(&TWO, 1);
    lio::discovery_chap(Some(("finder", "discovery-secret-1")));
    let mut data = san.one_way(1);
    data["discovery_auth_method"] = json!("CHAP");
    data["discovery_auth_username"] = json!("finder");
    data["discovery_auth_password"] = json!("discovery-secret-1");
    let volume = Volume::new("iscsi", data);

    let map = connect(&volume);

    assert_eq!(paths(&map).len(), 2);
    let left = cmd("grep").args(["-r", "discovery-secret-1", "/etc/iscsi", "/run/hawser"]).run();
    assert_eq!(left.stdout, "", "the credentials stayed");
    assert!(!volume.connect_as(&all()).expect("again").is_made());
    disconnect(&volume);
    san.assert_clean();
    lio::discovery_chap(None);
}

#[test]
fn volumes_are_remembered_for_multipathd_only_while_they_are_attached() {
    let san = San::with_multipath(&TWO, 1, &configuration("strict", "5", "no"));
    let before = remembered();
    let volume = volume(&san, 1);

    let map = connect(&volume);
    assert_eq!(paths(&map).len(), 2);
    assert_eq!(remembered().len(), before.len() + 1);
    disconnect(&volume);

    assert_eq!(remembered(), before);
    san.assert_clean();
    // One path alone becomes a map as well.
    let one = san.volume(1);
    let map = connect(&one);
    assert_eq!(paths(&map).len(), 2, "the target told the other portal");
    disconnect(&one);
    san.assert_clean();
}

#[test]
fn without_multipathd_enforcing_is_refused_and_wishing_gives_one_path() {
    let san = San::new(&TWO, 1);
    let volume = volume(&san, 1);

    refusal(volume.connect_as(&all()), Reason::MultipathUnavailable);
    san.assert_clean();
    let wanted = Attach { multipath: Multipath::Wanted, ..Attach::default() };
    let made = volume.connect_as(&wanted).expect("connect");
    assert!(device(&made).to_string_lossy().starts_with("/dev/sd"), "{made:?}");
    write(&device(&made), 0, &[1; 4096]);
    volume.disconnect_as(&wanted, &Detach::default()).expect("disconnect");
    san.assert_clean();
}

#[test]
fn one_path_that_multipathd_takes_is_given_as_its_map() {
    let san = san(&TWO[..1], 1);
    let volume = san.volume(1);

    let map = device(&volume.connect().expect("connect"));

    assert!(map.to_string_lossy().starts_with("/dev/dm-"), "{}", map.display());
    write(&map, 0, &[1; 4096]);
    volume.disconnect().expect("disconnect");
    san.assert_clean();
}

#[test]
fn a_dead_portal_costs_no_more_than_its_probe() {
    let san = san(&TWO, 1);
    let volume = volume(&san, 1);
    connect(&volume);
    disconnect(&volume);
    let begun = Instant::now();
    connect(&volume);
    let usual = begun.elapsed();
    disconnect(&volume);
    let cut = san.target.cut(1);
    let begun = Instant::now();

    let map = connect(&volume);

    let took = begun.elapsed();
    assert_eq!(paths(&map).len(), 1);
    assert!(took < usual + Duration::from_secs(4), "{took:?}, and {usual:?} with both");
    write(&map, 0, &[1; 4096]);
    cut.mend();
    disconnect(&volume);
    san.assert_clean();
}

#[test]
fn writes_go_on_while_paths_go_and_come_back() {
    let san = san(&TWO, 1);
    let volume = volume(&san, 1);
    let map = connect(&volume);
    let load = Load::start(&map);

    for portal in [0, 1] {
        load.goes_on(LIMIT);
        let cut = san.target.cut(portal);
        wait_for("a path to fail", LIMIT, || (usable(&map) == 1).then_some(()));
        load.goes_on(LIMIT);
        assert!(!volume.health().expect("health").healthy);
        refusal(volume.extend(), Reason::PathsDown);
        cut.mend();
        wait_for("the path to come back", LIMIT, || (usable(&map) == 2).then_some(()));
    }

    load.stop_and_compare(|at, count| san.disks[0].read(at, count));
    assert!(volume.health().expect("health").healthy);
    disconnect(&volume);
    san.assert_clean();
}

#[test]
fn partitions_of_a_map_go_with_it_unless_they_are_used() {
    let san = san(&TWO, 1);
    let volume = volume(&san, 1);
    let map = connect(&volume);
    cmd("sfdisk").arg("-q").arg(&map).input("label: gpt\n,8M\n,\n").ok();
    let name = fs::read_to_string(format!(
        "/sys/block/{}/dm/name",
        map.file_name().expect("x").to_string_lossy()
    ));
    let name = name.expect("a name").trim().to_owned();
    // Partitioning it makes udev look at it again, and its links go and come back with that.
    settle();
    cmd("kpartx").args(["-a", "-s", "-p", "-part"]).arg(format!("/dev/mapper/{name}")).ok();
    settle();
    let part = fs::canonicalize(format!("/dev/mapper/{name}-part1")).expect("a partition");
    cmd("mkfs.ext4").args(["-q", "-F"]).arg(&part).ok();
    fs::create_dir_all("/mnt/part").expect("a folder");
    cmd("mount").arg(&part).arg("/mnt/part").ok();

    refusal(volume.disconnect_as(&all(), &Detach::default()), Reason::DeviceBusy);
    cmd("umount").arg("/mnt/part").ok();

    disconnect(&volume);
    san.assert_clean();
}

#[test]
fn case_01_a_map_whose_number_belongs_to_another_volume_now_is_never_handed_out() {
    let mut san = san(&TWO, 1);
    let other = lio::Disk::new("other", 32);
    write(other.device(), 0, &[0xEE; 4096]);
    san.remember();
    let mut data = san.all_ways(1);
    data["wwn"] = json!(san.disks[0].wwid());
    let volume = Volume::new("iscsi", data.clone());
    let map = connect(&volume);
    write(&map, 0, &[0x11; 4096]);
    san.target.swap_lun(1, &other);

    for result in [volume.connect_as(&all()).map(drop), volume.extend().map(drop)] {
        refusal(result, Reason::IdentityMismatch);
    }
    refusal(volume.lookup(), Reason::IdentityMismatch);
    refusal(volume.disconnect_as(&all(), &Detach::default()), Reason::IdentityMismatch);
    assert_eq!(other.read(0, 4096), vec![0xEE; 4096], "nothing was written to it");

    let error = volume.disconnect_as(&all(), &forced()).expect_err("what was cached is lost");
    let said = [Some(Reason::DataLost), Some(Reason::Several)];
    assert!(said.contains(&error.reason()), "{error:?}");
    san.before.assert_restored_within(LIMIT);
    assert_eq!(other.read(0, 4096), vec![0xEE; 4096], "nothing was written to it by force");
    data["wwn"] = json!(other.wwid());
    let second = Volume::new("iscsi", data);
    let map = connect(&second);
    assert_eq!(read(&map, 0, 4096), vec![0xEE; 4096]);
    assert_eq!((paths(&map).len(), usable(&map)), (2, 2));
    disconnect(&second);
    san.assert_clean();
}

/// Ends all sessions behind everybody's back: the map stays without a path.
fn pull_all_sessions() {
    cmd("iscsiadm").args(["-m", "session", "-u"]).ok();
    wait_for("the disks to go", LIMIT, || disks().is_empty().then_some(()));
}

#[test]
fn case_02_a_leftover_map_makes_way_or_the_attach_is_refused() {
    let san = San::with_multipath(&TWO, 1, &configuration("no", "queue", "no"));
    let volume = volume(&san, 1);
    let map = connect(&volume);
    write(&map, 0, &[1; 4096]);
    let held = File::open(&map).expect("open");
    pull_all_sessions();
    wait_for("the map without a path", LIMIT, || (usable(&map) == 0).then_some(()));
    assert!(map.exists(), "multipathd keeps a map that is open");

    let error = refusal(volume.connect_as(&all()), Reason::DeviceBusy);
    assert!(error.sentence().contains("vm_multipath"), "{error:?}");
    assert!(disks().is_empty(), "its paths did not join: {:?}", disks());
    drop(held);

    let map = connect(&volume);
    assert_eq!(read(&map, 0, 4096), vec![1; 4096]);
    assert_eq!(paths(&map).len(), 2);
    disconnect(&volume);
    san.assert_clean();
}

/// udev looks at a map when its paths change, and the last one may go while it does.
#[test]
fn case_02_a_leftover_map_in_which_udev_waits_for_a_path_makes_way() {
    let san = San::with_multipath(&TWO, 1, &configuration("no", "queue", "no"));
    let volume = volume(&san, 1);
    let map = connect(&volume);
    write(&map, 0, &[1; 4096]);
    let held = File::open(&map).expect("open");
    pull_all_sessions();
    wait_for("the map without a path", LIMIT, || (usable(&map) == 0).then_some(()));
    // A probe that finds nothing in the cache, under the name of the program that udev's rules run.
    fs::copy("/usr/bin/dd", "/tmp/blkid").expect("a program");
    let probe = cmd("/tmp/blkid").args(["iflag=direct", "count=1", "of=/dev/null"]);
    let probe = probe.arg(format!("if={}", map.display())).start();
    let stat = PathBuf::from(format!("/proc/{}/stat", probe.pid()));
    wait_for("the probe to wait in the kernel", LIMIT, || {
        fs::read_to_string(&stat).is_ok_and(|line| line.contains(") D ")).then_some(())
    });
    drop(held);

    let map = connect(&volume);

    assert_eq!(read(&map, 0, 4096), vec![1; 4096]);
    assert_eq!((paths(&map).len(), usable(&map)), (2, 2));
    disconnect(&volume);
    san.assert_clean();
}

/// A map with something in its cache, and no path that works.
fn without_paths(san: &San, map: &Path) -> Vec<hawser_live::lab::guest::Cut> {
    write(map, 0, &[1; 4096]);
    let cuts: Vec<_> = (0..2).map(|portal| san.target.cut(portal)).collect();
    wait_for("all paths to fail", LIMIT, || {
        let _ = File::open(map).map(|file| file.read_at(&mut [0; 1], 0));
        (usable(map) == 0).then_some(())
    });
    let file = File::options().write(true).open(map).expect("open");
    file.write_all_at(&[2; 4096], 0).expect("into the cache");
    cuts
}

#[test]
fn case_03_and_04_a_queueing_map_without_a_path_does_not_hang_its_detach_and_loss_is_told() {
    let san = San::with_multipath(&TWO, 1, &configuration("no", "queue", "no"));
    let volume = volume(&san, 1);
    let map = connect(&volume);
    // A read that queues would hang the test: the paths are failed by the kernel's own checks.
    write(&map, 0, &[1; 4096]);
    let cuts: Vec<_> = (0..2).map(|portal| san.target.cut(portal)).collect();
    wait_for("all paths to fail", LIMIT, || (usable(&map) == 0).then_some(()));
    let file = File::options().write(true).open(&map).expect("open");
    file.write_all_at(&[2; 4096], 0).expect("into the cache");
    // Closing it would write it out, and hang.
    let begun = Instant::now();

    let error = refusal(volume.disconnect_as(&all(), &Detach::default()), Reason::DeviceBusy);
    assert!(error.sentence().contains("vm_multipath"), "{error:?}");
    thread::spawn(move || drop(file));
    let refused = wait_for("the opener to be told from the flush", LIMIT, || {
        let error = volume.disconnect_as(&all(), &Detach::default()).expect_err("no path");
        (error.reason() == Some(Reason::FlushFailed)).then_some(error)
    });
    assert!(refused.sentence().contains("no path"), "{refused:?}");
    assert!(map.exists(), "everything stays");
    assert!(begun.elapsed() < Duration::from_secs(25), "took {:?}", begun.elapsed());

    let begun = Instant::now();
    let error = volume.disconnect_as(&all(), &forced()).expect_err("data is lost");
    let said = [Some(Reason::DataLost), Some(Reason::Several)];
    assert!(said.contains(&error.reason()), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(60), "took {:?}", begun.elapsed());
    drop(cuts);
    san.before.assert_restored_within(LIMIT);
    assert_eq!(san.disks[0].read(0, 4096), vec![1; 4096], "what was lost is not there");
}

#[test]
fn a_map_that_fails_without_paths_is_not_detached_without_force_either() {
    let san = San::with_multipath(&TWO, 1, &configuration("no", "fail", "no"));
    let volume = volume(&san, 1);
    let map = connect(&volume);
    let cuts = without_paths(&san, &map);

    let error = refusal(volume.disconnect_as(&all(), &Detach::default()), Reason::FlushFailed);
    assert!(map.exists(), "{error:?}");

    drop(cuts);
    wait_for("the paths to come back", LIMIT, || (usable(&map) == 2).then_some(()));
    // What the map threw away is told once, and then everything that is left can be written.
    refusal(volume.disconnect_as(&all(), &Detach::default()), Reason::FlushFailed);
    disconnect(&volume);
    san.assert_clean();
}

#[test]
fn case_05_a_map_with_a_friendly_name_is_removed() {
    let san = San::with_multipath(&TWO, 1, &configuration("no", "5", "yes"));
    let volume = volume(&san, 1);
    let map = connect(&volume);
    let name = format!("/sys/block/{}/dm/name", map.file_name().expect("x").to_string_lossy());
    assert!(fs::read_to_string(name).expect("a name").starts_with("mpath"));
    write(&map, 0, &[5; 4096]);

    disconnect(&volume);

    san.assert_clean();
    assert_eq!(san.disks[0].read(0, 4096), vec![5; 4096]);
}

#[test]
fn case_06_what_is_there_decides_how_it_is_detached() {
    let mut san = san(&TWO, 1);
    let volume = volume(&san, 1);
    connect(&volume);
    // Today's setting says one path.
    volume.disconnect_as(&Attach::default(), &Detach::default()).expect("disconnect");
    san.assert_clean();

    let map = connect(&volume);
    write(&map, 0, &[6; 4096]);
    san.stop_multipathd();
    volume.disconnect_as(&Attach::default(), &Detach::default()).expect("without multipathd");
    san.assert_clean();
    assert_eq!(san.disks[0].read(0, 4096), vec![6; 4096]);
}

#[test]
fn case_07_paths_are_never_taken_from_a_map_in_use() {
    let san = san(&TWO, 1);
    let volume = volume(&san, 1);
    let map = connect(&volume);
    cmd("mkfs.ext4").args(["-q", "-F"]).arg(&map).ok();
    fs::create_dir_all("/mnt/map").expect("a folder");
    cmd("mount").arg(&map).arg("/mnt/map").ok();

    for detach in [Detach::default(), forced()] {
        refusal(volume.disconnect_as(&all(), &detach), Reason::DeviceBusy);
        assert_eq!((paths(&map).len(), usable(&map)), (2, 2));
    }

    fs::write("/mnt/map/still", "here").expect("it works");
    cmd("umount").arg("/mnt/map").ok();
    disconnect(&volume);
    san.assert_clean();
}

#[test]
fn case_08_a_holder_that_is_no_map_of_paths_is_a_user() {
    let san = San::new(&TWO[..1], 1);
    let volume = san.volume(1);
    let disk = device(&volume.connect().expect("connect"));
    let table = format!("0 2048 linear {} 0", disk.display());
    cmd("dmsetup").args(["create", "holder", "--table", &table]).ok();

    let error = refusal(volume.disconnect(), Reason::DeviceBusy);
    assert!(error.sentence().contains("dm-"), "{error:?}");
    assert!(Path::new("/dev/mapper/holder").exists());
    assert_eq!(device(&volume.connect().expect("again")), disk, "it is not its map");

    cmd("dmsetup").args(["remove", "holder"]).ok();
    volume.disconnect().expect("disconnect");
    san.assert_clean();
}

#[test]
fn case_09_events_of_the_last_attach_do_not_hit_the_next() {
    let san = san(&TWO, 2);
    for round in 0..8 {
        let volume = volume(&san, 1 + round % 2);
        let map = connect(&volume);
        assert_eq!((paths(&map).len(), usable(&map)), (2, 2), "round {round}");
        if round % 4 == 3 {
            settle();
            assert_eq!(paths(&map).len(), 2, "a path went afterwards");
        }
        disconnect(&volume);
        let known = cmd("multipathd").args(["show", "paths", "raw", "format", "%d"]).ok();
        let known = known.trim().trim_start_matches("ok");
        assert_eq!(known, "", "multipathd has not forgotten them");
    }
    san.assert_clean();
}

#[test]
fn case_18_a_volume_with_a_path_down_is_not_grown() {
    let san = san(&TWO, 1);
    let volume = volume(&san, 1);
    let map = connect(&volume);
    let cut = san.target.cut(1);
    wait_for("a path to fail", LIMIT, || (usable(&map) == 1).then_some(()));
    san.disks[0].grow(64);

    refusal(volume.extend(), Reason::PathsDown);

    cut.mend();
    wait_for("the path to come back", LIMIT, || (usable(&map) == 2).then_some(()));
    let grown = wait_for("the session to be up", LIMIT, || volume.extend().ok());
    assert_eq!(grown, ByteSize::mib(64));
    disconnect(&volume);
    san.assert_clean();
}

#[test]
fn case_28_a_volume_that_takes_no_writes_yet_is_waited_for() {
    let san = san(&TWO, 1);
    let acl = format!(
        "/sys/kernel/config/target/iscsi/{IQN}/tpgt_1/acls/{}/lun_1/write_protect",
        hawser_live::lab::guest::initiator()
    );
    fs::write(&acl, "1").expect("protected");
    let volume = volume(&san, 1);

    refusal(volume.connect_as(&all()), Reason::DeviceReadOnly);
    san.assert_clean();
    thread::scope(|scope| {
        scope.spawn(|| {
            wait_for("the map", LIMIT, || {
                (!names("/sys/class/iscsi_session").is_empty()).then_some(())
            });
            thread::sleep(Duration::from_secs(3));
            fs::write(&acl, "0").expect("no more");
        });
        let map = connect(&volume);
        san::write(&map, 0, &[8; 4096]);
    });

    assert_eq!(san.disks[0].read(0, 4096), vec![8; 4096]);
    disconnect(&volume);
    san.assert_clean();
}

#[test]
fn attaches_to_different_targets_run_side_by_side() {
    let san = san(&TWO, 1);
    let others: Vec<(lio::Target, lio::Disk)> = (0..3)
        .map(|number| {
            let disk = lio::Disk::new(&format!("side{number}"), 32);
            let mut target = lio::Target::new(&format!("{IQN}-side{number}"));
            for portal in TWO {
                target.add_portal(portal);
            }
            target.add_lun(1, &disk).allow(&hawser_live::lab::guest::initiator()).enable();
            (target, disk)
        })
        .collect();
    settle();
    let before = hawser_live::lab::guest::Leftovers::snapshot();

    thread::scope(|scope| {
        for (target, disk) in &others {
            let data = json!({ "target_portals": TWO, "target_iqns": vec![target.iqn(); 2],
                "target_luns": [1, 1], "volume_id": target.iqn(), "wwn": disk.wwid() });
            scope.spawn(move || {
                let volume = Volume::new("iscsi", data);
                for _ in 0..2 {
                    let map = connect(&volume);
                    write(&map, 0, target.iqn().as_bytes());
                    assert_eq!(disk.read(0, target.iqn().len()), target.iqn().as_bytes());
                    disconnect(&volume);
                }
            });
        }
    });

    before.assert_restored();
    drop(san);
}
