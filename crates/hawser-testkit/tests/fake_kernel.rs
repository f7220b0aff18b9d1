//! The kernel parts of the fake host do what the kernel does, and its traps with it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail with their test")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hawser_core::port::Host;
use hawser_core::port::host::Tool;
use hawser_core::port::kernel::{
    KernelError, LockMode, NbdAttach, ReservationKind, ReservationStep,
};
use hawser_core::{ByteSize, Kind};
use hawser_testkit::fake_host::kernel::errno::{
    EBADE, EBUSY, ECONNREFUSED, EINVAL, EIO, ENODEV, ENOENT, ENXIO,
};
use hawser_testkit::fake_host::kernel::{DiskSpec, FindMultipaths, Flush, Lun, Target};
use hawser_testkit::fake_host::{FakeHost, KERNEL_METHODS, Ran, When};
use hawser_testkit::sim::{fc, iscsi, scsi};

const SHORT: Duration = Duration::from_secs(5);
const NAA: &str = "6001405aaaaaaaaaaaaaaaaaaaaaaaaa";
const WWID: &str = "36001405aaaaaaaaaaaaaaaaaaaaaaaaa";
const OTHER: &str = "6001405bbbbbbbbbbbbbbbbbbbbbbbbb";

fn errno<T: std::fmt::Debug>(result: Result<T, KernelError>) -> i32 {
    result.unwrap_err().errno().unwrap()
}

async fn write(host: &FakeHost, path: &str, data: &str) -> Result<(), KernelError> {
    host.files().write(Path::new(path), data.as_bytes(), SHORT).await
}

fn text(host: &FakeHost, path: &str) -> String {
    host.files().read_text(Path::new(path)).unwrap().unwrap_or_default()
}

/// Two adapters, one volume behind both.
fn fabric() -> (FakeHost, Lun, Target) {
    let host = FakeHost::new();
    let lun = Lun::scsi(NAA, ByteSize::mib(8));
    let target = Target::new().with(1, &lun);
    fc::install(host.kernel());
    for (adapter, wwpn) in [(3, "2100001b32000001"), (4, "2100001b32000002")] {
        fc::add_adapter(host.kernel(), adapter, wwpn);
        fc::add_remote_port(host.kernel(), adapter, "500a0980000000a1", &target);
    }
    (host, lun, target)
}

async fn scan(host: &FakeHost, adapter: u32) {
    write(host, &format!("/sys/class/scsi_host/host{adapter}/scan"), "0 0 1").await.unwrap();
    host.kernel().edit(|tree| tree.settle());
}

#[test]
fn every_method_of_the_kernels_parts_has_its_switch() {
    let mut methods = Vec::new();
    let mut add = |source: &str| {
        let mut name = String::new();
        for line in source.lines() {
            if let Some(rest) = line.strip_prefix("pub trait ") {
                name = rest.split(':').next().unwrap().to_owned();
            }
            if let Some(rest) = line.strip_prefix("    async fn ") {
                methods.push(format!("{name}::{}", rest.split('(').next().unwrap()));
            }
        }
    };
    add(include_str!("../../hawser-core/src/port/kernel/files.rs"));
    add(include_str!("../../hawser-core/src/port/kernel/disk.rs"));
    add(include_str!("../../hawser-core/src/port/kernel/maps.rs"));
    add(include_str!("../../hawser-core/src/port/kernel/nbd.rs"));
    add(include_str!("../../hawser-core/src/port/kernel/locks.rs"));

    assert_eq!(methods, KERNEL_METHODS);
}

#[tokio::test]
async fn links_are_followed_as_the_kernel_does() {
    let host = FakeHost::new();
    host.kernel().load(
        "# a comment\n\
         /sys/devices/a/b/value = 7\n\
         /sys/class/x -> ../devices/a/b\n\
         /sys/round -> /sys/round\n\
         /sys/raw = \\x00\\x83\n\
         /sys/empty/\n\
         /dev/sdq : 65:0\n",
    );

    assert_eq!(text(&host, "/sys/class/x/value"), "7");
    let resolve = |path: &str| host.files().resolve(Path::new(path)).unwrap();
    assert_eq!(resolve("/sys/class/x/../value"), None);
    assert_eq!(resolve("/sys/class/x/../b/value"), Some("/sys/devices/a/b/value".into()));
    assert_eq!(resolve("/sys/round"), None);
    assert_eq!(host.files().read(Path::new("/sys/raw")).unwrap().unwrap(), [0, 0x83]);
    assert_eq!(host.files().device_number(Path::new("/dev/sdq")).unwrap(), Some((65, 0)));
    assert!(host.files().list(Path::new("/sys/empty")).unwrap().is_empty());
    assert_eq!(host.files().list(Path::new("/sys/class/x")).unwrap(), ["value"]);
}

#[tokio::test]
async fn files_of_the_kernel_are_never_made_and_settings_are() {
    let host = FakeHost::new();
    host.kernel().value("/sys/a", 1);
    let path = Path::new("/etc/new/one");

    assert_eq!(errno(write(&host, "/sys/b", "1").await), ENOENT);
    write(&host, "/sys/a", "2").await.unwrap();
    assert_eq!(text(&host, "/sys/a"), "2");
    assert!(host.files().store(Path::new("/sys/c"), b"", 0o600).await.is_err());
    assert!(host.files().create(path, b"x", 0o600).await.unwrap());
    assert!(!host.files().create(path, b"y", 0o600).await.unwrap());
    assert_eq!(text(&host, "/etc/new/one"), "x");
    assert!(host.files().remove(Path::new("/etc/new")).await.is_err(), "it is not empty");
    assert!(host.files().remove(path).await.unwrap());
    assert!(!host.files().remove(path).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn behaviours_act_tell_wait_and_refuse() {
    let host = FakeHost::new();
    host.kernel().file("/sys/go", "").file("/sys/devices/a/slow", "").on_write(
        "/sys/go",
        |tree, write| {
            if write.text() != "1" {
                return Err(EINVAL);
            }
            tree.later(2, |tree| drop(tree.value("/sys/done", 1).text("/sys/done")));
            Ok(())
        },
    );
    host.kernel().on_write("/sys/devices/*/slow", |tree, _| {
        tree.takes(Duration::from_secs(7));
        Ok(())
    });
    let mut events = host.events().subscribe();

    assert_eq!(errno(write(&host, "/sys/go", "2").await), EINVAL);
    write(&host, "/sys/go", "1\n").await.unwrap();
    events.changed(SHORT).await;
    assert_eq!(text(&host, "/sys/done"), "", "one wait is not enough");
    events.changed(SHORT).await;
    assert_eq!(text(&host, "/sys/done"), "1");
    let begun = tokio::time::Instant::now();
    let late = write(&host, "/sys/devices/a/slow", "1").await.unwrap_err();
    assert!(matches!(late, KernelError::Late { .. }), "{late:?}");
    assert_eq!(begun.elapsed(), SHORT);
    events.changed(SHORT).await;
    assert_eq!(begun.elapsed(), 2 * SHORT, "nothing more happens");
}

#[tokio::test]
async fn faults_strike_the_parts_and_looking_can_be_made_to_fail() {
    let host = FakeHost::new();
    host.kernel().value("/sys/a", 1);
    host.fail_call(1, When::After);

    write(&host, "/sys/a", "2").await.unwrap();
    let lost = write(&host, "/sys/a", "3").await.unwrap_err();
    assert!(matches!(lost, KernelError::Late { .. }));
    assert_eq!(text(&host, "/sys/a"), "3", "only the answer was lost");
    host.fail_call(0, When::Before);
    assert_eq!(errno(write(&host, "/sys/a", "4").await), EIO);
    host.heal();
    host.kernel().fail_next("Files::write", EBUSY);
    assert_eq!(errno(write(&host, "/sys/a", "4").await), EBUSY);
    host.kernel().fail_read("/sys/a", EIO);
    assert_eq!(errno(host.files().read(Path::new("/sys/a"))), EIO);
    host.kernel().fail_read("/sys/a", ENODEV);
    assert_eq!(host.files().read(Path::new("/sys/a")).unwrap(), None);
    assert_eq!(host.changes().len(), 4);
}

#[tokio::test]
async fn a_scan_finds_only_what_was_asked_for_and_its_disk_comes_later() {
    let (host, _, target) = fabric();
    target.show(2, &Lun::scsi(OTHER, ByteSize::mib(8)));
    let before = host.snapshot();

    write(&host, "/sys/class/scsi_host/host3/scan", "0 0 1").await.unwrap();
    assert_eq!(text(&host, "/sys/class/scsi_device/3:0:0:1/device/wwid"), format!("naa.{NAA}"));
    let block = Path::new("/sys/class/scsi_device/3:0:0:1/device/block");
    assert!(host.files().list(block).unwrap().is_empty());
    host.kernel().edit(|tree| tree.settle());
    assert_eq!(host.files().list(block).unwrap(), ["sda"]);
    write(&host, "/sys/class/scsi_host/host3/scan", "0 0 1").await.unwrap();
    write(&host, "/sys/class/scsi_host/host3/scan", "0 0 9").await.unwrap();
    assert_eq!(host.files().list(Path::new("/sys/class/scsi_device")).unwrap().len(), 1);
    assert_eq!(host.device_size(Path::new("/dev/sda")).await.unwrap(), ByteSize::mib(8));
    let link = Path::new("/dev/disk/by-id/wwn-0x6001405aaaaaaaaaaaaaaaaaaaaaaaaa");
    assert_eq!(host.files().resolve(link).unwrap(), Some("/dev/sda".into()));
    write(&host, "/sys/block/sda/device/delete", "1").await.unwrap();

    let difference = before.difference(&host.snapshot());
    assert!(difference.is_empty(), "{difference}");
    assert_eq!(scsi::wide_scans(host.kernel()), 0);
    write(&host, "/sys/class/scsi_host/host3/scan", "- - -").await.unwrap();
    assert_eq!(scsi::wide_scans(host.kernel()), 1);
    assert_eq!(host.files().list(Path::new("/sys/class/scsi_device")).unwrap().len(), 2);
}

#[tokio::test]
async fn a_number_that_is_used_again_shows_the_old_name_until_a_rescan() {
    let (host, _, target) = fabric();
    scan(&host, 3).await;
    let other = Lun::scsi(OTHER, ByteSize::mib(4));
    other.write_at(0, b"another volume's data");
    target.show(1, &other);
    let disk = host.disks().open(Path::new("/dev/sda")).await.unwrap();

    assert_eq!(text(&host, "/sys/block/sda/device/wwid"), format!("naa.{NAA}"));
    assert_eq!(text(&host, "/sys/block/sda/size"), "16384");
    assert!(disk.read(0, 512, SHORT).await.unwrap().starts_with(b"another"));
    assert_eq!(disk.inquiry(Some(0x83)).await.unwrap()[8..11], [0x60, 0x01, 0x40]);
    assert_eq!(disk.inquiry(Some(0x83)).await.unwrap()[12], 0xbb);
    write(&host, "/sys/block/sda/device/rescan", "1").await.unwrap();

    assert_eq!(text(&host, "/sys/block/sda/device/wwid"), format!("naa.{OTHER}"));
    assert_eq!(text(&host, "/sys/block/sda/size"), "8192");
}

#[tokio::test]
async fn delete_refuses_nothing_and_the_name_is_used_again() {
    let (host, ..) = fabric();
    scan(&host, 3).await;
    host.set_busy(Path::new("/dev/sda"), true);
    assert!(host.disks().is_claimed(Path::new("/dev/sda")).await.unwrap());
    let open = host.disks().open(Path::new("/dev/sda")).await.unwrap();
    let first = text(&host, "/sys/block/sda/diskseq");

    write(&host, "/sys/block/sda/device/delete", "1").await.unwrap();
    assert_eq!(errno(open.read(0, 512, SHORT).await), ENODEV);
    scan(&host, 4).await;

    assert!(host.files().resolve(Path::new("/dev/sda")).unwrap().is_some());
    assert_eq!(errno(open.flush(SHORT).await), ENODEV, "another device has the name");
    assert_ne!(text(&host, "/sys/block/sda/diskseq"), first);
}

#[tokio::test(start_paused = true)]
async fn a_flush_works_fails_or_hangs_and_each_opener_hears_of_a_loss_once() {
    let host = FakeHost::new();
    host.kernel().disk(DiskSpec::new("sdb", &Lun::new(ByteSize::mib(1))));
    let node = Path::new("/dev/sdb");
    let early = host.disks().open(node).await.unwrap();

    early.flush(SHORT).await.unwrap();
    host.kernel().edit(|tree| tree.make_dirty("sdb")).set_flush_of(node, Flush::Fails(EIO), &host);
    let first = host.disks().open(node).await.unwrap();
    assert_eq!(errno(first.flush(SHORT).await), EIO);
    host.kernel().set_flush(node, Flush::Works);
    assert_eq!(errno(early.flush(SHORT).await), EIO, "it was open when data was lost");
    early.flush(SHORT).await.unwrap();
    host.disks().open(node).await.unwrap().flush(SHORT).await.unwrap();
    host.kernel().set_flush(node, Flush::Hangs);
    assert!(matches!(early.flush(SHORT).await, Err(KernelError::Late { .. })));
    let heal = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        host.kernel().set_flush(node, Flush::Works);
    };
    let (flushed, ()) = tokio::join!(early.flush(SHORT), heal);
    flushed.unwrap();
}

/// So that a builder call can follow [`hawser_testkit::fake_host::Kernel::edit`].
trait Then {
    fn set_flush_of(self, node: &Path, flush: Flush, host: &FakeHost);
}

impl Then for () {
    fn set_flush_of(self, node: &Path, flush: Flush, host: &FakeHost) {
        host.kernel().set_flush(node, flush);
    }
}

async fn ask(host: &FakeHost, command: &str) -> String {
    host.maps().multipathd(command, SHORT).await.unwrap()
}

#[tokio::test]
async fn paths_become_a_map_by_the_rules_of_multipathd() {
    for (find, remembered, paths, mapped) in [
        (FindMultipaths::Strict, false, 2, false),
        (FindMultipaths::Strict, true, 1, true),
        (FindMultipaths::Yes, false, 1, false),
        (FindMultipaths::Yes, false, 2, true),
        (FindMultipaths::Greedy, false, 1, true),
    ] {
        let (host, ..) = fabric();
        assert_eq!(errno(host.maps().multipathd("show status", SHORT).await), ECONNREFUSED);
        host.kernel().multipathd(find);
        if remembered {
            let path = Path::new("/etc/multipath/wwids");
            host.files().store(path, format!("/{WWID}/\n").as_bytes(), 0o600).await.unwrap();
        }
        for adapter in [3, 4].into_iter().take(paths) {
            scan(&host, adapter).await;
        }

        let maps = ask(&host, "show maps raw format \"%n %w %d %N %Q\"").await;
        let expected = format!("{WWID} {WWID} dm-0 {paths} on\n");
        assert_eq!(maps, if mapped { expected } else { String::new() }, "{find:?} {paths}");
    }
}

#[tokio::test]
async fn a_map_is_held_grown_failed_and_removed_as_device_mapper_does() {
    let (host, lun, _) = fabric();
    host.kernel().multipathd(FindMultipaths::Greedy);
    scan(&host, 3).await;
    scan(&host, 4).await;
    let status = host.maps().status(WWID).await.unwrap().remove(0);
    assert_eq!(status.parameters, "2 0 0 0 1 1 A 0 2 2 8:0 A 0 0 1 8:16 A 0 0 1");
    assert_eq!((status.kind.as_str(), status.length), ("multipath", 16384));
    let table = host.maps().table(WWID).await.unwrap().remove(0);
    assert!(table.parameters.starts_with("1 queue_if_no_path 0 1 1 service-time 0 2 2 8:0 1 1"));
    assert_eq!(text(&host, "/sys/block/dm-0/dm/uuid"), format!("mpath-{WWID}"));
    assert_eq!(host.files().list(Path::new("/sys/block/sda/holders")).unwrap(), ["dm-0"]);
    assert!(host.disks().is_claimed(Path::new("/dev/sda")).await.unwrap());

    lun.resize(ByteSize::mib(16));
    write(&host, "/sys/block/sda/device/rescan", "1").await.unwrap();
    assert_eq!(ask(&host, &format!("resize map {WWID}")).await, "fail\n", "one path is old");
    write(&host, "/sys/block/sdb/device/rescan", "1").await.unwrap();
    assert_eq!(ask(&host, &format!("resize map {WWID}")).await, "ok\n");
    assert_eq!(host.device_size(Path::new("/dev/dm-0")).await.unwrap(), ByteSize::mib(16));

    let open = host.disks().open(Path::new("/dev/dm-0")).await.unwrap();
    assert_eq!(errno(host.maps().remove(WWID).await), EBUSY);
    assert_eq!(ask(&host, "del map dm-0").await, "fail\n");
    drop(open);
    host.maps().remove(WWID).await.unwrap();
    assert_eq!(errno(host.maps().remove(WWID).await), ENXIO);
    assert!(host.files().list(Path::new("/sys/block/sda/holders")).unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_queueing_map_without_paths_hangs_until_it_fails_and_tells_who_had_it_open() {
    let (host, ..) = fabric();
    host.kernel().multipathd(FindMultipaths::Greedy);
    scan(&host, 3).await;
    let open = host.disks().open(Path::new("/dev/dm-0")).await.unwrap();
    host.kernel().edit(|tree| tree.make_dirty("dm-0"));
    fc::set_remote_port(host.kernel(), 3, "500a0980000000a1", fc::PortState::NotPresent);

    let status = host.maps().status(WWID).await.unwrap().remove(0);
    assert!(status.parameters.contains("8:0 F"), "{status:?}");
    assert!(matches!(open.flush(SHORT).await, Err(KernelError::Late { .. })));
    assert!(matches!(open.read(0, 512, SHORT).await, Err(KernelError::Late { .. })));
    host.maps().message(WWID, "fail_if_no_path").await.unwrap();
    assert_eq!(errno(open.flush(SHORT).await), EIO);
    // Its device goes and multipathd drops the last path: an open map stays, without any.
    write(&host, "/sys/block/sda/device/delete", "1").await.unwrap();
    host.kernel().edit(|tree| tree.settle());
    assert_eq!(ask(&host, "show maps raw format \"%n %N\"").await, format!("{WWID} 0\n"));
    drop(open);
    assert_eq!(ask(&host, &format!("del map {WWID}")).await, "ok\n");
}

#[tokio::test]
async fn a_late_event_of_multipathd_hits_the_next_device_of_that_name() {
    let (host, ..) = fabric();
    host.kernel().multipathd(FindMultipaths::Greedy);
    scan(&host, 3).await;
    assert_eq!(ask(&host, "del map dm-0").await, "ok\n");
    write(&host, "/sys/block/sda/device/delete", "1").await.unwrap();
    assert_eq!(ask(&host, "show paths raw format \"%d %T\"").await, "sda faulty\n");
    write(&host, "/sys/class/scsi_host/host3/scan", "0 0 1").await.unwrap();

    host.kernel().edit(|tree| tree.settle());

    assert_eq!(ask(&host, "show paths raw format %d").await, "sda\n");
    let (host, ..) = fabric();
    host.kernel().multipathd(FindMultipaths::Greedy);
    scan(&host, 3).await;
    assert_eq!(ask(&host, "del map dm-0").await, "ok\n");
    write(&host, "/sys/block/sda/device/delete", "1").await.unwrap();
    assert_eq!(ask(&host, "del path sda").await, "ok\n");
    assert_eq!(ask(&host, "show paths raw format %d").await, "");
}

#[tokio::test]
async fn reservations_are_shared_by_the_hosts_that_have_the_volume() {
    let lun = Lun::scsi(NAA, ByteSize::mib(1));
    let (a, b) = (FakeHost::new(), FakeHost::new());
    for (host, name) in [(&a, "a"), (&b, "b")] {
        host.kernel().set_initiator(name).disk(DiskSpec::new("sda", &lun));
    }
    let node = Path::new("/dev/sda");
    let (first, second) =
        (a.disks().open(node).await.unwrap(), b.disks().open(node).await.unwrap());
    let kind = ReservationKind::WriteExclusiveRegistrants;
    let register = |key| ReservationStep::Register { key };
    let writes = |host: &FakeHost| host.kernel().edit(|tree| tree.write_disk("sda", 0, b"x"));

    assert_eq!(errno(first.reserve(&ReservationStep::Reserve { key: 1, kind }).await), EBADE);
    first.reserve(&register(1)).await.unwrap();
    first.reserve(&ReservationStep::Reserve { key: 1, kind }).await.unwrap();
    assert_eq!((writes(&a), writes(&b)), (Ok(()), Err(EBADE)));
    assert_eq!(a.snapshot().registered, [1]);
    second.reserve(&register(2)).await.unwrap();
    let steal = ReservationStep::PreemptAndAbort { key: 2, other: 1, kind };
    second.reserve(&steal).await.unwrap();

    assert_eq!((writes(&a), writes(&b)), (Err(EBADE), Ok(())));
    let state = first.reservation().await.unwrap();
    assert_eq!((state.generation, state.registered.len(), state.held), (3, 1, Some(kind)));
    assert!(state.registered[0].holder && state.registered[0].key == 2);
    second.reserve(&register(0)).await.unwrap();
    assert_eq!(first.reservation().await.unwrap().held, None);
    assert!(b.snapshot().registered.is_empty());
}

#[tokio::test(start_paused = true)]
async fn locks_are_shared_or_alone_and_a_waiter_may_be_dropped() {
    let host = FakeHost::new();
    let lock = |mode| host.locks().lock("t", mode);
    let soon = Duration::from_secs(1);

    let (one, two) =
        (lock(LockMode::Shared).await.unwrap(), lock(LockMode::Shared).await.unwrap());
    assert!(tokio::time::timeout(soon, lock(LockMode::Exclusive)).await.is_err());
    assert_eq!(host.snapshot().locks, ["t"]);
    drop((one, two));
    let alone = lock(LockMode::Exclusive).await.unwrap();
    assert!(tokio::time::timeout(soon, lock(LockMode::Shared)).await.is_err());
    drop(alone);
    lock(LockMode::Shared).await.unwrap();
    assert!(host.snapshot().locks.is_empty());
}

#[tokio::test]
async fn network_block_devices_are_there_without_a_size_and_take_one() {
    let host = FakeHost::new();
    let attach = || NbdAttach {
        sockets: vec![std::fs::File::open("/dev/null").unwrap().into()],
        size: 1 << 20,
        block_size: 512,
        server_flags: 2,
        timeout: SHORT,
        dead_connection_timeout: SHORT,
        backend: "vol".into(),
    };
    assert_eq!(errno(host.nbd().attach(attach()).await), ENOENT, "the module is not there");
    host.kernel().edit(|tree| tree.load_nbd(2));
    let before = host.snapshot();

    assert_eq!(host.nbd().attach(attach()).await.unwrap(), 0);
    assert_eq!(host.nbd().attach(attach()).await.unwrap(), 1);
    assert_eq!(text(&host, "/sys/block/nbd1/backend"), "vol");
    assert!(host.refuses_writes(Path::new("/dev/nbd1")));
    host.nbd().reconfigure(1, 2 << 20, Vec::new()).await.unwrap();
    assert_eq!(host.device_size(Path::new("/dev/nbd1")).await.unwrap(), ByteSize::mib(2));
    for index in [0, 1] {
        host.nbd().detach(index).await.unwrap();
    }

    assert_eq!(errno(host.nbd().detach(1).await), ENODEV);
    assert_eq!(before.difference(&host.snapshot()), "");
}

#[tokio::test]
async fn a_reboot_brings_back_what_was_built_and_keeps_settings() {
    let (host, ..) = fabric();
    scan(&host, 3).await;
    host.files().store(Path::new("/etc/kept"), b"x", 0o600).await.unwrap();
    host.files().store(Path::new("/run/hawser/gone"), b"x", 0o600).await.unwrap();

    host.reboot();

    assert!(host.files().list(Path::new("/sys/class/scsi_device")).unwrap().is_empty());
    assert_eq!(host.files().resolve(Path::new("/dev/sda")).unwrap(), None);
    assert_eq!((text(&host, "/etc/kept"), text(&host, "/run/hawser/gone")), ("x".into(), String::new()));
    scan(&host, 3).await;
    assert!(host.files().resolve(Path::new("/dev/sda")).unwrap().is_some());
}

async fn iscsiadm(host: &FakeHost, line: &str) -> (i32, String) {
    let tool = Tool::new("iscsiadm").limit(Duration::from_secs(300)).args(line.split_whitespace());
    let output = host.run(&tool).await.unwrap();
    (output.code.unwrap(), output.stdout)
}

#[tokio::test(start_paused = true)]
async fn iscsiadm_logs_in_by_its_records_and_tells_by_its_codes() {
    let host = FakeHost::new();
    let target = Target::new().with(1, &Lun::scsi(NAA, ByteSize::mib(8)));
    let (iqn, portal) = ("iqn.2020-01.org.example:t1", "192.0.2.10:3260");
    iscsi::install(&host);
    iscsi::add_portal(host.kernel(), portal, iqn, &target);
    iscsi::set_chap(host.kernel(), iqn, "u", "p");
    let before = host.snapshot();
    let node = format!("-m node -T {iqn} -p {portal}");
    let run = async |rest: &str| iscsiadm(&host, &format!("{node} {rest}")).await.0;

    assert_eq!(run("").await, 21);
    assert_eq!(run("-o new").await, 0);
    assert_eq!(run("-o update -n node.session.scan -v manual").await, 0);
    assert_eq!(run("--login").await, 24);
    for (name, value) in [("authmethod", "CHAP"), ("username", "u"), ("password", "p")] {
        assert_eq!(run(&format!("-o update -n node.session.auth.{name} -v {value}")).await, 0);
    }
    assert_eq!(run("--login").await, 0);
    assert_eq!(run("--login").await, 15);
    let (code, lines) = iscsiadm(&host, "-m session").await;
    assert_eq!((code, lines), (0, format!("tcp: [1] {portal},1 {iqn} (non-flash)\n")));
    assert_eq!(text(&host, "/sys/class/iscsi_session/session1/targetname"), iqn);
    let connection = "/sys/class/iscsi_connection/connection1:0";
    assert_eq!(text(&host, &format!("{connection}/persistent_address")), "192.0.2.10");
    assert!(host.files().list(Path::new("/sys/class/scsi_device")).unwrap().is_empty());
    write(&host, "/sys/class/scsi_host/host33/scan", "0 0 1").await.unwrap();
    let folder = PathBuf::from("/sys/class/iscsi_host/host33/device/session1/target33:0:0");
    assert_eq!(host.files().list(&folder).unwrap(), ["33:0:0:1"]);
    iscsi::set_portal(host.kernel(), portal, iscsi::PortalState::Silent);
    assert_eq!(text(&host, "/sys/class/iscsi_session/session1/state"), "FAILED");
    assert_eq!(run("-o delete").await, 15, "a session uses it");
    assert_eq!(run("--logout").await, 0);
    assert_eq!(run("--logout").await, 21);
    let begun = tokio::time::Instant::now();
    assert_eq!(run("--login").await, 8);
    assert_eq!(begun.elapsed(), Duration::from_secs(120));
    assert_eq!(run("-o delete").await, 0);
    assert_eq!(before.difference(&host.snapshot()), "");
    iscsi::set_daemon(host.kernel(), false);
    assert_eq!(iscsiadm(&host, &format!("-m discovery -t st -p {portal}")).await.0, 20);
}

#[tokio::test]
async fn discovery_makes_records_of_every_portal_and_login_finds_all_volumes() {
    let host = FakeHost::new();
    let target = Target::new().with(0, &Lun::scsi(NAA, ByteSize::mib(8)));
    let iqn = "iqn.2020-01.org.example:t1";
    iscsi::install(&host);
    for portal in ["192.0.2.10:3260", "[2001:db8::1]:3260"] {
        iscsi::add_portal(host.kernel(), portal, iqn, &target);
    }

    let (code, lines) = iscsiadm(&host, "-m discovery -t sendtargets -p 192.0.2.10").await;
    assert_eq!((code, lines.lines().count()), (0, 2));
    assert!(lines.contains("[2001:db8::1]:3260,2 "), "{lines}");
    let record = format!("/etc/iscsi/nodes/{iqn}/2001:db8::1,3260,2/default");
    assert!(text(&host, &record).contains("node.tpgt = 2"));
    assert_eq!(iscsiadm(&host, &format!("-m node -T {iqn} --login")).await.0, 0);
    host.kernel().edit(|tree| tree.settle());

    assert_eq!(iscsi::sessions(host.kernel()).len(), 2);
    assert_eq!(host.files().list(Path::new("/sys/class/scsi_device")).unwrap().len(), 2);
}

#[tokio::test]
async fn units_of_an_s390x_adapter_are_added_and_removed_by_their_number() {
    let host = FakeHost::new();
    let lun = Lun::scsi(NAA, ByteSize::mib(8));
    let target = Target::new().with(0x400a_4020, &lun);
    fc::install(host.kernel());
    fc::add_ccw_adapter(host.kernel(), 0, "c05076ffe5005611", "0.0.1940");
    fc::add_remote_port(host.kernel(), 0, "500a0980000000a1", &target);
    let unit = "/sys/bus/ccw/drivers/zfcp/0.0.1940/0x500a0980000000a1";
    let before = host.snapshot();

    write(&host, &format!("{unit}/unit_add"), "0x4020400a00000000").await.unwrap();
    let again = write(&host, &format!("{unit}/unit_add"), "0x4020400a00000000").await;
    assert_eq!(errno(again), EINVAL);
    let devices = host.files().list(Path::new("/sys/class/scsi_device")).unwrap();
    assert_eq!(devices, [format!("0:0:0:{}", 0x400a_4020)]);
    write(&host, &format!("{unit}/unit_remove"), "0x4020400a00000000").await.unwrap();

    assert_eq!(before.difference(&host.snapshot()), "");
}

#[tokio::test]
async fn programs_change_the_tree_and_their_arguments_are_kept() {
    let host = FakeHost::new();
    host.tool("mk", |tree, call| {
        tree.value("/run/made", call.value(&["-n", "--name"]).unwrap_or_default());
        Ran { code: 3, stdout: call.stdin.clone().unwrap_or_default(), stderr: String::new() }
    });
    host.only_looks(|call| call.method == "run" && call.detail.contains("--show"));
    let mut tool = Tool::new("mk").arg("--name=x");
    tool.stdin = Some(hawser_core::secret::Secret::new("in"));

    let output = host.run(&tool).await.unwrap();
    host.run(&Tool::new("mk").arg("--show")).await.unwrap();

    assert_eq!((output.code, output.stdout.as_str()), (Some(3), "in"));
    assert_eq!(host.arguments(), ["--name=x", "--show"]);
    assert_eq!(host.changes().len(), 1);
}

#[tokio::test]
async fn file_systems_live_on_devices_of_the_tree_too() {
    use hawser_core::filesystem::FsKind;
    use hawser_core::port::host::{Content, HostMount, MountSource};
    let host = Arc::new(FakeHost::new());
    let lun = Lun::new(ByteSize::mib(64));
    host.kernel().disk(DiskSpec::new("sdb", &lun));
    let (node, target) = (PathBuf::from("/dev/sdb"), host.dir().join("t"));
    host.make_target(&target).await.unwrap();
    let uuid = uuid::Uuid::new_v4();

    assert_eq!(host.probe(&node).await.unwrap(), Content::Blank);
    host.make_filesystem(&node, FsKind::Ext4, uuid).await.unwrap();
    let source = MountSource::Device { device: node.clone(), fs: FsKind::Ext4 };
    let request = HostMount { source, target: target.clone(), read_only: false, flags: vec![] };
    host.mount(&request).await.unwrap();

    assert!(host.disks().is_claimed(&node).await.unwrap());
    host.unmount(&target).await.unwrap();
    assert!(!host.disks().is_claimed(&node).await.unwrap());
    host.kernel().edit(|tree| tree.set_online("sdb", false));
    assert_eq!(host.probe(&node).await.unwrap_err().kind(), Kind::Unavailable);
}
