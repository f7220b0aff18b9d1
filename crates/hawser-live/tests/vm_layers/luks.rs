use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hawser_core::Reason;
use hawser_core::attach::{Attach, EncryptionFormat, Multipath};
use hawser_core::connection::ConnectionInfo;
use hawser_live::lab::guest::luks::{encrypted, make_header, with_key};
use hawser_live::lab::guest::paths::{forced, usable};
use hawser_live::lab::guest::san::{self, San};
use hawser_live::lab::guest::{self, Leftovers, cmd, wait_for};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Host, LIMIT, PORTALS, device, info, maps};

const MIB: usize = 1024 * 1024;

fn image(path: &Path, key: &str) -> ConnectionInfo {
    let data = json!({ "path": path, "kind": "file", "volume_id": "secret-volume" });
    with_key(info("local", data), key)
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
fn a_device_that_is_not_blank_never_gets_a_header() {
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

/// A device over an image, a part of which cannot be read.
struct Unreadable {
    loops: String,
    node: PathBuf,
}

impl Unreadable {
    const NAME: &str = "unreadable";

    /// `from` and `count` in sectors.
    fn new(image: &Path, from: u64, count: u64) -> Self {
        let loops = cmd("losetup").args(["-f", "--show"]).arg(image).ok().trim().to_owned();
        let sectors = std::fs::metadata(image).unwrap().len() / 512;
        let end = from + count;
        let mut table = vec![format!("{from} {count} error")];
        for (start, length) in [(0, from), (end, sectors - end)] {
            if length > 0 {
                table.push(format!("{start} {length} linear {loops} {start}"));
            }
        }
        table.sort_by_key(|line| line.split(' ').next().unwrap().parse::<u64>().unwrap());
        cmd("dmsetup").args(["create", Self::NAME]).input(table.join("\n") + "\n").ok();
        guest::settle();
        Self { loops, node: Path::new("/dev/mapper").join(Self::NAME) }
    }
}

impl Drop for Unreadable {
    fn drop(&mut self) {
        cmd("dmsetup").args(["remove", "--retry", Self::NAME]).run();
        cmd("losetup").args(["-d", &self.loops]).run();
    }
}

#[test]
fn case_20_a_device_that_cannot_be_read_is_not_blank_and_never_gets_a_header() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("v.img");
    let (size, sectors_of_a_mib) = (32 * MIB as u64, 2048);
    let before = Leftovers::snapshot();
    let host = Host::new();
    // The front, where an old header would be; and the end, which a writer of headers does not
    // touch, and which has to be blank all the same.
    let last = size / 512 - sectors_of_a_mib;
    for (from, count) in [(0, 4 * sectors_of_a_mib), (last, sectors_of_a_mib)] {
        for format in [EncryptionFormat::Luks, EncryptionFormat::Luks2] {
            File::create(&path).unwrap().set_len(size).unwrap();
            let unreadable = Unreadable::new(&path, from, count);
            let info = with_key(device(&unreadable.node, "unreadable"), "key");

            let refused = host.connect(&info, &encrypted(format, true)).unwrap_err();

            let said = refused.sentence();
            assert!(said.contains("reading") || said.contains("blkid"), "{refused:?}");
            drop(unreadable);
            before.assert_restored();
            let bytes = std::fs::read(&path).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 0), "something was written, {from}");
        }
    }
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
fn case_21_the_raw_device_is_never_handed_out_for_an_encrypted_volume() {
    let dir = TempDir::new().unwrap();
    let (path, other) = (dir.path().join("v.img"), dir.path().join("other.img"));
    for path in [&path, &other] {
        File::create(path).unwrap().set_len(64 * MIB as u64).unwrap();
        make_header(path, EncryptionFormat::Luks2, "key");
    }
    let (host, info) = (Host::new(), image(&path, "key"));
    let before = Leftovers::snapshot();
    let attach = encrypted(EncryptionFormat::Luks2, false);
    let clear = host.connect(&info, &attach).unwrap();
    assert_eq!(host.lookup("secret-volume").unwrap().as_ref(), Some(&clear));

    // Closed by hand.
    cmd("cryptsetup").arg("close").arg(&clear).ok();
    assert_eq!(host.lookup("secret-volume").unwrap(), None);
    let plain = host.connect(&info, &Attach::default()).unwrap_err();
    assert!(plain.sentence().contains("encryption"), "{plain:?}");

    // Opened by hand, over another device.
    let open = cmd("cryptsetup").args(["open", "--key-file=-"]).arg(&other);
    open.arg(clear.file_name().unwrap()).input("key").ok();
    let (found, again) = (host.lookup("secret-volume"), host.connect(&info, &attach));
    for refused in [found.unwrap_err(), again.unwrap_err(), host.disconnect(&info).unwrap_err()] {
        assert_eq!(refused.reason(), Some(Reason::IdentityMismatch), "{refused:?}");
    }
    cmd("cryptsetup").arg("close").arg(&clear).ok();

    assert_eq!(host.connect(&info, &attach).unwrap(), clear, "it is opened again");
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

#[test]
fn luks2_stands_on_an_iscsi_volume_over_one_path_and_grows_with_it() {
    let net = San::new(&PORTALS[..1], 1);
    let path = encrypted_life(&net, net.one_way(1), Multipath::Off);
    assert!(path.starts_with("sd"), "below LUKS there was {path}");
}

#[test]
fn luks2_stands_on_a_map_of_two_paths_and_grows_with_it() {
    let net = San::with_multipath(&PORTALS, 1, &maps("5"));
    let path = encrypted_life(&net, net.all_ways(1), Multipath::Enforced);
    assert!(path.starts_with("dm-"), "below LUKS there was {path}");
    assert_eq!(san::disks(), Vec::<PathBuf>::new());
}

/// A header on the first volume of a target. Made aside: the target has the device behind its disk to
/// itself.
fn make_header_at(net: &San) {
    let dir = TempDir::new().unwrap();
    let header = dir.path().join("header.img");
    File::create(&header).unwrap().set_len(32 * MIB as u64).unwrap();
    make_header(&header, EncryptionFormat::Luks2, "correct horse");
    san::write(net.disks[0].device(), 0, &std::fs::read(&header).unwrap());
}

/// Opens, writes, grows and closes an encrypted iSCSI volume, twice; answers what LUKS stood on.
fn encrypted_life(net: &San, data: Value, multipath: Multipath) -> String {
    let (disk, text) = (&net.disks[0], b"battery staple battery staple");
    make_header_at(net);
    let info = with_key(info("iscsi", data), "correct horse");
    let attach = Attach { multipath, ..encrypted(EncryptionFormat::Luks2, false) };
    let host = Host::new();
    let (mut below, mut mib) = (String::new(), 32);

    for round in 0..2 {
        let clear = host.connect(&info, &attach).unwrap();
        assert_eq!(host.connect(&info, &attach).unwrap(), clear, "it is there already");
        let name = clear.canonicalize().unwrap().file_name().unwrap().display().to_string();
        below = san::names(&format!("/sys/block/{name}/slaves")).remove(0);
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
        net.assert_clean();
        host.disconnect(&info).unwrap();
    }
    assert!(!holds(disk.device(), text), "plain text at the storage");
    below
}

fn size_of(device: &Path) -> u64 {
    cmd("blockdev").arg("--getsize64").arg(device).ok().trim().parse().unwrap()
}

#[test]
fn case_03_luks_over_a_queueing_map_without_a_path_does_not_hang_its_detach_either() {
    let net = San::with_multipath(&PORTALS, 1, &maps("queue"));
    make_header_at(&net);
    let info = with_key(info("iscsi", net.all_ways(1)), "correct horse");
    let attach =
        Attach { multipath: Multipath::Enforced, ..encrypted(EncryptionFormat::Luks2, false) };
    let host = Host::new();
    let clear = host.connect(&info, &attach).unwrap();
    write_through(&clear, &[1; 4096]);
    let name = clear.canonicalize().unwrap().file_name().unwrap().display().to_string();
    let map = Path::new("/dev").join(san::names(&format!("/sys/block/{name}/slaves")).remove(0));
    let cuts: Vec<_> = (0..2).map(|portal| net.target.cut(portal)).collect();
    wait_for("all paths to fail", LIMIT, || (usable(&map) == 0).then_some(()));
    let file = OpenOptions::new().write(true).open(&clear).unwrap();
    file.write_all_at(&[2; 4096], 0).unwrap();
    // Closing it writes it out, and hangs until the map stops waiting.
    let closed = std::thread::spawn(move || drop(file));
    let begun = Instant::now();

    let refused = host.disconnect(&info).unwrap_err();

    assert_eq!(refused.reason(), Some(Reason::FlushFailed), "{refused:?}");
    assert!(refused.sentence().contains("no path"), "{refused:?}");
    assert!(begun.elapsed() < Duration::from_secs(25), "took {:?}", begun.elapsed());
    assert!(clear.exists() && map.exists() && san::disks().len() == 2, "everything stays");

    let begun = Instant::now();
    let lost = host.disconnect_as(&info, &forced()).unwrap_err();
    let took = begun.elapsed();
    drop(cuts);

    assert_eq!(lost.reason(), Some(Reason::DataLost), "{lost:?}");
    assert!(took < Duration::from_secs(60), "took {took:?}");
    closed.join().unwrap();
    net.before.assert_restored_within(LIMIT);
    // What was lost is not there, and what was written before is.
    let clear = host.connect(&info, &attach).unwrap();
    assert_eq!(read(&clear, 4096), [1; 4096]);
    host.disconnect(&info).unwrap();
    net.assert_clean();
}
