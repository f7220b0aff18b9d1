//! A pool in a temporary folder, on a fake or a real host.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use hawser_core::ByteSize;
use hawser_core::connection::ConnectionInfo;
use hawser_core::id::VolumeId;
use hawser_core::name::NodeId;
use hawser_core::place::Place;
use hawser_core::port::host::FsUsage;
use hawser_core::port::{Host, Provider};
use hawser_testkit::contract::provider::ProviderRig;
use hawser_testkit::fake_host::FakeHost;
use serde_json::{Value, json};

use super::super::PoolKind;

pub(crate) struct PoolRig {
    pub(super) fake: Option<Arc<FakeHost>>,
    host: Arc<dyn Host>,
    pub(super) settings: Value,
    provider: Option<Arc<dyn Provider>>,
    pub(super) path: PathBuf,
    /// The node it is on, where it is told one.
    pub(super) node: Option<NodeId>,
    /// What the pool stands on; goes after the pool.
    pub(super) ground: Option<Box<dyn std::any::Any + Send + Sync>>,
}

/// A pool on a fake host with 1 GiB of room.
pub(crate) async fn fake(kind: PoolKind) -> Option<PoolRig> {
    let host = Arc::new(FakeHost::new());
    host.set_usage(room(1024));
    let path = host.dir().join("pool");
    let settings = json!({ "path": path, "kind": kind });
    Some(PoolRig::new(Some(Arc::clone(&host)), host, settings).await)
}

/// The same on the node that the contract publishes to.
pub(crate) async fn on_node(kind: PoolKind) -> Option<PoolRig> {
    let mut rig = fake(kind).await?;
    rig.node = Some("node-1".parse().expect("a legal name"));
    rig.reopen().await;
    Some(rig)
}

/// A file system of 1 GiB with so much left, in MiB.
pub(crate) fn room(available: u64) -> FsUsage {
    FsUsage {
        total: ByteSize::gib(1),
        available: ByteSize::mib(available),
        used: ByteSize::mib(1024 - available),
        files: 0,
        files_free: 0,
    }
}

async fn open(
    settings: &Value,
    host: &Arc<dyn Host>,
    node: Option<NodeId>,
) -> hawser_core::Result<Arc<dyn Provider>> {
    let settings = settings.as_object().expect("an object").clone();
    let deps = crate::Deps::new("pool".parse().expect("a legal name"), Arc::clone(host));
    crate::find("local")?.open(settings, &crate::Deps { node, ..deps }).await
}

impl PoolRig {
    pub(super) async fn new(
        fake: Option<Arc<FakeHost>>,
        host: Arc<dyn Host>,
        settings: Value,
    ) -> Self {
        let path = PathBuf::from(settings["path"].as_str().expect("a path"));
        let opened = open(&settings, &host, None).await;
        let provider = Some(opened.expect("an empty folder becomes a pool"));
        Self { fake, host, settings, provider, path, node: None, ground: None }
    }

    pub(crate) fn close(&mut self) {
        self.provider = None;
    }

    pub(crate) fn fake(&self) -> &FakeHost {
        self.fake.as_ref().expect("a rig on a fake host")
    }

    pub(super) async fn try_open(&self) -> hawser_core::Result<Arc<dyn Provider>> {
        open(&self.settings, &self.host, self.node.clone()).await
    }
}

#[async_trait]
impl ProviderRig for PoolRig {
    fn provider(&self) -> Arc<dyn Provider> {
        Arc::clone(self.provider.as_ref().expect("the pool is open"))
    }

    fn size(&self) -> ByteSize {
        ByteSize::mib(16)
    }

    fn place(&self) -> Option<Place> {
        self.node.as_ref().map(Place::node)
    }

    async fn reopen(&mut self) {
        self.close();
        self.provider = Some(self.try_open().await.expect("the pool opens again"));
    }

    fn holds(&self) -> Option<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        list(&self.path, &mut names);
        Some(names)
    }

    fn write(&self, info: &ConnectionInfo, content: &[u8]) -> bool {
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create(is_folder(info)).truncate(false);
        let file = file.open(content_file(info)).expect("a published volume can be written");
        file.write_all_at(content, 0).expect("there is room");
        true
    }

    fn read(&self, info: &ConnectionInfo, length: usize) -> Vec<u8> {
        let file = std::fs::File::open(content_file(info)).expect("a published volume can be read");
        let mut content = vec![0; length];
        file.read_exact_at(&mut content, 0).expect("it is as long as what was written");
        content
    }

    fn plant_leftover(&self, id: &VolumeId) -> bool {
        let attempt = self.path.join("staging").join(format!("{id}.7"));
        std::fs::create_dir(&attempt).expect("staging can be written");
        std::fs::write(attempt.join("new"), b"half").expect("staging can be written");
        true
    }

    fn host(&self) -> Option<&FakeHost> {
        self.fake.as_deref()
    }
}

fn is_folder(info: &ConnectionInfo) -> bool {
    info.data["kind"] == "directory"
}

fn content_file(info: &ConnectionInfo) -> PathBuf {
    let path = PathBuf::from(info.data["path"].as_str().expect("a path"));
    if is_folder(info) { path.join("content") } else { path }
}

fn list(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("the pool can be read").flatten() {
        names.insert(entry.path().display().to_string());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            list(&entry.path(), names);
        }
    }
}
