//! Files and mounted file systems: copies, freezing, usage, groups.
//!
//! Follows ioctl_ficlone(2), copy_file_range(2), lseek(2) for holes, ioctl_fifreeze(2).

pub(crate) mod copy;
mod error;
pub(crate) mod freeze;
pub(crate) mod group;
pub(crate) mod look;
mod meter;
#[cfg(test)]
mod tests;
pub(crate) mod tree;
pub(crate) mod usage;

pub(crate) use meter::{Meter, with_progress};
