//! The whole of Hawser in one process over the real host, with its pool on a file system of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hawser_api::link::Hub;
use hawser_connect::node::{NodeHalf, NodeParts};
use hawser_connect::{CONNECTORS, FileRegistry};
use hawser_core::class::Class;
use hawser_core::error::{Error, Kind, Result};
use hawser_core::filesystem::FsKind;
use hawser_core::group::{GroupRef, GroupRequest};
use hawser_core::id::InstanceId;
use hawser_core::name::{Alias, Labels, NodeId};
use hawser_core::port::control::Reply;
use hawser_core::port::host::{HostMount, LoopAttach, MountSource};
use hawser_core::port::{Control, Host};
use hawser_core::publication::MountRequest;
use hawser_core::size::ByteSize;
use hawser_core::snapshot::{SnapshotRef, SnapshotRequest};
use hawser_core::volume::{Access, SourceRef, Volume, VolumeRef, VolumeRequest};
use hawser_engine::control::{ClassEntry, Engine, EngineParts};
use hawser_host::{HostSettings, LinuxHost};
use hawser_provider::Deps;
use hawser_testkit::mem_store::MemStore;
use serde_json::json;
use uuid::Uuid;

use crate::process::{Ground, is_root};

const WAIT: Duration = Duration::from_secs(120);

/// How large the pool's file system is; the file below it is sparse.
const DISK: u64 = 3 << 30;

/// An engine whose one class is a pool of images.
pub struct Real {
    /// This machine.
    pub host: Arc<LinuxHost>,
    control: Arc<dyn Control>,
    node: NodeId,
    disk: PathBuf,
    // Last, so that it cleans up after everything else has let go.
    ground: Ground,
}

/// True when the program is installed; else says that the test does not run.
#[track_caller]
pub fn has(program: &str) -> bool {
    let places = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
    let found = places.iter().any(|place| Path::new(place).join(program).exists());
    if !found {
        hawser_testkit::skip(format!("needs {program}"));
    }
    found
}

impl Real {
    /// An engine with an empty pool on a file system of this kind; `None`, with the reason told,
    /// where that cannot be made.
    pub async fn start(pool: FsKind) -> Option<Self> {
        if !is_root() || !FsKind::ALL.iter().all(|fs| has(&format!("mkfs.{fs}"))) {
            return None;
        }
        let ground = Ground::new();
        let host = Arc::new(LinuxHost::new(HostSettings::default()));
        let disk = make_disk(&ground, &host, pool).await.expect("a file system for the pool");
        let (control, node) = assemble(&host, &disk).await.expect("an engine");
        Some(Self { host, control, node, disk, ground })
    }

    /// Where the pool's file system is mounted.
    pub fn disk(&self) -> &Path {
        &self.disk
    }

    /// Where a volume is mounted.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.ground.mounts().join(name)
    }

    /// The image of a volume.
    pub fn image(&self, volume: &Volume) -> PathBuf {
        self.disk.join("pool/volumes").join(format!("{}.img", volume.id))
    }

    /// Everything in the pool.
    pub fn pool(&self) -> Vec<PathBuf> {
        let parts =
            ["volumes", "snapshots", "staging"].map(|part| self.disk.join("pool").join(part));
        let entries = parts.iter().flat_map(|part| std::fs::read_dir(part).into_iter().flatten());
        entries.flatten().map(|entry| entry.path()).collect()
    }

    /// How much of the pool's file system is used, with everything written to it.
    pub async fn used(&self) -> u64 {
        self.host.sync_filesystem(&self.disk).await.expect("it can be synced");
        self.host.usage(&self.disk).await.expect("it is mounted").used.get()
    }

    /// Makes an empty volume with a file system.
    pub async fn create(&self, name: &str, size: ByteSize, fs: FsKind) -> Result<Volume> {
        let mut request = VolumeRequest::new(alias(name), size);
        request.access = Some(Access::Filesystem(fs));
        done(self.control.create_volume(request, WAIT).await?)
    }

    /// Makes a volume as a copy.
    pub async fn copy(&self, name: &str, source: SourceRef) -> Result<Volume> {
        let mut request = VolumeRequest::new(alias(name), ByteSize::ZERO);
        (request.size, request.source) = (None, Some(source));
        done(self.control.create_volume(request, WAIT).await?)
    }

    /// Takes a snapshot.
    pub async fn snapshot(&self, name: &str, of: &str) -> Result<()> {
        let (alias, labels) = (alias(name), Labels::default());
        let request = SnapshotRequest { alias, volume: volume(of), labels };
        done(self.control.create_snapshot(request, WAIT).await?).map(drop)
    }

    /// Takes a group, and answers the names of its snapshots.
    pub async fn group(&self, name: &str, of: &[&str]) -> Result<Vec<String>> {
        let volumes = of.iter().map(|name| volume(name)).collect();
        let request = GroupRequest { alias: alias(name), volumes, labels: Labels::default() };
        let group = done(self.control.create_group(request, WAIT).await?)?;
        Ok(group.snapshots.iter().map(|snapshot| snapshot.alias.to_string()).collect())
    }

    /// Removes a group.
    pub async fn delete_group(&self, name: &str) -> Result<()> {
        let by_name = GroupRef::Alias(alias(name));
        done(self.control.delete_group(&by_name, WAIT).await?)
    }

    /// Mounts a volume on the folder of its name.
    pub async fn mount(&self, name: &str) -> Result<PathBuf> {
        let target = self.folder(name);
        let (node, flags) = (self.node.clone(), Vec::new());
        let request = MountRequest { node, target: target.clone(), read_only: false, flags };
        done(self.control.mount(&volume(name), request, WAIT).await?).map(|_| target)
    }

    /// Unmounts a volume.
    pub async fn unmount(&self, name: &str) -> Result<()> {
        done(self.control.unmount(&volume(name), &self.node, None, WAIT).await?)
    }

    /// Makes a volume larger.
    pub async fn expand(&self, name: &str, size: ByteSize) -> Result<()> {
        done(self.control.expand_volume(&volume(name), size, WAIT).await?).map(drop)
    }

    /// Removes a volume.
    pub async fn delete(&self, name: &str) -> Result<()> {
        done(self.control.delete_volume(&volume(name), WAIT).await?)
    }

    /// Removes a snapshot.
    pub async fn delete_snapshot(&self, name: &str) -> Result<()> {
        done(self.control.delete_snapshot(&snapshot(name), WAIT).await?)
    }

    /// A volume as it is now.
    pub async fn show(&self, name: &str) -> Result<Volume> {
        self.control.get_volume(&volume(name)).await
    }

    /// Panics when the pool holds something, a volume is attached, or the doctor finds something.
    pub async fn assert_empty(&self) {
        assert_eq!(self.pool(), [""; 0].map(PathBuf::from), "left in the pool");
        let loops = self.host.loop_devices().await.expect("loop devices can be listed");
        let left: Vec<_> =
            loops.iter().filter(|device| device.backing_file.starts_with(&self.disk)).collect();
        assert!(left.is_empty(), "left attached: {left:?}");
        assert_eq!(self.control.doctor(false).await.expect("the doctor looks"), []);
    }
}

/// Makes and mounts the file system of the pool.
async fn make_disk(ground: &Ground, host: &LinuxHost, fs: FsKind) -> Result<PathBuf> {
    let (file, disk) = (ground.path().join("disk.img"), ground.path().join("disk"));
    let made = std::fs::File::create(&file).and_then(|file| file.set_len(DISK));
    made.and_then(|()| std::fs::create_dir(&disk)).expect("the ground can be written");
    let mark = format!("hawser-live-{}", std::process::id());
    let attach = LoopAttach { file, mark, read_only: false, sector_size: 512 };
    let device = host.attach_loop(&attach).await?.into_inner().device;
    host.make_filesystem(&device, fs, Uuid::new_v4()).await?;
    let source = MountSource::Device { device, fs };
    let request = HostMount { source, target: disk.clone(), read_only: false, flags: Vec::new() };
    host.mount(&request).await?;
    Ok(disk)
}

/// Puts the engine together as the program does, with records in memory.
async fn assemble(host: &Arc<LinuxHost>, disk: &Path) -> Result<(Arc<dyn Control>, NodeId)> {
    let host: Arc<dyn Host> = host.clone();
    let settings = json!({ "path": disk.join("pool"), "kind": "image" });
    let settings = settings.as_object().cloned().unwrap_or_default();
    let deps = Deps::new("default".parse()?, host.clone());
    let provider = hawser_provider::find("local")?.open(settings, &deps).await?;
    let class = Class {
        name: "default".parse()?,
        provider: "local".into(),
        settings: Default::default(),
        abilities: provider.abilities(),
        default: true,
    };
    let (instance, id) = (InstanceId::generate(), "here".parse::<NodeId>()?);
    // The host's own, as the program has it: the doctor knows other instances' devices by it.
    let registry = FileRegistry::open("/run/hawser".as_ref(), "/run/lock/hawser".as_ref())?;
    let half = NodeHalf::new(NodeParts {
        id: id.clone(),
        instance: instance.clone(),
        host,
        connectors: CONNECTORS.into(),
        registry: Arc::new(registry),
        pools: Vec::new(),
    });
    let hub = Hub::default();
    hub.add_local(id.clone(), Arc::new(half));
    let classes = vec![ClassEntry { class, provider }];
    let store = Arc::new(MemStore::new());
    let (nodes, history, drafts) = (Arc::new(hub), true, None);
    let engine = Engine::new(EngineParts { instance, store, classes, nodes, history, drafts });
    engine.start().await?;
    Ok((Arc::new(engine), id))
}

fn alias(name: &str) -> Alias {
    Alias::native(name).expect("a legal name")
}

/// A volume by name.
pub fn volume(name: &str) -> VolumeRef {
    VolumeRef::Alias(alias(name))
}

/// A snapshot by name.
pub fn snapshot(name: &str) -> SnapshotRef {
    SnapshotRef::Alias(alias(name))
}

fn done<T>(reply: Reply<T>) -> Result<T> {
    match reply {
        Reply::Done(change) => Ok(change.into_inner()),
        Reply::Pending(operation) => {
            Err(Error::new(Kind::Timeout, format!("not done after {WAIT:?}: {operation:?}")))
        }
    }
}
