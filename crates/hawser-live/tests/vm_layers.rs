//! LUKS and reservations above a device, on a real kernel and a real target.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hawser_connect::node::NodeHalf;
use hawser_connect::{HostSettings, open};
use hawser_core::attach::{Attach, Detach, Encryption, EncryptionFormat, Multipath, SingleWriter};
use hawser_core::connection::ConnectionInfo;
use hawser_core::port::Library;
use hawser_core::port::library::VolumeKey;
use hawser_core::secret::Secret;
use hawser_core::{Error, Reason};
use hawser_live::lab::guest::san::San;
use hawser_live::lab::guest::{self, Daemon, Leftovers, cmd, lio, modprobe, wait_for};
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;

const IQN: &str = "iqn.2004-10.com.example:layers";
const PORTAL: &str = "127.0.1.1:3260";
const OTHER_HOST: &str = "iqn.2004-10.com.example:other";
const LIMIT: Duration = Duration::from_secs(60);
const MIB: usize = 1024 * 1024;
/// What a write gets that a reservation of another host forbids.
const CONFLICT: i32 = Errno::BADE.raw_os_error();

/// One host: a library with records of its own.
struct Host {
    runtime: Runtime,
    library: NodeHalf,
    _dir: TempDir,
}

impl Host {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let settings = HostSettings {
            run_dir: dir.path().join("run"),
            lock_dir: dir.path().join("lock"),
            ..HostSettings::default()
        };
        let library = open(settings).unwrap();
        Self { runtime: Runtime::new().unwrap(), library, _dir: dir }
    }

    fn connect(&self, info: &ConnectionInfo, attach: &Attach) -> Result<PathBuf, Error> {
        let connected = self.runtime.block_on(self.library.connect(info, attach));
        connected.map(|change| change.into_inner().path)
    }

    fn disconnect(&self, info: &ConnectionInfo) -> Result<(), Error> {
        let key = VolumeKey::Info(info.clone());
        self.runtime.block_on(self.library.disconnect(&key, &Detach::default())).map(|_| ())
    }

    fn extend(&self, info: &ConnectionInfo) -> u64 {
        let key = VolumeKey::Info(info.clone());
        self.runtime.block_on(self.library.extend(&key)).unwrap().size_bytes.unwrap()
    }
}

fn image(path: &Path, key: &str) -> ConnectionInfo {
    let data = json!({ "path": path, "kind": "file", "volume_id": "secret-volume" });
    let envelope = json!({ "driver_volume_type": "local", "data": data });
    let mut info: ConnectionInfo = serde_json::from_value(envelope).unwrap();
    info.secrets.insert("encryption_key".into(), Secret::new(key));
    info
}

fn device(path: &Path, volume: &str) -> ConnectionInfo {
    let data = json!({ "device_path": path, "volume_id": volume });
    let envelope = json!({ "driver_volume_type": "local", "data": data });
    serde_json::from_value(envelope).unwrap()
}

fn encrypted(format: EncryptionFormat, format_if_blank: bool) -> Attach {
    let encryption =
        Encryption { format, cipher: None, key_size: None, format_if_blank, discards: false };
    Attach { encryption: Some(encryption), deadline: Duration::from_secs(300), ..Attach::default() }
}

fn single_writer(key: u64, preempt: bool) -> Attach {
    Attach { reservation: Some(SingleWriter { key, preempt }), ..Attach::default() }
}

/// Opens past the page cache.
fn direct(device: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(device)
        .unwrap()
}

fn write_through(device: &Path, bytes: &[u8]) {
    let mut file = OpenOptions::new().write(true).open(device).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
}

fn read(device: &Path, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    File::open(device).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn an_encrypted_volume_is_opened_grown_and_closed_and_no_plain_text_reaches_the_image() {
    for format in [EncryptionFormat::Luks, EncryptionFormat::Luks2] {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("v.img");
        File::create(&path).unwrap().set_len(96 * MIB as u64).unwrap();
        make_header(&path, format, "correct horse");
        let (host, info) = (Host::new(), image(&path, "correct horse"));
        let before = Leftovers::snapshot();
        let text = b"battery staple battery staple";

        let clear = host.connect(&info, &encrypted(format, true)).unwrap();
        write_through(&clear, text);
        File::options().write(true).open(&path).unwrap().set_len(128 * MIB as u64).unwrap();
        let small = cmd("blockdev").arg("--getsize64").arg(&clear).ok();
        let grown = host.extend(&info);
        let again = host.connect(&info, &encrypted(format, true)).unwrap();
        host.disconnect(&info).unwrap();
        host.disconnect(&info).unwrap();

        assert_eq!(again, clear);
        assert_eq!(grown - small.trim().parse::<u64>().unwrap(), 32 * MIB as u64);
        before.assert_restored();
        assert!(!holds(&path, text), "plain text in the image");
        let clear = host.connect(&info, &encrypted(format, true)).unwrap();
        assert_eq!(read(&clear, text.len()), text);
        host.disconnect(&info).unwrap();
        before.assert_restored();
    }
}

/// True when these bytes are somewhere in a file or on a device.
fn holds(path: &Path, text: &[u8]) -> bool {
    let text = std::str::from_utf8(text).unwrap();
    let found = cmd("grep").args(["-a", "-q", "-F", text]).arg(path).run();
    assert!(found.code() < 2, "{}", found.stderr);
    found.code() == 0
}

/// A header whose key is cheap to try: the guest is slow, and strength is not what is tested.
fn make_header(path: &Path, format: EncryptionFormat, key: &str) {
    let word = match format {
        EncryptionFormat::Luks => "luks1",
        EncryptionFormat::Luks2 => "luks2",
    };
    cmd("cryptsetup")
        .args(["luksFormat", "--batch-mode", "--type", word, "--key-file=-"])
        .args(["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"])
        .arg(path)
        .input(key)
        .ok();
}

#[test]
fn a_blank_volume_gets_a_header_when_that_was_asked_for() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("v.img");
    File::create(&path).unwrap().set_len(32 * MIB as u64).unwrap();
    let (host, info) = (Host::new(), image(&path, "correct horse"));
    let before = Leftovers::snapshot();

    host.connect(&info, &encrypted(EncryptionFormat::Luks, true)).unwrap();
    host.disconnect(&info).unwrap();

    assert!(cmd("cryptsetup").args(["isLuks", "--type", "luks1"]).arg(&path).succeeds());
    before.assert_restored();
}

#[test]
fn case_20_a_device_that_is_not_blank_never_gets_a_header() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("v.img");
    let mut content = vec![0; 32 * MIB];
    content[2 * MIB] = 7;
    std::fs::write(&path, &content).unwrap();
    let (host, info) = (Host::new(), image(&path, "key"));
    let before = Leftovers::snapshot();

    let refused = host.connect(&info, &encrypted(EncryptionFormat::Luks2, true));
    let untouched = std::fs::read(&path).unwrap() == content;
    let blank_not_asked = {
        File::create(&path).unwrap().set_len(32 * MIB as u64).unwrap();
        host.connect(&info, &encrypted(EncryptionFormat::Luks2, false))
    };

    assert_eq!(refused.unwrap_err().reason(), Some(Reason::IdentityMismatch));
    assert!(untouched, "the image was written to");
    assert!(blank_not_asked.unwrap_err().sentence().contains("format_if_blank"));
    assert!(read(&path, 4096).iter().all(|byte| *byte == 0), "the blank image was written to");
    before.assert_restored();
}

#[test]
fn case_21_nothing_leads_past_the_encryption() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("v.img");
    File::create(&path).unwrap().set_len(64 * MIB as u64).unwrap();
    make_header(&path, EncryptionFormat::Luks2, "key");
    let (host, info) = (Host::new(), image(&path, "key"));
    let before = Leftovers::snapshot();
    let (attach, text) = (encrypted(EncryptionFormat::Luks2, false), b"not to be read by anybody");

    let clear = host.connect(&info, &attach).unwrap();
    // What udev does after every change of a device below: it makes its links anew.
    cmd("udevadm").args(["trigger", "--action=change", "--subsystem-match=block"]).ok();
    guest::settle();
    let node = clear.canonicalize().unwrap().file_name().unwrap().display().to_string();
    let uuid = std::fs::read_to_string(format!("/sys/block/{node}/dm/uuid")).unwrap();
    assert!(uuid.starts_with("CRYPT-LUKS2"), "{} leads to {uuid}", clear.display());
    write_through(&clear, text);
    host.disconnect(&info).unwrap();
    before.assert_restored();
    assert!(!holds(&path, text), "plain text in the image");

    // A map under our name that is not encrypted, as somebody might put there.
    let name = clear.file_name().unwrap().to_owned();
    let table = "0 2048 zero";
    cmd("dmsetup").arg("create").arg(&name).args(["--table", table]).ok();
    let refused = host.connect(&info, &attach).unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::IdentityMismatch), "{refused:?}");
    cmd("dmsetup").arg("remove").arg(&name).ok();
    host.disconnect(&info).unwrap();
    before.assert_restored();
}

#[test]
fn a_wrong_key_is_told_apart_and_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("v.img");
    File::create(&path).unwrap().set_len(64 * MIB as u64).unwrap();
    let host = Host::new();
    let before = Leftovers::snapshot();
    make_header(&path, EncryptionFormat::Luks2, "right");

    let wrong = host.connect(&image(&path, "wrong"), &encrypted(EncryptionFormat::Luks2, false));

    assert_eq!(wrong.unwrap_err().reason(), Some(Reason::WrongKey));
    before.assert_restored();
}

/// What becomes a map: every SCSI disk, also with one path.
const MAPS: &str = "defaults {\n find_multipaths no\n polling_interval 1\n user_friendly_names no\n}\n\
    blacklist {\n devnode \"^(vd|loop|dm-|ram)\"\n}\n";

#[test]
fn luks2_stands_on_an_iscsi_volume_over_one_path_and_grows_with_it() {
    let san = San::new(&[PORTAL], 1);
    let path = encrypted_life(&san, san.one_way(1), Multipath::Off);
    assert!(path.starts_with("sd"), "below LUKS there was {path}");
}

#[test]
fn luks2_stands_on_a_map_of_two_paths_and_grows_with_it() {
    let san = San::with_multipath(&[PORTAL, "127.0.1.2:3260"], 1, MAPS);
    let path = encrypted_life(&san, san.all_ways(1), Multipath::Enforced);
    assert!(path.starts_with("dm-"), "below LUKS there was {path}");
    assert_eq!(guest::san::disks(), Vec::<PathBuf>::new());
}

/// Opens, writes, grows and closes an encrypted iSCSI volume, twice; answers what LUKS stood on.
fn encrypted_life(san: &San, data: serde_json::Value, multipath: Multipath) -> String {
    let (disk, text) = (&san.disks[0], b"battery staple battery staple");
    // Made aside: the target has the device behind its disk to itself.
    let dir = TempDir::new().unwrap();
    let header = dir.path().join("header.img");
    File::create(&header).unwrap().set_len(32 * MIB as u64).unwrap();
    make_header(&header, EncryptionFormat::Luks2, "correct horse");
    guest::san::write(disk.device(), 0, &std::fs::read(&header).unwrap());
    let envelope = json!({ "driver_volume_type": "iscsi", "data": data });
    let mut info: ConnectionInfo = serde_json::from_value(envelope).unwrap();
    info.secrets.insert("encryption_key".into(), Secret::new("correct horse"));
    let attach = Attach { multipath, ..encrypted(EncryptionFormat::Luks2, false) };
    let host = Host::new();
    let (mut below, mut mib) = (String::new(), 32);

    for round in 0..2 {
        let clear = host.connect(&info, &attach).unwrap();
        assert_eq!(host.connect(&info, &attach).unwrap(), clear, "it is there already");
        let name = clear.canonicalize().unwrap().file_name().unwrap().display().to_string();
        below = guest::san::names(&format!("/sys/block/{name}/slaves")).remove(0);
        if round == 1 {
            assert_eq!(read(&clear, text.len()), text, "what was written before");
        }
        write_through(&clear, text);
        let small = size_of(&clear);
        mib += 32;
        disk.grow(mib);
        let grown = host.extend(&info);
        assert_eq!(grown - small, 32 * MIB as u64, "through LUKS");
        assert_eq!(size_of(&clear), grown);
        let last = grown - 4096;
        let file = OpenOptions::new().read(true).write(true).open(&clear).unwrap();
        file.write_all_at(&[7; 4096], last).unwrap();
        file.sync_all().unwrap();
        drop(file);
        host.disconnect(&info).unwrap();
        san.assert_clean();
        host.disconnect(&info).unwrap();
    }
    assert!(!holds(disk.device(), text), "plain text at the storage");
    below
}

fn size_of(device: &Path) -> u64 {
    cmd("blockdev").arg("--getsize64").arg(device).ok().trim().parse().unwrap()
}

/// One LUN as two hosts see it: two sessions of two initiators.
struct TwoHosts {
    ours: PathBuf,
    theirs: PathBuf,
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
        target.add_portal(PORTAL).add_lun(1, &disk);
        target.allow(&guest::initiator()).allow(OTHER_HOST).enable();
        let iface = || cmd("iscsiadm").args(["-m", "iface", "-I", "other"]);
        iface().args(["-o", "new"]).ok();
        iface().args(["-o", "update", "-n", "iface.initiatorname", "-v", OTHER_HOST]).ok();
        let ours = login("default");
        let theirs = login("other");
        assert_ne!(ours, theirs);
        Self { ours, theirs, _target: target, _disk: disk, _iscsid: iscsid }
    }
}

impl Drop for TwoHosts {
    fn drop(&mut self) {
        cmd("iscsiadm").args(["-m", "node", "--logout"]).run();
        cmd("iscsiadm").args(["-m", "node", "-o", "delete"]).run();
        cmd("iscsiadm").args(["-m", "iface", "-I", "other", "-o", "delete"]).run();
    }
}

fn disks() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/block").unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("sd")).collect()
}

fn login(iface: &str) -> PathBuf {
    let node = || cmd("iscsiadm").args(["-m", "node", "-T", IQN, "-p", PORTAL, "-I", iface]);
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
    let conflict = direct(&lun.theirs).write_all_at(aligned(b'b').as_slice(), 0);

    assert_eq!(refused.reason(), Some(Reason::Reserved), "{refused:?}");
    assert_eq!(conflict.unwrap_err().raw_os_error(), Some(CONFLICT), "a write of another host");

    // Host A goes on writing while it is thrown out.
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (file, stop) = (direct(&lun.ours), Arc::clone(&stop));
        std::thread::spawn(move || {
            let block = aligned(b'a');
            while !stop.load(Ordering::Relaxed) {
                if let Err(error) = file.write_all_at(block.as_slice(), 0) {
                    return error.raw_os_error();
                }
            }
            None
        })
    };
    std::thread::sleep(Duration::from_millis(300));
    b.connect(&at_b, &single_writer(0xb, true)).unwrap();
    direct(&lun.theirs).write_all_at(aligned(b'B').as_slice(), 0).unwrap();
    wait_for("the first writer to fail", LIMIT, || writer.is_finished().then_some(()));
    stop.store(true, Ordering::Relaxed);

    assert_eq!(writer.join().unwrap(), Some(CONFLICT));
    assert_eq!(read_direct(&lun.theirs), aligned(b'B').as_slice(), "the second writer's data");
    let late = direct(&lun.ours).write_all_at(aligned(b'x').as_slice(), 0);
    assert_eq!(late.unwrap_err().raw_os_error(), Some(CONFLICT));
    assert_eq!(read_direct(&lun.theirs), aligned(b'B').as_slice());

    b.disconnect(&at_b).unwrap();
    a.disconnect(&at_a).unwrap();
    direct(&lun.ours).write_all_at(aligned(b'c').as_slice(), 0).expect("nobody reserves it now");
}

/// A block that direct I/O takes.
struct Aligned(Vec<u8>, usize);

impl Aligned {
    fn as_slice(&self) -> &[u8] {
        &self.0[self.1..self.1 + 4096]
    }
}

fn aligned(fill: u8) -> Aligned {
    let bytes = vec![fill; 3 * 4096];
    let offset = bytes.as_ptr().align_offset(4096);
    Aligned(bytes, offset)
}

fn read_direct(device: &Path) -> Vec<u8> {
    let mut block = aligned(0);
    let start = block.1;
    direct(device).read_exact_at(&mut block.0[start..start + 4096], 0).unwrap();
    block.as_slice().to_vec()
}
