use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use hawser_core::port::Host;
use hawser_core::port::kernel::NamespaceFacts;
use hawser_live::lab::guest::{cmd, settle, wait_for};
use rustix::io::Errno;

use crate::scsi::{Shared, can_write};
use crate::{LIMIT, errno, host};

#[tokio::test]
async fn a_live_inquiry_says_what_sysfs_has_in_store() {
    let shared = Shared::new(1);
    let host = host();
    let disk = host.disks().open(shared.node(0)).await.unwrap();

    let identity = disk.inquiry(Some(0x83)).await.unwrap();
    let serial = disk.inquiry(Some(0x80)).await.unwrap();
    let standard = disk.inquiry(None).await.unwrap();

    assert_eq!(identity, shared.sysfs(0, "vpd_pg83"));
    assert_eq!(serial, shared.sysfs(0, "vpd_pg80"));
    let stored = shared.sysfs(0, "inquiry");
    assert!(standard.starts_with(&stored) && stored.len() >= 36, "{standard:?}");
    let text = String::from_utf8_lossy(&serial).into_owned();
    assert!(text.contains(shared.serial()), "{text}");
    let raw = cmd("sg_inq").args(["--page=0x83", "--raw"]).arg(shared.node(0)).ok();
    // What it said was decoded as text.
    assert_eq!(String::from_utf8_lossy(&identity), raw, "sg_inq reads the same");
}

#[tokio::test]
async fn a_page_that_the_disk_does_not_have_is_refused_with_a_number() {
    let shared = Shared::new(1);
    let host = host();
    let disk = host.disks().open(shared.node(0)).await.unwrap();

    let refused = disk.inquiry(Some(0xc7)).await;

    assert_eq!(errno(refused), Errno::INVAL);
    let not_nvme = errno(disk.identify_namespace(NamespaceFacts::Format).await);
    assert!([Errno::NOTTY, Errno::INVAL].contains(&not_nvme), "{not_nvme:?}");
}

#[tokio::test]
async fn a_disk_is_flushed_and_read_past_the_cache() {
    let shared = Shared::new(2);
    let host = host();
    let disk = host.disks().open(shared.node(0)).await.unwrap();
    let writer = OpenOptions::new().write(true).open(shared.node(0)).unwrap();
    writer.write_all_at(&[7; 8192], 4096).unwrap();

    disk.flush(LIMIT).await.unwrap();

    assert_eq!(disk.read(4096, 8192, LIMIT).await.unwrap(), [7; 8192]);
    // The other host has no share in this one's cache.
    let other = host.disks().open(shared.node(1)).await.unwrap();
    assert_eq!(other.read(4096, 8192, LIMIT).await.unwrap(), [7; 8192]);
    drop(writer);
}

#[tokio::test]
async fn claims_of_mounts_and_maps_are_seen() {
    let shared = Shared::new(1);
    let (host, node) = (host(), shared.node(0));
    assert!(!host.disks().is_claimed(node).await.unwrap());

    cmd("mkfs.ext4").args(["-q", "-F"]).arg(node).ok();
    let target = Path::new("/tmp/kernel-claims");
    fs::create_dir_all(target).unwrap();
    cmd("mount").arg(node).arg(target).ok();
    let mounted = host.disks().is_claimed(node).await.unwrap();
    cmd("umount").arg(target).ok();
    cmd("dmsetup")
        .args(["create", "kernel-claims", "--table"])
        .arg(format!("0 2048 linear {} 0", node.display()))
        .ok();
    let mapped = host.disks().is_claimed(node).await.unwrap();
    cmd("dmsetup").args(["remove", "--retry", "kernel-claims"]).ok();
    settle();

    assert!(mounted && mapped);
    assert!(!host.disks().is_claimed(node).await.unwrap());
}

#[tokio::test]
async fn the_read_only_mark_keeps_writers_out() {
    let shared = Shared::new(1);
    let (host, node) = (host(), shared.node(0));

    host.disks().set_read_only(node, true).await.unwrap();
    let refused = can_write(node);
    let disk = host.disks().open(node).await.unwrap();
    disk.read(0, 4096, LIMIT).await.unwrap();
    disk.flush(LIMIT).await.unwrap();
    host.disks().set_read_only(node, false).await.unwrap();

    assert!(!refused && can_write(node));
}

#[tokio::test]
async fn a_disk_that_went_away_answers_with_a_number() {
    let shared = Shared::new(1);
    let (host, node) = (host(), shared.node(0).to_owned());
    let disk = host.disks().open(&node).await.unwrap();
    drop(shared);

    assert!([Errno::NODEV, Errno::NXIO].contains(&errno(disk.inquiry(None).await)));
    let read = disk.read(0, 4096, LIMIT).await;
    assert!(read.is_err(), "{read:?}");
    drop(disk);
    wait_for("end of the node", LIMIT, || (!node.exists()).then_some(()));
    assert_eq!(errno(host.disks().open(&node).await), Errno::NOENT);
}

/// A device that is closed after it was open for writing is examined anew by udev, which opens it
/// just when its map is to be removed. Nothing that is asked of a disk may cause that.
#[tokio::test]
async fn asking_a_disk_does_not_wake_udev() {
    let shared = Shared::new(1);
    let host = host();
    let events = || fs::read_to_string("/sys/kernel/uevent_seqnum").unwrap();
    settle();
    let before = events();

    let disk = host.disks().open(shared.node(0)).await.unwrap();
    disk.inquiry(Some(0x83)).await.unwrap();
    disk.read(0, 4096, LIMIT).await.unwrap();
    disk.flush(LIMIT).await.unwrap();
    host.disks().is_claimed(shared.node(0)).await.unwrap();
    drop(disk);
    // Closed on a thread of its own, then told to udev by the file system, then to the kernel.
    std::thread::sleep(std::time::Duration::from_millis(500));
    settle();

    assert_eq!(events(), before);
    let mut writer = OpenOptions::new().write(true).open(shared.node(0)).unwrap();
    writer.write_all(&[0; 512]).unwrap();
    drop(writer);
    wait_for("event after a writer", LIMIT, || (events() != before).then_some(()));
}
