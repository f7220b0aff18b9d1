//! NBD against nbdkit and qemu-nbd: over TCP, IPv6 and Unix sockets, with several connections, dead
//! servers and growing exports, and nothing left behind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "vm_nbd/bench.rs"]
mod bench;

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use hawser_core::attach::{Attach, Attached, Detach, Identity};
use hawser_core::{ByteSize, Change, Error, Kind, Outcome, Reason};
use hawser_live::lab::guest::faults::Kills;
use hawser_live::lab::guest::luks::keeps_a_secret;
use hawser_live::lab::guest::{
    Cut, Leftovers, NbdPlace, Nbdkit, QemuNbd, Volume, cmd, modprobe, wait_for,
};
use serde_json::{Value, json};

use bench::{Bench, MOUNT, SERVER, data_with, tcp};

const SOCKET: &str = "/var/tmp/nbd.sock";
const LIMIT: Duration = Duration::from_secs(60);

fn unix() -> NbdPlace {
    NbdPlace::Unix(SOCKET.into())
}

fn volume_with(export: &str, more: Value) -> Volume {
    Volume::new("nbd", data_with(export, more))
}

fn volume(export: &str) -> Volume {
    volume_with(export, json!({}))
}

fn unix_volume(export: &str) -> Volume {
    volume_with(export, json!({ "host": null, "unix_socket": SOCKET }))
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

/// How many TCP connections to the server the guest has.
fn connections() -> usize {
    let out = cmd("ss").args(["-tnH", "state", "established", "dst", SERVER]).ok();
    out.lines().count()
}

/// The whole life of a volume, twice.
#[track_caller]
fn live_twice(bench: &Bench, volume: &Volume) {
    for round in 1..=2_u8 {
        let began = Instant::now();
        let made = volume.connect().unwrap();
        println!("round {round}: connected in {:?}", began.elapsed());
        assert!(made.is_made(), "round {round}");
        let node = device(&made);
        let before = 16 + 16 * u64::from(round);
        assert_eq!(size_of(&node), before << 20);

        write(&node, 8192, round);
        assert_eq!(bench.server.read("vol1", 8192, 4096), [round; 4096]);

        let after = before + 16;
        bench.server.grow("vol1", after);
        let began = Instant::now();
        assert_eq!(volume.extend().unwrap(), ByteSize::mib(after));
        println!("round {round}: grown in {:?}", began.elapsed());
        assert_eq!(size_of(&node), after << 20);
        assert_eq!(volume.extend().unwrap(), ByteSize::mib(after), "once more, the same");
        let last = (after << 20) - 4096;
        write(&node, last, round + 10);
        assert_eq!(bench.server.read("vol1", last, 4096), [round + 10; 4096]);

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
fn over_tcp_it_lives_twice() {
    live_twice(&Bench::new(), &volume("vol1"));
}

#[test]
fn with_several_connections_it_lives_twice() {
    live_twice(&Bench::new(), &volume_with("vol1", json!({ "connections": 3 })));
}

#[test]
fn over_ipv6_it_lives_twice() {
    let bench = Bench::over(Nbdkit::new(NbdPlace::Tcp("[fd00:1ab::1]:10810".parse().unwrap())));

    live_twice(&bench, &volume_with("vol1", json!({ "host": "[fd00:1ab::1]", "port": "10810" })));
}

#[test]
fn a_server_with_the_oldest_handshake_is_understood() {
    let bench = Bench::over(Nbdkit::with(tcp(), &["--mask-handshake=0"]));
    let volume = volume("vol1");

    let node = device(&volume.connect().unwrap());
    write(&node, 0, 7);

    assert_eq!(bench.server.read("vol1", 0, 4096), [7; 4096]);
    assert!(volume.disconnect().unwrap().is_made());
    bench.assert_clean();
}

#[test]
fn over_a_unix_socket_growth_is_told_as_needing_a_new_attach() {
    let bench = Bench::over(Nbdkit::new(unix()));
    let volume = unix_volume("vol1");
    let node = device(&volume.connect().unwrap());
    bench.server.grow("vol1", 48);

    let error = refusal(volume.extend());

    assert_eq!(error.kind(), Kind::Precondition, "{error:?}");
    assert!(error.sentence().contains("attach it again"), "{error:?}");
    assert_eq!(size_of(&node), 32 << 20, "as before");
    write(&node, 0, 1);
    assert!(volume.disconnect().unwrap().is_made());
    let node = device(&volume.connect().unwrap());
    assert_eq!(size_of(&node), 48 << 20);
    assert!(volume.disconnect().unwrap().is_made());
    bench.assert_clean();
}

#[test]
fn qemu_serves_it_over_a_unix_socket() {
    modprobe(&["nbd"]);
    let file = Path::new("/var/tmp/qemu.img");
    File::create(file).unwrap().set_len(32 << 20).unwrap();
    let _server = QemuNbd::new(Path::new(SOCKET), "vol1", file, &["--shared=4"]);
    let before = Leftovers::snapshot();
    let volume =
        volume_with("vol1", json!({ "host": null, "unix_socket": SOCKET, "connections": 2 }));

    for _ in 0..2 {
        let node = device(&volume.connect().unwrap());
        write(&node, 4096, 9);
        assert!(!volume.connect().unwrap().is_made());
        assert_eq!(volume.extend().unwrap(), ByteSize::mib(32));
        assert!(volume.disconnect().unwrap().is_made());
        assert!(!volume.disconnect().unwrap().is_made());
        let mut bytes = [0; 4096];
        File::open(file).unwrap().read_exact_at(&mut bytes, 4096).unwrap();
        assert_eq!(bytes, [9; 4096]);
    }
    before.assert_restored();
}

#[test]
fn a_file_system_in_use_goes_on_while_its_volume_grows() {
    let bench = Bench::new();
    let volume = volume("vol1");
    let node = device(&volume.connect().unwrap());
    cmd("mkfs.ext4").args(["-q", "-m", "0"]).arg(&node).ok();
    fs::create_dir_all(MOUNT).unwrap();
    cmd("mount").arg(&node).arg(MOUNT).ok();
    let writer = thread::spawn(|| {
        let mut count = 0_u64;
        let end = Instant::now() + Duration::from_secs(6);
        let file = File::create("/mnt/nbd/log").unwrap();
        while Instant::now() < end {
            file.write_all_at(&[(count % 251) as u8; 4096], count % 1024 * 4096).unwrap();
            file.sync_data().unwrap();
            count += 1;
        }
        count
    });
    thread::sleep(Duration::from_millis(500));
    bench.server.grow("vol1", 64);

    assert_eq!(volume.extend().unwrap(), ByteSize::mib(64));
    cmd("resize2fs").arg(&node).ok();

    let written = writer.join().expect("no write failed");
    println!("{written} writes while it grew");
    fs::write("/mnt/nbd/big", vec![3; 40 << 20]).unwrap();
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
fn a_mounted_volume_goes_on_after_its_server_died_and_came_back() {
    let mut bench = Bench::new();
    let volume = volume_with("vol1", json!({ "connections": 2, "timeout": 3 }));
    let node = device(&volume.connect().unwrap());
    cmd("mkfs.ext4").args(["-q", "-m", "0"]).arg(&node).ok();
    fs::create_dir_all(MOUNT).unwrap();
    cmd("mount").arg(&node).arg(MOUNT).ok();
    bench.server.kill();
    let writer = thread::spawn(|| {
        fs::write("/mnt/nbd/file", vec![5; 1 << 20]).unwrap();
        File::open("/mnt/nbd/file").unwrap().sync_all().unwrap();
    });
    let health = volume.health().unwrap();
    assert!(!health.healthy, "{health:?}");
    let error = refusal(volume.connect());
    assert_eq!(error.reason(), Some(Reason::PortalRefused), "{error:?}");
    assert_eq!(error.outcome(), Outcome::Nothing, "{error:?}");
    bench.server.start();

    let began = Instant::now();
    let again = volume.connect().unwrap();
    println!("revived in {:?}", began.elapsed());

    assert!(!again.is_made());
    assert_eq!(device(&again), node);
    writer.join().expect("the write that waited went on");
    assert!(volume.health().unwrap().healthy, "{:?}", volume.health());
    assert_eq!(connections(), 2);
    cmd("umount").arg(MOUNT).ok();
    assert!(cmd("e2fsck").args(["-f", "-n"]).arg(&node).succeeds());
    assert!(volume.disconnect().unwrap().is_made());
    fs::remove_dir(MOUNT).unwrap();
    bench.assert_clean();
}

#[test]
fn one_dead_connection_of_several_is_seen_and_replaced() {
    let bench = Bench::new();
    let volume = volume_with("vol1", json!({ "connections": 2 }));
    let node = device(&volume.connect().unwrap());
    assert_eq!(connections(), 2);
    let first = cmd("ss").args(["-tnH", "state", "established", "dst", SERVER]).ok();
    let local = first.lines().next().unwrap().split_whitespace().nth(2).unwrap().to_owned();
    cmd("ss").args(["-K", "-t", "src", &local, "dst", SERVER]).ok();
    wait_for("a dead connection", LIMIT, || (connections() == 1).then_some(()));

    let health = volume.health().unwrap();
    assert!(health.message.contains("1 of its 2 connections are dead"), "{health:?}");
    write(&node, 0, 1);
    assert!(!volume.connect().unwrap().is_made());

    assert_eq!(connections(), 2);
    assert!(volume.health().unwrap().healthy);
    write(&node, 4096, 2);
    assert!(volume.disconnect().unwrap().is_made());
    bench.assert_clean();
}

#[test]
fn what_cannot_be_attached_leaves_nothing() {
    let bench = Bench::new();
    let nobody = volume("nobody");
    let refused = volume_with("vol1", json!({ "port": 4711 }));
    let wrong = {
        let mut volume = volume("vol1");
        volume.info.identity = Some(Identity::new("nbd", "another"));
        volume
    };
    let tls = volume_with("vol1", json!({ "tls": { "mode": "require" } }));

    for (volume, reason) in [
        (nobody, Reason::TargetNotFound),
        (refused, Reason::PortalRefused),
        (wrong, Reason::IdentityMismatch),
        (tls, Reason::UnsupportedProtocol),
    ] {
        let error = refusal(volume.connect());
        assert_eq!(error.reason(), Some(reason), "{error:?}");
        assert_eq!(error.outcome(), Outcome::Nothing, "{error:?}");
        assert_eq!(volume.disconnect().unwrap(), Change::Already(()));
        bench.assert_clean();
    }
}

#[test]
fn a_server_that_insists_on_tls_is_refused_by_name() {
    fs::write("/var/tmp/keys.psk", "alice:0123456789abcdef0123456789abcdef\n").unwrap();
    let options = ["--tls=require", "--tls-psk=/var/tmp/keys.psk"];
    let bench = Bench::over(Nbdkit::with(tcp(), &options));

    let error = refusal(volume("vol1").connect());

    assert_eq!(error.kind(), Kind::Unsupported, "{error:?}");
    assert!(error.sentence().contains("TLS"), "{error:?}");
    bench.assert_clean();
}

#[test]
fn a_server_that_falls_silent_is_given_up_in_time() {
    let bench = Bench::new();
    let cut = Cut::silent(SERVER.parse::<SocketAddr>().unwrap());
    let began = Instant::now();

    let error = refusal(volume("vol1").connect());

    assert_eq!(error.reason(), Some(Reason::PortalTimeout), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    cut.mend();
    bench.assert_clean();
}

#[test]
fn luks2_above_it_keeps_what_is_written_from_the_storage() {
    let bench = Bench::new();

    keeps_a_secret("nbd", data_with("vol1", json!({})), &Attach::default());

    bench.assert_clean();
}

#[test]
fn read_only_is_kept_by_the_kernel() {
    let bench = Bench::new();
    let volume = volume("vol1");
    let attach = Attach { read_only: true, ..Attach::default() };

    let node = device(&volume.connect_as(&attach).unwrap());

    let written = File::options().write(true).open(&node).and_then(|file| {
        file.write_all_at(&[1; 4096], 0)?;
        file.sync_all()
    });
    assert!(written.is_err(), "{written:?}");
    assert_eq!(bench.server.read("vol1", 0, 4096), [0; 4096]);
    let error = refusal(volume.connect());
    assert_eq!(error.reason(), Some(Reason::DeviceReadOnly), "{error:?}");
    assert!(volume.disconnect_as(&attach, &Detach::default()).unwrap().is_made());
    bench.assert_clean();
}

#[test]
fn a_read_only_export_is_not_attached_for_writing() {
    let bench = Bench::over(Nbdkit::with(tcp(), &["-r"]));
    let volume = volume("vol1");

    let error = refusal(volume.connect());

    assert_eq!(error.reason(), Some(Reason::DeviceReadOnly), "{error:?}");
    bench.assert_clean();
    let attach = Attach { read_only: true, ..Attach::default() };
    assert!(volume.connect_as(&attach).unwrap().is_made());
    assert!(volume.disconnect_as(&attach, &Detach::default()).unwrap().is_made());
    bench.assert_clean();
}

#[test]
fn two_attaches_at_once_make_one_device() {
    let bench = Bench::new();
    let attach = || thread::spawn(|| volume("vol1").connect().unwrap());

    let both = [attach(), attach()].map(|thread| thread.join().unwrap());

    assert_eq!(device(&both[0]), device(&both[1]));
    assert_eq!(both.iter().filter(|change| change.is_made()).count(), 1, "{both:?}");
    assert_eq!(connections(), 1);
    assert!(volume("vol1").disconnect().unwrap().is_made());
    bench.assert_clean();
}

#[test]
fn many_volumes_of_one_server_are_attached_side_by_side() {
    let bench = Bench::new();
    let names: Vec<String> = (1..=20).map(|number| format!("many{number}")).collect();
    names.iter().for_each(|name| drop(bench.server.export(name, 8)));
    let began = Instant::now();
    let work = names.clone().into_iter().map(|name| {
        thread::spawn(move || {
            let node = device(&volume(&name).connect().unwrap());
            let number: u8 = name[4..].parse().unwrap();
            write(&node, 0, number);
            (name, number)
        })
    });
    let made: Vec<_> = work.collect();

    for thread in made {
        let (name, number) = thread.join().unwrap();
        assert_eq!(bench.server.read(&name, 0, 4096), [number; 4096], "{name}");
    }

    println!("20 at once in {:?}", began.elapsed());
    let gone: Vec<_> = names
        .into_iter()
        .map(|name| thread::spawn(move || volume(&name).disconnect().unwrap()))
        .collect();
    assert!(gone.into_iter().all(|thread| thread.join().unwrap().is_made()));
    bench.assert_clean();
}

#[test]
fn unwritten_data_keeps_the_device_until_it_is_given_up_by_force() {
    let mut bench = Bench::new();
    let volume = volume_with("vol1", json!({ "timeout": 2, "dead_conn_timeout": 2 }));
    let node = device(&volume.connect().unwrap());
    // Buffered and not written out yet.
    File::options().write(true).open(&node).unwrap().write_all_at(&[1; 65536], 0).unwrap();
    bench.server.kill();

    let error = refusal(volume.disconnect());
    assert_eq!(error.reason(), Some(Reason::FlushFailed), "{error:?}");
    assert!(volume.lookup().unwrap().is_some(), "nothing was detached");
    File::options().write(true).open(&node).unwrap().write_all_at(&[1; 65536], 0).unwrap();
    let error = refusal(volume.force(false));

    assert_eq!(error.reason(), Some(Reason::DataLost), "{error:?}");
    assert_eq!(volume.lookup().unwrap(), None);
    bench.assert_clean();
}

#[test]
fn case_23_an_open_network_device_is_not_taken_away() {
    let bench = Bench::new();
    let volume = volume("vol1");
    let node = device(&volume.connect().unwrap());
    let open = File::open(&node).unwrap();

    let error = refusal(volume.disconnect());

    assert_eq!(error.reason(), Some(Reason::DeviceBusy), "{error:?}");
    assert!(error.sentence().contains("vm_nbd"), "names who has it open: {error:?}");
    open.read_at(&mut vec![0; 4096], 16 << 20).expect("its user notices nothing");
    drop(open);
    assert!(volume.disconnect().unwrap().is_made());
    bench.assert_clean();
}

#[test]
fn case_23_force_frees_a_program_that_hangs_on_a_dead_server() {
    let mut bench = Bench::new();
    let volume = volume_with("vol1", json!({ "timeout": 600, "dead_conn_timeout": 600 }));
    let node = device(&volume.connect().unwrap());
    bench.server.kill();
    let reader = thread::spawn(move || {
        File::open(&node).and_then(|file| file.read_at(&mut vec![0; 4096], 16 << 20))
    });
    wait_for("a program that hangs", LIMIT, || {
        refusal(volume.disconnect()).sentence().contains("vm_nbd").then_some(())
    });

    let deadline = Duration::from_secs(8);
    let force = Detach { force: true, deadline, ..Detach::default() };
    let error = refusal(volume.disconnect_as(&Attach::default(), &force));

    assert_eq!(error.reason(), Some(Reason::DataLost), "{error:?}");
    assert!(reader.join().unwrap().is_err(), "it got an error instead of hanging");
    bench.before.assert_restored_within(LIMIT);
}

#[test]
fn case_23_an_open_loop_device_is_not_taken_away() {
    let file = Path::new("/var/tmp/loop.img");
    File::create(file).unwrap().set_len(16 << 20).unwrap();
    let data = json!({ "path": file, "kind": "file", "volume_id": "loop1" });
    let before = Leftovers::snapshot();
    let volume = Volume::new("local", data);
    let node = device(&volume.connect().unwrap());
    let open = File::open(&node).unwrap();

    let error = refusal(volume.disconnect());

    assert_eq!(error.kind(), Kind::Busy, "{error:?}");
    assert_eq!(size_of(&node), 16 << 20);
    drop(open);
    assert!(volume.disconnect().unwrap().is_made());
    before.assert_restored_within(LIMIT);
}

#[test]
fn case_26_a_call_that_is_killed_between_two_steps_is_made_good() {
    let bench = Bench::new();

    Kills::of("NBD", &bench.asked(), &bench.before).some(3).run();

    bench.assert_clean();
}

#[test]
fn case_26_a_detach_that_is_dropped_at_any_moment_is_finished_by_the_next_call() {
    let bench = Bench::new();
    let volume = volume("vol1");
    for step in 0..10 {
        volume.connect().unwrap();
        volume.disconnect_cut_off(Duration::from_millis(4 * step));
        if step % 2 == 0 {
            volume.connect().unwrap();
        }
        volume.disconnect().unwrap();
        bench.before.assert_restored_within(LIMIT);
    }
}
