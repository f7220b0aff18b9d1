//! What is done for each object.

use std::sync::Arc;
use std::time::Duration;

use hawser_api::csi::v1::GetCapacityRequest;
use hawser_api::csi::v1::controller_server::Controller;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info, warn};

use super::plan::{Pair, Plan, pairs};
use super::room::{self, Room};
use super::{Capacities, owner};
use crate::csi::within;
use crate::kubernetes::error::ClusterError;
use crate::kubernetes::objects::{Capacity, CsiDriver, Key, Object, StorageClass};
use crate::kubernetes::queue::Next;

/// How long a driver may think about it. The sidecar's limit; it is asked again anyway.
const LIMIT: Duration = Duration::from_secs(10);

/// The time between two writes. A large cluster has thousands of places, and volumes come before
/// what is said of them; the sidecar's is a second.
const PACE: Duration = Duration::from_millis(50);

impl Capacities {
    /// Looks at everything, also at what nobody tells of.
    pub(super) async fn look_at_all(&self) {
        self.find_owner().await;
        for driver in &self.office.drivers {
            let name = driver.name();
            match self.office.cluster.get::<CsiDriver>(&Key::global(name)).await {
                Ok(found) => {
                    let asked = found.is_some_and(|it| it.spec.storage_capacity == Some(true));
                    self.state().looked_at.insert(name, asked);
                }
                // As it was last time, or else as if it were asked for: an object too many costs
                // little, and without them no pod gets a node.
                Err(error) => {
                    let reason = error.sentence();
                    warn!(driver = name, reason, "cannot find out who looks at the room");
                }
            }
        }
        self.look(true);
    }

    async fn find_owner(&self) {
        let Some(pod) = self.pod.as_deref().filter(|_| self.state().owner.is_none()) else {
            return;
        };
        match owner::of_pod(&self.office.cluster, &self.office.namespace, pod).await {
            Ok(owner) => self.state().owner = owner,
            Err(error) => {
                let reason = error.sentence();
                warn!(pod, reason, "cannot find out whom the capacities belong to");
            }
        }
    }

    /// Finds out which objects there should be, and hands on those with something to do.
    pub(super) fn look(&self, all: bool) {
        let tables = &self.office.tables;
        let drivers: Vec<_> = {
            let state = self.state();
            let names = self.office.drivers.iter().map(|driver| driver.name());
            names.filter(|name| state.looked_at.get(name) != Some(&false)).collect()
        };
        let ours = |class: &StorageClass| drivers.contains(&class.provisioner.as_str());
        let wanted = pairs(
            &drivers,
            &tables.classes.all(ours),
            &tables.csi_nodes.all(|_| true),
            &tables.nodes.all(|_| true),
        );
        let plan = Arc::new(Plan::new(wanted, &self.table.all(|_| true)));
        let touched = std::mem::take(&mut self.state().touched);
        let due = plan.due(all, &touched);
        self.state().plan = plan;
        due.into_iter().for_each(|pair| self.queue.add(pair));
    }

    pub(super) async fn work(self: Arc<Self>, pair: Pair) -> Next {
        let Err(error) = self.settle(&pair).await else {
            self.state().failing.remove(&pair);
            return Next::Done;
        };
        let reason = error.sentence();
        let (driver, class) = (&pair.driver, &pair.class);
        if error.is_conflict() || error.is_absent() || !self.state().failing.insert(pair.clone()) {
            debug!(driver, storage.class = class, reason, "the room is not known yet");
        } else {
            let place = pair.segment.as_ref();
            warn!(driver, storage.class = class, ?place, reason, "the room is not known");
        }
        Next::Retry
    }

    async fn settle(&self, pair: &Pair) -> Result<(), ClusterError> {
        let plan = self.state().plan.clone();
        let mut objects = self.objects(&plan, pair);
        let class = self.office.tables.classes.named(&pair.class);
        let class = class.filter(|_| plan.wants(pair));
        let kept = class.as_ref().and_then(|_| objects.pop());
        for object in objects {
            self.paced().await;
            self.office.cluster.delete::<Capacity>(&object.key(), object.uid()).await?;
            self.table.forget(&object.key());
            info!(storage.class = pair.class, object = object.name(), "a capacity was removed");
        }
        let Some(class) = class else { return Ok(()) };
        let room = self.ask(pair, room::request(pair, &class)).await?;
        self.write(pair, kept, room).await
    }

    /// The objects of a pair, the oldest last: it is the one that stays.
    fn objects(&self, plan: &Plan, pair: &Pair) -> Vec<Arc<Capacity>> {
        let own = Key::within(&self.office.namespace, pair.object_name());
        let known = plan.objects(pair).iter().filter(|key| **key != own);
        let found = known.chain([&own]).filter_map(|key| self.table.get(key));
        let mut objects: Vec<_> = found.filter(|object| Pair::of(object) == *pair).collect();
        objects.sort_by_key(|object| {
            std::cmp::Reverse((object.metadata.creation_timestamp.clone(), object.key()))
        });
        objects
    }

    async fn ask(&self, pair: &Pair, request: GetCapacityRequest) -> Result<Room, ClusterError> {
        let absent = || ClusterError::NotYet(format!("there is no driver {}", pair.driver));
        let service = self.office.driver(&pair.driver).and_then(|driver| driver.controller());
        let service = service.ok_or_else(absent)?;
        let Ok(answer) = timeout(LIMIT, service.get_capacity(within(LIMIT, request))).await else {
            return Err(ClusterError::NotYet("the driver does not answer".into()));
        };
        Ok(answer?.into_inner().into())
    }

    async fn write(
        &self,
        pair: &Pair,
        kept: Option<Arc<Capacity>>,
        room: Room,
    ) -> Result<(), ClusterError> {
        let owner = self.state().owner.clone();
        let cluster = &self.office.cluster;
        match kept {
            None => {
                let namespace = &self.office.namespace;
                let body = room::object(pair, namespace, room, owner.as_ref());
                self.paced().await;
                self.table.tell_made(cluster.create(namespace, &body).await?);
            }
            Some(object) => {
                let Some(patch) = room::patch(&object, room, owner.as_ref()) else { return Ok(()) };
                self.paced().await;
                self.table.tell(cluster.patch(&object.key(), &patch).await?);
            }
        }
        Ok(())
    }

    /// Waits for its turn to write.
    async fn paced(&self) {
        let turn = {
            let mut state = self.state();
            let turn = state.free.max(Instant::now());
            state.free = turn + PACE;
            turn
        };
        sleep_until(turn).await;
    }
}
