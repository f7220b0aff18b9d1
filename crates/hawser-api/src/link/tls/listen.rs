//! Nodes that dial in from other machines.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hawser_core::Result;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::super::drive::sentence;
use super::super::error::LinkError;
use super::super::hub::Guest;
use super::super::listen::{PAUSE, Reception};
use super::super::serve::stopped;
use super::super::tasks::Tasks;
use super::certificate::NodeCertificate;
use super::doorway::{Doorway, Place};
use super::error::TlsError;
use super::files::{Material, Rotating, TlsFiles};

/// What keeps strangers, and too many nodes, from using up the control half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsLimits {
    /// For the TLS handshake.
    pub handshake: Duration,
    /// Connections in their handshake at the same time; the oldest makes room for the next.
    pub handshakes: usize,
    /// Connections that have shown a valid certificate; more are refused.
    pub connections: usize,
}

impl Default for TlsLimits {
    /// All nodes of a large cluster may come back at once; a connection that waits costs a few KiB.
    fn default() -> Self {
        Self { handshake: Duration::from_secs(10), handshakes: 1024, connections: 16384 }
    }
}

/// Where nodes of other machines dial in: bound, and not served yet.
pub struct TlsListener {
    listener: TcpListener,
    tls: Rotating<ServerConfig>,
    limits: TlsLimits,
}

impl TlsListener {
    /// Binds the address and reads the files. `Kind::Invalid` when they cannot be used,
    /// `Kind::Unavailable` when the address cannot.
    pub async fn bind(address: SocketAddr, files: TlsFiles) -> Result<Self> {
        let tls = Rotating::open(files, Material::into_server).await?;
        let listener = TcpListener::bind(address)
            .await
            .map_err(|source| TlsError::Listen { address, source })?;
        Ok(Self { listener, tls, limits: TlsLimits::default() })
    }

    /// The same with other limits.
    #[must_use]
    pub fn with_limits(mut self, limits: TlsLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Where it listens, with the port the system chose when 0 was asked for.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Takes in nodes until `shutdown` becomes true. Whoever shows no valid certificate is sent away
    /// before a single byte of it is read as a frame; a node must be one that its certificate names.
    pub async fn serve(self, reception: impl Into<Reception>, mut shutdown: watch::Receiver<bool>) {
        let Self { listener, tls, limits } = self;
        let places = Arc::new(Semaphore::new(limits.connections));
        let door = Arc::new(Door { tls, limits, places, reception: reception.into() });
        let doorway = Arc::new(Doorway::default());
        let refusals = Arc::new(Seldom::default());
        let tasks = Tasks::default();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stopped(&mut shutdown) => break,
            };
            match accepted {
                Ok((stream, from)) => {
                    let place = doorway.enter(limits.handshakes);
                    let (door, refusals) = (Arc::clone(&door), Arc::clone(&refusals));
                    let mut shutdown = shutdown.clone();
                    tasks.spawn(async move {
                        let entered = tokio::select! {
                            entered = door.let_in(stream, place) => entered,
                            () = stopped(&mut shutdown) => return,
                        };
                        match entered {
                            Ok(entered) => entered.stay().await,
                            Err(error) => refusals.tell(from, &error),
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "accepting on the node link");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        drop(listener);
        door.reception.hub.disconnect_all();
        tasks.join().await;
        door.reception.hub.finish_work().await;
    }
}

struct Door {
    tls: Rotating<ServerConfig>,
    limits: TlsLimits,
    places: Arc<Semaphore>,
    reception: Reception,
}

impl Door {
    /// From a connection of a stranger to that of somebody with a valid certificate.
    async fn let_in(
        self: Arc<Self>,
        stream: TcpStream,
        mut place: Place,
    ) -> Result<Entered, LinkError> {
        stream.set_nodelay(true).map_err(LinkError::Handshake)?;
        let handshake = async {
            let acceptor = TlsAcceptor::from(self.tls.current().await);
            acceptor.accept(stream).await
        };
        let shaken = tokio::select! {
            shaken = timeout(self.limits.handshake, handshake) => shaken,
            () = place.lost() => return Err(LinkError::Crowded),
        };
        let late = |_| std::io::Error::from(std::io::ErrorKind::TimedOut);
        let stream = shaken.map_err(late).flatten().map_err(LinkError::Handshake)?;
        let most = self.limits.connections;
        let room = Arc::clone(&self.places).try_acquire_owned();
        let room = room.map_err(|_| LinkError::Full { most })?;
        Ok(Entered { door: self, stream, _room: room })
    }
}

/// A peer with a valid certificate.
struct Entered {
    door: Arc<Door>,
    stream: TlsStream<TcpStream>,
    _room: OwnedSemaphorePermit,
}

impl Entered {
    /// Carries the link to its end.
    async fn stay(self) {
        let certificate = NodeCertificate::first_of(self.stream.get_ref().1.peer_certificates());
        let Reception { hub, upstream } = self.door.reception.clone();
        let carried = match certificate {
            Some(_) => hub.accept_guest(self.stream, Guest { certificate, upstream }).await,
            // The verifier lets nobody in without one; a guest without one could be any node.
            None => return,
        };
        if let Err(error) = carried {
            tracing::warn!(reason = %sentence(&error), "node link refused or lost");
        }
    }
}

/// Tells of strangers at most once in a while: whoever floods the door must not flood the log.
#[derive(Default)]
struct Seldom {
    last: Mutex<Option<(Instant, u64)>>,
}

/// How often refusals are told.
const ONCE_IN: Duration = Duration::from_secs(1);

impl Seldom {
    fn tell(&self, from: SocketAddr, error: &LinkError) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let more = match &mut *last {
            Some((when, more)) if when.elapsed() < ONCE_IN => {
                *more += 1;
                return;
            }
            Some((_, more)) => *more,
            None => 0,
        };
        *last = Some((Instant::now(), 0));
        drop(last);
        let reason = sentence(error);
        tracing::warn!(%from, %reason, untold = more, "a connection to the node link was refused");
    }
}
