//! A socket of generic netlink: one request at a time, with its answer.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recvfrom, sendto,
    socket_with,
};

use super::message::{self, Answer, Attributes, attribute};

/// `GENL_ID_CTRL`: the family that knows the others.
const CONTROLLER: u16 = 16;
/// `CTRL_CMD_GETFAMILY`.
const GET_FAMILY: u8 = 3;
/// `CTRL_ATTR_FAMILY_ID`.
const FAMILY_ID: u16 = 1;
/// `CTRL_ATTR_FAMILY_NAME`.
const FAMILY_NAME: u16 = 2;
/// The kernel's own `NLMSG_GOODSIZE` is at most this; the description of a family is the longest.
const LARGEST: usize = 32 << 10;

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NetlinkError {
    /// The kernel has no such family: its module is not there.
    NoFamily(Errno),
    /// The kernel refused.
    Refused(Errno),
    /// The kernel took the request and did not answer.
    Late,
    /// The answer makes no sense.
    Nonsense(&'static str),
}

impl From<Errno> for NetlinkError {
    fn from(errno: Errno) -> Self {
        Self::Refused(errno)
    }
}

/// The socket.
pub(super) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
    deadline: Instant,
}

impl Netlink {
    pub(super) fn open(limit: Duration) -> Result<Self, NetlinkError> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(GENERIC))?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { socket, sequence: 0, deadline: Instant::now() + limit })
    }

    /// The number of a family.
    pub(super) fn family(&mut self, name: &str) -> Result<u16, NetlinkError> {
        let mut attributes = Attributes::default();
        attributes.text(FAMILY_NAME, name);
        let answers =
            self.ask(CONTROLLER, GET_FAMILY, &attributes).map_err(|error| match error {
                NetlinkError::Refused(Errno::NOENT) => NetlinkError::NoFamily(Errno::NOENT),
                other @ (NetlinkError::Refused(_)
                | NetlinkError::NoFamily(_)
                | NetlinkError::Late
                | NetlinkError::Nonsense(_)) => other,
            })?;
        let id = answers.iter().find_map(|answer| family_id(answer));
        id.ok_or(NetlinkError::Nonsense("a family without a number"))
    }

    /// Sends a request and collects what is answered until the kernel says that this was all.
    pub(super) fn ask(
        &mut self,
        family: u16,
        command: u8,
        attributes: &Attributes,
    ) -> Result<Vec<Vec<u8>>, NetlinkError> {
        self.sequence += 1;
        let request = message::request(family, self.sequence, command, attributes);
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, &request, SendFlags::empty(), &kernel)?;
        let mut payloads = Vec::new();
        let mut buffer = vec![0; LARGEST];
        loop {
            let datagram = self.receive(&mut buffer)?;
            if collect(datagram, self.sequence, &mut payloads)? {
                return Ok(payloads);
            }
        }
    }

    /// The next datagram of the kernel.
    fn receive<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a [u8], NetlinkError> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).map_err(|_| NetlinkError::Late)?;
            let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut polled, Some(&timeout)) {
                Ok(0) => return Err(NetlinkError::Late),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
            match recvfrom(&self.socket, &mut *buffer, flags) {
                // Only the kernel, port 0, is believed.
                Ok((_, length, Some(from)))
                    if SocketAddrNetlink::try_from(from.clone())
                        .is_ok_and(|from| from.pid() == 0) =>
                {
                    let datagram = buffer.get(..length);
                    return datagram.ok_or(NetlinkError::Nonsense("a message that is too long"));
                }
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Takes what one datagram answers to the request; true when that was all.
pub(super) fn collect(
    datagram: &[u8],
    sequence: u32,
    payloads: &mut Vec<Vec<u8>>,
) -> Result<bool, NetlinkError> {
    for answer in message::answers(datagram, sequence) {
        match answer {
            Some(Answer::End(end)) => return end.map(|()| true).map_err(NetlinkError::from),
            Some(Answer::Payload(payload)) => payloads.push(payload.to_vec()),
            Some(Answer::Other) => {}
            None => return Err(NetlinkError::Nonsense("a message that is none")),
        }
    }
    Ok(false)
}

/// The number in the description of a family.
pub(super) fn family_id(answer: &[u8]) -> Option<u16> {
    let (_, attributes) = message::generic(answer)?;
    attribute(attributes, FAMILY_ID)?.first_chunk().map(|id| u16::from_ne_bytes(*id))
}
