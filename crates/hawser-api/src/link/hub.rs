//! The control half's side: all nodes that are connected, by id.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use hawser_core::Result;
use hawser_core::name::NodeId;
use hawser_core::node::NodeRecord;
use hawser_core::port::{Node, Nodes, Upstream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::broadcast;

use super::behind::Behind;
use super::client::NodeClient;
use super::drive::{KeepAlive, Service, drive, handshake};
use super::error::LinkError;
use super::message::{Hello, Role};
use super::peer::{Peer, Stop};
use super::tasks::Tasks;
use super::tls::NodeCertificate;

/// How many changes a slow listener may lag behind before it has to read the ids again.
const CHANGES: usize = 256;

/// A node came or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeChange {
    /// It is connected now; said again when a newer connection takes over.
    Came(NodeId),
    /// It is no longer connected.
    Went(NodeId),
}

/// All connected nodes: those that dialled in, and those in this process.
///
/// Cheap to clone; all clones are the same hub.
#[derive(Clone)]
pub struct Hub {
    inner: Arc<Inner>,
}

struct Inner {
    nodes: Mutex<BTreeMap<NodeId, Entry>>,
    changes: broadcast::Sender<NodeChange>,
    keep_alive: KeepAlive,
    next_ticket: AtomicU64,
    /// What nodes asked for goes on when their link is lost.
    tasks: Tasks,
}

/// What is known of whoever dials in, and who answers it.
#[derive(Default)]
pub(super) struct Guest {
    /// Where it had to show one; a Unix socket asks for users instead, who may be any node.
    pub(super) certificate: Option<NodeCertificate>,
    /// Answers the calls of the node.
    pub(super) upstream: Option<Arc<dyn Upstream>>,
}

enum Entry {
    Local(Arc<dyn Node>),
    Remote(Remote),
}

struct Remote {
    client: Arc<NodeClient>,
    peer: Peer,
    boot_id: String,
    connection: u64,
    /// Tells a connection from the one that took its place.
    ticket: u64,
}

impl Default for Hub {
    fn default() -> Self {
        Self::new(KeepAlive::default())
    }
}

impl Hub {
    /// A hub without nodes.
    pub fn new(keep_alive: KeepAlive) -> Self {
        let inner = Inner {
            nodes: Mutex::new(BTreeMap::new()),
            changes: broadcast::Sender::new(CHANGES),
            keep_alive,
            next_ticket: AtomicU64::new(0),
            tasks: Tasks::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Registers a node that lives in this process; it takes the place of any other of that id.
    pub fn add_local(&self, id: NodeId, node: Arc<dyn Node>) {
        let before = self.inner.nodes().insert(id.clone(), Entry::Local(node));
        if let Some(Entry::Remote(remote)) = before {
            remote.peer.stop(Stop::Replaced);
        }
        self.inner.tell(NodeChange::Came(id));
    }

    /// Forgets a node of this process; one that dialled in stays.
    pub fn remove_local(&self, id: &NodeId) {
        let mut nodes = self.inner.nodes();
        if matches!(nodes.get(id), Some(Entry::Local(_))) {
            nodes.remove(id);
            drop(nodes);
            self.inner.tell(NodeChange::Went(id.clone()));
        }
    }

    /// Hears of nodes that come and go from now on. A listener that lags behind gets
    /// `RecvError::Lagged`, and reads [`Nodes::ids`] again.
    pub fn subscribe(&self) -> broadcast::Receiver<NodeChange> {
        self.inner.changes.subscribe()
    }

    /// Ends every link; nodes in this process stay.
    pub fn disconnect_all(&self) {
        for entry in self.inner.nodes().values() {
            if let Entry::Remote(remote) = entry {
                remote.peer.stop(Stop::Stopped);
            }
        }
    }

    /// Carries the link to the node at the other end of a stream, from its hello to its end; the
    /// node is in the list for exactly that long. Whoever accepts streams runs this as a task.
    ///
    /// Of two connections of one node id the newer one counts: another boot of the host, or a larger
    /// connection number. The error says why a peer was refused or lost; one that leaves is none.
    ///
    /// The peer is taken for whatever node it says it is, and its own calls are refused: listeners
    /// know better, see [`listen_for_nodes`](super::listen_for_nodes).
    pub async fn accept<S: AsyncRead + AsyncWrite>(&self, stream: S) -> Result<(), LinkError> {
        self.accept_guest(stream, Guest::default()).await
    }

    /// [`Hub::accept`] for a peer of whom more is known.
    pub(super) async fn accept_guest<S: AsyncRead + AsyncWrite>(
        &self,
        stream: S,
        guest: Guest,
    ) -> Result<(), LinkError> {
        let Guest { certificate, upstream } = guest;
        let mut registered = None;
        let check = |theirs: &Hello| {
            registered = Some(self.admit(theirs, certificate.as_ref())?);
            Ok(())
        };
        let (connection, _) = handshake(stream, &Hello::plain(Role::Control), check).await?;
        let Some((registration, peer, frames)) = registered else {
            return Err(LinkError::HelloMissing);
        };
        let behind = Behind::Control { upstream, node: registration.id.clone() };
        let service = Service {
            behind: Arc::new(behind),
            tasks: self.inner.tasks.clone(),
            keep_alive: Some(self.inner.keep_alive),
        };
        tracing::info!(node.id = %registration.id, "node connected");
        let error = drive(connection, &peer, frames, &service).await;
        tracing::info!(node.id = %registration.id, reason = %error, "node link ended");
        drop(registration);
        if error.is_departure() { Ok(()) } else { Err(error) }
    }

    /// Waits until what nodes asked for is done.
    pub(super) async fn finish_work(&self) {
        self.inner.tasks.join().await;
    }

    fn admit(
        &self,
        theirs: &Hello,
        certificate: Option<&NodeCertificate>,
    ) -> Result<Admitted, LinkError> {
        match theirs.role {
            Role::Node => {}
            Role::Control | Role::Caller => {
                return Err(LinkError::Role { ours: Role::Control, theirs: theirs.role });
            }
        }
        let record = theirs.node.as_ref().ok_or(LinkError::RecordMissing)?;
        if certificate.is_some_and(|certificate| !certificate.speaks_for(&record.id)) {
            return Err(LinkError::NotNamed { node: record.id.to_string() });
        }
        self.inner.register(record, theirs.connection).map(|(ticket, peer, frames)| {
            let registration =
                Registration { inner: Arc::clone(&self.inner), id: record.id.clone(), ticket };
            (registration, peer, frames)
        })
    }
}

type Frames = tokio::sync::mpsc::Receiver<Vec<u8>>;
type Admitted = (Registration, Peer, Frames);

impl Inner {
    fn nodes(&self) -> MutexGuard<'_, BTreeMap<NodeId, Entry>> {
        // No critical section can panic half-way.
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, change: NodeChange) {
        // Nobody listens: fine.
        let _ = self.changes.send(change);
    }

    fn register(
        &self,
        record: &NodeRecord,
        connection: u64,
    ) -> Result<(u64, Peer, Frames), LinkError> {
        let taken = |by| LinkError::Taken { node: record.id.to_string(), by };
        let mut nodes = self.nodes();
        match nodes.get(&record.id) {
            Some(Entry::Local(_)) => return Err(taken("a node in the server's own process")),
            // Of another boot there is nothing left, whatever its clock said.
            Some(Entry::Remote(old)) if old.boot_id != record.boot_id => {
                old.peer.stop(Stop::Replaced);
            }
            Some(Entry::Remote(old)) if old.connection < connection => {
                old.peer.stop(Stop::Replaced);
            }
            Some(Entry::Remote(_)) => return Err(taken("a newer connection")),
            None => {}
        }
        let ticket = self.next_ticket.fetch_add(1, Ordering::Relaxed);
        let (peer, frames) = Peer::new(format!("node {}", record.id));
        let remote = Remote {
            client: Arc::new(NodeClient::over(peer.clone())),
            peer: peer.clone(),
            boot_id: record.boot_id.clone(),
            connection,
            ticket,
        };
        nodes.insert(record.id.clone(), Entry::Remote(remote));
        drop(nodes);
        self.tell(NodeChange::Came(record.id.clone()));
        Ok((ticket, peer, frames))
    }
}

/// Keeps a connection in the list for as long as it is carried, also when its task is dropped.
struct Registration {
    inner: Arc<Inner>,
    id: NodeId,
    ticket: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut nodes = self.inner.nodes();
        let ours = matches!(
            nodes.get(&self.id),
            Some(Entry::Remote(remote)) if remote.ticket == self.ticket
        );
        if ours {
            nodes.remove(&self.id);
            drop(nodes);
            self.inner.tell(NodeChange::Went(self.id.clone()));
        }
    }
}

#[async_trait]
impl Nodes for Hub {
    async fn get(&self, id: &NodeId) -> Result<Arc<dyn Node>> {
        match self.inner.nodes().get(id) {
            Some(Entry::Local(node)) => Ok(Arc::clone(node)),
            Some(Entry::Remote(remote)) => Ok(Arc::clone(&remote.client) as Arc<dyn Node>),
            None => Err(LinkError::NotConnected { node: id.to_string() }.into()),
        }
    }

    async fn ids(&self) -> Result<Vec<NodeId>> {
        Ok(self.inner.nodes().keys().cloned().collect())
    }
}
