//! An iSCSI target in the guest's kernel, made by hand in configfs.
//!
//! ```no_run
//! use hawser_live::lab::guest::{initiator, lio};
//!
//! let disk = lio::Disk::new("data", 64);
//! let mut target = lio::Target::new("iqn.2004-10.com.example:t1");
//! target.add_portal("127.0.1.1:3260").add_portal("[::1]:3260");
//! target.add_lun(1, &disk).allow(&initiator()).chap("user", "twelve-letters");
//! target.enable();
//! ```
//!
//! A target that is dropped is gone with its sessions; a disk that is dropped is gone once no target
//! has it any more.

mod disk;
mod target;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

pub use disk::Disk;
pub use target::{Target, discovery_chap};

use super::modprobe;

const TOP: &str = "/sys/kernel/config/target";

/// The folder of the target subsystem, with its modules loaded.
#[track_caller]
fn top() -> PathBuf {
    // A loaded module is not looked for again: this is asked at every step.
    let fabric = Path::new(TOP).join("iscsi");
    if !fabric.exists() {
        modprobe(&["target_core_mod", "target_core_iblock", "iscsi_target_mod", "iscsi_tcp"]);
        make(&fabric);
    }
    PathBuf::from(TOP)
}

/// Makes a folder, which makes the kernel's object.
#[track_caller]
pub(in crate::lab::guest) fn make(path: &Path) {
    if let Err(error) = fs::create_dir_all(path) {
        panic!("making {}: {error}", path.display());
    }
}

/// Writes a value as it is: a line end would become part of a password.
#[track_caller]
pub(in crate::lab::guest) fn put(path: &Path, value: &str) {
    if let Err(error) = fs::write(path, value) {
        panic!("writing {value:?} to {}: {error}", path.display());
    }
}

/// Reads a value.
fn get(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim_end().to_owned()
}

/// Ties an object to another one.
#[track_caller]
pub(in crate::lab::guest) fn tie(object: &Path, link: &Path) {
    if let Err(error) = symlink(object, link) {
        panic!("linking {} to {}: {error}", link.display(), object.display());
    }
}

/// Removes an object; its own attributes need no removing, ties and inner objects do.
#[track_caller]
pub(in crate::lab::guest) fn remove(path: &Path) {
    let removed = if path.is_symlink() { fs::remove_file(path) } else { fs::remove_dir(path) };
    let Err(error) = removed else { return };
    let gone = error.kind() == std::io::ErrorKind::NotFound;
    // While a test fails its own message matters more than what is left.
    if !gone && !std::thread::panicking() {
        panic!("removing {}: {error}", path.display());
    }
}

/// The objects in a folder, not its attributes.
fn objects(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// The ties in a folder.
fn ties(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_symlink()).collect()
}
