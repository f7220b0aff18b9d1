//! A stage for tests of the engine over the fake host: a machine whose process can die, and a store
//! whose writes can go wrong.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use hawser_core::change::Change;
use hawser_core::error::{Error, Kind, Outcome, Result};
use hawser_core::group::{GroupRef, GroupRequest};
use hawser_core::name::{Alias, Labels};
use hawser_core::page::PageRequest;
use hawser_core::port::control::{Reply, VolumeFilter};
use hawser_core::port::store::{Cas, Key, Listing, Prefix, Revision, Store, Versioned, Watched};
use hawser_core::publication::MountRequest;
use hawser_core::size::ByteSize;
use hawser_core::snapshot::SnapshotRequest;
use hawser_core::volume::{Volume, VolumeRef, VolumeRequest};
use hawser_testkit::fault::Faults;
use hawser_testkit::mem_store::MemStore;

use crate::rig::{Life, Rig};

/// Long enough for anything on a fake host.
pub const WAIT: Duration = Duration::from_secs(20);
/// Long enough to begin, too short for what hangs.
pub const SHORT: Duration = Duration::from_millis(50);

/// What happens to one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    /// Nothing is written, and the error says so.
    Refused,
    /// Written, and the answer is lost.
    AnswerLost,
    /// Written, and there is never an answer.
    Silent,
    /// Nothing is written, and there is never an answer.
    Swallowed,
    /// Nothing is written, and nobody can tell.
    Lost,
}

type Rule = Box<dyn Fn(&str, &Key, &[u8]) -> Option<Strike> + Send + Sync>;

/// A store whose next write that a rule picks goes wrong.
pub struct Moody {
    inner: Arc<MemStore>,
    rule: Mutex<Option<Rule>>,
    struck: AtomicBool,
    writes: Mutex<Vec<String>>,
}

fn lost() -> Error {
    let lost = Error::new(Kind::Timeout, "the store's answer was lost");
    lost.with_outcome(Outcome::Unknown)
}

impl Moody {
    /// Before the store of a rig; nothing goes wrong yet.
    pub fn over(rig: &Rig) -> Arc<Self> {
        let inner = rig.store.clone();
        let (rule, struck, writes) = (Mutex::new(None), AtomicBool::new(false), Mutex::default());
        Arc::new(Self { inner, rule, struck, writes })
    }

    /// All writes so far, as `create volume/…`.
    pub fn writes(&self) -> Vec<String> {
        self.writes.lock().expect("not poisoned").clone()
    }

    /// The first write that the rule picks goes wrong as it says.
    pub fn strike_once(
        &self,
        rule: impl Fn(&str, &Key, &[u8]) -> Option<Strike> + Send + Sync + 'static,
    ) {
        *self.rule.lock().expect("not poisoned") = Some(Box::new(rule));
    }

    /// True when a write went wrong.
    pub fn struck(&self) -> bool {
        self.struck.load(Ordering::Relaxed)
    }

    fn pick(&self, method: &str, key: &Key, value: &[u8]) -> Option<Strike> {
        self.writes.lock().expect("not poisoned").push(format!("{method} {key}"));
        let mut rule = self.rule.lock().expect("not poisoned");
        let strike = rule.as_ref()?(method, key, value)?;
        *rule = None;
        self.struck.store(true, Ordering::Relaxed);
        Some(strike)
    }

    async fn write(
        &self,
        strike: Option<Strike>,
        write: impl Future<Output = Result<Cas>> + Send,
    ) -> Result<Cas> {
        match strike {
            None => write.await,
            Some(Strike::Refused) => Err(Error::new(Kind::Unavailable, "the store is away")),
            Some(Strike::AnswerLost) => {
                let _ = write.await?;
                Err(lost())
            }
            Some(Strike::Lost) => Err(lost()),
            Some(Strike::Silent) => {
                let _ = write.await?;
                std::future::pending().await
            }
            Some(Strike::Swallowed) => std::future::pending().await,
        }
    }
}

#[async_trait]
impl Store for Moody {
    async fn get(&self, key: &Key) -> Result<Option<Versioned>> {
        self.inner.get(key).await
    }
    async fn create(&self, key: &Key, value: Bytes) -> Result<Cas> {
        let strike = self.pick("create", key, &value);
        self.write(strike, self.inner.create(key, value)).await
    }
    async fn put(&self, key: &Key, value: Bytes, expected: Revision) -> Result<Cas> {
        let strike = self.pick("put", key, &value);
        self.write(strike, self.inner.put(key, value, expected)).await
    }
    async fn delete(&self, key: &Key, expected: Revision) -> Result<Cas> {
        let strike = self.pick("delete", key, &[]);
        self.write(strike, self.inner.delete(key, expected)).await
    }
    async fn list(&self, prefix: &Prefix, after: Option<&Key>, limit: usize) -> Result<Listing> {
        self.inner.list(prefix, after, limit).await
    }
    async fn watch(
        &self,
        prefix: &Prefix,
        after: Revision,
    ) -> Result<futures_core::stream::BoxStream<'static, Result<Watched>>> {
        self.inner.watch(prefix, after).await
    }
}

/// True for the record of a volume.
pub fn is_volume(key: &Key) -> bool {
    key.as_str().starts_with("volume/")
}

/// True when a value contains a text.
pub fn says(value: &[u8], text: &str) -> bool {
    String::from_utf8_lossy(value).contains(text)
}

/// One life of the process, and what tests do with it.
pub struct Stage {
    /// The machine.
    pub rig: Arc<Rig>,
    /// Its store.
    pub store: Arc<Moody>,
    /// The process.
    pub life: Life,
}

/// What outlives the process.
pub struct Machine {
    /// Its host and files.
    pub rig: Arc<Rig>,
    /// Its store.
    pub store: Arc<Moody>,
}

impl Machine {
    /// A fresh machine.
    pub fn new() -> Self {
        let rig = Rig::new();
        std::fs::create_dir(rig.path("mnt")).expect("the host's folder can be written");
        let store = Moody::over(&rig);
        Self { rig: Arc::new(rig), store }
    }

    /// The same with a store whose writes are dear: what nobody asks for again for so long is swept.
    pub fn dear(patience: Duration) -> Self {
        let mut machine = Self::new();
        let rig = Arc::get_mut(&mut machine.rig).expect("nobody else has it yet");
        rig.drafts = Some(patience);
        machine
    }

    /// The same with storage that every node reaches.
    #[must_use]
    pub fn of_the_network(mut self) -> Self {
        let rig = Arc::get_mut(&mut self.rig).expect("nobody else has it yet");
        rig.anywhere = true;
        self
    }

    /// Starts the process.
    pub async fn start(&self) -> Stage {
        let (rig, store) = (self.rig.clone(), self.store.clone());
        let life = rig.boot_over(store.clone(), &Faults::counting()).await.expect("it starts");
        Stage { rig, store, life }
    }

    /// One life of the process; when `live` returns it dies, with whatever it was at.
    pub fn life(&self, live: impl AsyncFnOnce(Stage)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime can be made");
        runtime.block_on(async { live(self.start().await).await });
        runtime.shutdown_timeout(WAIT);
        self.rig.host.heal();
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

impl Stage {
    /// Waits until a write went wrong; whoever asked for it may have been told that it takes longer.
    pub async fn until_struck(&self) {
        self.until("a write goes wrong", async || self.store.struck()).await;
    }

    /// A process on a fresh machine.
    pub async fn new() -> Self {
        Machine::new().start().await
    }

    /// A new volume of 16 MiB.
    pub async fn volume(&self, name: &str) -> Volume {
        done(self.life.control.create_volume(request(name, 16), WAIT).await.expect("created"))
            .into_inner()
    }

    /// A volume.
    pub async fn get(&self, name: &str) -> Volume {
        self.life.control.get_volume(&by_name(name)).await.expect("there")
    }

    /// The folder of this name to mount on.
    pub fn target(&self, name: &str) -> PathBuf {
        self.rig.path(&format!("mnt/{name}"))
    }

    /// Mounts a volume on a folder.
    pub async fn mount_on(&self, name: &str, target: &str) -> Result<Change<()>> {
        let request = MountRequest {
            node: self.life.node.clone(),
            target: self.target(target),
            read_only: false,
            flags: Vec::new(),
        };
        let reply = self.life.control.mount(&by_name(name), request, WAIT).await?;
        Ok(done(reply).map(drop))
    }

    /// Mounts a volume on the folder of its name.
    pub async fn mount(&self, name: &str) {
        self.mount_on(name, name).await.expect("mounted");
    }

    /// What is mounted on the host.
    pub fn mounted(&self) -> BTreeSet<PathBuf> {
        self.rig.host.snapshot().mounts.iter().map(|mount| mount.target.clone()).collect()
    }

    /// Waits until something is so.
    pub async fn until<F: Future<Output = bool>>(&self, what: &str, mut so: impl FnMut() -> F) {
        let deadline = tokio::time::Instant::now() + WAIT;
        while !so().await {
            assert!(tokio::time::Instant::now() < deadline, "never: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until no operation holds a volume.
    pub async fn until_free(&self, name: &str) {
        let free = async || self.get(name).await.operation.is_none();
        self.until(&format!("{name} is free"), free).await;
    }

    /// Waits until exactly these volumes are mounted, each on the folder of its name, and free.
    pub async fn until_mounted(&self, names: &[&str]) {
        let wanted: BTreeSet<_> = names.iter().map(|name| self.target(name)).collect();
        self.until(&format!("{names:?} are mounted"), async || self.mounted() == wanted).await;
        for name in names {
            self.until_free(name).await;
        }
    }

    /// The names of all volumes.
    pub async fn names(&self) -> Vec<String> {
        let all = PageRequest::largest();
        let found = self.life.control.list_volumes(&VolumeFilter::default(), &all).await;
        found.expect("listed").items.iter().map(Volume::display_name).collect()
    }

    /// Changes a volume's record behind the engine's back.
    pub async fn rewrite(&self, volume: &Volume, change: impl FnOnce(&mut serde_json::Value)) {
        let key = Key::join(&["volume", volume.id.as_str()]);
        let found = self.rig.store.get(&key).await.expect("readable").expect("there");
        let mut record = serde_json::from_slice(&found.value).expect("JSON");
        change(&mut record);
        let value = serde_json::to_vec(&record).expect("JSON");
        let written =
            self.rig.store.put(&key, value.into(), found.revision).await.expect("writable");
        assert!(matches!(written, Cas::Done(_)));
    }

    /// The doctor finds nothing.
    pub async fn assert_healthy(&self) {
        assert_eq!(self.life.control.doctor(false).await.expect("it looks"), []);
    }
}

/// A name.
pub fn alias(name: &str) -> Alias {
    Alias::native(name).expect("a legal name")
}

/// A volume by its name.
pub fn by_name(name: &str) -> VolumeRef {
    VolumeRef::Alias(alias(name))
}

/// A request for a volume.
pub fn request(name: &str, mib: u64) -> VolumeRequest {
    VolumeRequest::new(alias(name), ByteSize::mib(mib))
}

/// A request for a snapshot of a volume.
pub fn snapshot_of(volume: &str) -> SnapshotRequest {
    let alias = alias(&format!("{volume}-s"));
    SnapshotRequest { alias, volume: by_name(volume), labels: Labels::default() }
}

/// A request for a group of volumes.
pub fn group_of(name: &str, volumes: &[&str]) -> GroupRequest {
    let volumes = volumes.iter().map(|name| by_name(name)).collect();
    GroupRequest { alias: alias(name), volumes, labels: Labels::default() }
}

/// A group by its name.
pub fn group_named(name: &str) -> GroupRef {
    GroupRef::Alias(alias(name))
}

/// The answer of what must be done by now.
pub fn done<T: std::fmt::Debug>(reply: Reply<T>) -> Change<T> {
    match reply {
        Reply::Done(change) => change,
        Reply::Pending(operation) => panic!("still running: {operation:?}"),
    }
}
