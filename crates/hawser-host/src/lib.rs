//! Linux, behind the [`Host`](hawser_core::port::Host) port.
//!
//! [`LinuxHost`] runs programs, mounts, makes loop devices and file systems and copies files. What
//! may hang for ever runs on bounded workers; what waits for the kernel waits for its events. This
//! is the only crate that starts programs (in `exec`) and the only one with `unsafe` (in `sys`).

mod block;
mod errno;
mod exec;
mod facts;
mod files;
mod host;
mod kernel;
mod mount;
mod sys;
#[cfg(test)]
mod tests;
mod uevent;
mod workers;

pub use host::{HostSettings, LinuxHost};
pub use kernel::FileLocks;
