//! The SCSI layer, as every protocol that ends in it uses it: finding a disk by its address, asking
//! it who it is, scanning for it, taking it away.
//!
//! A transport knows which host, channel and target lead to its volume ([`Route`]); everything below
//! that is here. Nothing is looked up by a link of udev: links come late, stay too long, and may
//! lead to another disk.

mod address;
mod disk;
mod identity;
mod names;
mod route;
#[cfg(test)]
mod tests;

pub(crate) use address::{Address, Addressing};
pub(crate) use disk::ScsiDisk;
pub(crate) use identity::{check, told};
pub(crate) use names::Names;
pub(crate) use route::{Place, Route, appear, fresh};
