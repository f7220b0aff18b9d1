//! The daemons: `up` (everything here), `serve` (the control half), `node` (the node half).

use std::collections::BTreeSet;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixSocket};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use hawser_api::Endpoint;
use hawser_api::link::{
    DialOptions, NodeChange, Reception, TlsListener, dial, listen_for_callers, listen_for_nodes,
};
use hawser_core::error::{Error, Kind, Result, ResultExt};
use hawser_core::name::NodeId;
use hawser_core::port::{Node, Upstream};
use hawser_core::secret::Secret;
use hawser_engine::control::Engine;
use hawser_front::rest::{Api, Limits, Listener, Tls, serve as serve_rest};

use crate::assemble::{self, Server, Storage};
use crate::settings::Settings;

/// How long running operations may take to end when the server stops; the rest is taken up at the
/// next start.
const GRACE: Duration = Duration::from_secs(10);

/// Where nodes on this machine dial in, beside the socket of the REST API.
const LINK_SOCKET: &str = "node.sock";

/// Callers that wait until they are taken in.
const BACKLOG: u32 = 128;

/// The socket to dial: that of the server that was named, else that of the state folder.
pub(crate) fn link_socket(server: Option<&Endpoint>, state_dir: &Path) -> Result<PathBuf> {
    match server {
        None => Ok(state_dir.join(LINK_SOCKET)),
        // People name the socket that all other commands use.
        Some(Endpoint::Unix(path)) => Ok(path.with_file_name(LINK_SOCKET)),
        Some(Endpoint::Http(..) | Endpoint::Https(..)) => Err(Error::new(
            Kind::Unsupported,
            "a node dials a server on its own machine only: give --server unix:PATH",
        )),
    }
}

/// Runs the control half, with this machine as a node where `with_node` says so.
pub(crate) async fn server(settings: Settings, with_node: bool) -> Result<()> {
    let host = assemble::host(&settings.state_dir).await?;
    let server = assemble::server(&settings, &host, &Storage::Here).await?;
    if with_node {
        let id = settings.node_id.as_ref();
        let (id, half) = assemble::node(&settings.state_dir, id, &host, Vec::new()).await?;
        server.hub.add_local(id, half);
    }
    let listeners = listeners(&settings)?;
    let running = Running::start(server, &settings).await?;
    announce(&settings, with_node);
    let served = running.serve_rest(listeners, asked_to_stop()).await;
    info!("stopping");
    running.stop().await;
    served
}

/// The control half at work, and the ways on which nodes dial in.
pub(crate) struct Running {
    pub(crate) engine: Arc<Engine>,
    stop: watch::Sender<bool>,
    doors: Vec<JoinHandle<()>>,
    watcher: JoinHandle<()>,
}

impl Running {
    /// Takes up what an earlier run left, and opens the doors.
    pub(crate) async fn start(server: Server, settings: &Settings) -> Result<Self> {
        let Server { engine, hub } = server;
        let door = match (settings.link_listen, settings.link_files()?) {
            (Some(address), Some(files)) => Some(TlsListener::bind(address, files).await?),
            (Some(address), None) => {
                let message = format!(
                    "nodes dial {address} with certificates: set link_cert, link_key, link_ca"
                );
                return Err(Error::new(Kind::Invalid, message));
            }
            (None, _) => None,
        };
        let changes = hub.subscribe();
        engine.start().await.context(|| "taking up what an earlier run left".into())?;
        let (stop, stopped) = watch::channel(false);
        let reception =
            Reception { hub: (*hub).clone(), upstream: Some(engine.clone() as Arc<dyn Upstream>) };
        let here = accept_nodes(settings.state_dir.clone(), reception.clone(), stopped.clone());
        let mut doors = vec![tokio::spawn(here)];
        if let Some(door) = door {
            info!(address = ?door.address(), "taking in nodes");
            doors.push(tokio::spawn(door.serve(reception, stopped)));
        }
        let watcher = tokio::spawn(watch_nodes(engine.clone(), changes));
        Ok(Self { engine, stop, doors, watcher })
    }

    /// Serves the REST API until it is told to stop.
    pub(crate) async fn serve_rest(
        &self,
        listeners: Vec<Listener>,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<()> {
        let api = Api::new(self.engine.clone(), env!("CARGO_PKG_VERSION"));
        serve_rest(listeners, api, Limits::default(), stop).await
    }

    /// Closes the doors and waits for what is at work, for a while.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        self.watcher.abort();
        self.engine.stop(GRACE).await;
        for door in self.doors {
            if let Err(error) = door.await {
                warn!(%error, "the node listener ended badly");
            }
        }
    }
}

pub(crate) fn listeners(settings: &Settings) -> Result<Vec<Listener>> {
    let mut listeners = vec![Listener::unix(&settings.socket, settings.socket_group)?];
    if let Some(address) = settings.listen {
        let Some(token_file) = &settings.token_file else {
            let message = format!("listening on {address} needs a token: set token_file");
            return Err(Error::new(Kind::Invalid, message));
        };
        let token = Secret::new(read(token_file)?.trim());
        let tls = match (&settings.tls_cert, &settings.tls_key) {
            (Some(cert), Some(key)) => {
                Some(Tls::from_pem(read(cert)?.as_bytes(), read(key)?.as_bytes())?)
            }
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                let message = "tls_cert and tls_key are set together or not at all";
                return Err(Error::new(Kind::Invalid, message));
            }
        };
        if tls.is_none() && !address.ip().is_loopback() {
            warn!(%address, "the token and all answers cross the network in the clear: set tls_cert");
        }
        listeners.push(Listener::tcp(address, token, tls)?);
    }
    Ok(listeners)
}

/// A small file that the settings or options name.
pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path)
        .map_err(|source| Error::from_source(Kind::Invalid, source))
        .context(|| format!("reading {}", path.display()))
}

/// Takes in nodes on this machine that dial the state folder's socket.
async fn accept_nodes(state_dir: PathBuf, reception: Reception, stopped: watch::Receiver<bool>) {
    let path = state_dir.join(LINK_SOCKET);
    // The store's lock says that no other server uses this folder, so what is here is left over.
    let _ = std::fs::remove_file(&path);
    let allowed = BTreeSet::from([0, rustix::process::geteuid().as_raw()]);
    match private_socket(&path) {
        Ok(listener) => listen_for_nodes(listener, reception, allowed, stopped).await,
        Err(error) => warn!(path = %path.display(), %error, "nodes cannot dial in"),
    }
    let _ = std::fs::remove_file(&path);
}

async fn watch_nodes(engine: Arc<Engine>, mut changes: broadcast::Receiver<NodeChange>) {
    loop {
        match changes.recv().await {
            Ok(NodeChange::Came(id)) => {
                if let Err(error) = engine.node_came(&id).await {
                    warn!(node.id = %id, error = %error.sentence(), "a node was not taken in");
                }
            }
            Ok(NodeChange::Went(id)) => info!(node.id = %id, "a node went away"),
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

/// Tells what runs and what to try; the log says the same to machines.
fn announce(settings: &Settings, with_node: bool) {
    let socket = settings.socket.display();
    info!(socket = %socket, store = settings.store, "serving");
    if with_node {
        let state = settings.state_dir.display();
        eprintln!("hawser is up on {socket}; in another terminal, try:");
        eprintln!("  export HAWSER_STATE_DIR={state}");
        eprintln!("  hawser volume create data --size 2GiB");
        eprintln!("  hawser volume list");
        eprintln!("Ctrl-C stops it; volumes and mounts stay as they are.");
    }
}

/// Ends at SIGTERM or Ctrl-C. Both are heard from the call on, not from the first poll: a server
/// that has answered somebody must stop in order when it is told to.
pub(crate) fn asked_to_stop() -> impl Future<Output = ()> + Send {
    let terminate = signal(SignalKind::terminate());
    let interrupt = signal(SignalKind::interrupt());
    async move {
        match (terminate, interrupt) {
            (Ok(mut terminate), Ok(mut interrupt)) => tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            },
            (Err(error), _) | (_, Err(error)) => {
                warn!(%error, "signals cannot be heard; stop this process by killing it");
                std::future::pending().await
            }
        }
    }
}

/// What `hawser node` serves, and to whom.
pub(crate) struct NodeJob {
    /// The server's socket to dial; none: programs of this host only.
    pub(crate) server: Option<PathBuf>,
    /// The socket on which programs of this host call the library.
    pub(crate) library: Option<PathBuf>,
    /// The name of this node.
    pub(crate) id: Option<NodeId>,
}

/// Runs the node half: dials the server and serves the library until it is told to stop.
pub(crate) async fn node(state_dir: &Path, job: NodeJob) -> Result<()> {
    let half: Arc<dyn Node> = match &job.server {
        Some(server) => {
            let host = assemble::host(state_dir).await?;
            let (id, half) = assemble::node(state_dir, job.id.as_ref(), &host, Vec::new()).await?;
            info!(node.id = %id, server = %server.display(), "dialling");
            half
        }
        None => Arc::new(assemble::library(state_dir).await?),
    };
    let (stop, stopped) = watch::channel(false);
    let calls = match &job.library {
        Some(path) => {
            let listener = bind(path)?;
            info!(socket = %path.display(), "serving the host library");
            let allowed = BTreeSet::from([0, rustix::process::geteuid().as_raw()]);
            let served = listen_for_callers(listener, half.clone(), allowed, stopped.clone());
            Some(tokio::spawn(served))
        }
        None => None,
    };
    let work = async {
        match &job.server {
            Some(server) => dial(server.clone(), half, DialOptions::default(), stopped).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(work);
    let dialled = tokio::select! {
        () = &mut work => true,
        () = asked_to_stop() => false,
    };
    stop.send_replace(true);
    if !dialled && job.server.is_some() {
        work.await;
    }
    if let Some(calls) = calls
        && let Err(error) = calls.await
    {
        warn!(%error, "the library socket ended badly");
    }
    if let Some(path) = &job.library {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// A socket that only its owner may use. What a killed process left at the path is taken away; what
/// still answers is not.
fn bind(path: &Path) -> Result<UnixListener> {
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        let message = format!("another process serves {}", path.display());
        return Err(Error::new(Kind::Busy, message));
    }
    let failed = |source| Error::from_source(Kind::Invalid, source);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .map_err(failed)
            .context(|| format!("making {}", folder.display()))?;
    }
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {
            std::fs::remove_file(path)
                .map_err(failed)
                .context(|| format!("removing {}", path.display()))?;
        }
        Ok(_) => {
            let message = format!("{} is there and is no socket", path.display());
            return Err(Error::new(Kind::Invalid, message));
        }
        Err(_) => {}
    }
    private_socket(path).map_err(failed).context(|| format!("listening on {}", path.display()))
}

/// Binds a socket that nobody but its owner may use, whatever the umask says.
fn private_socket(path: &Path) -> std::io::Result<UnixListener> {
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    // Nobody gets in before it is listened on, so nobody sees it with another mode.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    socket.listen(BACKLOG)
}
