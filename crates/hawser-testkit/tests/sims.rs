//! The simulations do what real kernels and daemons were seen to do, and their traps with it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail with their test")]

mod common;

use std::path::{Path, PathBuf};
use std::time::Duration;

use hawser_core::ByteSize;
use hawser_core::port::Host;
use hawser_core::port::host::Tool;
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::fake_host::kernel::errno::{EEXIST, ENODEV};
use hawser_testkit::fake_host::kernel::{Lun, Target};
use hawser_testkit::sim::{fc, iscsi, scsi};

use common::*;

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
    assert_eq!(errno(again), EEXIST);
    let devices = host.files().list(Path::new("/sys/class/scsi_device")).unwrap();
    assert_eq!(devices, [format!("0:0:0:{}", 0x400a_4020)]);
    write(&host, &format!("{unit}/unit_remove"), "0x4020400a00000000").await.unwrap();

    assert_eq!(before.difference(&host.snapshot()), "");
}
