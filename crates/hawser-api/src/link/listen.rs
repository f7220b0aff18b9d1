//! Accept loops for Unix sockets: nodes that dial in, and callers of the library socket.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use hawser_core::port::{Node, Upstream};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use super::drive::sentence;
use super::error::LinkError;
use super::hub::{Guest, Hub};
use super::serve::{serve_node, stopped};
use super::tasks::Tasks;

/// The wait after a failed accept: out of descriptors is the usual cause, and passes.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// What a control half gives to the nodes that dial in. A hub alone lists them and refuses their own
/// calls.
#[derive(Clone)]
pub struct Reception {
    /// Lists them.
    pub hub: Hub,
    /// Answers what they ask and tell.
    pub upstream: Option<Arc<dyn Upstream>>,
}

impl From<Hub> for Reception {
    fn from(hub: Hub) -> Self {
        Self { hub, upstream: None }
    }
}

/// Takes in nodes that dial a Unix socket, until `shutdown` becomes true. Only processes of the
/// `allowed` users are heard.
pub async fn listen_for_nodes(
    listener: UnixListener,
    reception: impl Into<Reception>,
    allowed: BTreeSet<u32>,
    shutdown: watch::Receiver<bool>,
) {
    let Reception { hub, upstream } = reception.into();
    let ending = hub.clone();
    let tasks = accept_loop(listener, allowed, shutdown, move |stream| {
        let guest = Guest { certificate: None, upstream: upstream.clone() };
        let hub = hub.clone();
        async move { hub.accept_guest(stream, guest).await }
    })
    .await;
    ending.disconnect_all();
    tasks.join().await;
    ending.finish_work().await;
}

/// Serves a node to programs that dial a Unix socket, until `shutdown` becomes true. Only processes
/// of the `allowed` users are heard.
pub async fn listen_for_callers(
    listener: UnixListener,
    node: Arc<dyn Node>,
    allowed: BTreeSet<u32>,
    shutdown: watch::Receiver<bool>,
) {
    let down = shutdown.clone();
    let tasks = accept_loop(listener, allowed, shutdown, move |stream| {
        serve_node(stream, Arc::clone(&node), down.clone())
    })
    .await;
    tasks.join().await;
}

async fn accept_loop<F>(
    listener: UnixListener,
    allowed: BTreeSet<u32>,
    mut shutdown: watch::Receiver<bool>,
    serve: impl Fn(UnixStream) -> F,
) -> Tasks
where
    F: Future<Output = Result<(), LinkError>> + Send + 'static,
{
    let tasks = Tasks::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut shutdown) => return tasks,
        };
        match accepted {
            Ok((stream, _)) => match stream.peer_cred() {
                Ok(peer) if allowed.contains(&peer.uid()) => {
                    let served = serve(stream);
                    tasks.spawn(async move {
                        if let Err(error) = served.await {
                            tracing::warn!(reason = %sentence(&error), "node link refused or lost");
                        }
                    });
                }
                Ok(peer) => tracing::warn!(uid = peer.uid(), "refused a user on the node link"),
                Err(error) => tracing::warn!(%error, "asking who dialled the node link"),
            },
            Err(error) => {
                tracing::warn!(%error, "accepting on the node link");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
