//! A node half over fakes, and the words the tests share.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use async_trait::async_trait;
use hawser_core::attach::{Attach, AttachRecord, Attached, Detach, Health, Identity, Multipath};
use hawser_core::connection::{ConnectionInfo, Protocol};
use hawser_core::filesystem::{FormatState, FsKind};
use hawser_core::id::{InstanceId, PublicationId, VolumeId};
use hawser_core::port::connector::{Abilities, ConnectorInfo, Maturity, Platform, Proof, Proofs};
use hawser_core::port::host::{LoopAttach, LoopDevice};
use hawser_core::port::node::{AttachWork, FormatWork, MountWork};
use hawser_core::port::registry::{LockGuard, Registered};
use hawser_core::port::{Connector, Host, Node, Registry};
use hawser_core::{ByteSize, Change, Error, Kind, Outcome, Result};
use hawser_testkit::fake_host::{FakeHost, When};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

use crate::node::{Connectors, NodeHalf, NodeParts};

/// Records in memory, whose n-th call can fail.
#[derive(Default)]
pub(super) struct MemRegistry {
    pub(super) records: Mutex<BTreeMap<PublicationId, AttachRecord>>,
    pub(super) unreadable: Mutex<Vec<(PathBuf, String)>>,
    locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    fault: Mutex<Option<(usize, When)>>,
}

struct MemGuard(#[expect(dead_code, reason = "held, not read")] OwnedMutexGuard<()>);

impl LockGuard for MemGuard {}

impl MemRegistry {
    pub(super) fn fail_call(&self, nth: usize, when: When) {
        *self.fault.lock().unwrap() = Some((nth, when));
    }

    /// True when the fault was met.
    pub(super) fn heal(&self) -> bool {
        self.fault.lock().unwrap().take().is_none()
    }

    pub(super) fn record(&self, id: &PublicationId) -> Option<AttachRecord> {
        self.records.lock().unwrap().get(id).cloned()
    }

    pub(super) fn edit(&self, id: &PublicationId, change: impl FnOnce(&mut AttachRecord)) {
        change(self.records.lock().unwrap().get_mut(id).unwrap());
    }

    async fn call<T>(&self, act: impl FnOnce() -> T) -> Result<T> {
        tokio::task::yield_now().await;
        let strike = {
            let mut fault = self.fault.lock().unwrap();
            match *fault {
                Some((0, when)) => {
                    *fault = None;
                    Some(when)
                }
                Some((n, when)) => {
                    *fault = Some((n - 1, when));
                    None
                }
                None => None,
            }
        };
        let failed = |outcome| {
            Err(Error::new(Kind::Unavailable, "the registry failed (scripted)")
                .with_outcome(outcome))
        };
        if strike == Some(When::Before) {
            return failed(Outcome::Nothing);
        }
        let answer = act();
        tokio::task::yield_now().await;
        if strike == Some(When::After) { failed(Outcome::Unknown) } else { Ok(answer) }
    }
}

#[async_trait]
impl Registry for MemRegistry {
    async fn lock(&self, name: &str) -> Result<Box<dyn LockGuard>> {
        let lock = Arc::clone(self.locks.lock().unwrap().entry(name.to_owned()).or_default());
        self.call(|| ()).await?;
        Ok(Box::new(MemGuard(lock.lock_owned().await)))
    }

    async fn get(&self, publication: &PublicationId) -> Result<Option<AttachRecord>> {
        self.call(|| self.record(publication)).await
    }

    async fn put(&self, record: &AttachRecord) -> Result<()> {
        let put =
            || self.records.lock().unwrap().insert(record.publication.clone(), record.clone());
        self.call(put).await.map(|_| ())
    }

    async fn remove(&self, publication: &PublicationId) -> Result<Change<()>> {
        let removed = self.call(|| self.records.lock().unwrap().remove(publication)).await?;
        Ok(if removed.is_some() { Change::Made(()) } else { Change::Already(()) })
    }

    async fn list(&self) -> Result<Registered> {
        self.call(|| Registered {
            records: self.records.lock().unwrap().values().cloned().collect(),
            unreadable: self.unreadable.lock().unwrap().clone(),
        })
        .await
    }
}

/// Connects image files by loop devices, and folders by their path.
#[derive(Default)]
pub(super) struct FakeConnector {
    /// What every device says of itself from now on, in place of its file's name.
    pub(super) identity: Mutex<Option<Identity>>,
    /// What is wrong with everything that is attached.
    pub(super) sick: Mutex<Option<String>>,
    /// What the next connect answers.
    pub(super) connect: Mutex<Option<Error>>,
    /// Over how many paths each connect was asked for.
    pub(super) asked: Mutex<Vec<Multipath>>,
    /// What the next disconnect answers.
    pub(super) disconnect: Mutex<Option<Error>>,
    /// Disconnects nothing may ask for.
    pub(super) disconnects: Mutex<usize>,
}

#[derive(Deserialize)]
struct Data {
    file: Option<PathBuf>,
    folder: Option<PathBuf>,
    mark: String,
}

impl FakeConnector {
    async fn find(&self, host: &dyn Host, data: &Data) -> Result<Option<LoopDevice>> {
        let devices = host.loop_devices().await?;
        Ok(devices.into_iter().find(|device| {
            Some(&device.backing_file) == data.file.as_ref()
                && device.mark.as_ref() == Some(&data.mark)
        }))
    }

    async fn block(&self, host: &dyn Host, device: &LoopDevice) -> Result<Attached> {
        let name = device.backing_file.display().to_string();
        let identity = self.identity.lock().unwrap().clone();
        Ok(Attached::Block {
            device: device.device.clone(),
            identity: Some(identity.unwrap_or_else(|| Identity::new("image", name))),
            size: host.device_size(&device.device).await?,
        })
    }
}

#[async_trait]
impl Connector for FakeConnector {
    fn info(&self) -> &'static ConnectorInfo {
        static INFO: ConnectorInfo = ConnectorInfo {
            protocols: &["FAKE"],
            maturity: Maturity::Preview,
            note: "for tests",
            platforms: &[Platform::All],
            abilities: Abilities {
                extend: true,
                multipath: None,
                encryption: false,
                reservation: false,
            },
            proofs: Proofs::of(Proof::Fixtures),
            own: &[],
            needs: &[],
        };
        &INFO
    }

    async fn connect(
        &self,
        host: &dyn Host,
        info: &ConnectionInfo,
        attach: &Attach,
    ) -> Result<Change<Attached>> {
        self.asked.lock().unwrap().push(attach.multipath);
        if let Some(error) = self.connect.lock().unwrap().take() {
            return Err(error);
        }
        let data: Data = info.parse()?;
        if let Some(path) = data.folder {
            return Ok(Change::Already(Attached::Directory { path }));
        }
        let ask = LoopAttach {
            file: data.file.unwrap(),
            mark: data.mark,
            read_only: attach.read_only,
            sector_size: 512,
        };
        let change = host.attach_loop(&ask).await?;
        let attached = self.block(host, change.get()).await;
        // As the contract has it: a failed connect leaves nothing behind.
        match attached {
            Ok(attached) => Ok(change.map(|_| attached)),
            Err(error) => match host.detach_loop(change.get(), false).await {
                Ok(_) => Err(error.with_outcome(Outcome::RolledBack)),
                Err(_) => Err(error.with_outcome(Outcome::Unknown)),
            },
        }
    }

    async fn disconnect(
        &self,
        host: &dyn Host,
        record: &AttachRecord,
        _detach: &Detach,
    ) -> Result<Change<()>> {
        *self.disconnects.lock().unwrap() += 1;
        if let Some(error) = self.disconnect.lock().unwrap().take() {
            return Err(error);
        }
        match self.find(host, &record.info.parse()?).await? {
            Some(device) => host.detach_loop(&device, false).await,
            None => Ok(Change::Already(())),
        }
    }

    async fn extend(&self, host: &dyn Host, record: &AttachRecord) -> Result<ByteSize> {
        match self.find(host, &record.info.parse()?).await? {
            Some(device) => host.resize_loop(&device).await,
            None => Ok(ByteSize::ZERO),
        }
    }

    async fn lookup(&self, host: &dyn Host, info: &ConnectionInfo) -> Result<Option<Attached>> {
        let data: Data = info.parse()?;
        if let Some(path) = data.folder {
            return Ok(path.exists().then_some(Attached::Directory { path }));
        }
        match self.find(host, &data).await? {
            Some(device) => self.block(host, &device).await.map(Some),
            None => Ok(None),
        }
    }

    async fn health(&self, _host: &dyn Host, _record: &AttachRecord) -> Result<Health> {
        let sick = self.sick.lock().unwrap();
        Ok(sick.as_ref().map_or_else(Health::good, |message| Health::bad(message.clone())))
    }
}

/// One volume on one fake host.
pub(super) struct Rig {
    pub(super) host: Arc<FakeHost>,
    pub(super) registry: Arc<MemRegistry>,
    pub(super) connector: Arc<FakeConnector>,
    pub(super) node: NodeHalf,
    pub(super) instance: InstanceId,
    pub(super) publication: PublicationId,
    pub(super) volume: VolumeId,
    pub(super) image: PathBuf,
    pub(super) uuid: Uuid,
}

pub(super) const SIZE: ByteSize = ByteSize::mib(16);

impl Rig {
    pub(super) fn new() -> Self {
        let host = Arc::new(FakeHost::new());
        let image = host.add_image("volume.img", SIZE);
        let registry = Arc::<MemRegistry>::default();
        let connector = Arc::<FakeConnector>::default();
        let instance = InstanceId::generate();
        let node = node(&host, &registry, &connector, &instance);
        let (publication, volume) = (PublicationId::generate(), VolumeId::generate());
        let uuid = Uuid::new_v4();
        Self { host, registry, connector, node, instance, publication, volume, image, uuid }
    }

    /// The same host after the process died: nothing but records and the host is left.
    pub(super) fn restarted(&self) -> NodeHalf {
        node(&self.host, &self.registry, &self.connector, &self.instance)
    }

    /// Another instance on the same host.
    pub(super) fn stranger(&self) -> NodeHalf {
        node(&self.host, &self.registry, &self.connector, &InstanceId::generate())
    }

    pub(super) fn attach_work(&self) -> AttachWork {
        let data = json!({ "file": self.image, "mark": self.volume });
        self.work(data)
    }

    pub(super) fn folder_work(&self) -> (AttachWork, PathBuf) {
        let folder = self.host.dir().join("folder");
        fs::create_dir_all(&folder).unwrap();
        (self.work(json!({ "folder": folder, "mark": self.volume })), folder)
    }

    fn work(&self, data: serde_json::Value) -> AttachWork {
        let data = data.as_object().unwrap().clone();
        AttachWork {
            publication: self.publication.clone(),
            volume: self.volume.clone(),
            info: ConnectionInfo::new(Protocol::new("fake"), data, None),
            attach: Attach::default(),
        }
    }

    pub(super) fn format_work(&self, state: FormatState) -> FormatWork {
        let publication = self.publication.clone();
        FormatWork { publication, fs: FsKind::Ext4, uuid: self.uuid, state }
    }

    pub(super) fn target(&self) -> PathBuf {
        self.host.dir().join("target")
    }

    pub(super) fn mount_work(&self) -> MountWork {
        MountWork {
            publication: self.publication.clone(),
            target: self.target(),
            read_only: false,
            flags: Vec::new(),
            filesystem: Some((FsKind::Ext4, self.uuid)),
            raw: false,
            group: None,
        }
    }

    /// The device itself, shown in a file.
    pub(super) fn raw_work(&self, read_only: bool) -> MountWork {
        MountWork { read_only, filesystem: None, raw: true, ..self.mount_work() }
    }

    pub(super) fn record(&self) -> Option<AttachRecord> {
        self.registry.record(&self.publication)
    }

    pub(super) fn is_mounted(&self) -> bool {
        self.host.snapshot().mounts.iter().any(|entry| entry.target == self.target())
    }

    pub(super) async fn attached(self) -> Self {
        self.node.attach(&self.attach_work()).await.unwrap();
        self
    }

    pub(super) async fn formatted(self) -> Self {
        let rig = self.attached().await;
        rig.node.format(&rig.format_work(FormatState::Started)).await.unwrap();
        rig
    }

    pub(super) async fn mounted(self) -> Self {
        let rig = self.formatted().await;
        rig.node.mount(&rig.mount_work()).await.unwrap();
        rig
    }

    pub(super) fn device(&self) -> PathBuf {
        self.record().unwrap().attached.unwrap().path().to_owned()
    }

    /// Another file takes the device's place, as when a path leads to the wrong disk.
    pub(super) fn change_identity(&self) {
        *self.connector.identity.lock().unwrap() = Some(Identity::new("image", "somebody-else"));
    }

    pub(super) fn grow_image(&self, size: ByteSize) {
        fs::OpenOptions::new().write(true).open(&self.image).unwrap().set_len(size.get()).unwrap();
    }

    /// Everything on the host is named by a record, so that a crash now would lose nothing.
    pub(super) fn check_journal(&self) {
        let state = self.host.snapshot();
        let record = self.record();
        if !state.loops.is_empty() {
            assert!(record.is_some(), "a device without a record");
        }
        for entry in &state.mounts {
            let mounts = &record.as_ref().expect("a mount without a record").mounts;
            assert!(mounts.iter().any(|m| m.target == entry.target), "a mount nobody recorded");
        }
        if !state.marked.is_empty() {
            let mounts = &record.as_ref().expect("a mark without a record").mounts;
            assert!(mounts.iter().any(|m| m.raw && m.read_only), "a mark nobody recorded");
        }
        if !state.frozen.is_empty() {
            assert!(record.unwrap().frozen.is_some(), "a freeze nobody recorded");
        } else if self.target().exists() {
            let mounts = record.expect("a folder without a record").mounts;
            assert!(mounts.iter().any(|m| m.made_target), "a folder nobody recorded");
        }
    }
}

fn node(
    host: &Arc<FakeHost>,
    registry: &Arc<MemRegistry>,
    connector: &Arc<FakeConnector>,
    instance: &InstanceId,
) -> NodeHalf {
    let connector: Arc<dyn Connector> = Arc::<FakeConnector>::clone(connector);
    NodeHalf::new(NodeParts {
        id: "node-1".parse().unwrap(),
        instance: instance.clone(),
        host: Arc::<FakeHost>::clone(host),
        connectors: Connectors::from(vec![connector]),
        registry: Arc::<MemRegistry>::clone(registry),
        pools: Vec::new(),
    })
}

/// Polls a future so many times and drops it, as a caller does who goes away.
pub(super) async fn drop_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

/// The refusal, after a check that it says these words and is of this kind.
#[track_caller]
pub(super) fn refused<T: std::fmt::Debug>(result: Result<T>, kind: Kind, words: &[&str]) -> Error {
    let error = result.expect_err("it must be refused");
    let sentence = error.sentence();
    assert_eq!(error.kind(), kind, "{sentence}");
    for word in words {
        assert!(sentence.contains(word), "{word:?} is not in {sentence:?}");
    }
    error
}

pub(super) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
