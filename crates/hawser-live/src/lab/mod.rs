//! The lab: real kernels, real targets, real initiators, in a guest that is thrown away.
//!
//! `host` builds the guest from Debian packages, boots it under QEMU and runs a test executable of
//! this crate in it; `guest` is what those tests are written with. Between the two there is a disk
//! that carries the files of a job, and two serial ports that carry its output and its end.
//! [`suites`] says what there is to run. How to use it: `docs/lab.md`.

pub mod guest;
pub mod host;
pub mod suites;
