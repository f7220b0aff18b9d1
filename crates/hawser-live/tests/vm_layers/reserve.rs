use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hawser_core::Reason;
use hawser_core::attach::{Attach, Multipath};
use hawser_live::lab::guest::paths::usable;
use hawser_live::lab::guest::reserve::{Aligned, CONFLICT, direct, read_direct, single_writer};
use hawser_live::lab::guest::san::{self, San};
use hawser_live::lab::guest::{self, Daemon, cmd, lio, modprobe, wait_for};
use serde_json::json;

use crate::{Host, LIMIT, PORTALS, device, info, maps};

const IQN: &str = "iqn.2004-10.com.example:layers";
const OTHER_HOST: &str = "iqn.2004-10.com.example:other";
/// One LUN as two hosts see it: two sessions of two initiators.
struct TwoHosts {
    ours: PathBuf,
    theirs: PathBuf,
    _other: OtherHost,
    _target: lio::Target,
    _disk: lio::Disk,
    _iscsid: Daemon,
}

impl TwoHosts {
    fn new() -> Self {
        modprobe(&["sd_mod"]);
        let iscsid = guest::iscsid();
        let disk = lio::Disk::new("shared", 64);
        let mut target = lio::Target::new(IQN);
        target.add_portal(PORTALS[0]).add_lun(1, &disk);
        target.allow(&guest::initiator()).allow(OTHER_HOST).enable();
        let other = OtherHost::new();
        let ours = login(IQN, "default");
        let theirs = login(IQN, "other");
        assert_ne!(ours, theirs);
        Self { ours, theirs, _other: other, _target: target, _disk: disk, _iscsid: iscsid }
    }
}

impl Drop for TwoHosts {
    fn drop(&mut self) {
        log_out();
    }
}

/// The initiator of another host: an interface record with a name of its own.
struct OtherHost;

impl OtherHost {
    fn new() -> Self {
        let iface = || cmd("iscsiadm").args(["-m", "iface", "-I", "other"]);
        iface().args(["-o", "new"]).ok();
        iface().args(["-o", "update", "-n", "iface.initiatorname", "-v", OTHER_HOST]).ok();
        Self
    }
}

impl Drop for OtherHost {
    fn drop(&mut self) {
        cmd("iscsiadm").args(["-m", "iface", "-I", "other", "-o", "delete"]).run();
    }
}

/// Ends every session and forgets it.
fn log_out() {
    cmd("iscsiadm").args(["-m", "node", "--logout"]).run();
    cmd("iscsiadm").args(["-m", "node", "-o", "delete"]).run();
}

fn disks() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/block").unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("sd")).collect()
}

/// Logs in at the first portal, by hand.
fn login(iqn: &str, iface: &str) -> PathBuf {
    let node = || cmd("iscsiadm").args(["-m", "node", "-T", iqn, "-p", PORTALS[0], "-I", iface]);
    let before = disks();
    node().args(["-o", "new"]).ok();
    node().arg("--login").ok();
    let name = wait_for("a disk", LIMIT, || disks().into_iter().find(|n| !before.contains(n)));
    let path = Path::new("/dev").join(name);
    wait_for("its node", LIMIT, || File::open(&path).ok());
    path
}

#[test]
fn the_second_writer_is_refused_and_after_preemption_the_first_ones_writes_fail() {
    let lun = TwoHosts::new();
    let (a, b) = (Host::new(), Host::new());
    let (at_a, at_b) = (device(&lun.ours, "shared-a"), device(&lun.theirs, "shared-b"));
    a.connect(&at_a, &single_writer(0xa, false)).unwrap();

    let refused = b.connect(&at_b, &single_writer(0xb, false)).unwrap_err();
    let conflict = direct(&lun.theirs).write_all_at(Aligned::new(b'b').as_slice(), 0);

    assert_eq!(refused.reason(), Some(Reason::Reserved), "{refused:?}");
    assert_eq!(conflict.unwrap_err().raw_os_error(), Some(CONFLICT), "a write of another host");

    let writer = keep_writing(&lun.ours);
    std::thread::sleep(Duration::from_millis(300));
    b.connect(&at_b, &single_writer(0xb, true)).unwrap();
    direct(&lun.theirs).write_all_at(Aligned::new(b'B').as_slice(), 0).unwrap();

    assert_eq!(writer.join().unwrap(), Some(CONFLICT));
    assert_eq!(read_direct(&lun.theirs), Aligned::new(b'B').as_slice(), "the second writer's data");
    let late = direct(&lun.ours).write_all_at(Aligned::new(b'x').as_slice(), 0);
    assert_eq!(late.unwrap_err().raw_os_error(), Some(CONFLICT));
    assert_eq!(read_direct(&lun.theirs), Aligned::new(b'B').as_slice());

    b.disconnect(&at_b).unwrap();
    a.disconnect(&at_a).unwrap();
    direct(&lun.ours)
        .write_all_at(Aligned::new(b'c').as_slice(), 0)
        .expect("nobody reserves it now");
}

/// Goes on writing until that fails, and answers why.
fn keep_writing(device: &Path) -> JoinHandle<Option<i32>> {
    let file = direct(device);
    std::thread::spawn(move || {
        let (begun, block) = (Instant::now(), Aligned::new(b'a'));
        while begun.elapsed() < LIMIT {
            if let Err(error) = file.write_all_at(block.as_slice(), 0) {
                return error.raw_os_error();
            }
        }
        None
    })
}

#[test]
fn a_reservation_that_an_earlier_session_left_lets_a_session_over_another_portal_write() {
    let net = San::new(&PORTALS, 1);
    // What a host leaves that lost its power: no session, and its key at the device.
    let before_the_reboot = Host::new();
    let disk = login(san::IQN, "default");
    let by_hand = device(&disk, "by hand");
    before_the_reboot.connect(&by_hand, &single_writer(0xa, false)).unwrap();
    log_out();
    let way = json!({ "target_portal": PORTALS[1], "target_iqn": san::IQN, "target_lun": 1,
        "volume_id": "shared" });
    let (host, info) = (Host::new(), info("iscsi", way));

    let disk = host.connect(&info, &single_writer(0xa, false)).unwrap();

    let written = direct(&disk).write_all_at(Aligned::new(b'a').as_slice(), 0);
    written.expect("this session is registered too");
    host.disconnect(&info).unwrap();
    net.assert_clean();
    // Nothing of either session keeps others out.
    let disk = host.connect(&info, &single_writer(0xb, false)).unwrap();
    direct(&disk).write_all_at(Aligned::new(b'b').as_slice(), 0).unwrap();
    host.disconnect(&info).unwrap();
    net.assert_clean();
}

#[test]
fn a_path_that_is_down_does_not_take_the_reservation_from_the_others() {
    let net = San::with_multipath(&PORTALS, 1, &maps("queue"));
    let (host, info) = (Host::new(), info("iscsi", net.all_ways(1)));
    let attach = Attach {
        multipath: Multipath::Enforced,
        deadline: Duration::from_secs(20),
        ..single_writer(0xa, false)
    };
    let map = host.connect(&info, &attach).unwrap();
    let cut = net.target.cut(1);
    wait_for("a path to fail", LIMIT, || (usable(&map) == 1).then_some(()));

    // It is attached and not well: what can be brought back is, whatever the answer.
    let again = host.connect(&info, &attach);

    let written = direct(&map).write_all_at(Aligned::new(b'a').as_slice(), 0);
    assert!(written.is_ok(), "{written:?} after {again:?}");
    drop(cut);
    wait_for("the path to come back", LIMIT, || (usable(&map) == 2).then_some(()));
    for _ in 0..16 {
        // Over both of them.
        direct(&map).write_all_at(Aligned::new(b'b').as_slice(), 0).unwrap();
    }
    host.disconnect(&info).unwrap();
    net.assert_clean();
    let disk = host.connect(&info, &single_writer(0xb, false));
    disk.expect("nothing keeps others out");
    host.disconnect(&info).unwrap();
}
