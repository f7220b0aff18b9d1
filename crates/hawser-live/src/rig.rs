//! The whole of Hawser in one process, with fault points around every port.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hawser_api::link::Hub;
use hawser_connect::FileRegistry;
use hawser_connect::node::{NodeHalf, NodeParts};
use hawser_core::class::Class;
use hawser_core::error::Result;
use hawser_core::id::InstanceId;
use hawser_core::name::NodeId;
use hawser_core::port::{
    Connector, Control, Host, Node, Nodes, Provider, Registry, Store, Upstream,
};
use hawser_engine::control::{ClassEntry, Engine, EngineParts};
use hawser_provider::Deps;
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::fault::{
    Faults, FaultyConnector, FaultyControl, FaultyHost, FaultyNode, FaultyNodes, FaultyProvider,
    FaultyRegistry, FaultyStore,
};
use hawser_testkit::mem_store::MemStore;
use serde_json::json;
use tempfile::TempDir;

/// The one node.
const NODE: &str = "here";

/// What outlives a crash: the host with its files, and the store.
pub struct Rig {
    /// The host.
    pub host: Arc<FakeHost>,
    /// The store.
    pub store: Arc<MemStore>,
    /// Writes are dear: volumes of an orchestrator are recorded when they are made, and what nobody
    /// asks for again for so long is swept.
    pub drafts: Option<Duration>,
    /// Storage that every node reaches; else it is part of the one node that there is.
    pub anywhere: bool,
    instance: InstanceId,
    dir: TempDir,
}

/// One life of the process.
pub struct Life {
    /// What callers talk to.
    pub control: Arc<dyn Control>,
    /// The same for nodes that act by themselves.
    pub upstream: Arc<dyn Upstream>,
    /// The wrapped host, for steps that use it directly.
    pub host: Arc<dyn Host>,
    /// The wrapped store, likewise.
    pub store: Arc<dyn Store>,
    /// The node's id.
    pub node: NodeId,
}

impl Rig {
    /// A fresh host with empty pools. On a memory file system where there is one: a crash of the
    /// process is what is tested here, not one of the machine, and fsync is most of the time.
    pub fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let dir = dir.expect("a temporary folder can be made");
        Self {
            host: Arc::new(FakeHost::at(dir.path())),
            store: Arc::new(MemStore::new()),
            drafts: None,
            anywhere: false,
            instance: InstanceId::generate(),
            dir,
        }
    }

    /// A path on the host.
    pub fn path(&self, name: &str) -> PathBuf {
        self.host.dir().join(name)
    }

    /// The folder that holds everything.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    async fn class(
        &self,
        name: &str,
        kind: &str,
        host: &Arc<dyn Host>,
        faults: &Faults,
    ) -> Result<ClassEntry> {
        let path = self.path(&format!("pool-{name}"));
        let settings = json!({ "path": path, "kind": kind, "overcommit": 1000.0 });
        let settings = settings.as_object().cloned().unwrap_or_default();
        let node = if self.anywhere { None } else { Some(NODE.parse()?) };
        let deps = Deps { node, ..Deps::new(name.parse()?, host.clone()) };
        let provider = hawser_provider::find("local")?.open(settings, &deps).await?;
        let class = Class {
            name: name.parse()?,
            provider: "local".into(),
            settings: Default::default(),
            abilities: provider.abilities(),
            default: name == "default",
        };
        let provider: Arc<dyn Provider> = Arc::new(FaultyProvider::new(provider, faults));
        Ok(ClassEntry { class, provider })
    }

    /// Starts the process: opens everything, recovers, and answers when it is ready.
    pub async fn boot(&self, faults: &Faults) -> Result<Life> {
        self.boot_over(self.store.clone(), faults).await
    }

    /// The same over a store that stands before this rig's own, to make it fail.
    pub async fn boot_over(&self, store: Arc<dyn Store>, faults: &Faults) -> Result<Life> {
        let host: Arc<dyn Host> = Arc::new(FaultyHost::new(self.host.clone(), faults));
        let store: Arc<dyn Store> = Arc::new(FaultyStore::new(store, faults));
        let classes = vec![
            self.class("default", "image", &host, faults).await?,
            self.class("folders", "folder", &host, faults).await?,
        ];
        let registry = FileRegistry::open(&self.path("run"), &self.path("lock"))?;
        let registry: Arc<dyn Registry> = Arc::new(FaultyRegistry::new(Arc::new(registry), faults));
        let local: Arc<dyn Connector> = Arc::new(hawser_connect::Local);
        let local: Arc<dyn Connector> = Arc::new(FaultyConnector::new(local, faults));
        let node: NodeId = NODE.parse()?;
        let half = NodeHalf::new(NodeParts {
            id: node.clone(),
            instance: self.instance.clone(),
            host: host.clone(),
            connectors: vec![local].into(),
            registry,
            pools: Vec::new(),
        });
        half.recover().await?;
        let half: Arc<dyn Node> = Arc::new(FaultyNode::new(Arc::new(half), faults));
        let hub = Hub::default();
        hub.add_local(node.clone(), half);
        let nodes: Arc<dyn Nodes> = Arc::new(FaultyNodes::new(Arc::new(hub), faults));
        let parts = EngineParts {
            instance: self.instance.clone(),
            store: store.clone(),
            classes,
            nodes,
            history: self.drafts.is_none(),
            drafts: self.drafts,
        };
        let engine = Arc::new(Engine::new(parts));
        engine.start().await?;
        let upstream = engine.clone();
        let control: Arc<dyn Control> = Arc::new(FaultyControl::new(engine, faults));
        Ok(Life { control, upstream, host, store, node })
    }
}

impl Default for Rig {
    fn default() -> Self {
        Self::new()
    }
}
