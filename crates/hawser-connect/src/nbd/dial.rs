//! Connections to a server, each with its handshake.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream, lookup_host};

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
    let (socket, first, export) = link(target, deadline).await?;
    let server = target.place.to_string();
    if export.size == 0 {
        return Err(NbdError::Empty { server, export: target.export.clone() });
    }
    let mut dialled = Dialled { sockets: vec![socket], links: Vec::from_iter(first), export };
    let many = if export.takes_many() { count } else { 1 };
    for _ in 1..many {
        let (socket, link, next) = link(target, deadline).await?;
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
    let server = target.place.to_string();
    let work = async {
        match &target.place {
            Place::Tcp { host, port } => {
                let stream = dial_tcp(&server, host, *port).await?;
                Talk::new(stream, &server, &target.export).learn().await
            }
            Place::Unix { socket } => {
                let stream = dial_unix(&server, socket).await?;
                Talk::new(stream, &server, &target.export).learn().await
            }
        }
    };
    limited(&server, deadline, work).await
}

async fn link(
    target: &Target,
    deadline: Deadline,
) -> Result<(OwnedFd, Option<Link>, Export), NbdError> {
    let server = target.place.to_string();
    let lost = |source| NbdError::Talk { server: server.clone(), source };
    let work = async {
        match &target.place {
            Place::Tcp { host, port } => {
                let stream = dial_tcp(&server, host, *port).await?;
                let link = Link::of(&stream).map_err(lost)?;
                let (stream, export) = take(stream, &server, target).await?;
                // The kernel sleeps on its sockets, whatever their mode; ours is left as it was.
                let stream = stream.into_std().map_err(lost)?;
                stream.set_nonblocking(false).map_err(lost)?;
                Ok((OwnedFd::from(stream), Some(link), export))
            }
            Place::Unix { socket } => {
                let stream = dial_unix(&server, socket).await?;
                let (stream, export) = take(stream, &server, target).await?;
                let stream = stream.into_std().map_err(lost)?;
                stream.set_nonblocking(false).map_err(lost)?;
                Ok((OwnedFd::from(stream), None, export))
            }
        }
    };
    limited(&server, deadline, work).await
}

async fn take<S: AsyncRead + AsyncWrite + Unpin + Send>(
    stream: S,
    server: &str,
    target: &Target,
) -> Result<(S, Export), NbdError> {
    let (stream, mut export) = Talk::new(stream, server, &target.export).take().await?;
    // Flags of a server that sets none mean nothing.
    if export.flags & wire::HAS_FLAGS == 0 {
        export.flags = 0;
    }
    Ok((stream, export))
}

async fn limited<T>(
    server: &str,
    deadline: Deadline,
    work: impl Future<Output = Result<T, NbdError>>,
) -> Result<T, NbdError> {
    let limit = deadline.within(HANDSHAKE).left();
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => Err(AttachError::PortalTimeout { portal: server.into(), limit }.into()),
    }
}

/// Tries every address of a name in turn.
async fn dial_tcp(server: &str, host: &str, port: u16) -> Result<TcpStream, NbdError> {
    let unreachable =
        |why: String| AttachError::Unreachable { target: server.to_owned(), why }.into();
    let addresses: Vec<SocketAddr> = match lookup_host((host, port)).await {
        Ok(addresses) => addresses.collect(),
        Err(error) => return Err(unreachable(error.to_string())),
    };
    let mut last = unreachable("its name has no address".into());
    for address in addresses {
        match tokio::time::timeout(PROBE, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                let tuned = tune(&stream);
                tuned.map_err(|source| NbdError::Talk { server: server.into(), source })?;
                return Ok(stream);
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                last = AttachError::PortalRefused { portal: server.into() }.into();
            }
            Ok(Err(error)) => last = unreachable(error.to_string()),
            Err(_) => {
                last = AttachError::PortalTimeout { portal: server.into(), limit: PROBE }.into();
            }
        }
    }
    Err(last)
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = stream.as_fd();
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEP_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEP_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEP_COUNT)?;
    Ok(())
}

async fn dial_unix(server: &str, socket: &std::path::Path) -> Result<UnixStream, NbdError> {
    match UnixStream::connect(socket).await {
        Ok(stream) => Ok(stream),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            Err(AttachError::PortalRefused { portal: server.into() }.into())
        }
        Err(error) => {
            let (target, why) = (server.to_owned(), error.to_string());
            Err(AttachError::Unreachable { target, why }.into())
        }
    }
}
