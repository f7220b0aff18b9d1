//! The SCSI layer, as every protocol that ends in it uses it: finding a disk by its address, asking
//! it who it is, scanning for it, taking it away.
//!
//! A transport knows which host, channel and target lead to its volume ([`Route`]); everything below
//! that is here. Nothing is looked up by a link of udev: links come late, stay too long, and may
//! lead to another disk.

mod address;
mod assemble;
mod disk;
mod grow;
mod identity;
mod keep;
mod names;
mod release;
mod route;
#[cfg(test)]
mod tests;
mod tries;
mod undo;
mod verdict;

pub(crate) use address::{Address, Addressing};
pub(crate) use assemble::Assemble;
pub(crate) use disk::{ScsiDisk, delete_at};
pub(crate) use grow::grow;
pub(crate) use identity::{fits_all, remembered_at, told};
pub(crate) use keep::used_alone;
pub(crate) use names::Names;
pub(crate) use release::Release;
pub(crate) use route::{Place, Route, appear, fresh};
pub(crate) use tries::{Path, Tries};
pub(crate) use undo::{TakeBack, is_wrong_volume};
pub(crate) use verdict::{Verdict, judge, refusal, refuse_reused};
