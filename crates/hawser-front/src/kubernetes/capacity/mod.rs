//! How much room there is, for the scheduler: one CSIStorageCapacity for each place and each class
//! whose volumes wait for their pod, as external-provisioner writes them.
//!
//! Asked every minute, and some seconds after something has changed that room depends on. Only for
//! drivers whose CSIDriver says that the scheduler looks at them.

mod owner;
mod plan;
mod room;
#[cfg(test)]
mod tests;
mod work;

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::runtime::watcher;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use self::plan::{Pair, Plan, Touched};
use super::names::{DRIVER_LABEL, MANAGED_BY, MANAGED_BY_LABEL, SELECTED_NODE};
use super::objects::{Capacity, Claim, CsiNode, Node, Object, StorageClass, Volume};
use super::office::Office;
use super::queue::Queue;
use super::table::{Changed, Table};

/// How often everything is asked: as often as the sidecar does.
const REFRESH: Duration = Duration::from_secs(60);

/// How long changes are gathered before they are looked at.
const SETTLE: Duration = Duration::from_secs(3);

/// How many places are asked about at once: one that does not answer must not stop all.
const WORKERS: usize = 8;

/// Writes down how much room there is.
pub(super) struct Capacities {
    office: Arc<Office>,
    /// The pod that this process is; what owns it owns the objects.
    pod: Option<String>,
    table: Arc<Table<Capacity>>,
    queue: Queue<Pair>,
    state: Mutex<State>,
    /// Rung when something was touched.
    bell: Notify,
}

struct State {
    plan: Arc<Plan>,
    touched: Touched,
    /// Whether the scheduler looks at a driver's room.
    looked_at: BTreeMap<&'static str, bool>,
    owner: Option<OwnerReference>,
    /// Those whose failure was told.
    failing: HashSet<Pair>,
    /// When the next write may be made.
    free: Instant,
}

impl Capacities {
    pub(super) fn new(office: Arc<Office>, pod: Option<String>) -> Arc<Self> {
        let state = State {
            plan: Arc::default(),
            touched: Touched::default(),
            looked_at: BTreeMap::new(),
            owner: None,
            failing: HashSet::new(),
            free: Instant::now(),
        };
        Arc::new(Self {
            office,
            pod,
            table: Arc::default(),
            queue: Queue::default(),
            state: Mutex::new(state),
            bell: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touch(&self, touch: impl FnOnce(&mut Touched)) {
        touch(&mut self.state().touched);
        self.bell.notify_one();
    }

    /// A volume has changed: its room is taken, or free again.
    pub(super) fn heard_volume(&self, changed: &Changed<Volume>) {
        let amount = |volume: &Option<Arc<Volume>>| {
            volume.as_ref().map(|volume| volume.spec.capacity.clone())
        };
        let Some(volume) = changed.now.as_ref().or(changed.before.as_ref()) else { return };
        let Some(driver) = volume.csi().map(|csi| csi.driver.as_str()) else { return };
        if self.office.driver(driver).is_some() && amount(&changed.before) != amount(&changed.now) {
            self.touch(|touched| touched.volume(driver, volume));
        }
    }

    /// A claim has changed. One that has lost its node did not get its volume there, so there may be
    /// less room than the scheduler believes.
    pub(super) fn heard_claim(&self, changed: &Changed<Claim>) {
        let (Some(before), Some(now)) = (&changed.before, &changed.now) else { return };
        let lost =
            before.annotation(SELECTED_NODE).is_some() && now.annotation(SELECTED_NODE).is_none();
        let Some(class) = now.class_name().filter(|_| lost) else { return };
        let Some(class) = self.office.tables.classes.named(class) else { return };
        self.heard_about(&class);
    }

    /// A class has changed.
    pub(super) fn heard_class(&self, changed: &Changed<StorageClass>) {
        for class in [&changed.before, &changed.now].into_iter().flatten() {
            self.heard_about(class);
        }
    }

    fn heard_about(&self, class: &StorageClass) {
        if self.office.driver(&class.provisioner).is_some() {
            self.touch(|touched| touched.class(&class.provisioner, class.name()));
        }
    }

    /// A node has changed: it may be somewhere else now.
    pub(super) fn heard_node(&self, changed: &Changed<Node>) {
        let labels = |node: &Option<Arc<Node>>| {
            node.as_ref().map(|node| node.metadata.labels.clone().unwrap_or_default())
        };
        if labels(&changed.before) != labels(&changed.now) {
            self.touch(|_| {});
        }
    }

    /// The drivers of a node have changed.
    pub(super) fn heard_csi_node(&self, changed: &Changed<CsiNode>) {
        let ours = |node: &Option<Arc<CsiNode>>| -> Vec<_> {
            let keys = |name| Some(node.as_ref()?.driver(name)?.topology_keys.clone());
            self.office.drivers.iter().map(|driver| keys(driver.name())).collect()
        };
        if ours(&changed.before) != ours(&changed.now) {
            self.touch(|_| {});
        }
    }

    /// Somebody else has changed an object: what is written here is known before it is heard.
    fn heard_capacity(&self, changed: &Changed<Capacity>) {
        for object in [&changed.before, &changed.now].into_iter().flatten() {
            self.touch(|touched| touched.pair(Pair::of(object)));
        }
    }

    /// Works until it is told to stop. Classes, nodes and their drivers must be known by then.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let api = Api::namespaced(self.office.cluster.client.clone(), &self.office.namespace);
        let which = watcher::Config::default().labels(&self.selector());
        let kept = self.table.clone().keep_some(api, which, stop.clone(), |changed| {
            self.heard_capacity(&changed);
        });
        let this = self.clone();
        let work = move |pair| this.clone().work(pair);
        let worked = async {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.table.filled() => {}
            }
            tokio::join!(self.look_often(&stop), self.queue.run(WORKERS, stop.clone(), work));
        };
        tokio::join!(kept, worked);
    }

    /// The labels of our objects. Those of other drivers may be in the same namespace.
    fn selector(&self) -> String {
        let drivers: Vec<_> = self.office.drivers.iter().map(|driver| driver.name()).collect();
        format!("{MANAGED_BY_LABEL}={MANAGED_BY},{DRIVER_LABEL} in ({})", drivers.join(","))
    }

    async fn look_often(&self, stop: &CancellationToken) {
        let mut minute = interval(REFRESH);
        minute.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let looks = async {
            loop {
                let settled = async {
                    self.bell.notified().await;
                    sleep(SETTLE).await;
                };
                tokio::select! {
                    _ = minute.tick() => self.look_at_all().await,
                    () = settled => self.look(false),
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = looks => {}
        }
    }
}
