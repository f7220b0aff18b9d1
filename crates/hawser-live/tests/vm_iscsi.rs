//! iSCSI over one path against LIO: a volume's whole life, credentials, portals that do not answer,
//! volumes that are not there or are others, and sessions that belong to others.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hawser_core::attach::{Attach, Attached, Detach, Identity};
use hawser_core::{ByteSize, Change, Kind, Outcome, Reason};
use hawser_live::lab::guest::san::{IQN, San, disks, names, read, write};
use hawser_live::lab::guest::{Cut, Volume, cmd, lio, refusal, settle};
use serde_json::json;

const PORTAL: &str = "127.0.1.1:3260";
const SECRET: &str = "correct-horse-battery";

fn path_of(attached: &Change<Attached>) -> PathBuf {
    attached.get().path().to_owned()
}

fn is_disk(device: &Path) -> bool {
    device.to_string_lossy().starts_with("/dev/sd")
}

fn short() -> Attach {
    Attach { deadline: Duration::from_secs(5), ..Attach::default() }
}

#[test]
fn a_volume_lives_twice_and_leaves_nothing() {
    let san = San::new(&[PORTAL], 1);
    let disk = &san.disks[0];
    let mut size = 32;

    for round in 0..2_u8 {
        let volume = san.volume(1);
        let made = volume.connect().expect("connect");
        let device = path_of(&made);
        assert!(made.is_made() && is_disk(&device), "{made:?}");
        let wwid = Identity::new("wwid", format!("3{}", disk.wwid().trim_start_matches('3')));
        assert_eq!(made.get().identity(), Some(&wwid));
        let pattern = vec![0x40 + round; 8192];
        write(&device, 4096, &pattern);
        assert_eq!(disk.read(4096, 8192), pattern, "it reached the storage");

        assert_eq!(volume.connect().expect("again"), Change::Already(made.get().clone()));
        assert_eq!(volume.lookup().expect("lookup").as_ref(), Some(made.get()));
        assert!(volume.health().expect("health").healthy);

        size += 32;
        disk.grow(size);
        assert_eq!(volume.extend().expect("extend"), ByteSize::mib(size));
        let last = (size << 20) - 4096;
        write(&device, last, &[0x77; 4096]);
        assert_eq!(disk.read(last, 4096), vec![0x77; 4096], "the new end is usable");
        assert_eq!(read(&device, 4096, 8192), pattern, "what was there is there");

        assert_eq!(volume.disconnect().expect("disconnect"), Change::Made(()));
        san.assert_clean();
        assert_eq!(volume.disconnect().expect("again"), Change::Already(()));
        assert_eq!(volume.lookup().expect("lookup"), None);
        san.assert_clean();
    }
}

#[test]
fn only_the_volume_that_is_asked_for_appears() {
    let san = San::new(&[PORTAL], 3);

    let volume = san.volume(2);
    volume.connect().expect("connect");
    settle();

    assert_eq!(disks().len(), 1, "others were scanned: {:?}", disks());
    volume.disconnect().expect("disconnect");
    san.assert_clean();
}

#[test]
fn chap_lets_in_who_knows_the_secret_and_nobody_else() {
    let mut san = San::new(&[PORTAL], 1);
    san.target.chap("user1", SECRET);
    let mut data = san.one_way(1);
    data["auth_method"] = json!("CHAP");
    data["auth_username"] = json!("user1");
    data["auth_password"] = json!(SECRET);

    let volume = Volume::new("iscsi", data.clone());
    let device = path_of(&volume.connect().expect("connect"));
    write(&device, 0, b"let in");
    let record = format!("/etc/iscsi/nodes/{IQN}/127.0.1.1,3260");
    let mode = fs::metadata(&record).expect("a record").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    volume.disconnect().expect("disconnect");
    san.assert_clean();

    for (password, method) in [("not-the-password", "CHAP"), (SECRET, "None")] {
        data["auth_password"] = json!(password);
        data["auth_method"] = json!(method);
        let begun = Instant::now();
        let error = refusal(Volume::new("iscsi", data.clone()).connect(), Reason::AuthFailed);
        assert_eq!((error.kind(), error.outcome()), (Kind::Denied, Outcome::RolledBack));
        assert!(!format!("{error:?}").contains(password), "{error:?}");
        assert!(begun.elapsed() < Duration::from_secs(10), "took {:?}", begun.elapsed());
        san.assert_clean();
    }
}

#[test]
fn a_target_has_to_prove_itself_where_that_is_asked_for() {
    let mut san = San::new(&[PORTAL], 1);
    san.target.chap("user1", SECRET).mutual_chap("target1", "the-targets-own-secret");
    let mut data = san.one_way(1);
    data["auth_username"] = json!("user1");
    data["auth_password"] = json!(SECRET);
    data["auth_username_in"] = json!("target1");
    data["auth_password_in"] = json!("the-targets-own-secret");

    let volume = Volume::new("iscsi", data.clone());
    volume.connect().expect("connect");
    volume.disconnect().expect("disconnect");
    san.assert_clean();

    data["auth_password_in"] = json!("what-it-does-not-know");
    refusal(Volume::new("iscsi", data).connect(), Reason::AuthFailed);
    san.assert_clean();
}

#[test]
fn an_ipv6_portal_is_as_good() {
    let san = San::new(&["[fd00:1ab::1]:3260"], 1);
    let volume = san.volume(1);

    let device = path_of(&volume.connect().expect("connect"));
    write(&device, 0, &[6; 4096]);

    assert_eq!(san.disks[0].read(0, 4096), vec![6; 4096]);
    assert!(!volume.connect().expect("again").is_made());
    volume.disconnect().expect("disconnect");
    san.assert_clean();
}

#[test]
fn portals_and_targets_that_are_not_there_are_told_apart() {
    let mut san = San::new(&[PORTAL], 1);
    let with = |key: &str, value: &str| {
        let mut data = san.one_way(1);
        data[key] = json!(value);
        Volume::new("iscsi", data)
    };

    refusal(with("target_portal", "127.0.1.1:3999").connect(), Reason::PortalRefused);
    san.assert_clean();
    let begun = Instant::now();
    refusal(with("target_iqn", "iqn.2004-10.com.example:nobody").connect(), Reason::TargetNotFound);
    assert!(begun.elapsed() < Duration::from_secs(15), "took {:?}", begun.elapsed());
    san.assert_clean();
    let begun = Instant::now();
    let mut data = san.one_way(1);
    data["target_lun"] = json!(77);
    refusal(Volume::new("iscsi", data).connect_as(&short()), Reason::LunNotFound);
    assert!(begun.elapsed() < Duration::from_secs(15), "took {:?}", begun.elapsed());
    san.assert_clean();
    let cut = san.target.cut(0);
    let begun = Instant::now();
    refusal(san.volume(1).connect(), Reason::PortalTimeout);
    assert!(begun.elapsed() < Duration::from_secs(6), "took {:?}", begun.elapsed());
    san.assert_clean();
    cut.mend();
    san.target.disable();
    let error = san.volume(1).connect().expect_err("it is switched off");
    assert!(error.reason().is_some(), "{error:?}");
    san.assert_clean();
    san.target.enable();
    let volume = san.volume(1);
    volume.connect().expect("it is back");
    volume.disconnect().expect("disconnect");
    san.assert_clean();
}

#[test]
fn an_initiator_without_rights_is_refused() {
    let mut san = San::new(&[PORTAL], 1);
    san.target.forbid(&hawser_live::lab::guest::initiator());

    let error = san.volume(1).connect().expect_err("nobody let it in");

    assert_eq!(error.reason(), Some(Reason::AuthFailed), "{error:?}");
    san.assert_clean();
}

#[test]
fn the_volume_must_be_the_expected_one_however_that_is_written() {
    let san = San::new(&[PORTAL], 2);
    let naa = san.disks[0].wwid();
    let bare = naa.trim_start_matches('3').to_owned();
    for wwn in [naa.clone(), format!("naa.{bare}"), format!("0x{bare}"), bare.to_uppercase()] {
        let mut data = san.one_way(1);
        data["wwn"] = json!(wwn);
        let volume = Volume::new("iscsi", data);
        volume.connect().unwrap_or_else(|error| panic!("{wwn}: {error:?}"));
        volume.disconnect().expect("disconnect");
        san.assert_clean();
    }
    let mut data = san.one_way(1);
    data["wwn"] = json!(san.disks[1].wwid());
    let error = refusal(Volume::new("iscsi", data).connect(), Reason::IdentityMismatch);
    assert_eq!(error.outcome(), Outcome::RolledBack);
    san.assert_clean();
}

#[test]
fn case_25_a_device_in_use_stays_however_it_is_asked_for() {
    let san = San::new(&[PORTAL], 1);
    let volume = san.volume(1);
    let device = path_of(&volume.connect().expect("connect"));
    cmd("mkfs.ext4").args(["-q", "-F"]).arg(&device).ok();
    fs::create_dir_all("/mnt/san").expect("a folder");
    cmd("mount").arg(&device).arg("/mnt/san").ok();

    for force in [false, true] {
        let detach = Detach { force, ..Detach::default() };
        let error = volume.disconnect_as(&Attach::default(), &detach);
        refusal(error, Reason::DeviceBusy);
    }
    fs::write("/mnt/san/still", "here").expect("it works");
    cmd("umount").arg("/mnt/san").ok();
    let held = fs::File::open(&device).expect("open");
    let error = refusal(volume.disconnect(), Reason::DeviceBusy);
    assert!(error.sentence().contains("vm_iscsi"), "{error:?}");
    drop(held);

    volume.disconnect().expect("disconnect");
    san.assert_clean();
}

#[test]
fn a_read_only_volume_refuses_writes() {
    let san = San::new(&[PORTAL], 1);
    let mut data = san.one_way(1);
    data["access_mode"] = json!("ro");
    let volume = Volume::new("iscsi", data);

    let device = path_of(&volume.connect().expect("connect"));

    let written = hawser_live::lab::guest::san::try_write(&device, 0, &[1; 4096]);
    assert!(written.is_err(), "it took a write");
    assert!(!volume.connect().expect("again").is_made());
    volume.disconnect().expect("disconnect");
    san.assert_clean();
}

#[test]
fn two_volumes_share_a_session_that_ends_with_the_last() {
    let san = San::new(&[PORTAL], 2);
    let (one, two) = (san.volume(1), san.volume(2));
    one.connect().expect("connect");
    let device = path_of(&two.connect().expect("connect"));
    assert_eq!(names("/sys/class/iscsi_session").len(), 1);

    one.disconnect().expect("disconnect");

    write(&device, 0, &[2; 4096]);
    assert_eq!(names("/sys/class/iscsi_session").len(), 1);
    assert_eq!(disks(), [device]);
    two.disconnect().expect("disconnect");
    san.assert_clean();
}

#[test]
fn a_session_and_a_record_of_others_stay_as_they_are() {
    let san = San::new(&[PORTAL], 2);
    let node = || cmd("iscsiadm").args(["-m", "node", "-T", IQN, "-p", PORTAL]);
    node().args(["-o", "new"]).ok();
    let record = format!("/etc/iscsi/nodes/{IQN}/127.0.1.1,3260");
    let written = fs::read_to_string(&record).expect("a record");

    // A record alone: it is used for the login and is as before afterwards.
    let volume = san.volume(1);
    volume.connect().expect("connect");
    settle();
    assert_eq!(disks().len(), 1, "its own settings were not used: {:?}", disks());
    assert_eq!(fs::read_to_string(&record).expect("a record"), written);
    volume.disconnect().expect("disconnect");
    assert_eq!(fs::read_to_string(&record).expect("a record"), written);
    assert!(names("/sys/class/iscsi_session").is_empty());

    // A session: it is used and never ended.
    node().args(["-o", "update", "-n", "node.session.scan", "-v", "manual"]).ok();
    node().arg("--login").ok();
    let session = names("/sys/class/iscsi_session");
    let device = path_of(&volume.connect().expect("connect"));
    write(&device, 0, &[1; 4096]);
    volume.disconnect().expect("disconnect");
    assert_eq!(names("/sys/class/iscsi_session"), session);
    assert!(disks().is_empty());
    node().arg("--logout").ok();
    node().args(["-o", "delete"]).ok();
    san.assert_clean();
}

#[test]
fn two_attaches_at_once_end_with_one_device() {
    let san = San::new(&[PORTAL], 1);
    let data = san.one_way(1);

    let results: Vec<Change<Attached>> = std::thread::scope(|scope| {
        let start = |_| {
            let data = data.clone();
            scope.spawn(move || Volume::new("iscsi", data).connect().expect("connect"))
        };
        let running: Vec<_> = (0..3).map(start).collect();
        running.into_iter().map(|one| one.join().expect("a thread")).collect()
    });

    assert_eq!(results.iter().filter(|change| change.is_made()).count(), 1, "{results:?}");
    assert!(results.iter().all(|change| change.get() == results[0].get()));
    assert_eq!(names("/sys/class/iscsi_session").len(), 1);
    san.volume(1).disconnect().expect("disconnect");
    san.assert_clean();
}

#[test]
fn whatever_an_attach_that_was_given_up_left_the_next_call_deals_with() {
    let san = San::new(&[PORTAL], 1);
    for (round, after) in [20, 60, 120, 200, 300, 450].into_iter().enumerate() {
        let volume = san.volume(1);
        volume.connect_cut_off(Duration::from_millis(after));
        if round % 2 == 0 {
            let device = path_of(&volume.connect().expect("connect after a dropped one"));
            write(&device, 0, &[9; 4096]);
        }
        volume.disconnect().expect("disconnect");
        san.before.assert_restored_within(Duration::from_secs(20));
    }
}

#[test]
fn whatever_a_detach_that_was_given_up_left_the_next_one_takes_away() {
    let san = San::new(&[PORTAL], 1);
    for after in [5, 20, 60, 120] {
        let volume = san.volume(1);
        volume.connect().expect("connect");
        volume.disconnect_cut_off(Duration::from_millis(after));
        volume.disconnect().expect("disconnect");
        san.assert_clean();
    }
}

#[test]
fn case_01_a_number_that_belongs_to_another_volume_now_is_never_handed_out() {
    let mut san = San::new(&[PORTAL], 1);
    let other = lio::Disk::new("other", 32);
    write(other.device(), 0, &[0xEE; 4096]);
    san.remember();
    let mut data = san.one_way(1);
    data["wwn"] = json!(san.disks[0].wwid());
    let volume = Volume::new("iscsi", data);
    let device = path_of(&volume.connect().expect("connect"));
    write(&device, 0, &[0x11; 4096]);
    san.target.swap_lun(1, &other);

    // The kernel still calls it by its old name, and reads come from the other volume.
    for result in [volume.connect().map(drop), volume.lookup().map(drop), volume.extend().map(drop)]
    {
        refusal(result, Reason::IdentityMismatch);
    }
    assert!(!volume.health().expect("health").healthy);
    refusal(volume.disconnect(), Reason::IdentityMismatch);
    assert_eq!(other.read(0, 4096), vec![0xEE; 4096], "nothing was written to it");

    // The other volume, asked for by its own name: the stale disk goes, and its own one comes.
    let error = volume.force(false).expect_err("what was cached is lost");
    assert_eq!(error.reason(), Some(Reason::DataLost), "{error:?}");
    san.assert_clean();
    let mut data = san.one_way(1);
    data["wwn"] = json!(other.wwid());
    let second = Volume::new("iscsi", data);
    let device = path_of(&second.connect().expect("connect"));
    assert_eq!(read(&device, 0, 4096), vec![0xEE; 4096]);
    second.disconnect().expect("disconnect");
    san.assert_clean();
}

#[test]
fn case_01_a_stale_disk_that_nobody_uses_makes_way_for_the_volume_that_is_there_now() {
    let mut san = San::new(&[PORTAL], 2);
    let other = lio::Disk::new("other", 48);
    write(other.device(), 0, &[0xEE; 4096]);
    san.remember();
    let keeper = san.volume(2);
    keeper.connect().expect("the session stays");
    let first = san.volume(1);
    first.connect().expect("connect");
    san.target.swap_lun(1, &other);
    let mut data = san.one_way(1);
    data["wwn"] = json!(other.wwid());
    data["volume_id"] = json!("another");
    let second = Volume::new("iscsi", data);

    let attached = second.connect().expect("connect").into_inner();

    assert_eq!(read(attached.path(), 0, 4096), vec![0xEE; 4096]);
    let Attached::Block { size, .. } = attached else { panic!("a device") };
    assert_eq!(size, ByteSize::mib(48), "the size is not that of the old one");
    second.disconnect().expect("disconnect");
    first.disconnect().expect("nothing of it is left but its claim");
    keeper.disconnect().expect("disconnect");
    san.assert_clean();
}

#[test]
fn case_10_stale_links_are_no_identity() {
    let san = San::new(&[PORTAL], 2);
    let by_id = Path::new("/dev/disk/by-id");
    fs::create_dir_all(by_id).expect("a folder");
    let link = by_id.join(format!("scsi-{}", san.disks[0].wwid()));
    std::os::unix::fs::symlink("../../vda", &link).expect("a link");
    let mut data = san.one_way(1);
    data["wwn"] = json!(san.disks[0].wwid());
    let volume = Volume::new("iscsi", data);

    let device = path_of(&volume.connect().expect("connect"));

    assert!(is_disk(&device), "{}", device.display());
    write(&device, 0, &[3; 4096]);
    assert_eq!(san.disks[0].read(0, 4096), vec![3; 4096]);
    volume.disconnect().expect("disconnect");
    let _ = fs::remove_file(&link);
    settle();
    san.assert_clean();
}

#[test]
fn case_11_discovery_and_login_bring_in_nothing_that_was_not_asked_for() {
    let san = San::new(&[PORTAL, "127.0.1.2:3260"], 4);
    let volume = san.volume(3);
    let attach = Attach { multipath: hawser_core::attach::Multipath::Wanted, ..Attach::default() };

    volume.connect_as(&attach).expect("connect");
    settle();

    assert_eq!(disks().len(), 2, "one per portal: {:?}", disks());
    assert_eq!(names("/sys/class/iscsi_session").len(), 2);
    volume.disconnect_as(&attach, &Detach::default()).expect("disconnect");
    san.assert_clean();
}

#[test]
fn case_12_a_session_is_not_ended_while_another_attach_needs_it() {
    let san = San::new(&[PORTAL], 2);
    let (one, two) = (san.one_way(1), san.one_way(2));
    for _ in 0..4 {
        std::thread::scope(|scope| {
            let churn = |data: serde_json::Value| {
                move || {
                    for round in 0..4_u8 {
                        let volume = Volume::new("iscsi", data.clone());
                        let device = path_of(&volume.connect().expect("connect"));
                        write(&device, 0, &[round; 4096]);
                        volume.disconnect().expect("disconnect");
                    }
                }
            };
            scope.spawn(churn(one.clone()));
            scope.spawn(churn(two.clone()));
        });
        san.assert_clean();
    }
}

#[test]
fn case_13_every_session_of_a_portal_is_looked_at() {
    let san = San::new(&[PORTAL], 2);
    let node = || cmd("iscsiadm").args(["-m", "node", "-T", IQN, "-p", PORTAL]);
    node().args(["-o", "new"]).ok();
    for (name, value) in [("node.session.scan", "manual"), ("node.session.nr_sessions", "2")] {
        node().args(["-o", "update", "-n", name, "-v", value]).ok();
    }
    node().arg("--login").ok();
    let sessions = names("/sys/class/iscsi_session");
    assert_eq!(sessions.len(), 2);
    // The volume is there through the second of them alone.
    let host = fs::canonicalize(format!("/sys/class/iscsi_session/{}/device", sessions[1]))
        .expect("a session");
    let host = host.parent().and_then(Path::file_name).expect("a host").to_owned();
    let scan = Path::new("/sys/class/scsi_host").join(host).join("scan");
    fs::write(scan, "- - 1").expect("a scan");
    settle();
    let volume = san.volume(1);

    let found = volume.lookup().expect("lookup").expect("it is there");
    volume.disconnect().expect("disconnect");

    assert!(disks().is_empty(), "{found:?} stayed");
    assert_eq!(names("/sys/class/iscsi_session"), sessions);
    node().arg("--logout").ok();
    node().args(["-o", "delete"]).ok();
    san.assert_clean();
}

#[test]
fn case_23_a_disk_that_somebody_has_open_is_not_deleted_under_him() {
    let san = San::new(&[PORTAL], 1);
    let volume = san.volume(1);
    let device = path_of(&volume.connect().expect("connect"));
    let swap = cmd("mkswap").arg(&device);
    swap.ok();
    cmd("swapon").arg(&device).ok();

    refusal(volume.disconnect(), Reason::DeviceBusy);

    cmd("swapoff").arg(&device).ok();
    volume.disconnect().expect("disconnect");
    san.assert_clean();
}

/// Puts a folder of ours over another one while it lives.
struct Over(&'static str);

impl Over {
    #[track_caller]
    fn new(folder: &'static str, file: &str, text: &str) -> Self {
        let ours = format!("/tmp/over{}", folder.replace('/', "-"));
        fs::create_dir_all(&ours).expect("a folder");
        fs::create_dir_all(folder).expect("a folder");
        fs::write(format!("{ours}/{file}"), text).expect("a file");
        cmd("mount").args(["--bind", &ours, folder]).ok();
        Self(folder)
    }
}

impl Drop for Over {
    fn drop(&mut self) {
        let _ = cmd("umount").arg(self.0).try_run();
    }
}

#[test]
fn case_27_a_name_that_was_made_on_another_machine_is_warned_about() {
    let (machine, copied) =
        ("4c4c4544-0044-4410-8052-b5c04f385132", "4c4c4544-0044-4410-8052-000000000001");
    let _machine = Over::new("/sys/devices/virtual/dmi/id", "product_uuid", machine);
    let properties = |uuid: &str| {
        let name = format!("nqn.2014-08.org.nvmexpress:uuid:{uuid}");
        let _names = Over::new("/etc/nvme", "hostnqn", &name);
        let said = cmd("hawser").args(["properties", "--output", "json"]).ok();
        serde_json::from_str::<serde_json::Value>(&said).expect("JSON")
    };

    let warned = properties(copied);
    let fine = properties(machine);

    assert_eq!(warned["initiator"], json!(hawser_live::lab::guest::initiator()));
    let warning = warned["warnings"][0].as_str().expect("a warning");
    assert!(warning.contains("another machine") && warning.contains(copied), "{warning}");
    assert_eq!(fine["warnings"], serde_json::Value::Null, "{fine}");
}

#[test]
fn a_target_that_dies_under_a_volume_does_not_hang_its_detach() {
    let san = San::new(&[PORTAL], 1);
    let volume = san.volume(1);
    let device = path_of(&volume.connect().expect("connect"));
    for session in names("/sys/class/iscsi_session") {
        let file = format!("/sys/class/iscsi_session/{session}/recovery_tmo");
        fs::write(file, "5").expect("a shorter wait");
    }
    write(&device, 0, &[1; 4096]);
    let _cut = Cut::silent(san.target.portals()[0]);
    let file = fs::File::options().write(true).open(&device).expect("open");
    std::os::unix::fs::FileExt::write_all_at(&file, &[2; 4096], 0).expect("into the cache");
    drop(file);
    let begun = Instant::now();

    let detach = Detach { deadline: Duration::from_secs(8), ..Detach::default() };
    let error = volume.disconnect_as(&Attach::default(), &detach).expect_err("nothing to write to");
    assert_eq!(error.reason(), Some(Reason::FlushFailed), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(20), "took {:?}", begun.elapsed());

    let detach = Detach { force: true, deadline: Duration::from_secs(30), ..Detach::default() };
    let error = volume.disconnect_as(&Attach::default(), &detach).expect_err("data is lost");
    let said = [Some(Reason::DataLost), Some(Reason::Several)];
    assert!(said.contains(&error.reason()), "{error:?}");
    san.before.assert_restored_within(Duration::from_secs(20));
}
