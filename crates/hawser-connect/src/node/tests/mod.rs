//! The node half over a fake host: each safety rule, each failure point, each place to be dropped.

mod again;
mod attach;
mod faults;
mod format;
mod freeze;
mod library;
mod mount;
mod raw;
mod rig;
mod survey;
mod usage;
