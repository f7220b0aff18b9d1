use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use hawser_core::attach::{
    AttachRecord, AttachState, Attached, Detach, Health, Identity, NodeMount,
};
use hawser_core::connection::ConnectionInfo;
use hawser_core::doctor::Finding;
use hawser_core::filesystem::FormatState;
use hawser_core::id::{InstanceId, PublicationId, VolumeId};
use hawser_core::node::NodeRecord;
use hawser_core::port::Node;
use hawser_core::port::host::FsUsage;
use hawser_core::port::node::{AttachWork, FormatWork, MountWork};
use hawser_core::{ByteSize, Change, Error, Kind, Outcome, Reason, Result, Timestamp};
use tokio::sync::RwLock;

use super::{Storage, not_here};

/// A host: attachments in memory, targets on disk.
pub(in crate::csi::tests) struct FakeNode {
    storage: Storage,
    records: Mutex<BTreeMap<PublicationId, AttachRecord>>,
    /// Held by a test, nothing on this host comes to its end.
    pub(in crate::csi::tests) pause: RwLock<()>,
    /// The next mount fails like this.
    pub(in crate::csi::tests) fail_mount: Mutex<Option<fn() -> Error>>,
    /// What is cached cannot be written out.
    pub(in crate::csi::tests) flush_fails: Mutex<bool>,
    pub(in crate::csi::tests) privileged: Mutex<bool>,
    pub(in crate::csi::tests) sick: Mutex<bool>,
    /// Passwords that volumes were attached with.
    pub(in crate::csi::tests) passwords: Mutex<Vec<String>>,
    /// What was asked, in order.
    pub(in crate::csi::tests) asked: Mutex<Vec<&'static str>>,
}

impl FakeNode {
    pub(in crate::csi::tests) fn new(storage: Storage) -> Self {
        Self {
            storage,
            records: Mutex::default(),
            pause: RwLock::default(),
            fail_mount: Mutex::new(None),
            flush_fails: Mutex::new(false),
            privileged: Mutex::new(true),
            sick: Mutex::new(false),
            passwords: Mutex::default(),
            asked: Mutex::default(),
        }
    }

    pub(in crate::csi::tests) fn records(
        &self,
    ) -> MutexGuard<'_, BTreeMap<PublicationId, AttachRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::csi::tests) fn only(&self) -> AttachRecord {
        let records = self.records();
        assert_eq!(records.len(), 1, "one attachment");
        records.values().next().unwrap().clone()
    }

    fn hear(&self, what: &'static str) {
        self.asked.lock().unwrap().push(what);
    }

    fn known(&self, publication: &PublicationId) -> Result<AttachRecord> {
        let record = self.records().get(publication).cloned();
        record.ok_or_else(|| Error::new(Kind::NotFound, format!("{publication} is not known")))
    }

    fn change(&self, publication: &PublicationId, change: impl FnOnce(&mut AttachRecord)) {
        if let Some(record) = self.records().get_mut(publication) {
            change(record);
        }
    }
}

fn refused(kind: Kind, why: &str) -> Error {
    Error::new(kind, why.to_owned())
}

/// The disk that an info leads to: whose info it is does not matter to the storage.
fn disk_of(info: &ConnectionInfo, volume: &VolumeId) -> VolumeId {
    let named = info.identity.as_ref().and_then(|identity| identity.value.parse().ok());
    named.unwrap_or_else(|| volume.clone())
}

/// Makes what is mounted on; true when it was not there. No link is followed, as on a real host.
fn make(target: &Path, raw: bool) -> Result<bool> {
    if target.ancestors().any(Path::is_symlink) {
        return Err(refused(Kind::Invalid, "a symlink is never followed"));
    }
    let made = match raw {
        true => fs::File::create_new(target).map(drop),
        false => fs::create_dir(target),
    };
    match made {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(Error::from_source(Kind::Invalid, error)),
    }
}

fn unmake(target: &Path) {
    let _ = fs::remove_dir(target).or_else(|_| fs::remove_file(target));
}

fn mount_of(work: &MountWork, made: bool) -> NodeMount {
    let json = serde_json::json!({
        "target": work.target,
        "read_only": work.read_only,
        "flags": work.flags,
        "ready": true,
        "made_target": made,
    });
    serde_json::from_value(json).unwrap()
}

#[async_trait]
impl Node for FakeNode {
    async fn describe(&self) -> Result<NodeRecord> {
        Ok(NodeRecord {
            id: "n1".parse().unwrap(),
            properties: BTreeMap::new(),
            topology: BTreeMap::from([("zone".into(), "z1".into())]),
            boot_id: "b".into(),
            privileged: *self.privileged.lock().unwrap(),
            last_seen: Timestamp::now(),
        })
    }

    async fn attach(&self, work: &AttachWork) -> Result<Change<Attached>> {
        self.hear("attach");
        let _going = self.pause.read().await;
        if let Some(password) = work.info.secrets.get("auth_password") {
            self.passwords.lock().unwrap().push(password.expose().to_owned());
        }
        let serial = disk_of(&work.info, &work.volume);
        let disk = self.storage.disks().get(&serial).copied();
        let disk = disk.ok_or_else(|| refused(Kind::NotFound, "the storage has no such disk"))?;
        let mut records = self.records();
        if let Some(record) = records.get(&work.publication) {
            if record.attach.read_only != work.attach.read_only || record.volume != work.volume {
                return Err(refused(Kind::Exists, "it is attached otherwise"));
            }
            return Ok(Change::Already(record.attached.clone().unwrap()));
        }
        if records.values().any(|record| record.volume == work.volume) {
            return Err(refused(Kind::Precondition, "another right has it on this host"));
        }
        let folder = work.info.data.contains_key("folder");
        let device = PathBuf::from(format!("/dev/fake/{serial}"));
        let attached = match folder {
            true => Attached::Directory { path: device },
            false => Attached::Block {
                device,
                identity: Some(Identity::new("serial", serial.as_str())),
                size: disk.size,
            },
        };
        let record = AttachRecord {
            publication: work.publication.clone(),
            volume: work.volume.clone(),
            info: work.info.without_secrets(),
            attach: work.attach.clone(),
            state: AttachState::Attached,
            attached: Some(attached.clone()),
            mounts: Vec::new(),
            frozen: None,
            instance: InstanceId::generate(),
            boot_id: "b".into(),
            created: Timestamp::now(),
        };
        records.insert(work.publication.clone(), record);
        Ok(Change::Made(attached))
    }

    async fn detach(&self, publication: &PublicationId, detach: &Detach) -> Result<Change<()>> {
        self.hear("detach");
        let _going = self.pause.read().await;
        let Ok(record) = self.known(publication) else { return Ok(Change::Already(())) };
        if !record.mounts.is_empty() {
            return Err(refused(Kind::Busy, "it is still mounted"));
        }
        let lost = *self.flush_fails.lock().unwrap();
        if lost && !detach.force {
            let error = refused(Kind::Unavailable, "it cannot be written out");
            return Err(error.with_reason(Some(Reason::FlushFailed)));
        }
        self.records().remove(publication);
        if lost {
            let error = refused(Kind::Unavailable, "what was cached is lost");
            return Err(error.with_reason(Some(Reason::DataLost)));
        }
        Ok(Change::Made(()))
    }

    async fn format(&self, work: &FormatWork) -> Result<Change<()>> {
        self.hear("format");
        let record = self.known(&work.publication)?;
        if record.attach.read_only {
            return Err(refused(Kind::Precondition, "it cannot be written"));
        }
        let mut disks = self.storage.disks();
        let disk = disks.get_mut(&disk_of(&record.info, &record.volume)).unwrap();
        match (work.state, disk.content) {
            (FormatState::Never, None) => Ok(Change::Already(())),
            (FormatState::Started, None) => {
                disk.content = Some((work.fs, work.uuid));
                Ok(Change::Made(()))
            }
            (FormatState::Started, Some((_, uuid))) if uuid == work.uuid => Ok(Change::Made(())),
            (_, _) => Err(refused(Kind::Precondition, "it is not blank")),
        }
    }

    async fn mount(&self, work: &MountWork) -> Result<Change<()>> {
        self.hear("mount");
        let _going = self.pause.read().await;
        if let Some(make) = self.fail_mount.lock().unwrap().take() {
            return Err(make());
        }
        let record = self.known(&work.publication)?;
        let serial = disk_of(&record.info, &record.volume);
        let content = self.storage.disks().get(&serial).and_then(|disk| disk.content);
        if !work.raw && work.filesystem.is_some() && work.filesystem != content {
            return Err(refused(Kind::Precondition, "it holds something else"));
        }
        if let Some(there) = record.mounts.iter().find(|mount| mount.target == work.target) {
            if there.read_only != work.read_only || there.flags != work.flags {
                return Err(refused(Kind::Exists, "it is mounted otherwise"));
            }
            return Ok(Change::Already(()));
        }
        if record.attach.read_only && !work.read_only {
            return Err(refused(Kind::Precondition, "it was attached for reading"));
        }
        let made = make(&work.target, work.raw)?;
        self.change(&work.publication, |record| record.mounts.push(mount_of(work, made)));
        Ok(Change::Made(()))
    }

    async fn unmount(&self, publication: &PublicationId, target: &Path) -> Result<Change<()>> {
        self.hear("unmount");
        let _going = self.pause.read().await;
        let Ok(record) = self.known(publication) else { return Ok(Change::Already(())) };
        let Some(mount) = record.mounts.iter().find(|mount| mount.target == target) else {
            return Ok(Change::Already(()));
        };
        if mount.made_target {
            unmake(target);
        }
        self.change(publication, |record| record.mounts.retain(|mount| mount.target != target));
        Ok(Change::Made(()))
    }

    async fn extend(&self, publication: &PublicationId, wanted: ByteSize) -> Result<ByteSize> {
        self.hear("extend");
        let record = self.known(publication)?;
        let there = self.storage.disks().get(&record.volume).copied().unwrap_or_default().size;
        if there < wanted {
            return Err(refused(Kind::Precondition, "the device is smaller than that"));
        }
        Ok(there)
    }

    async fn freeze(&self, _: &PublicationId) -> Result<Change<()>> {
        not_here()
    }

    async fn thaw(&self, _: &PublicationId) -> Result<Change<()>> {
        not_here()
    }

    async fn attachments(&self) -> Result<Vec<AttachRecord>> {
        Ok(self.records().values().cloned().collect())
    }

    async fn usage(&self, publication: &PublicationId, target: &Path) -> Result<FsUsage> {
        let record = self.known(publication)?;
        if !record.mounts.iter().any(|mount| mount.target == target) {
            return Err(refused(Kind::NotFound, "it is not there"));
        }
        let total = self.storage.disks()[&record.volume].size;
        let used = if target.is_dir() { ByteSize::mib(1) } else { ByteSize::ZERO };
        let files = if target.is_dir() { 1000 } else { 0 };
        Ok(FsUsage { total, available: total, used, files, files_free: files / 2 })
    }

    async fn health(&self, publication: &PublicationId) -> Result<Health> {
        self.known(publication)?;
        let sick = *self.sick.lock().unwrap();
        Ok(if sick { Health::bad("its session is gone") } else { Health::good() })
    }

    async fn survey(&self, _: bool) -> Result<Vec<Finding>> {
        not_here()
    }
}

/// A mount that nobody can say anything about.
pub(in crate::csi::tests) fn unknown() -> Error {
    refused(Kind::Internal, "the host does not answer").with_outcome(Outcome::Unknown)
}
