//! The target that other suites use does what they ask it for.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use hawser_live::lab::guest::{self, Cmd, Daemon, Leftovers, cmd, lio, wait_for};

const IQN: &str = "iqn.2004-10.com.example:lio";

/// What `iscsiadm` ends with when the target refuses who asks.
const REFUSED: i32 = 24;

/// How long a device or a change of one may take.
const LIMIT: Duration = Duration::from_secs(60);

/// An initiator by hand, which forgets everything when dropped.
struct Initiator {
    _iscsid: Daemon,
}

impl Initiator {
    fn new() -> Self {
        Self { _iscsid: guest::iscsid() }
    }

    fn node(&self, portal: &str) -> Cmd {
        cmd("iscsiadm").args(["-m", "node", "-T", IQN, "-p", portal])
    }

    /// A record without discovery.
    fn record(&self, portal: &str) {
        self.node(portal).args(["-o", "new"]).ok();
    }

    fn set(&self, portal: &str, name: &str, value: &str) {
        self.node(portal).args(["-o", "update", "-n", name, "-v", value]).ok();
    }

    fn login(&self, portal: &str) -> i32 {
        self.node(portal).arg("--login").run().code()
    }

    fn set_chap(&self, portal: &str, suffix: &str, user: &str, password: &str) {
        self.set(portal, "node.session.auth.authmethod", "CHAP");
        self.set(portal, &format!("node.session.auth.username{suffix}"), user);
        self.set(portal, &format!("node.session.auth.password{suffix}"), password);
    }

    fn rescan(&self) {
        cmd("iscsiadm").args(["-m", "session", "--rescan"]).ok();
    }
}

impl Drop for Initiator {
    fn drop(&mut self) {
        cmd("iscsiadm").args(["-m", "node", "--logout"]).run();
        cmd("iscsiadm").args(["-m", "node", "-o", "delete"]).run();
    }
}

/// udev writes an IPv6 address without its brackets.
fn by_path(portal: &str, lun: u16) -> PathBuf {
    let portal = portal.replace(['[', ']'], "");
    format!("/dev/disk/by-path/ip-{portal}-iscsi-{IQN}-lun-{lun}").into()
}

fn wait_link(link: &Path) {
    wait_for(&format!("{}", link.display()), LIMIT, || link.exists().then_some(()));
}

fn identity(device: &Path) -> String {
    let scsi_id = cmd("/lib/udev/scsi_id").args(["-g", "-u", "-d"]).arg(device);
    scsi_id.ok().trim().to_owned()
}

fn mib(device: &Path) -> u64 {
    let bytes: u64 =
        cmd("blockdev").arg("--getsize64").arg(device).ok().trim().parse().expect("a number");
    bytes >> 20
}

#[test]
fn several_portals_and_luns_show_the_disks_with_their_serial_numbers() {
    let nothing = Leftovers::snapshot();
    let portals = ["127.0.1.1:3260", "127.0.1.2:3260", "[::1]:3260"];
    let (one, two) = (lio::Disk::new("one", 32), lio::Disk::with_serial("two", 48, "feed0001"));
    let three = lio::Disk::over("three", &guest::scratch(1), "5c4a7c4");
    let mut target = lio::Target::new(IQN);
    target.add_lun(0, &one).add_lun(7, &two).allow(&guest::initiator());
    for portal in portals {
        target.add_portal(portal);
    }
    target.add_lun(2, &three).enable();
    let initiator = Initiator::new();

    let found = cmd("iscsiadm").args(["-m", "discovery", "-t", "st", "-p", "127.0.1.2"]).ok();
    for portal in portals {
        assert!(found.contains(portal), "{found}");
        assert_eq!(initiator.login(portal), 0);
        for (lun, disk, size) in [(0, &one, 32), (7, &two, 48), (2, &three, 256)] {
            let link = by_path(portal, lun);
            wait_link(&link);
            assert_eq!(identity(&link), disk.wwid());
            assert_eq!(mib(&link), size);
        }
    }
    assert_eq!(target.connected(), [guest::initiator()]);

    drop(initiator);
    assert!(target.connected().is_empty());
    drop(target);
    cmd("iscsiadm").args(["-m", "discoverydb", "-t", "st", "-p", "127.0.1.2", "-o", "delete"]).ok();
    drop((one, two, three));
    nothing.assert_restored_within(LIMIT);
}

#[test]
fn chap_is_asked_for_in_both_directions() {
    let portal = "127.0.1.1:3260";
    let disk = lio::Disk::new("chap", 16);
    let mut target = lio::Target::new(IQN);
    target.add_portal(portal).add_lun(1, &disk).allow(&guest::initiator());
    target.chap("alice", "alice-secret-1").mutual_chap("target", "target-secret-2").enable();
    let initiator = Initiator::new();
    initiator.record(portal);

    assert_eq!(initiator.login(portal), REFUSED);
    initiator.set_chap(portal, "", "alice", "not-her-secret");
    assert_eq!(initiator.login(portal), REFUSED);
    initiator.set_chap(portal, "", "alice", "alice-secret-1");
    initiator.set_chap(portal, "_in", "target", "wrong-secret-3");
    assert_ne!(initiator.login(portal), 0);
    initiator.set_chap(portal, "_in", "target", "target-secret-2");
    assert_eq!(initiator.login(portal), 0);
}

#[test]
fn who_is_not_allowed_is_refused_and_with_everybody_allowed_is_not() {
    let portal = "127.0.1.1:3260";
    let disk = lio::Disk::new("open", 16);
    let mut target = lio::Target::new(IQN);
    target.add_portal(portal).add_lun(1, &disk).allow("iqn.2004-10.com.example:stranger").enable();
    let initiator = Initiator::new();
    initiator.record(portal);

    assert_eq!(initiator.login(portal), REFUSED);
    target.allow_all();
    assert_eq!(initiator.login(portal), 0);
    wait_link(&by_path(portal, 1));
    assert_eq!(target.connected(), [guest::initiator()]);
    cmd("dd")
        .arg("if=/dev/zero")
        .arg("bs=4k")
        .arg("count=1")
        .arg("oflag=direct")
        .arg(format!("of={}", by_path(portal, 1).display()))
        .ok();
}

#[test]
fn discovery_can_ask_for_a_password_too() {
    let mut target = lio::Target::new(IQN);
    target.add_portal("127.0.1.1:3260").allow_all().enable();
    let _initiator = Initiator::new();
    let discovery = cmd("iscsiadm").args(["-m", "discovery", "-t", "st", "-p", "127.0.1.1"]);
    assert!(discovery.succeeds());

    lio::discovery_chap(Some(("bob", "bobs-secret-12")));
    assert!(!discovery.succeeds());
    lio::discovery_chap(None);
    assert!(discovery.succeeds());
}

#[test]
fn a_disk_that_grows_is_seen_larger_and_a_swapped_one_as_another() {
    let portal = "127.0.1.1:3260";
    let (old, new) = (lio::Disk::new("old", 32), lio::Disk::new("new", 32));
    let mut target = lio::Target::new(IQN);
    target.add_portal(portal).add_lun(1, &old).allow(&guest::initiator()).enable();
    let initiator = Initiator::new();
    initiator.record(portal);
    assert_eq!(initiator.login(portal), 0);
    let link = by_path(portal, 1);
    wait_link(&link);

    old.grow(40);
    initiator.rescan();
    wait_for("larger disk", LIMIT, || (mib(&link) == 40).then_some(()));

    target.swap_lun(1, &new);
    wait_for("other disk behind the number", LIMIT, || {
        let scsi_id = cmd("/lib/udev/scsi_id").args(["-g", "-u", "-d"]).arg(&link).run();
        (scsi_id.stdout.trim() == new.wwid()).then_some(())
    });
}

#[test]
fn a_cut_portal_hangs_and_a_mended_one_goes_on() {
    let portal = "127.0.1.1:3260";
    let disk = lio::Disk::new("cut", 16);
    let mut target = lio::Target::new(IQN);
    target.add_portal(portal).add_lun(1, &disk).allow(&guest::initiator()).enable();
    let initiator = Initiator::new();
    initiator.record(portal);
    assert_eq!(initiator.login(portal), 0);
    let link = by_path(portal, 1);
    wait_link(&link);
    let write = cmd("dd").args(["if=/dev/zero", "bs=4k", "count=1", "oflag=direct"]);
    let write = write.arg(format!("of={}", link.display()));
    write.ok();

    let cut = target.cut(0);
    let mut writing = write.start();
    std::thread::sleep(Duration::from_secs(1));
    writing.assert_alive();
    cut.mend();
    wait_for("end of the write", Duration::from_secs(30), || {
        let gone = !Path::new(&format!("/proc/{}", writing.pid())).exists();
        let ended = gone || writing.log().contains("copied");
        ended.then_some(())
    });
}

#[test]
fn a_disk_behind_two_portals_becomes_one_map_and_survives_the_loss_of_one() {
    let portals = ["127.0.1.1:3260", "127.0.1.2:3260"];
    let disk = lio::Disk::new("paths", 32);
    let mut target = lio::Target::new(IQN);
    target.add_portal(portals[0]).add_portal(portals[1]);
    target.add_lun(1, &disk).allow(&guest::initiator()).enable();
    let before = Leftovers::snapshot();
    let initiator = Initiator::new();
    let _multipathd = guest::multipathd();
    for portal in portals {
        initiator.record(portal);
        // The default leaves writes waiting for two minutes.
        initiator.set(portal, "node.session.timeo.replacement_timeout", "2");
        assert_eq!(initiator.login(portal), 0);
    }
    let map = PathBuf::from("/dev/mapper").join(disk.wwid());
    wait_for("map", Duration::from_secs(30), || map.exists().then_some(()));
    let paths = || {
        let shown = cmd("multipathd").args(["show", "paths", "format", "%m %t"]).ok();
        shown.matches(&format!("{} active", disk.wwid())).count()
    };
    wait_for("two paths", LIMIT, || (paths() == 2).then_some(()));

    let cut = target.cut(0);
    let write = cmd("dd").args(["if=/dev/zero", "bs=64k", "count=16", "oflag=direct"]);
    write.arg(format!("of={}", map.display())).ok();
    wait_for("one path", LIMIT, || (paths() == 1).then_some(()));
    cut.mend();
    wait_for("two paths again", LIMIT, || (paths() == 2).then_some(()));

    cmd("multipath").arg("-f").arg(disk.wwid()).ok();
    drop(initiator);
    before.assert_restored_within(LIMIT);
}

#[test]
fn a_target_that_is_switched_off_ends_its_sessions_and_comes_back() {
    let portal = "127.0.1.1:3260";
    let disk = lio::Disk::new("off", 16);
    let mut target = lio::Target::new(IQN);
    target.add_portal(portal).add_lun(1, &disk).allow(&guest::initiator()).enable();
    let initiator = Initiator::new();
    initiator.record(portal);
    assert_eq!(initiator.login(portal), 0);

    target.disable();
    assert!(target.connected().is_empty());
    target.enable();

    wait_for("new session", Duration::from_secs(30), || {
        (target.connected() == [guest::initiator()]).then_some(())
    });
}
