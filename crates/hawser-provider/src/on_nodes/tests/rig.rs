//! Nodes in memory, with local pools in temporary folders behind them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hawser_core::attach::{AttachRecord, Attached, Detach, Health};
use hawser_core::connection::ConnectionInfo;
use hawser_core::doctor::Finding;
use hawser_core::id::{PublicationId, VolumeId};
use hawser_core::name::{ClassName, NodeId};
use hawser_core::node::NodeRecord;
use hawser_core::place::Place;
use hawser_core::port::host::FsUsage;
use hawser_core::port::node::{AttachWork, FormatWork, MountWork};
use hawser_core::port::pools::{PoolAnswer, PoolCall};
use hawser_core::port::{Node, Nodes, Pools, Provider};
use hawser_core::{ByteSize, Change, Error, Kind, Result, Timestamp};
use hawser_testkit::contract::provider::ProviderRig;
use hawser_testkit::fake_host::FakeHost;
use serde_json::json;

use crate::Deps;
use crate::local::PoolKind;
use crate::local::tests::rig::{PoolRig, fake};

pub(super) const CLASS: &str = "fast";

pub(super) fn id(text: &str) -> NodeId {
    text.parse().expect("a legal name")
}

pub(super) fn at(text: &str) -> Place {
    Place::node(&id(text))
}

/// A node that has storage and nothing else.
pub(super) struct PoolNode {
    id: NodeId,
    topology: BTreeMap<String, String>,
    pub(super) pool: Mutex<Option<Arc<dyn Provider>>>,
    /// What it was asked, by the names of the calls.
    pub(super) asked: Mutex<Vec<String>>,
    /// What it answers instead, once.
    pub(super) instead: Mutex<Option<Result<PoolAnswer>>>,
    /// It never answers.
    silent: bool,
}

#[async_trait]
impl Pools for PoolNode {
    async fn call(&self, class: &ClassName, call: PoolCall) -> Result<PoolAnswer> {
        let asked = serde_json::to_value(&call).expect("every call has a JSON form");
        self.asked.lock().unwrap().push(asked["call"].as_str().unwrap_or("?").to_owned());
        if self.silent {
            std::future::pending::<()>().await;
        }
        if let Some(instead) = self.instead.lock().unwrap().take() {
            return instead;
        }
        let pool = self.pool.lock().unwrap().clone().filter(|_| class.as_str() == CLASS);
        let Some(pool) = pool else {
            let message = format!("node {} has no class {class}", self.id);
            return Err(Error::new(Kind::Precondition, message));
        };
        // As over a link: what cannot be written as JSON, or read again, does not come over.
        let sent = serde_json::to_string(&call).expect("every call has a JSON form");
        let received: PoolCall = serde_json::from_str(&sent).expect("and can be read again");
        let answer = received.run(pool.as_ref()).await?;
        let sent = serde_json::to_string(&answer).expect("so has every answer");
        Ok(serde_json::from_str(&sent).expect("which can be read again"))
    }
}

fn refused<T>() -> Result<T> {
    Err(Error::new(Kind::Unsupported, "this node has storage and nothing else"))
}

#[async_trait]
impl Node for PoolNode {
    async fn describe(&self) -> Result<NodeRecord> {
        Ok(NodeRecord {
            id: self.id.clone(),
            properties: BTreeMap::new(),
            topology: self.topology.clone(),
            boot_id: "boot".into(),
            privileged: true,
            last_seen: Timestamp::UNIX_EPOCH,
        })
    }

    async fn attach(&self, _: &AttachWork) -> Result<Change<Attached>> {
        refused()
    }

    async fn detach(&self, _: &PublicationId, _: &Detach) -> Result<Change<()>> {
        refused()
    }

    async fn format(&self, _: &FormatWork) -> Result<Change<()>> {
        refused()
    }

    async fn mount(&self, _: &MountWork) -> Result<Change<()>> {
        refused()
    }

    async fn unmount(&self, _: &PublicationId, _: &Path) -> Result<Change<()>> {
        refused()
    }

    async fn extend(&self, _: &PublicationId, _: ByteSize) -> Result<ByteSize> {
        refused()
    }

    async fn freeze(&self, _: &PublicationId) -> Result<Change<()>> {
        refused()
    }

    async fn thaw(&self, _: &PublicationId) -> Result<Change<()>> {
        refused()
    }

    async fn attachments(&self) -> Result<Vec<AttachRecord>> {
        refused()
    }

    async fn usage(&self, _: &PublicationId, _: &Path) -> Result<FsUsage> {
        refused()
    }

    async fn health(&self, _: &PublicationId) -> Result<Health> {
        refused()
    }

    async fn survey(&self, _: bool) -> Result<Vec<Finding>> {
        refused()
    }

    fn pools(&self) -> Option<&dyn Pools> {
        Some(self)
    }
}

/// The nodes that are connected.
#[derive(Default)]
pub(super) struct TestNodes(Mutex<BTreeMap<NodeId, Arc<PoolNode>>>);

#[async_trait]
impl Nodes for TestNodes {
    async fn get(&self, id: &NodeId) -> Result<Arc<dyn Node>> {
        match self.0.lock().unwrap().get(id) {
            Some(node) => Ok(Arc::clone(node) as Arc<dyn Node>),
            None => Err(Error::new(Kind::Unavailable, format!("node {id} is not connected"))),
        }
    }

    async fn ids(&self) -> Result<Vec<NodeId>> {
        Ok(self.0.lock().unwrap().keys().cloned().collect())
    }
}

impl TestNodes {
    /// Connects a node with this storage.
    pub(super) fn add(
        &self,
        name: &str,
        pool: Option<Arc<dyn Provider>>,
        topology: &[(&str, &str)],
    ) -> Arc<PoolNode> {
        let topology = topology.iter().map(|(key, value)| ((*key).into(), (*value).into()));
        self.insert(PoolNode {
            id: id(name),
            topology: topology.collect(),
            pool: Mutex::new(pool),
            asked: Mutex::default(),
            instead: Mutex::default(),
            silent: false,
        })
    }

    /// Connects a node whose storage hangs.
    pub(super) fn add_silent(&self, name: &str) {
        self.insert(PoolNode {
            id: id(name),
            topology: BTreeMap::new(),
            pool: Mutex::default(),
            asked: Mutex::default(),
            instead: Mutex::default(),
            silent: true,
        });
    }

    fn insert(&self, node: PoolNode) -> Arc<PoolNode> {
        let node = Arc::new(node);
        self.0.lock().unwrap().insert(node.id.clone(), Arc::clone(&node));
        node
    }

    pub(super) fn remove(&self, name: &str) {
        self.0.lock().unwrap().remove(&id(name));
    }
}

/// A class on these nodes.
pub(super) async fn open(nodes: Arc<TestNodes>, kind: PoolKind) -> Arc<dyn Provider> {
    let deps = Deps::new(CLASS.parse().expect("a legal name"), Arc::new(FakeHost::new()));
    let deps = Deps { nodes: Some(nodes), ..deps };
    let settings = json!({ "of": "local", "path": "/pool", "kind": kind });
    let settings = settings.as_object().expect("an object").clone();
    crate::find("on_nodes").expect("in the table").open(settings, &deps).await.expect("valid")
}

/// One node with a pool of its own.
pub(super) struct OneNode {
    pool: PoolRig,
    node: Arc<PoolNode>,
    provider: Arc<dyn Provider>,
}

pub(super) async fn one_node(kind: PoolKind) -> Option<OneNode> {
    let pool = fake(kind).await?;
    let nodes = Arc::new(TestNodes::default());
    let node = nodes.add("node-1", Some(pool.provider()), &[]);
    Some(OneNode { pool, node, provider: open(nodes, kind).await })
}

#[async_trait]
impl ProviderRig for OneNode {
    fn provider(&self) -> Arc<dyn Provider> {
        Arc::clone(&self.provider)
    }

    fn size(&self) -> ByteSize {
        self.pool.size()
    }

    fn place(&self) -> Option<Place> {
        Some(at("node-1"))
    }

    async fn reopen(&mut self) {
        *self.node.pool.lock().unwrap() = None;
        self.pool.reopen().await;
        *self.node.pool.lock().unwrap() = Some(self.pool.provider());
    }

    fn holds(&self) -> Option<BTreeSet<String>> {
        self.pool.holds()
    }

    fn write(&self, info: &ConnectionInfo, content: &[u8]) -> bool {
        self.pool.write(info, content)
    }

    fn read(&self, info: &ConnectionInfo, length: usize) -> Vec<u8> {
        self.pool.read(info, length)
    }

    fn plant_leftover(&self, id: &VolumeId) -> bool {
        self.pool.plant_leftover(id)
    }

    fn host(&self) -> Option<&FakeHost> {
        self.pool.host()
    }
}

/// Several nodes, each with a pool of 1 GiB.
pub(super) struct Cluster {
    pub(super) nodes: Arc<TestNodes>,
    pub(super) provider: Arc<dyn Provider>,
    pub(super) pools: BTreeMap<&'static str, (PoolRig, Arc<PoolNode>)>,
}

/// A cluster of these nodes, each in a zone.
pub(super) async fn cluster(names: &[(&'static str, &str)]) -> Cluster {
    let nodes = Arc::new(TestNodes::default());
    let mut pools = BTreeMap::new();
    for (name, zone) in names {
        let pool = fake(PoolKind::Image).await.expect("always there");
        let node = nodes.add(name, Some(pool.provider()), &[("zone", zone)]);
        pools.insert(*name, (pool, node));
    }
    let provider = open(Arc::clone(&nodes), PoolKind::Image).await;
    Cluster { nodes, provider, pools }
}

impl Cluster {
    /// Leaves so many MiB of room on a node.
    pub(super) fn leave(&self, name: &str, mib: u64) {
        self.pools[name].0.fake().set_usage(crate::local::tests::rig::room(mib));
    }

    pub(super) fn node(&self, name: &str) -> &PoolNode {
        &self.pools[name].1
    }
}
