//! The kernel parts of the fake host do what the kernel does, and its traps with it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail with their test")]

mod common;

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
use hawser_testkit::fake_host::kernel::{DiskSpec, FindMultipaths, Flush, Lun};
use hawser_testkit::fake_host::{FakeHost, KERNEL_METHODS, Ran, When};
use hawser_testkit::sim::fc;

use common::*;

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
    add(include_str!("../../hawser-core/src/port/kernel/iscsid.rs"));
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

#[tokio::test(start_paused = true)]
async fn a_flush_works_fails_or_hangs_and_each_opener_hears_of_a_loss_once() {
    let host = FakeHost::new();
    host.kernel().disk(DiskSpec::new("sdb", &Lun::new(ByteSize::mib(1))));
    let node = Path::new("/dev/sdb");
    let early = host.disks().open(node).await.unwrap();

    early.flush(SHORT).await.unwrap();
    host.kernel().edit(|tree| tree.make_dirty("sdb"));
    host.kernel().set_flush(node, Flush::Fails(EIO));
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

    let (one, two) = (lock(LockMode::Shared).await.unwrap(), lock(LockMode::Shared).await.unwrap());
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
    assert_eq!(
        (text(&host, "/etc/kept"), text(&host, "/run/hawser/gone")),
        ("x".into(), String::new())
    );
    scan(&host, 3).await;
    assert!(host.files().resolve(Path::new("/dev/sda")).unwrap().is_some());
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
