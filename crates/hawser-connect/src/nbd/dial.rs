//! Connections to a server, each with its handshake.
//!
//! All of it blocks, on a worker and within a limit: looking up a name does in any case.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::data::{Place, Target};
use super::error::NbdError;
use super::handshake::{Export, Talk};
use super::links::Link;
use super::wire;
use crate::shared::error::AttachError;
use crate::shared::wait::Deadline;

/// How long one address of a server may take to answer.
const PROBE: Duration = Duration::from_secs(3);
/// How long a server may take for one whole handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// An idle connection that nobody answers is found dead after half a minute, not after two hours.
const KEEP_IDLE: Duration = Duration::from_secs(15);
const KEEP_INTERVAL: Duration = Duration::from_secs(5);
const KEEP_COUNT: u32 = 3;

/// Connections that are ready for the kernel.
pub(super) struct Dialled {
    pub(super) sockets: Vec<OwnedFd>,
    /// Those over TCP, by which they are found again.
    pub(super) links: Vec<Link>,
    pub(super) export: Export,
}

/// Makes this many connections, or one where the server allows no more.
pub(super) async fn links(
    target: &Target,
    count: usize,
    deadline: Deadline,
) -> Result<Dialled, NbdError> {
    let (socket, first, export) = on_worker(target, deadline, take).await?;
    let server = target.place.to_string();
    if export.size == 0 {
        return Err(NbdError::Empty { server, export: target.export.clone() });
    }
    let mut dialled = Dialled { sockets: vec![socket], links: Vec::from_iter(first), export };
    let many = if export.takes_many() { count } else { 1 };
    for _ in 1..many {
        let (socket, link, next) = on_worker(target, deadline, take).await?;
        if next != export {
            let (first, then) = (format!("{export:?}"), format!("{next:?}"));
            let export = target.export.clone();
            return Err(NbdError::Differs { server, export, first, then });
        }
        dialled.sockets.push(socket);
        dialled.links.extend(link);
    }
    Ok(dialled)
}

/// Asks about the export on a connection that is closed afterwards.
pub(super) async fn learn(target: &Target, deadline: Deadline) -> Result<Export, NbdError> {
    let learn = |target: &Target, line: Line| {
        Talk::new(line, &target.place.to_string(), &target.export).learn()
    };
    on_worker(target, deadline, learn).await
}

/// Shakes hands, and makes the connection what the kernel wants.
fn take(target: &Target, line: Line) -> Result<(OwnedFd, Option<Link>, Export), NbdError> {
    let server = target.place.to_string();
    let link = match &line.stream {
        Stream::Tcp(stream) => Some(Link::of(stream)),
        Stream::Unix(_) => None,
    };
    let (line, mut export) = Talk::new(line, &server, &target.export).take()?;
    // Flags of a server that sets none mean nothing.
    if export.flags & wire::HAS_FLAGS == 0 {
        export.flags = 0;
    }
    let ready = link.transpose().and_then(|link| Ok((line.into_socket()?, link)));
    let (socket, link) = ready.map_err(|source| NbdError::Talk { server, source })?;
    Ok((socket, link, export))
}

/// Dials and talks on a worker; answers at the limit, whatever a name server does.
async fn on_worker<T: Send + 'static>(
    target: &Target,
    deadline: Deadline,
    talk: impl Fn(&Target, Line) -> Result<T, NbdError> + Send + 'static,
) -> Result<T, NbdError> {
    let limit = deadline.within(HANDSHAKE).left();
    let late =
        || NbdError::from(AttachError::PortalTimeout { portal: target.place.to_string(), limit });
    let owned = target.clone();
    let work = move || {
        let end = Instant::now() + limit;
        let line = Line { stream: dial(&owned.place, end)?, end };
        talk(&owned, line)
    };
    match tokio::time::timeout(limit, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(Err(NbdError::Talk { source, .. }))) if is_late(&source) => Err(late()),
        Ok(Ok(done)) => done,
        Ok(Err(died)) => {
            let (server, source) = (target.place.to_string(), io::Error::other(died));
            Err(NbdError::Talk { server, source })
        }
        Err(_) => Err(late()),
    }
}

fn is_late(error: &io::Error) -> bool {
    [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut].contains(&error.kind())
}

fn dial(place: &Place, end: Instant) -> Result<Stream, NbdError> {
    let lost = |source| NbdError::Talk { server: place.to_string(), source };
    match place {
        Place::Tcp { host, port } => dial_tcp(place, host, *port, end).map(Stream::Tcp),
        Place::Unix { socket } => match dial_unix(socket, left(end).map_err(lost)?) {
            Ok(stream) => Ok(Stream::Unix(stream)),
            Err(error) => Err(unreached(place, &error)),
        },
    }
}

/// Tries every address of a name in turn.
fn dial_tcp(place: &Place, host: &str, port: u16, end: Instant) -> Result<TcpStream, NbdError> {
    let addresses: Vec<SocketAddr> = match (host, port).to_socket_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(error) => {
            let (target, why) = (place.to_string(), error.to_string());
            return Err(AttachError::Unreachable { target, why }.into());
        }
    };
    let mut last = io::Error::other("its name has no address");
    for address in addresses {
        let dialled = left(end)
            .and_then(|left| TcpStream::connect_timeout(&address, left.min(PROBE)))
            .and_then(|stream| tune(&stream).map(|()| stream));
        match dialled {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(unreached(place, &last))
}

fn unreached(place: &Place, error: &io::Error) -> NbdError {
    let portal = place.to_string();
    let error = if error.kind() == io::ErrorKind::ConnectionRefused {
        AttachError::PortalRefused { portal }
    } else if is_late(error) {
        AttachError::PortalTimeout { portal, limit: PROBE }
    } else {
        AttachError::Unreachable { target: portal, why: error.to_string() }
    };
    error.into()
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEP_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEP_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEP_COUNT)?;
    Ok(())
}

/// With a limit, as a server that is behind lets callers wait.
fn dial_unix(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection on which nothing lasts beyond its end.
struct Line {
    stream: Stream,
    end: Instant,
}

/// What is left until then; late when nothing is.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

impl Line {
    fn limit(&self, limit: Option<Duration>) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => {
                stream.set_read_timeout(limit)?;
                stream.set_write_timeout(limit)
            }
            Stream::Unix(stream) => {
                stream.set_read_timeout(limit)?;
                stream.set_write_timeout(limit)
            }
        }
    }

    /// Without limits, which the kernel would take for its own.
    fn into_socket(self) -> io::Result<OwnedFd> {
        self.limit(None)?;
        Ok(match self.stream {
            Stream::Tcp(stream) => stream.into(),
            Stream::Unix(stream) => stream.into(),
        })
    }
}

impl Read for Line {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.limit(Some(left(self.end)?))?;
        match &mut self.stream {
            Stream::Tcp(stream) => stream.read(bytes),
            Stream::Unix(stream) => stream.read(bytes),
        }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.limit(Some(left(self.end)?))?;
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
