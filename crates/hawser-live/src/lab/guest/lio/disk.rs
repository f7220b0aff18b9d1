//! What a LUN shows.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{make, put, remove, top};
use crate::lab::guest::cmd;

/// Numbers of back ends, and of serial numbers nobody chose.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// A disk that targets can show. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct Disk(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The folder of the back end.
    object: PathBuf,
    /// The block device behind it.
    device: PathBuf,
    /// The file behind the device, when we made it.
    file: Option<PathBuf>,
    serial: String,
}

impl Disk {
    /// A disk in memory, with a serial number of its own.
    #[track_caller]
    pub fn new(name: &str, mib: u64) -> Self {
        let serial = format!("1ab{:013x}", NEXT.fetch_add(1, Ordering::Relaxed));
        Self::with_serial(name, mib, &serial)
    }

    /// A disk in memory with this serial number: hexadecimal digits, of which 25 count.
    #[track_caller]
    pub fn with_serial(name: &str, mib: u64, serial: &str) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let file = PathBuf::from(format!("/tmp/lio-{name}-{number}.img"));
        let made = File::create_new(&file).and_then(|made| made.set_len(mib << 20));
        made.expect("a new file in memory");
        let device = cmd("losetup").args(["--find", "--show"]).arg(&file).ok();
        Self::make(name, number, Path::new(device.trim()), Some(file), serial)
    }

    /// A disk over a block device of the guest, such as [`crate::lab::guest::scratch`].
    #[track_caller]
    pub fn over(name: &str, device: &Path, serial: &str) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let device = device.canonicalize().expect("the device is there");
        Self::make(name, number, &device, None, serial)
    }

    #[track_caller]
    fn make(name: &str, number: u32, device: &Path, file: Option<PathBuf>, serial: &str) -> Self {
        // Where the target keeps registrations over a power cut, which Linux always asks for.
        let root = std::fs::read_to_string(top().join("dbroot")).expect("LIO tells its folder");
        let kept = Path::new(root.trim()).join("pr");
        std::fs::create_dir_all(kept).expect("a folder of the guest");
        let object = top().join(format!("core/iblock_{number}/{name}"));
        make(&object);
        put(&object.join("control"), &format!("udev_path={}", device.display()));
        put(&object.join("wwn/vpd_unit_serial"), serial);
        put(&object.join("enable"), "1");
        let device = device.to_owned();
        Self(Arc::new(Inner { object, device, file, serial: serial.to_owned() }))
    }

    /// The folder of the back end in configfs.
    pub(in crate::lab::guest) fn object(&self) -> &Path {
        &self.0.object
    }

    /// Its serial number.
    pub fn serial(&self) -> &str {
        &self.0.serial
    }

    /// What `scsi_id` and multipath name it by: the kernel's company id, then the serial number's
    /// digits, filled up with zeros.
    pub fn wwid(&self) -> String {
        let digits: String =
            self.0.serial.chars().filter(char::is_ascii_hexdigit).take(25).collect();
        format!("36001405{digits:0<25}").to_ascii_lowercase()
    }

    /// The block device behind it, on the target's side.
    pub fn device(&self) -> &Path {
        &self.0.device
    }

    /// Makes it larger. Initiators see that when they look again.
    #[track_caller]
    pub fn grow(&self, mib: u64) {
        let file = self.0.file.as_ref().expect("only disks in memory grow");
        let opened = OpenOptions::new().write(true).open(file);
        opened.and_then(|file| file.set_len(mib << 20)).expect("a file in memory grows");
        cmd("losetup").arg("-c").arg(&self.0.device).ok();
    }

    /// What is on it, seen from behind: past the initiator and the network.
    #[track_caller]
    pub fn read(&self, offset: u64, count: usize) -> Vec<u8> {
        let behind = self.0.file.as_ref().unwrap_or(&self.0.device);
        let mut bytes = vec![0; count];
        let file = File::open(behind).expect("what is behind the disk is there");
        file.read_exact_at(&mut bytes, offset).expect("it can be read");
        bytes
    }

    /// Changes an attribute of the back end, such as `emulate_tpu`.
    #[track_caller]
    pub fn set_attribute(&self, name: &str, value: &str) {
        put(&self.0.object.join("attrib").join(name), value);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        remove(&self.object);
        if let Some(adapter) = self.object.parent() {
            remove(adapter);
        }
        if let Some(file) = &self.file {
            // The loop device goes when its last user does.
            let _ = cmd("losetup").arg("-d").arg(&self.device).try_run();
            let _ = fs::remove_file(file);
        }
    }
}
