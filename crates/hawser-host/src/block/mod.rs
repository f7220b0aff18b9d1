//! Block devices: loop devices, sizes, and the file systems on them.
//!
//! Loop devices follow loop(4); the label (`lo_file_name`) carries our mark, so that a device is
//! found again by its file and mark, never by its number. Tools: `blkid`, e2fsprogs, xfsprogs,
//! btrfs-progs.

mod backing;
mod error;
pub(crate) mod fsck;
pub(crate) mod grow;
pub(crate) mod loop_device;
pub(crate) mod mkfs;
pub(crate) mod probe;
pub(crate) mod size;
#[cfg(test)]
mod tests;
pub(crate) mod unmounted;

pub(crate) use error::BlockError;
