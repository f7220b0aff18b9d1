//! `hawser csi`: the driver, whole or one half of it.

mod args;
mod cluster;

use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use hawser_api::link::{Destination, DialOptions, Dialler, TlsTarget};
use hawser_core::error::{Error, Kind, Result, ResultExt};
use hawser_core::name::NodeId;
use hawser_core::port::{Control, Node, Upstream};
use hawser_front::csi::{
    CsiDriver, CsiParts, CsiSettings, Endpoint, Metrics, Registration, Services, serve,
    serve_monitor,
};

use crate::assemble::{self, Storage};
use crate::serve::{self as daemon, Running};
use crate::settings::Settings;

pub(crate) use args::{CsiArgs, Mode};
use cluster::Cluster;

/// Serves until it is told to stop.
pub(crate) async fn run(args: &CsiArgs, settings: &Settings) -> Result<()> {
    match (args.mode, args.kubernetes) {
        (Mode::All | Mode::Controller, true) => cluster::leading(args, settings).await,
        (Mode::All | Mode::Controller, false) => {
            let (metrics, stop) = (Metrics::new(env!("CARGO_PKG_VERSION")), Stop::when_asked());
            controller(args, settings, metrics, None, &stop).await
        }
        (Mode::Node, false) => node(args, settings).await,
        (Mode::Node, true) => {
            let message = "--kubernetes is for the controller: a node registers with its kubelet \
                           by --registration-dir";
            Err(Error::new(Kind::Invalid, message))
        }
    }
}

/// The control half, with this machine as its node in [`Mode::All`].
async fn controller(
    args: &CsiArgs,
    settings: &Settings,
    metrics: Metrics,
    cluster: Option<&Cluster>,
    stop: &Stop,
) -> Result<()> {
    let host = assemble::host(&settings.state_dir).await?;
    let id = assemble::own_id(settings.node_id.as_ref(), &host).await?;
    let here = args.mode == Mode::All;
    let storage = if here { Storage::OnNode(id.clone()) } else { Storage::OnNodes };
    let server = assemble::server(settings, &host, &storage).await?;
    let mut half: Option<Arc<dyn Node>> = None;
    if here {
        let (_, node) = assemble::node(&settings.state_dir, Some(&id), &host, Vec::new()).await?;
        server.hub.add_local(id.clone(), node.clone());
        half = Some(node);
    }
    let listeners = daemon::listeners(settings)?;
    let running = Running::start(server, settings).await?;
    let control: Arc<dyn Control> = running.engine.clone();
    let abilities = control.list_classes().await?.into_iter().flat_map(|class| class.abilities);
    let parts = CsiParts {
        abilities: abilities.collect(),
        control: Some(control),
        node: half,
        upstream: running.engine.clone(),
        metrics: metrics.clone(),
    };
    let drivers = drivers(args, &id, &parts)?;
    let rest = running.serve_rest(listeners, stop.told());
    let watched = async {
        match cluster {
            Some(cluster) => {
                cluster.look_after(args, &drivers, stop).await;
                Ok(())
            }
            None => monitor(args, metrics, parts.control.clone(), stop).await,
        }
    };
    let served = tokio::try_join!(rest, serve_all(&drivers, stop), watched);
    stop.tell();
    info!("stopping");
    running.stop().await;
    served.map(drop)
}

/// This machine alone; the control half is elsewhere.
async fn node(args: &CsiArgs, settings: &Settings) -> Result<()> {
    let host = assemble::host(&settings.state_dir).await?;
    let id = assemble::own_id(settings.node_id.as_ref(), &host).await?;
    let pools = assemble::pools(settings, &host, &id).await?;
    let abilities = assemble::abilities(settings)?;
    let (_, half) = assemble::node(&settings.state_dir, Some(&id), &host, pools).await?;
    let dialler = Dialler::new(half.clone(), DialOptions::default());
    let upstream: Arc<dyn Upstream> = Arc::new(dialler.upstream());
    let to = destination(args, settings).await?;
    let stop = Stop::when_asked();
    let link = tokio::spawn(dialler.run(to, stop.watch()));
    let metrics = Metrics::new(env!("CARGO_PKG_VERSION"));
    let parts =
        CsiParts { abilities, control: None, node: Some(half), upstream, metrics: metrics.clone() };
    let drivers = drivers(args, &id, &parts)?;
    let served = tokio::try_join!(serve_all(&drivers, &stop), monitor(args, metrics, None, &stop));
    stop.tell();
    if let Err(error) = link.await {
        warn!(%error, "the node link ended badly");
    }
    served.map(drop)
}

/// Where the control half is: at the address that was given, else on this machine.
async fn destination(args: &CsiArgs, settings: &Settings) -> Result<Destination> {
    let Some(server) = &args.link_server else {
        return Ok(Destination::Unix(daemon::link_socket(None, &settings.state_dir)?));
    };
    if let Some(path) = server.strip_prefix("unix:") {
        return Ok(Destination::Unix(PathBuf::from(path)));
    }
    let malformed = || {
        let message = format!("--link-server {server:?} is neither HOST:PORT nor unix:PATH");
        Error::new(Kind::Invalid, message)
    };
    let (name, port) = server.rsplit_once(':').ok_or_else(malformed)?;
    let port = port.parse().map_err(|_| malformed())?;
    let Some(files) = settings.link_files()? else {
        let message = "a controller on another machine is dialled with certificates: \
                       set --link-cert, --link-key and --link-ca";
        return Err(Error::new(Kind::Invalid, message));
    };
    Ok(Destination::Tls(Box::new(TlsTarget::open(name, port, None, files).await?)))
}

/// The drivers that have a socket.
fn drivers(args: &CsiArgs, id: &NodeId, parts: &CsiParts) -> Result<Vec<Services>> {
    let sockets = [
        (CsiDriver::Published, Some(&args.endpoint)),
        (CsiDriver::Local, args.local_endpoint.as_ref()),
    ];
    let given = sockets.into_iter().filter_map(|(driver, socket)| Some((driver, socket?)));
    given
        .map(|(driver, socket)| {
            Ok(Services::new(parts.clone(), driver_settings(args, id, driver, socket)?))
        })
        .collect()
}

/// Serves drivers until the stop or until one of them fails.
async fn serve_all(drivers: &[Services], stop: &Stop) -> Result<()> {
    let mut tasks = JoinSet::new();
    for driver in drivers {
        tasks.spawn(serve(driver.clone(), stop.told()));
    }
    let mut first = Ok(());
    while let Some(ended) = tasks.join_next().await {
        let ended = ended.map_err(|error| Error::from_source(Kind::Internal, error));
        if let Err(error) = ended.and_then(|ended| ended)
            && first.is_ok()
        {
            first = Err(error);
        }
        // One that is gone takes the others along: the supervisor starts all of them again.
        stop.tell();
    }
    first
}

/// Serves metrics where they are asked for, until the stop.
async fn monitor(
    args: &CsiArgs,
    metrics: Metrics,
    control: Option<Arc<dyn Control>>,
    stop: &Stop,
) -> Result<()> {
    let Some(address) = args.metrics else { return Ok(()) };
    let attempt = || format!("serving metrics on {address}");
    let listener = TcpListener::bind(address).await;
    let listener =
        listener.map_err(|source| Error::from_source(Kind::Invalid, source)).context(attempt)?;
    serve_monitor(listener, metrics, control, stop.told()).await.context(attempt)
}

fn driver_settings(
    args: &CsiArgs,
    id: &NodeId,
    driver: CsiDriver,
    endpoint: &str,
) -> Result<CsiSettings> {
    let endpoint: Endpoint = endpoint.parse()?;
    let registration = args.registration_dir.as_ref().map(|folder| Registration {
        folder: folder.clone(),
        endpoint: endpoint.path().to_owned(),
        answer: Default::default(),
    });
    Ok(CsiSettings {
        max_volumes_per_node: args.max_volumes_per_node,
        kubelet_dir: args.kubelet_dir.clone(),
        registration: registration.filter(|_| args.mode != Mode::Controller),
        health: args.health,
        ..CsiSettings::new(driver, endpoint, id.clone())
    })
}

/// Told once: by a signal, or by the first part that ends.
struct Stop(watch::Sender<bool>);

impl Stop {
    fn when_asked() -> Self {
        let (stop, _) = watch::channel(false);
        let asked = daemon::asked_to_stop();
        let told = stop.clone();
        tokio::spawn(async move {
            asked.await;
            told.send_replace(true);
        });
        Self(stop)
    }

    fn tell(&self) {
        self.0.send_replace(true);
    }

    fn watch(&self) -> watch::Receiver<bool> {
        self.0.subscribe()
    }

    fn told(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut told = self.0.subscribe();
        async move {
            // An error means that nobody can tell any more, which is as good.
            let _ = told.wait_for(|told| *told).await;
        }
    }
}
