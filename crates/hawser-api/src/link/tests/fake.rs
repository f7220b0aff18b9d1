//! A node that remembers what it was asked, and values to ask it with.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hawser_core::attach::{
    Attach, AttachRecord, AttachState, Attached, Detach, Encryption, EncryptionFormat, Health,
    Identity, Multipath, NodeMount, SingleWriter,
};
use hawser_core::connection::{ConnectionInfo, Protocol};
use hawser_core::doctor::{Finding, FindingCode, Repair};
use hawser_core::filesystem::{FormatState, FsKind};
use hawser_core::id::{InstanceId, PublicationId, VolumeId};
use hawser_core::name::ClassName;
use hawser_core::node::NodeRecord;
use hawser_core::place::Place;
use hawser_core::port::host::FsUsage;
use hawser_core::port::node::{AttachWork, FormatWork, MountWork};
use hawser_core::port::pools::{PoolAnswer, PoolCall};
use hawser_core::port::provider::{Provision, ProvisionSource, VolumeAtProvider};
use hawser_core::port::{Node, Pools};
use hawser_core::secret::Secret;
use hawser_core::volume::Access;
use hawser_core::{ByteSize, Change, Error, Kind, Result, Timestamp};
use tokio::sync::watch;

/// Answers fixed values; can be told to fail, to hold every call back, and to panic.
pub(super) struct FakeNode {
    pub(super) id: String,
    pub(super) boot: String,
    pub(super) seen: Mutex<Vec<String>>,
    pub(super) works: Mutex<Vec<AttachWork>>,
    pub(super) fail: Mutex<Option<fn() -> Error>>,
    pub(super) gate: watch::Sender<bool>,
    pub(super) finished: watch::Sender<usize>,
}

impl FakeNode {
    pub(super) fn new(id: &str) -> Arc<Self> {
        Self::booted(id, "boot-1")
    }

    pub(super) fn booted(id: &str, boot: &str) -> Arc<Self> {
        Arc::new(Self {
            id: id.into(),
            boot: boot.into(),
            seen: Mutex::default(),
            works: Mutex::default(),
            fail: Mutex::default(),
            gate: watch::Sender::new(true),
            finished: watch::Sender::new(0),
        })
    }

    pub(super) fn hold(&self) {
        self.gate.send_replace(false);
    }

    pub(super) fn release(&self) {
        self.gate.send_replace(true);
    }

    pub(super) async fn wait_seen(&self, count: usize) {
        while self.seen.lock().unwrap().len() < count {
            tokio::task::yield_now().await;
        }
    }

    async fn enter(&self, what: String) -> Result<()> {
        self.seen.lock().unwrap().push(what);
        let _ = self.gate.subscribe().wait_for(|open| *open).await;
        self.finished.send_modify(|count| *count += 1);
        let fail = *self.fail.lock().unwrap();
        fail.map_or(Ok(()), |make| Err(make()))
    }
}

#[async_trait]
impl Node for FakeNode {
    // Not counted among the calls: every hello asks for it.
    async fn describe(&self) -> Result<NodeRecord> {
        Ok(NodeRecord {
            id: self.id.parse()?,
            properties: BTreeMap::from([("host".into(), "h".into())]),
            topology: BTreeMap::new(),
            boot_id: self.boot.clone(),
            privileged: true,
            last_seen: Timestamp::UNIX_EPOCH,
        })
    }

    async fn attach(&self, work: &AttachWork) -> Result<Change<Attached>> {
        self.works.lock().unwrap().push(work.clone());
        self.enter(format!("attach {work:?}")).await?;
        Ok(Change::Made(attached()))
    }

    async fn detach(&self, publication: &PublicationId, detach: &Detach) -> Result<Change<()>> {
        self.enter(format!("detach {publication} {detach:?}")).await?;
        Ok(Change::Already(()))
    }

    async fn format(&self, work: &FormatWork) -> Result<Change<()>> {
        self.enter(format!("format {work:?}")).await?;
        Ok(Change::Made(()))
    }

    async fn mount(&self, work: &MountWork) -> Result<Change<()>> {
        self.enter(format!("mount {work:?}")).await?;
        Ok(Change::Made(()))
    }

    async fn unmount(&self, publication: &PublicationId, target: &Path) -> Result<Change<()>> {
        self.enter(format!("unmount {publication} {target:?}")).await?;
        Ok(Change::Made(()))
    }

    async fn extend(&self, publication: &PublicationId, size: ByteSize) -> Result<ByteSize> {
        self.enter(format!("extend {publication} {size}")).await?;
        assert!(size != ByteSize::bytes(13), "thirteen makes this node panic");
        Ok(size.saturating_add(ByteSize::bytes(1)))
    }

    async fn freeze(&self, publication: &PublicationId) -> Result<Change<()>> {
        self.enter(format!("freeze {publication}")).await?;
        Ok(Change::Made(()))
    }

    async fn thaw(&self, publication: &PublicationId) -> Result<Change<()>> {
        self.enter(format!("thaw {publication}")).await?;
        Ok(Change::Already(()))
    }

    async fn attachments(&self) -> Result<Vec<AttachRecord>> {
        self.enter("attachments".into()).await?;
        Ok(vec![record()])
    }

    async fn usage(&self, publication: &PublicationId, target: &Path) -> Result<FsUsage> {
        self.enter(format!("usage {publication} {target:?}")).await?;
        Ok(usage())
    }

    async fn health(&self, publication: &PublicationId) -> Result<Health> {
        self.enter(format!("health {publication}")).await?;
        Ok(Health::bad("a path is down"))
    }

    async fn survey(&self, fix: bool) -> Result<Vec<Finding>> {
        self.enter(format!("survey {fix}")).await?;
        Ok(vec![finding()])
    }

    fn pools(&self) -> Option<&dyn Pools> {
        (self.id != "poor").then_some(self)
    }
}

#[async_trait]
impl Pools for FakeNode {
    async fn call(&self, class: &ClassName, call: PoolCall) -> Result<PoolAnswer> {
        self.enter(format!("pools {class} {call:?}")).await?;
        if let PoolCall::Check(wanted) = call {
            return Ok(PoolAnswer::Size(wanted.size));
        }
        if let PoolCall::Delete(_) = call {
            return Ok(PoolAnswer::Gone(Change::Already(())));
        }
        Err(Error::new(Kind::Unsupported, "nothing else is tested"))
    }
}

pub(super) fn usage() -> FsUsage {
    let [total, available, used] = [8, 5, 3].map(ByteSize::gib);
    FsUsage { total, available, used, files: 1000, files_free: 7 }
}

pub(super) fn publication() -> PublicationId {
    "pub-01k5zzzzzzzzzzzzzzzzzzzzzz".parse().unwrap()
}

pub(super) fn attached() -> Attached {
    Attached::Block {
        device: "/dev/loop3".into(),
        identity: Some(Identity::new("image", "v1")),
        size: ByteSize::gib(1),
    }
}

pub(super) fn attach_work() -> AttachWork {
    let data = serde_json::json!({ "path": "/pool/v1", "qos": { "iops": 7 } });
    let data = data.as_object().unwrap().clone();
    let identity = Some(Identity::new("image", "v1"));
    let mut info = ConnectionInfo::new(Protocol::new("local"), data, identity);
    info.secrets.insert("auth_password".into(), Secret::new("hunter2"));
    AttachWork {
        publication: publication(),
        volume: "vol-01k5zzzzzzzzzzzzzzzzzzzzzz".parse::<VolumeId>().unwrap(),
        info,
        attach: Attach {
            read_only: true,
            multipath: Multipath::Enforced,
            encryption: Some(Encryption {
                format: EncryptionFormat::Luks2,
                cipher: Some("aes-xts-plain64".into()),
                key_size: Some(512),
                format_if_blank: true,
                discards: false,
            }),
            reservation: Some(SingleWriter { key: u64::MAX, preempt: true }),
            ..Attach::default()
        },
    }
}

pub(super) fn format_work() -> FormatWork {
    FormatWork {
        publication: publication(),
        fs: FsKind::Xfs,
        uuid: uuid::Uuid::nil(),
        state: FormatState::Started,
    }
}

pub(super) fn mount_work() -> MountWork {
    MountWork {
        publication: publication(),
        target: "/mnt/a b\n".into(),
        read_only: true,
        flags: vec!["noatime".into()],
        filesystem: Some((FsKind::Ext4, uuid::Uuid::nil())),
        raw: true,
        group: Some(1000),
    }
}

pub(super) fn record() -> AttachRecord {
    let work = attach_work();
    AttachRecord {
        publication: work.publication,
        volume: work.volume,
        info: work.info.without_secrets(),
        attach: work.attach,
        state: AttachState::Attached,
        attached: Some(attached()),
        mounts: vec![NodeMount {
            target: "/mnt".into(),
            read_only: false,
            flags: vec![],
            ready: true,
            made_target: true,
            raw: false,
        }],
        frozen: None,
        instance: "inst-01k5zzzzzzzzzzzzzzzzzzzzzz".parse::<InstanceId>().unwrap(),
        boot_id: "boot-1".into(),
        created: Timestamp::UNIX_EPOCH,
    }
}

pub(super) fn finding() -> Finding {
    Finding {
        code: FindingCode::LeftFrozen,
        subject: "/mnt".into(),
        explanation: "was frozen and never thawed".into(),
        advice: "thaw it".into(),
        fixable: true,
        repair: Some(Repair::Failed("no".into())),
    }
}

pub(super) fn provision() -> Provision {
    Provision {
        id: "vol-01k5zzzzzzzzzzzzzzzzzzzzzz".parse().unwrap(),
        size: ByteSize::gib(2),
        access: Access::Filesystem(FsKind::Ext4),
        source: Some(ProvisionSource::Volume(at_provider())),
        parameters: BTreeMap::from([("tier".into(), "1".into())]),
        place: Some(Place::node(&"n1".parse().unwrap())),
    }
}

pub(super) fn at_provider() -> VolumeAtProvider {
    VolumeAtProvider {
        id: "vol-01k5yyyyyyyyyyyyyyyyyyyyyy".parse().unwrap(),
        handle: "vol-01k5yyyyyyyyyyyyyyyyyyyyyy".into(),
        size: ByteSize::gib(1),
        access: Access::Block,
        parameters: BTreeMap::new(),
        place: None,
        in_use: false,
    }
}
