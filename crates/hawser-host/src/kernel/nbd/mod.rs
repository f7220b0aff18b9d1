//! Network block devices, through generic netlink: family `nbd`, version 1 of
//! `linux/nbd-netlink.h`.
//!
//! The kernel does the work of a request while it is sent, so sending may take as long as the work,
//! and the answer is there when it returns.

mod message;
mod socket;
#[cfg(test)]
mod tests;

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use async_trait::async_trait;
use hawser_core::port::kernel::{KernelError, KernelResult, Nbd, NbdAttach};

use self::message::{Attributes, attribute};
use self::socket::{Netlink, NetlinkError};
use super::no_answer;
use crate::workers::Workers;

const FAMILY: &str = "nbd";

/// `NBD_CMD_*`.
mod command {
    pub(super) const CONNECT: u8 = 1;
    pub(super) const DISCONNECT: u8 = 2;
    pub(super) const RECONFIGURE: u8 = 3;
}

/// `NBD_ATTR_*`, and what is inside of a list of sockets.
mod attr {
    pub(super) const INDEX: u16 = 1;
    pub(super) const SIZE_BYTES: u16 = 2;
    pub(super) const BLOCK_SIZE_BYTES: u16 = 3;
    pub(super) const TIMEOUT: u16 = 4;
    pub(super) const SERVER_FLAGS: u16 = 5;
    pub(super) const SOCKETS: u16 = 7;
    pub(super) const DEAD_CONN_TIMEOUT: u16 = 8;
    pub(super) const BACKEND_IDENTIFIER: u16 = 10;
    pub(super) const SOCK_ITEM: u16 = 1;
    pub(super) const SOCK_FD: u16 = 1;
}

/// The NBD client of this machine's kernel.
#[derive(Debug)]
pub(crate) struct LinuxNbd {
    workers: Workers,
    limit: Duration,
}

impl LinuxNbd {
    pub(crate) fn new(workers: Workers, limit: Duration) -> Self {
        Self { workers, limit }
    }

    /// Sends one command and reads what of its answer is of use. The sockets named in it stay open
    /// until the kernel has them, also when nobody waits any more.
    async fn send<T: Send + 'static>(
        &self,
        attempt: String,
        command: u8,
        attributes: Attributes,
        sockets: Vec<OwnedFd>,
        read: impl FnOnce(&[Vec<u8>]) -> Option<T> + Send + 'static,
    ) -> KernelResult<T> {
        let limit = self.limit;
        let sent = self.workers.run("a request to the NBD driver", limit, move || {
            let answers = Netlink::open(limit).and_then(|mut netlink| {
                let family = netlink.family(FAMILY)?;
                netlink.ask(family, command, &attributes)
            });
            drop(sockets);
            answers.map(|answers| read(&answers))
        });
        match sent.await {
            Ok(Ok(Some(answer))) => Ok(answer),
            Ok(Ok(None)) => {
                let why = "it does not name the device".into();
                Err(KernelError::Nonsense { attempt, why })
            }
            Ok(Err(NetlinkError::NoFamily(source))) => {
                let attempt = format!("{attempt}: finding the NBD driver (modprobe nbd)");
                Err(KernelError::Refused { attempt, source: source.into() })
            }
            Ok(Err(NetlinkError::Refused(source))) => {
                Err(KernelError::Refused { attempt, source: source.into() })
            }
            Ok(Err(NetlinkError::Late)) => Err(KernelError::Late { attempt, limit }),
            Ok(Err(NetlinkError::Nonsense(why))) => {
                Err(KernelError::Nonsense { attempt, why: why.into() })
            }
            Err(error) => Err(no_answer(attempt, error)),
        }
    }
}

#[async_trait]
impl Nbd for LinuxNbd {
    async fn attach(&self, attach: NbdAttach) -> KernelResult<u32> {
        let attempt = format!("attaching an NBD device for {}", attach.backend);
        let attributes = connect_attributes(&attach);
        self.send(attempt, command::CONNECT, attributes, attach.sockets, |answers| {
            answers.iter().find_map(|answer| index(answer))
        })
        .await
    }

    async fn reconfigure(&self, index: u32, size: u64, sockets: Vec<OwnedFd>) -> KernelResult<()> {
        let attempt = format!("reconfiguring /dev/nbd{index} to {size} bytes");
        let mut attributes = Attributes::default();
        attributes.u32(attr::INDEX, index).u64(attr::SIZE_BYTES, size);
        if let Some(backend) = backend(index) {
            attributes.text(attr::BACKEND_IDENTIFIER, &backend);
        }
        put_sockets(&mut attributes, &sockets);
        self.send(attempt, command::RECONFIGURE, attributes, sockets, |_| Some(())).await
    }

    async fn detach(&self, index: u32) -> KernelResult<()> {
        let mut attributes = Attributes::default();
        attributes.u32(attr::INDEX, index);
        let attempt = format!("detaching /dev/nbd{index}");
        self.send(attempt, command::DISCONNECT, attributes, Vec::new(), |_| Some(())).await
    }
}

/// What a device was made with. The kernel refuses to change a device that has such a name unless
/// the name is repeated.
fn backend(index: u32) -> Option<String> {
    let text = std::fs::read_to_string(format!("/sys/block/nbd{index}/backend")).ok()?;
    Some(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}

/// Without an index, so that the kernel picks a free one in the same step.
fn connect_attributes(attach: &NbdAttach) -> Attributes {
    let mut attributes = Attributes::default();
    attributes
        .u64(attr::SIZE_BYTES, attach.size)
        .u64(attr::BLOCK_SIZE_BYTES, u64::from(attach.block_size))
        .u64(attr::TIMEOUT, seconds(attach.timeout))
        .u64(attr::SERVER_FLAGS, attach.server_flags)
        .u64(attr::DEAD_CONN_TIMEOUT, seconds(attach.dead_connection_timeout))
        .text(attr::BACKEND_IDENTIFIER, &attach.backend);
    put_sockets(&mut attributes, &attach.sockets);
    attributes
}

fn put_sockets(attributes: &mut Attributes, sockets: &[OwnedFd]) {
    if sockets.is_empty() {
        return;
    }
    attributes.nest(attr::SOCKETS, |list| {
        for socket in sockets {
            list.nest(attr::SOCK_ITEM, |item| {
                item.u32(attr::SOCK_FD, socket.as_raw_fd().cast_unsigned());
            });
        }
    });
}

/// Whole seconds, as the kernel counts; a part of one is a whole one, as zero means for ever.
fn seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// The number of the device in an answer to a connect.
fn index(answer: &[u8]) -> Option<u32> {
    let (header, attributes) = message::generic(answer)?;
    if header.command != command::CONNECT {
        return None;
    }
    attribute(attributes, attr::INDEX)?.first_chunk().map(|value| u32::from_ne_bytes(*value))
}
