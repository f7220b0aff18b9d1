//! The guest is what the other suites take it for.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hawser_live::lab::guest::{self, Leftovers, cmd, lio, wait_for};

/// What the suites need of the kernel; some of it only newer or fuller kernels have.
const MODULES: &[&str] = &[
    "iscsi_tcp",
    "target_core_mod",
    "target_core_iblock",
    "iscsi_target_mod",
    "dm_multipath",
    "scsi_dh_alua",
    "nvme_tcp",
    "nvmet_tcp",
    "nvme_fc",
    "nvmet_fc",
    "nvme_fcloop",
    "nvme_rdma",
    "nvmet_rdma",
    "rdma_rxe",
    "ib_iser",
    "ib_isert",
    "fcoe",
    "tcm_fc",
    "nbd",
    "nfsd",
    "nfsv4",
    "cifs",
    "aoe",
    "drbd",
    "rbd",
    "dm_crypt",
    "dm_thin_pool",
    "fuse",
    "veth",
];

#[test]
fn the_kernel_has_every_module_that_the_suites_need() {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert!(release.starts_with("6.12."), "{release}");

    let missing: Vec<&&str> = MODULES
        .iter()
        .filter(|module| !cmd("modprobe").args(["--dry-run", module]).succeeds())
        .collect();

    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn modules_are_loaded_by_their_index() {
    guest::modprobe(&["nbd", "nvmet_tcp", "dm_multipath"]);

    for module in ["nbd", "nvmet_tcp", "dm_multipath"] {
        assert!(Path::new("/sys/module").join(module).is_dir(), "{module}");
    }
}

#[test]
fn the_program_that_is_tested_is_on_the_path() {
    let version = cmd("hawser").arg("--version").ok();

    assert!(version.starts_with("hawser "), "{version}");
}

#[test]
fn scratch_disks_are_writable_and_empty() {
    for disk in [1, 2] {
        let path = guest::scratch(disk);
        let size = cmd("blockdev").arg("--getsize64").arg(&path).ok();
        assert_eq!(size.trim(), (256 << 20).to_string());
        assert!(!cmd("blkid").arg("-p").arg(&path).succeeds(), "{} is in use", path.display());
    }
}

#[test]
fn an_iscsi_disk_gets_its_node_and_links_and_leaves_nothing() {
    let disk = lio::Disk::new("smoke", 64);
    let mut target = lio::Target::new("iqn.2004-10.com.example:smoke");
    target.add_portal("127.0.1.1:3260").add_lun(1, &disk).allow(&guest::initiator()).enable();
    let before = Leftovers::snapshot();
    let _iscsid = guest::iscsid();

    cmd("iscsiadm").args(["-m", "discovery", "-t", "st", "-p", "127.0.1.1"]).ok();
    cmd("iscsiadm").args(["-m", "node", "-T", target.iqn(), "--login"]).ok();
    let link = PathBuf::from(format!("/dev/disk/by-id/wwn-0x{}", &disk.wwid()[1..]));
    wait_for("link by its identity", Duration::from_secs(15), || link.exists().then_some(()));
    let text = "written through the initiator";
    cmd("dd").arg(format!("of={}", link.display())).arg("oflag=sync").input(text).ok();
    assert_eq!(disk.read(0, text.len()), text.as_bytes());

    cmd("iscsiadm").args(["-m", "node", "-T", target.iqn(), "--logout"]).ok();
    cmd("iscsiadm").args(["-m", "node", "-T", target.iqn(), "-o", "delete"]).ok();
    cmd("iscsiadm").args(["-m", "discoverydb", "-t", "st", "-p", "127.0.1.1", "-o", "delete"]).ok();
    before.assert_restored_within(Duration::from_secs(5));
}
