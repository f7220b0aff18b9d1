//! SCSI disks of the kernel's own target, without a network: one disk in memory behind as many SCSI
//! hosts as a test wants, each an initiator of its own.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use hawser_live::lab::guest::{cmd, modprobe, settle, wait_for};

use crate::LIMIT;

const TOP: &str = "/sys/kernel/config/target";
/// 4 KiB each.
const PAGES: u32 = 4096;

static NEXT: AtomicU32 = AtomicU32::new(1);

/// One disk, seen through several hosts; gone when dropped.
pub(crate) struct Shared {
    backend: PathBuf,
    groups: Vec<PathBuf>,
    nodes: Vec<PathBuf>,
    serial: String,
}

impl Shared {
    /// A disk of 16 MiB behind this many hosts.
    #[track_caller]
    pub(crate) fn new(hosts: u32) -> Self {
        modprobe(&["target_core_mod", "tcm_loop", "sd_mod", "sg"]);
        keep_registrations();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let backend = Path::new(TOP).join(format!("core/rd_mcp_{number}/kernel"));
        let serial = format!("5eed{number:012x}");
        fs::create_dir_all(&backend).expect("a disk in memory");
        put(&backend.join("control"), &format!("rd_pages={PAGES}"));
        put(&backend.join("wwn/vpd_unit_serial"), &serial);
        put(&backend.join("enable"), "1");
        let mut shared = Self { backend, groups: Vec::new(), nodes: Vec::new(), serial };
        for host in 1..=hosts {
            shared.add_host(number * 16 + host);
        }
        settle();
        shared
    }

    #[track_caller]
    fn add_host(&mut self, number: u32) {
        let name = |kind: u32| format!("naa.5001405{:09x}", kind << 16 | number);
        let group = Path::new(TOP).join("loopback").join(name(1)).join("tpgt_1");
        fs::create_dir_all(&group).expect("a SCSI host");
        put(&group.join("nexus"), &name(2));
        fs::create_dir(group.join("lun/lun_0")).expect("a LUN");
        symlink(&self.backend, group.join("lun/lun_0/disk")).expect("the disk behind it");
        let address = fs::read_to_string(group.join("address")).expect("its address");
        let block = format!("/sys/class/scsi_device/{}:0/device/block", address.trim());
        let name = wait_for("block device", LIMIT, || {
            let mut entries = fs::read_dir(&block).ok()?;
            Some(entries.next()?.ok()?.file_name())
        });
        let node = Path::new("/dev").join(name);
        wait_for("node", LIMIT, || node.exists().then_some(()));
        self.groups.push(group);
        self.nodes.push(node);
    }

    /// The disk through the first host, the second, and so on.
    pub(crate) fn node(&self, host: usize) -> &Path {
        &self.nodes[host]
    }

    /// Its serial number.
    pub(crate) fn serial(&self) -> &str {
        &self.serial
    }

    /// What multipath names it by.
    pub(crate) fn wwid(&self) -> String {
        format!("36001405{:0<25}", self.serial)
    }

    /// A file of the SCSI device behind a node, in sysfs.
    #[track_caller]
    pub(crate) fn sysfs(&self, host: usize, file: &str) -> Vec<u8> {
        let name = self.nodes[host].file_name().expect("a node has a name");
        let path = Path::new("/sys/block").join(name).join("device").join(file);
        fs::read(&path).unwrap_or_else(|error| panic!("reading {}: {error}", path.display()))
    }

    /// Takes one path down (`offline`) or up (`running`), as the kernel does when its transport is
    /// lost.
    #[track_caller]
    pub(crate) fn set_state(&self, host: usize, state: &str) {
        let name = self.nodes[host].file_name().expect("a node has a name");
        put(&Path::new("/sys/block").join(name).join("device/state"), &format!("{state}\n"));
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        settle();
        for group in &self.groups {
            let _ = fs::remove_file(group.join("lun/lun_0/disk"));
            let _ = fs::remove_dir(group.join("lun/lun_0"));
            let _ = fs::write(group.join("nexus"), "NULL");
            let _ = fs::remove_dir(group);
            let _ = group.parent().map(fs::remove_dir);
        }
        let _ = fs::remove_dir(&self.backend);
        let _ = self.backend.parent().map(fs::remove_dir);
        if !std::thread::panicking() {
            assert!(!self.backend.exists(), "{} is still in use", self.backend.display());
        }
    }
}

/// The kernel asks for registrations that outlive a restart of the target, which needs a folder to
/// keep them in.
#[track_caller]
pub(crate) fn keep_registrations() {
    let base = fs::read_to_string(Path::new(TOP).join("dbroot")).expect("the target is loaded");
    fs::create_dir_all(Path::new(base.trim()).join("pr")).expect("a folder of the target");
}

#[track_caller]
fn put(path: &Path, value: &str) {
    if let Err(error) = fs::write(path, value) {
        panic!("writing {value:?} to {}: {error}", path.display());
    }
}

/// Writes one block past the cache, as an initiator would; false when the disk refuses.
pub(crate) fn can_write(node: &Path) -> bool {
    let dd = cmd("dd").args(["if=/dev/zero", "bs=4k", "count=1", "oflag=direct", "conv=notrunc"]);
    dd.arg(format!("of={}", node.display())).succeeds()
}
