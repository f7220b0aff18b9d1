//! Starts the watches and the controllers, and tells each controller what the watches bring.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::attach::Attacher;
use super::capacity::Capacities;
use super::cluster::Cluster;
use super::events::{Events, Writer};
use super::modify::Modifier;
use super::objects::Object;
use super::office::{Office, Tables};
use super::orphans::Orphans;
use super::protect::Protector;
use super::provision::Provisioner;
use super::remove::Remover;
use super::resize::Resizer;
use super::snapshots::Snapshots;
use super::table::{Changed, Table};
use super::taint::Taints;
use crate::csi::Services;

/// What the controllers are made of.
pub struct KubernetesParts {
    /// The way to the API server.
    pub client: Client,
    /// The drivers whose objects are looked after; each with its controller.
    pub drivers: Vec<Services>,
}

/// How the controllers are set up.
#[derive(Clone, Debug)]
pub struct KubernetesSettings {
    /// Where what belongs to this process is.
    pub namespace: String,
    /// What tells this process from others in events.
    pub instance: String,
    /// The pod that this process is, if it is one: who owns it owns what goes with it.
    pub pod: Option<String>,
    /// Tells of success in events too.
    pub success_events: bool,
    /// The taint that is taken off nodes once their kubelet lists the drivers.
    pub startup_taint: Option<String>,
}

/// How often it is looked whether the cluster has learned of a kind of object.
const ANOTHER_LOOK: Duration = Duration::from_secs(60);

/// How long what is at work may take to come to its end: less than the time that a pod is given, so
/// that the lease can be given back.
const GRACE: Duration = Duration::from_secs(15);

/// Looks after the objects of the cluster until `stop` is done, then lets what is at work come to its
/// end. To be run by one process of a cluster at a time; see [`super::Leadership`].
pub async fn run(
    parts: KubernetesParts,
    settings: KubernetesSettings,
    stop: impl Future<Output = ()> + Send,
) {
    let (crew, writer) = Crew::new(parts, settings);
    // Events are written until nobody tells any; watches bring news until nobody hears them.
    let (working, watching) = (CancellationToken::new(), CancellationToken::new());
    let mut watches = JoinSet::new();
    watches.spawn(writer.run(watching.clone()));
    crew.watch(&mut watches, &watching);
    let mut workers = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    tokio::select! {
        () = stop.as_mut() => {}
        () = crew.filled() => {
            crew.work(&mut workers, &working);
            info!("looking after claims, attachments and snapshots");
            stop.await;
        }
    }
    working.cancel();
    // What does not come to its end is gone on with by whoever leads next.
    let ended = tokio::time::timeout(GRACE, async { while workers.join_next().await.is_some() {} });
    if ended.await.is_err() {
        warn!("some work has not come to its end and is left to the next start");
        workers.shutdown().await;
    }
    watching.cancel();
    while watches.join_next().await.is_some() {}
}

/// All controllers.
struct Crew {
    office: Arc<Office>,
    provisioner: Arc<Provisioner>,
    remover: Arc<Remover>,
    orphans: Arc<Orphans>,
    protector: Arc<Protector>,
    attacher: Arc<Attacher>,
    resizer: Arc<Resizer>,
    modifier: Arc<Modifier>,
    snapshots: Arc<Snapshots>,
    capacities: Arc<Capacities>,
    taints: Option<Arc<Taints>>,
}

impl Crew {
    fn new(parts: KubernetesParts, settings: KubernetesSettings) -> (Arc<Self>, Writer) {
        let cluster = Arc::new(Cluster::new(parts.client));
        let (events, writer) =
            Events::new(cluster.clone(), settings.instance, settings.success_events);
        let office = Arc::new(Office {
            cluster,
            tables: Tables::default(),
            events,
            drivers: parts.drivers,
            namespace: settings.namespace,
        });
        let crew = Self {
            provisioner: Provisioner::new(office.clone()),
            remover: Remover::new(office.clone()),
            orphans: Orphans::new(office.clone()),
            protector: Protector::new(office.clone()),
            attacher: Attacher::new(office.clone()),
            resizer: Resizer::new(office.clone()),
            modifier: Modifier::new(office.clone()),
            snapshots: Snapshots::new(office.clone()),
            capacities: Capacities::new(office.clone(), settings.pod),
            taints: settings.startup_taint.map(|taint| Taints::new(office.clone(), taint)),
            office,
        };
        (Arc::new(crew), writer)
    }

    /// Starts a watch of each kind of object.
    fn watch(self: &Arc<Self>, tasks: &mut JoinSet<()>, stop: &CancellationToken) {
        let tables = &self.office.tables;
        tasks.spawn(self.kept(&tables.claims, stop, |crew, changed| {
            crew.provisioner.heard_claim(&changed);
            crew.protector.heard_claim(&changed);
            crew.resizer.heard_claim(&changed);
            crew.modifier.heard_claim(&changed);
            crew.capacities.heard_claim(&changed);
        }));
        tasks.spawn(self.kept(&tables.volumes, stop, |crew, changed| {
            crew.provisioner.heard_volume(&changed);
            crew.remover.heard_volume(&changed);
            crew.attacher.heard_volume(&changed);
            crew.resizer.heard_volume(&changed);
            crew.modifier.heard_volume(&changed);
            crew.capacities.heard_volume(&changed);
        }));
        tasks.spawn(self.kept(&tables.classes, stop, |crew, changed| {
            crew.provisioner.heard_class(&changed);
            crew.capacities.heard_class(&changed);
        }));
        tasks.spawn(self.kept(&tables.attachments, stop, |crew, changed| {
            crew.attacher.heard_attachment(&changed);
            crew.remover.heard_attachment(&changed);
        }));
        tasks.spawn(self.kept(&tables.csi_nodes, stop, |crew, changed| {
            crew.attacher.heard_csi_node(&changed);
            crew.capacities.heard_csi_node(&changed);
            crew.taints.iter().for_each(|taints| taints.heard_csi_node(&changed));
        }));
        tasks.spawn(self.kept(&tables.nodes, stop, |crew, changed| {
            crew.capacities.heard_node(&changed);
            crew.taints.iter().for_each(|taints| taints.heard_node(&changed));
        }));
        self.watch_where_there(tasks, stop);
    }

    /// The same for kinds that not every cluster knows.
    fn watch_where_there(self: &Arc<Self>, tasks: &mut JoinSet<()>, stop: &CancellationToken) {
        let tables = &self.office.tables;
        tasks.spawn(self.kept_if_there(&tables.attributes_classes, stop, |crew, changed| {
            crew.modifier.heard_attributes_class(&changed);
        }));
        tasks.spawn(self.kept_if_there(&tables.contents, stop, |crew, changed| {
            crew.snapshots.heard_content(&changed);
        }));
        tasks.spawn(self.kept_if_there(&tables.snapshot_classes, stop, |crew, changed| {
            crew.snapshots.heard_snapshot_class(&changed);
        }));
        tasks.spawn(self.kept_if_there(&tables.group_contents, stop, |crew, changed| {
            crew.snapshots.heard_group_content(&changed);
        }));
        tasks.spawn(self.kept_if_there(&tables.group_classes, stop, |crew, changed| {
            crew.snapshots.heard_group_class(&changed);
        }));
    }

    /// Starts the controllers.
    fn work(&self, tasks: &mut JoinSet<()>, stop: &CancellationToken) {
        tasks.spawn(self.provisioner.clone().run(stop.clone()));
        tasks.spawn(self.remover.clone().run(stop.clone()));
        tasks.spawn(self.orphans.clone().run(stop.clone()));
        tasks.spawn(self.protector.clone().run(stop.clone()));
        tasks.spawn(self.attacher.clone().run(stop.clone()));
        tasks.spawn(self.resizer.clone().run(stop.clone()));
        tasks.spawn(self.modifier.clone().run(stop.clone()));
        tasks.spawn(self.snapshots.clone().run(stop.clone()));
        tasks.spawn(self.capacities.clone().run(stop.clone()));
        if let Some(taints) = self.taints.clone() {
            tasks.spawn(taints.run(stop.clone()));
        }
    }

    /// Waits until all is known that every cluster has.
    async fn filled(&self) {
        let tables = &self.office.tables;
        tokio::join!(
            tables.claims.filled(),
            tables.volumes.filled(),
            tables.classes.filled(),
            tables.attachments.filled(),
            tables.csi_nodes.filled(),
            tables.nodes.filled(),
        );
    }

    /// Keeps a table.
    fn kept<K: Object>(
        self: &Arc<Self>,
        table: &Arc<Table<K>>,
        stop: &CancellationToken,
        tell: impl Fn(&Self, Changed<K>) + Send + Sync + 'static,
    ) -> BoxFuture<'static, ()> {
        let (crew, client) = (self.clone(), self.office.cluster.client.clone());
        table.clone().keep(client, stop.clone(), move |changed| tell(&crew, changed)).boxed()
    }

    /// Keeps a table of a kind of object that not every cluster knows.
    fn kept_if_there<K: Object>(
        self: &Arc<Self>,
        table: &Arc<Table<K>>,
        stop: &CancellationToken,
        tell: impl Fn(&Self, Changed<K>) + Send + Sync + 'static,
    ) -> BoxFuture<'static, ()> {
        let kept = self.kept(table, stop, tell);
        let (office, stop) = (self.office.clone(), stop.clone());
        async move {
            while !is_there::<K>(&office).await {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(ANOTHER_LOOK) => {}
                }
            }
            kept.await;
        }
        .boxed()
    }
}

/// Whether the API server knows a kind of object.
async fn is_there<K: Object>(office: &Office) -> bool {
    let path = format!("/apis/{}/{}", K::group(&()), K::version(&()));
    match office.cluster.text_at(&path).await {
        Ok(Some(known)) if known.contains(&format!("\"{}\"", K::plural(&()))) => true,
        Ok(_) => {
            debug!(kind = %K::kind(&()), "the cluster does not know of these");
            false
        }
        Err(error) => {
            warn!(kind = %K::kind(&()), reason = error.sentence(), "cannot find out what the cluster knows");
            false
        }
    }
}
