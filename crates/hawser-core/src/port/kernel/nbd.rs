//! Network block devices, through the kernel's netlink interface.

use std::os::fd::OwnedFd;
use std::time::Duration;

use async_trait::async_trait;

use super::KernelResult;

/// The kernel's NBD client. Sockets come with the handshake done.
#[async_trait]
pub trait Nbd: Send + Sync {
    /// Makes a device; the kernel picks its number, so two attaches cannot take the same one.
    async fn attach(&self, attach: NbdAttach) -> KernelResult<u32>;

    /// Tells a device a new size, and gives it new connections in the place of dead ones where
    /// there are any. The kernel refuses this (`EINVAL`) without the backend that the device was
    /// made with: the implementation reads it in sysfs (`/sys/block/nbdN/backend`) and sends it.
    async fn reconfigure(&self, index: u32, size: u64, sockets: Vec<OwnedFd>) -> KernelResult<()>;

    /// Takes a device away, also when it is open; the caller has made sure that it is not.
    async fn detach(&self, index: u32) -> KernelResult<()>;
}

/// A device to make.
#[derive(Debug)]
pub struct NbdAttach {
    /// One per connection.
    pub sockets: Vec<OwnedFd>,
    /// In bytes.
    pub size: u64,
    /// In bytes.
    pub block_size: u32,
    /// The transmission flags that the server sent.
    pub server_flags: u64,
    /// How long a request may take; zero: for ever.
    pub timeout: Duration,
    /// How long a device without a connection waits for a new one.
    pub dead_connection_timeout: Duration,
    /// What is found again in sysfs as `backend`.
    pub backend: String,
}
