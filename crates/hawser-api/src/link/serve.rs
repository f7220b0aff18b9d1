//! The node's side of a link: answers the calls of whoever is at the other end.

use std::sync::Arc;

use hawser_core::port::Node;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::behind::Behind;
use super::drive::{KeepAlive, Service, drive, handshake};
use super::error::LinkError;
use super::message::{Hello, Role};
use super::peer::{Peer, Stop};
use super::tasks::Tasks;
use super::uplink::Uplink;

/// Resolves when shut-down is wanted: the value is true, or nobody is left to say so.
pub(super) async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    let _ = shutdown.wait_for(|stop| *stop).await;
}

/// Answers calls of every method of [`Node`] that come over a stream, until the other side leaves or
/// `shutdown` becomes true; then waits until the work that was begun is done.
///
/// Serves a control half and any number of callers alike, one stream each; who opened the stream
/// does not matter. The error says why a peer could not be served; one that simply leaves is none.
pub async fn serve_node<S: AsyncRead + AsyncWrite>(
    stream: S,
    node: Arc<dyn Node>,
    shutdown: watch::Receiver<bool>,
) -> Result<(), LinkError> {
    let tasks = Tasks::default();
    let session = Session {
        node,
        tasks: tasks.clone(),
        keep_alive: KeepAlive::default(),
        uplink: Uplink::default(),
    };
    let ended = session.run(stream, 0, shutdown).await;
    tasks.join().await;
    match ended {
        Ended::Never(error) | Ended::After(error) if error.is_departure() => Ok(()),
        Ended::Never(error) | Ended::After(error) => Err(error),
    }
}

/// How a connection of a node ended.
pub(super) enum Ended {
    /// Before both had said hello.
    Never(LinkError),
    /// After it had been in use.
    After(LinkError),
}

/// What every connection of one node shares.
pub(super) struct Session {
    pub(super) node: Arc<dyn Node>,
    pub(super) tasks: Tasks,
    pub(super) keep_alive: KeepAlive,
    /// Where calls of the node itself go, while a control half is at the other end.
    pub(super) uplink: Uplink,
}

impl Session {
    /// Serves one stream to its end. The work that it began goes on in `tasks`.
    pub(super) async fn run<S: AsyncRead + AsyncWrite>(
        &self,
        stream: S,
        connection: u64,
        mut shutdown: watch::Receiver<bool>,
    ) -> Ended {
        let record = match self.node.describe().await {
            Ok(record) => record,
            Err(error) => return Ended::Never(LinkError::Refused { reason: error.sentence() }),
        };
        let hello = Hello::of_node(record, connection);
        let check = |theirs: &Hello| match theirs.role {
            Role::Control | Role::Caller => Ok(()),
            Role::Node => Err(LinkError::Role { ours: Role::Node, theirs: Role::Node }),
        };
        let (stream, theirs) = tokio::select! {
            met = handshake(stream, &hello, check) => match met {
                Ok(met) => met,
                Err(error) => return Ended::Never(error),
            },
            () = stopped(&mut shutdown) => return Ended::Never(LinkError::Stopped),
        };
        let (keep_alive, label) = match theirs.role {
            Role::Control => (Some(self.keep_alive), "the control half"),
            Role::Caller | Role::Node => (None, "the caller"),
        };
        let behind = Arc::new(Behind::Node(Arc::clone(&self.node)));
        let service = Service { behind, tasks: self.tasks.clone(), keep_alive };
        let (peer, frames) = Peer::new(label);
        let stop = async {
            stopped(&mut shutdown).await;
            peer.stop(Stop::Stopped);
            std::future::pending::<()>().await;
        };
        let _raised = keep_alive.is_some().then(|| self.uplink.raise(&peer));
        tokio::select! {
            error = drive(stream, &peer, frames, &service) => Ended::After(error),
            () = stop => Ended::After(LinkError::Stopped),
        }
    }
}
