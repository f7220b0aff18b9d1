//! Runs the API on its listeners until it is told to stop.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures_util::StreamExt;
use hawser_core::event::EventKind;
use hawser_core::id::OperationId;
use hawser_core::{Error, Result};
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::UCred;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;
use tracing::{debug, warn};

use super::access::Peer;
use super::listen::{Listener, Socket};
use super::stall::Stall;
use super::{Api, application};
use crate::shared::{SocketFile, is_trusted};

/// What keeps callers from using up the server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at the same time; more wait in the kernel's queue.
    pub connections: usize,
    /// For the head of a request, from the moment the connection waits for it; so also the longest
    /// time that a connection may be idle.
    pub header: Duration,
    /// For a caller that does not read its answer.
    pub stall: Duration,
    /// For requests that are at work when the server is told to stop.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            header: Duration::from_secs(30),
            stall: Duration::from_secs(60),
            grace: Duration::from_secs(5),
        }
    }
}

/// Serves until `shutdown` is done, then lets requests at work finish within [`Limits::grace`].
///
/// Work that is cut off goes on in the engine or is recovered at the next start. `Kind::Unavailable`
/// when a listener cannot be used.
pub async fn serve(
    listeners: Vec<Listener>,
    api: Api,
    limits: Limits,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<()> {
    let server = Arc::new(Server {
        router: application(&api),
        places: Arc::new(Semaphore::new(limits.connections)),
        limits,
        api: api.clone(),
    });
    let doors = listeners.into_iter().map(Door::open).collect::<Result<Vec<_>>>()?;
    let mut tasks = JoinSet::new();
    for door in doors {
        tasks.spawn(server.clone().run(door));
    }
    tasks.spawn(count_operations(api.clone()));

    shutdown.await;
    api.0.closing.send_replace(true);
    let all_done = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(limits.grace, all_done).await.is_err() {
        debug!("requests were still at work at the end of the grace period");
    }
    tasks.shutdown().await;
    Ok(())
}

/// A listener on the runtime.
enum Door {
    Unix { listener: UnixListener, group: Option<u32>, own: u32, _file: SocketFile },
    Tcp { listener: TcpListener, peer: Peer, tls: Option<TlsAcceptor> },
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A connection before TLS.
struct Visitor {
    stream: Box<dyn Stream>,
    who: Who,
    tls: Option<TlsAcceptor>,
}

/// A caller who may still have to be judged.
enum Who {
    Local { who: UCred, own: u32, group: Option<u32> },
    Remote(Peer),
}

impl Door {
    fn open(Listener(socket): Listener) -> Result<Self> {
        let broken = |source| Error::from_source(hawser_core::Kind::Unavailable, source);
        match socket {
            Socket::Unix { listener, group, file } => Ok(Self::Unix {
                listener: UnixListener::from_std(listener).map_err(broken)?,
                group,
                own: rustix::process::geteuid().as_raw(),
                _file: file,
            }),
            Socket::Tcp { listener, token, tls } => {
                let listener = TcpListener::from_std(listener).map_err(broken)?;
                Ok(Self::Tcp { listener, peer: Peer::Remote(token), tls })
            }
        }
    }

    /// The next connection. It waits for nothing else: whoever gives up waiting for it would lose a
    /// connection that was accepted.
    async fn accept(&self) -> io::Result<Visitor> {
        match self {
            Self::Unix { listener, group, own, .. } => {
                let (stream, _) = listener.accept().await?;
                let who = Who::Local { who: stream.peer_cred()?, own: *own, group: *group };
                Ok(Visitor { stream: Box::new(stream), who, tls: None })
            }
            Self::Tcp { listener, peer, tls } => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                let (who, tls) = (Who::Remote(peer.clone()), tls.clone());
                Ok(Visitor { stream: Box::new(stream), who, tls })
            }
        }
    }
}

impl Who {
    /// Says who a caller is.
    async fn judged(self) -> Peer {
        match self {
            Self::Remote(peer) => peer,
            Self::Local { who, own, group } => match is_trusted(&who, own, group).await {
                true => Peer::Trusted,
                false => Peer::Stranger { uid: who.uid() },
            },
        }
    }
}

struct Server {
    router: Router,
    places: Arc<Semaphore>,
    limits: Limits,
    api: Api,
}

impl Server {
    /// Accepts on one door, and owns its connections.
    async fn run(self: Arc<Self>, door: Door) {
        let mut connections = JoinSet::new();
        let mut closed = pin!(self.api.closed());
        loop {
            tokio::select! {
                () = closed.as_mut() => break,
                accepted = self.next(&door) => match accepted {
                    Ok((visitor, place)) => {
                        connections.spawn(self.clone().attend(visitor, place));
                    }
                    Err(error) => {
                        // Out of descriptors, or a caller that left at once.
                        warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
        drop(door);
        while connections.join_next().await.is_some() {}
    }

    async fn next(&self, door: &Door) -> io::Result<(Visitor, OwnedSemaphorePermit)> {
        let place = self.places.clone().acquire_owned().await.map_err(io::Error::other)?;
        Ok((door.accept().await?, place))
    }

    async fn attend(self: Arc<Self>, visitor: Visitor, _place: OwnedSemaphorePermit) {
        let Visitor { stream, who, tls } = visitor;
        let peer = who.judged().await;
        let stream: Box<dyn Stream> = match tls {
            None => stream,
            Some(acceptor) => {
                let hello = tokio::time::timeout(self.limits.header, acceptor.accept(stream));
                match hello.await {
                    Ok(Ok(stream)) => Box::new(stream),
                    Ok(Err(error)) => return debug!(%error, "no TLS with a caller"),
                    Err(_) => return debug!("a caller did not finish the TLS handshake"),
                }
            }
        };
        let service = service_fn(|mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer.clone());
            self.router.clone().oneshot(request.map(Body::new))
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.header)
            .max_header_size(LARGEST_HEAD)
            .serve_connection(TokioIo::new(Stall::new(stream, self.limits.stall)), service);
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.api.closed() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            debug!(%error, "a connection ended early");
        }
    }
}

/// Far above any honest request: a path, a token and a few headers.
const LARGEST_HEAD: usize = 64 << 10;

/// Counts operations as they end. Events that were missed are not counted; the lists have them.
async fn count_operations(api: Api) {
    let follow = async {
        loop {
            if let Ok(mut events) = api.control().events(None).await {
                while let Some(event) = events.next().await {
                    if event.kind == EventKind::OperationFinished {
                        count_operation(&api, &event.subject).await;
                    }
                }
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = follow => {}
        () = api.closed() => {}
    }
}

async fn count_operation(api: &Api, subject: &str) {
    let Ok(id) = subject.parse::<OperationId>() else { return };
    if let Ok(operation) = api.control().get_operation(&id, Duration::ZERO).await {
        api.0.metrics.count_operation(operation.kind, operation.state);
    }
}
