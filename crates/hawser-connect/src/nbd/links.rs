//! Connections that the kernel holds: which they are, whether they live, and how to end them.
//!
//! Once a device has its sockets, no program can reach them any more, and the kernel tells nothing
//! about them. A TCP socket has a cookie, though, that no other socket of this boot ever gets, and by
//! it `sock_diag(7)` finds it, tells its state and ends it. So the cookies of a device are noted.
//! There is nothing of the kind for Unix sockets.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use hawser_core::error::Result;
use hawser_core::port::Host;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, sendto, socket_with,
    sockopt,
};
use serde::{Deserialize, Serialize};

use super::data::Target;
use crate::shared::digest;

/// One connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Link {
    local: SocketAddr,
    remote: SocketAddr,
    cookie: u64,
}

impl Link {
    /// The connection of a socket.
    pub(super) fn of(stream: &TcpStream) -> io::Result<Self> {
        let (local, remote) = (stream.local_addr()?, stream.peer_addr()?);
        Ok(Self { local, remote, cookie: sockopt::socket_cookie(stream)? })
    }
}

/// What is noted about a device.
#[derive(Default, Serialize, Deserialize)]
struct Note {
    backend: String,
    links: Vec<Link>,
}

/// The connections of one device, as a file that goes with a reboot.
pub(super) struct Notes<'a> {
    host: &'a dyn Host,
    file: PathBuf,
    backend: String,
}

impl<'a> Notes<'a> {
    pub(super) fn of(host: &'a dyn Host, target: &Target) -> Self {
        let backend = target.backend();
        let name = digest::short(backend.as_bytes());
        let file = host.files().run_dir().join(format!("nbd-{name}.json"));
        Self { host, file, backend }
    }

    /// What is noted; nothing when there is no note, or one that cannot be read.
    pub(super) fn read(&self) -> Result<Vec<Link>> {
        let Some(bytes) = self.host.files().read(&self.file)? else { return Ok(Vec::new()) };
        let note: Note = serde_json::from_slice(&bytes).unwrap_or_default();
        Ok(if note.backend == self.backend { note.links } else { Vec::new() })
    }

    /// Written before the kernel gets the connections.
    pub(super) async fn write(&self, links: Vec<Link>) -> Result<()> {
        if links.is_empty() {
            return self.remove().await;
        }
        let note = Note { backend: self.backend.clone(), links };
        let bytes = serde_json::to_vec(&note).unwrap_or_default();
        Ok(self.host.files().store(&self.file, &bytes, 0o600).await?)
    }

    /// Removed after the device is gone.
    pub(super) async fn remove(&self) -> Result<()> {
        if self.host.files().read(&self.file)?.is_some() {
            self.host.files().remove(&self.file).await?;
        }
        Ok(())
    }
}

/// Which connections live; `None` when this kernel does not tell.
pub(super) async fn alive(links: Vec<Link>) -> Option<Vec<bool>> {
    let ask = move || -> io::Result<Vec<bool>> {
        links.iter().map(|link| query(link, FIND).map(|state| state == Some(ESTABLISHED))).collect()
    };
    tokio::task::spawn_blocking(ask).await.ok()?.ok()
}

/// Ends connections; those that have ended already count as ended.
pub(super) async fn end(links: Vec<Link>) -> io::Result<()> {
    let ask = move || links.iter().try_for_each(|link| query(link, DESTROY).map(drop));
    tokio::task::spawn_blocking(ask).await.unwrap_or_else(|died| Err(io::Error::other(died)))
}

/// `SOCK_DIAG_BY_FAMILY`.
const FIND: u16 = 20;
/// `SOCK_DESTROY`.
const DESTROY: u16 = 21;
/// `TCP_ESTABLISHED`.
const ESTABLISHED: u8 = 1;
/// `NLMSG_ERROR`.
const ERROR: u16 = 2;
/// The kernel negates its numbers, and has none beyond `MAX_ERRNO`.
const LEGAL_ERRORS: RangeInclusive<i32> = -4095..=-1;
/// `NLM_F_REQUEST | NLM_F_ACK`.
const FLAGS: u16 = 1 | 4;
/// `struct nlmsghdr`.
const HEADER: usize = 16;

/// Asks about one socket; `None` when it is gone.
fn query(link: &Link, what: u16) -> io::Result<Option<u8>> {
    let flags = SocketFlags::CLOEXEC;
    let netlink = AddressFamily::NETLINK;
    let socket = socket_with(netlink, SocketType::RAW, flags, Some(SOCK_DIAG))?;
    bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    // The kernel answers while it is asked: nothing is waited for here.
    let request = request(link, what);
    sendto(&socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; 4096];
    let (_, length) = recv(&socket, &mut answer, RecvFlags::DONTWAIT)?;
    parse(answer.get(..length).unwrap_or(&answer))
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
fn request(link: &Link, what: u16) -> Vec<u8> {
    let family = match link.local.ip() {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let mut body = vec![u8::try_from(family.as_raw()).unwrap_or_default()];
    // IPPROTO_TCP, nothing beyond the state, in any state.
    body.extend([6, 0, 0]);
    body.extend(u32::MAX.to_ne_bytes());
    body.extend(link.local.port().to_be_bytes());
    body.extend(link.remote.port().to_be_bytes());
    body.extend(address(link.local.ip()));
    body.extend(address(link.remote.ip()));
    body.extend(scope(&link.remote).to_ne_bytes());
    body.extend((link.cookie as u32).to_ne_bytes());
    body.extend(((link.cookie >> 32) as u32).to_ne_bytes());
    let length = HEADER + body.len();
    let mut message = (length as u32).to_ne_bytes().to_vec();
    message.extend(what.to_ne_bytes());
    message.extend(FLAGS.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// The interface, which belongs to a link-local address.
fn scope(address: &SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    }
}

fn address(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            bytes
        }
        IpAddr::V6(address) => address.octets(),
    }
}

/// Reads the first message of an answer: a state, an error number, or that all is well.
fn parse(answer: &[u8]) -> io::Result<Option<u8>> {
    let nonsense = || io::Error::other("the kernel's answer about a socket makes no sense");
    let kind = answer.get(4..6).and_then(|bytes| bytes.first_chunk()).ok_or_else(nonsense)?;
    let body = answer.get(HEADER..).ok_or_else(nonsense)?;
    if u16::from_ne_bytes(*kind) != ERROR {
        // `struct inet_diag_msg`: the family, then the state.
        return body.get(1).copied().map(Some).ok_or_else(nonsense);
    }
    let error = i32::from_ne_bytes(*body.first_chunk().ok_or_else(nonsense)?);
    let gone = [rustix::io::Errno::NOENT, rustix::io::Errno::STALE].map(|e| -e.raw_os_error());
    match error {
        0 => Ok(None),
        error if gone.contains(&error) => Ok(None),
        error if LEGAL_ERRORS.contains(&error) => Err(io::Error::from_raw_os_error(-error)),
        _ => Err(nonsense()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[tokio::test]
    async fn a_connection_is_seen_alive_and_only_the_right_one_is_ended() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = std::net::TcpListener::bind(address) else { continue };
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let link = Link::of(&stream).unwrap();
            let Some(state) = alive(vec![link]).await else {
                hawser_testkit::skip("this kernel has no sock_diag for TCP");
                return;
            };
            assert_eq!(state, [true]);
            let other = Link { cookie: link.cookie + 1, ..link };
            assert_eq!(alive(vec![other]).await, Some(vec![false]));
            end(vec![other]).await.unwrap();
            assert_eq!(alive(vec![link]).await, Some(vec![true]), "another cookie, another socket");

            match end(vec![link]).await {
                Ok(()) => assert_eq!(alive(vec![link]).await, Some(vec![false])),
                Err(error) => {
                    // Needs CAP_NET_ADMIN, and a kernel that was built for it.
                    hawser_testkit::skip(format!("sockets cannot be ended here: {error}"));
                }
            }
        }
    }

    #[test]
    fn an_error_number_that_no_kernel_has_is_not_passed_on() {
        let answer = |error: i32| {
            let head = [&[36, 0, 0, 0][..], &ERROR.to_ne_bytes(), &[0; 10]].concat();
            parse(&[&head[..], &error.to_ne_bytes()].concat()).map_err(|e| e.raw_os_error())
        };

        for error in [1, -4096, i32::MIN] {
            assert_eq!(answer(error), Err(None), "{error}");
        }
        assert_eq!(answer(-95), Err(Some(95)));
        assert_eq!(answer(0), Ok(None));
    }

    proptest! {
        #[test]
        fn any_answer_is_read_or_refused(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }

    hawser_testkit::fuzz_corpus!(corpus, "sock_diag", |bytes| {
        let _ = parse(bytes);
    });
}
