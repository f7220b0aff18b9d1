//! On loop devices; skipped without root.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hawser_core::port::host::{LoopAttach, LoopDevice};
use hawser_core::port::kernel::{
    Disks, KernelError, NamespaceFacts, ReservationKind, ReservationStep,
};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::block::loop_device;
use crate::kernel::disk::LinuxDisks;
use crate::workers::Workers;

const LIMIT: Duration = Duration::from_secs(20);

/// A loop device of 8 MiB that goes with the test, and the folder of its file.
struct Loop {
    device: LoopDevice,
    folder: tempfile::TempDir,
    mounted: bool,
}

impl Loop {
    fn new() -> Option<Self> {
        Self::on(None)
    }

    /// On a file system of this size, so that writes fail once it is full.
    fn on(room: Option<u64>) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            hawser_testkit::skip("needs root");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        if let Some(room) = room {
            let options = std::ffi::CString::new(format!("size={room}")).unwrap();
            let flags = MountFlags::empty();
            rustix::mount::mount("tmpfs", folder.path(), "tmpfs", flags, &*options).unwrap();
        }
        let file = folder.path().join("image");
        File::create_new(&file).unwrap().set_len(8 << 20).unwrap();
        let request =
            LoopAttach { file, mark: "kernel".into(), read_only: false, sector_size: 512 };
        let device = loop_device::attach(&request).unwrap().into_inner();
        Some(Self { device, folder, mounted: room.is_some() })
    }

    fn node(&self) -> &Path {
        &self.device.device
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // Devices are closed on threads, a little after they were dropped.
        for _ in 0..100 {
            if loop_device::detach(&self.device, true).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        if self.mounted {
            let _ = rustix::mount::unmount(self.folder.path(), UnmountFlags::DETACH);
        }
    }
}

fn disks() -> LinuxDisks {
    LinuxDisks::new(Workers::new(8), LIMIT)
}

fn errno(error: &KernelError) -> Option<Errno> {
    error.errno().map(Errno::from_raw_os_error)
}

#[tokio::test]
async fn loop_what_is_written_is_flushed_and_read_past_the_cache() {
    let Some(disk) = Loop::new() else { return };
    let opened = disks().open(disk.node()).await.unwrap();
    let node = OpenOptions::new().write(true).open(disk.node()).unwrap();
    node.write_all_at(&[7; 8192], 512).unwrap();

    opened.flush(LIMIT).await.unwrap();
    let read = opened.read(512, 8192, LIMIT).await.unwrap();
    let file = fs::read(&disk.device.backing_file).unwrap();

    assert_eq!(read, [7; 8192]);
    assert_eq!(file[512..512 + 8192], [7; 8192]);
    // Behind the device's back, as another host would.
    let backing = OpenOptions::new().write(true).open(&disk.device.backing_file).unwrap();
    backing.write_all_at(&[9; 512], 512).unwrap();
    assert_eq!(opened.read(512, 512, LIMIT).await.unwrap(), [9; 512]);
    assert_eq!(opened.read(0, 0, LIMIT).await.unwrap(), Vec::<u8>::new());
}

#[tokio::test]
async fn loop_a_read_that_comes_short_is_an_error() {
    let Some(disk) = Loop::new() else { return };
    let opened = disks().open(disk.node()).await.unwrap();

    let end = opened.read((8 << 20) - 512, 1024, LIMIT).await.unwrap_err();
    let behind = opened.read(1 << 40, 512, LIMIT).await.unwrap_err();
    let odd = opened.read(1, 512, LIMIT).await.unwrap_err();
    let huge = opened.read(0, 1 << 40, LIMIT).await.unwrap_err();

    assert!(matches!(end, KernelError::Nonsense { .. }), "{end:?}");
    assert!(matches!(behind, KernelError::Nonsense { .. }), "{behind:?}");
    assert_eq!(errno(&odd), Some(Errno::INVAL));
    assert_eq!(errno(&huge), Some(Errno::INVAL));
}

#[tokio::test]
async fn loop_an_error_of_an_earlier_write_is_told_by_the_flush_once() {
    let Some(disk) = Loop::on(Some(64 << 10)) else { return };
    let opened = disks().open(disk.node()).await.unwrap();
    // Goes to the page cache and is reported as written.
    let mut node = OpenOptions::new().write(true).open(disk.node()).unwrap();
    node.write_all(&vec![1; 1 << 20]).unwrap();

    let failed = opened.flush(LIMIT).await.unwrap_err();
    let told = opened.flush(LIMIT).await;

    assert!([Some(Errno::IO), Some(Errno::NOSPC)].contains(&errno(&failed)), "{failed:?}");
    assert!(failed.to_string().contains("writing out"), "{failed}");
    assert!(told.is_ok(), "{told:?}");
}

#[tokio::test]
async fn loop_a_claim_is_seen_and_an_open_device_is_none() {
    let Some(disk) = Loop::new() else { return };
    let disks = disks();
    let _opened = disks.open(disk.node()).await.unwrap();

    assert!(!disks.is_claimed(disk.node()).await.unwrap(), "open, not claimed");
    let claim = OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::EXCL.bits().cast_signed())
        .open(disk.node())
        .unwrap();
    assert!(disks.is_claimed(disk.node()).await.unwrap());
    let while_claimed = disks.open(disk.node()).await;
    drop(claim);

    assert!(while_claimed.is_ok(), "opening claims nothing");
    assert!(!disks.is_claimed(disk.node()).await.unwrap());
}

#[tokio::test]
async fn loop_the_read_only_mark_is_set_and_cleared() {
    let Some(disk) = Loop::new() else { return };
    let disks = disks();
    let name = disk.node().file_name().unwrap().to_owned();
    let mark = || {
        let file = Path::new("/sys/block").join(&name).join("ro");
        fs::read_to_string(file).unwrap().trim().to_owned()
    };

    disks.set_read_only(disk.node(), true).await.unwrap();
    assert_eq!(mark(), "1");
    let opened = disks.open(disk.node()).await.unwrap();
    assert_eq!(opened.read(0, 512, LIMIT).await.unwrap(), [0; 512]);
    opened.flush(LIMIT).await.unwrap();
    disks.set_read_only(disk.node(), false).await.unwrap();

    assert_eq!(mark(), "0");
}

#[tokio::test]
async fn loop_a_device_that_is_neither_scsi_nor_nvme_refuses_with_a_number() {
    let Some(disk) = Loop::new() else { return };
    let opened = disks().open(disk.node()).await.unwrap();
    let kind = ReservationKind::WriteExclusive;

    let answers = [
        opened.inquiry(Some(0x83)).await.map(drop),
        opened.inquiry(None).await.map(drop),
        opened.identify_namespace(NamespaceFacts::Format).await.map(drop),
        opened.identify_namespace(NamespaceFacts::Ids).await.map(drop),
        opened.reservation().await.map(drop),
        opened.reserve(&ReservationStep::Register { key: 1 }).await,
        opened.reserve(&ReservationStep::Register { key: 0 }).await,
        opened.reserve(&ReservationStep::Reserve { key: 1, kind }).await,
        opened.reserve(&ReservationStep::Release { key: 1, kind }).await,
        opened.reserve(&ReservationStep::PreemptAndAbort { key: 1, other: 2, kind }).await,
    ];

    for answer in answers {
        let error = answer.unwrap_err();
        let refused = [Errno::NOTTY, Errno::INVAL, Errno::OPNOTSUPP].map(Some);
        assert!(refused.contains(&errno(&error)), "{error:?}");
        assert!(error.to_string().contains("/dev/loop"), "{error}");
    }
    let other = ReservationKind::Other(7);
    let unused = opened.reserve(&ReservationStep::Reserve { key: 1, kind: other }).await;
    assert_eq!(errno(&unused.unwrap_err()), Some(Errno::INVAL));
}

#[tokio::test]
async fn only_block_devices_are_opened() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, [0; 512]).unwrap();
    let disks = disks();
    let absent = PathBuf::from("/dev/there-is-no-such-device");

    for path in [file.as_path(), Path::new("/dev/null")] {
        let refused = disks.open(path).await.err().unwrap();
        assert_eq!(errno(&refused), Some(Errno::NOTBLK), "{refused:?}");
        let refused = disks.is_claimed(path).await.unwrap_err();
        assert_eq!(errno(&refused), Some(Errno::NOTBLK), "{refused:?}");
    }
    assert_eq!(errno(&disks.open(&absent).await.err().unwrap()), Some(Errno::NOENT));
    assert_eq!(errno(&disks.is_claimed(&absent).await.unwrap_err()), Some(Errno::NOENT));
}
