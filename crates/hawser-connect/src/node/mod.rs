//! The node half: attaches, formats, mounts and grows on this host, over ports alone.
//!
//! Every call writes the attachment record before it touches the host and again before it answers,
//! so a call that was dropped, or whose process died, is repeated or taken back from the record
//! alone. What is on the host decides, the record says what to look for: a device is used only when
//! its connector finds it again with the identity the record has, and only what is provably this
//! publication's is unmounted or detached.

mod attach;
mod connectors;
mod detach;
mod error;
mod extend;
mod format;
mod freeze;
mod health;
mod locks;
mod mount;
mod outside;
mod pools;
mod raw;
mod record;
mod same;
mod share;
mod survey;
mod table;
#[cfg(test)]
mod tests;
mod unmount;
mod usage;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hawser_core::attach::{AttachRecord, Attached, Detach, Health, NodeMount};
use hawser_core::doctor::Finding;
use hawser_core::id::{InstanceId, PublicationId};
use hawser_core::name::{ClassName, NodeId};
use hawser_core::node::NodeRecord;
use hawser_core::place::Place;
use hawser_core::port::connector::Platform;
use hawser_core::port::host::{FsUsage, HostFacts};
use hawser_core::port::library::PropertiesRequest;
use hawser_core::port::node::{AttachWork, FormatWork, MountWork};
use hawser_core::port::{Host, Library, Node, Pools, Provider, Registry};
use hawser_core::{ByteSize, Change, Error, Result, Timestamp};
use serde_json::{Value, json};

pub use self::connectors::Connectors;
use self::error::NodeError;
use self::freeze::Frozen;
use self::locks::Gates;
use self::table::Table;

/// What a node half is made of.
pub struct NodeParts {
    /// The name under which the control half knows this host.
    pub id: NodeId,
    /// Whose records these are; only they are repaired.
    pub instance: InstanceId,
    /// This host.
    pub host: Arc<dyn Host>,
    /// What can be attached here.
    pub connectors: Connectors,
    /// What is attached here, shared with the other instances of this host.
    pub registry: Arc<dyn Registry>,
    /// The classes whose storage is on this host, for a control half elsewhere.
    pub pools: Vec<(ClassName, Arc<dyn Provider>)>,
}

/// The half of Hawser that acts on this host.
///
/// Its errors say what is wrong with the device, the record or the target; the caller, who knows the
/// volume by its name, says what was attempted.
///
/// Clones are the same node half; it is gone with the last of them.
#[derive(Clone)]
pub struct NodeHalf {
    id: NodeId,
    instance: InstanceId,
    host: Arc<dyn Host>,
    connectors: Connectors,
    registry: Arc<dyn Registry>,
    gates: Arc<Gates>,
    /// The classes whose storage is here.
    pools: BTreeMap<ClassName, Arc<dyn Provider>>,
    /// The file systems this process has frozen.
    frozen: Arc<Mutex<HashMap<PublicationId, Frozen>>>,
}

impl NodeHalf {
    /// A node half over these ports; nothing is touched until it is called.
    pub fn new(parts: NodeParts) -> Self {
        let NodeParts { id, instance, host, connectors, registry, pools } = parts;
        let (gates, frozen, pools) = (Arc::default(), Arc::default(), pools.into_iter().collect());
        Self { id, instance, host, connectors, registry, gates, pools, frozen }
    }

    /// Sets right what an earlier process of this instance left: thaws what it had frozen, forgets
    /// devices and mounts that went with an earlier boot, and takes note of mounts that are not
    /// there any more, so that they can be made again. To be called once, before work is taken.
    /// Every record is tried; the error names all that failed.
    pub async fn recover(&self) -> Result<()> {
        let boot = self.host.facts().await?.boot_id;
        let records = self.registry.list().await?.records;
        let ours: Vec<_> = records.into_iter().filter(|r| r.instance == self.instance).collect();
        let table = self.table().await?;
        let (mut failed, mut first) = (Vec::new(), None);
        for record in &ours {
            if let Err(error) = self.recover_one(&boot, record, &table).await {
                failed.push(format!("{}: {}", record.publication, error.sentence()));
                first.get_or_insert(error.kind());
            }
        }
        match first {
            None => Ok(()),
            Some(first) => Err(NodeError::Recover { total: ours.len(), failed, first }.into()),
        }
    }

    async fn recover_one(
        &self,
        boot: &str,
        record: &AttachRecord,
        table: &Table<'_>,
    ) -> Result<()> {
        // Most records need nothing, and then nobody is made to wait for their locks.
        let lost = record.mounts.iter().any(|mount| is_lost(record, mount, table));
        if record.boot_id == boot && record.frozen.is_none() && !lost {
            return Ok(());
        }
        let _alone = self.gates.enter(self.registry.as_ref(), &record.publication).await?;
        let Some(mut record) = self.current(&record.publication).await? else { return Ok(()) };
        if record.frozen.is_some() && self.claim_frozen(&record.publication).await? {
            self.thaw_record(&mut record).await?;
        }
        let table = self.table().await?;
        let lost = |mount: &NodeMount| is_lost(&record, mount, &table);
        let lost: Vec<bool> = record.mounts.iter().map(lost).collect();
        if lost.contains(&true) {
            for (mount, lost) in record.mounts.iter_mut().zip(lost) {
                mount.ready &= !lost;
            }
            self.registry.put(&record).await?;
        }
        Ok(())
    }
}

/// True when a mount that was made is not there: it was taken off by hand, or for a moment by a
/// process that died in that moment.
fn is_lost(record: &AttachRecord, mount: &NodeMount, table: &Table<'_>) -> bool {
    mount.ready && !table.is_below(record.attached.as_ref(), &mount.target)
}

/// What a node says of itself when its properties cannot be read, and why they cannot.
fn bare_properties(facts: &HostFacts, error: &Error) -> BTreeMap<String, Value> {
    let known = [
        ("host", json!(facts.hostname)),
        ("platform", json!(Platform::of(&facts.machine).as_str())),
        ("machine", json!(facts.machine)),
        ("os_type", json!("LINUX")),
        ("boot_id", json!(facts.boot_id)),
        ("do_local_attach", json!(true)),
        ("warnings", json!([error.sentence()])),
    ];
    known.map(|(key, value)| (key.to_owned(), value)).into()
}

#[async_trait]
impl Node for NodeHalf {
    async fn describe(&self) -> Result<NodeRecord> {
        let facts = self.host.facts().await?;
        let wanted = PropertiesRequest { do_local_attach: true, ..PropertiesRequest::default() };
        let properties = match self.properties(&wanted).await {
            Ok(properties) => properties.into_iter().collect(),
            // One damaged file must not keep the host from attaching what has no need of it.
            Err(error) => bare_properties(&facts, &error),
        };
        Ok(NodeRecord {
            id: self.id.clone(),
            properties,
            topology: Place::node(&self.id).pairs().clone(),
            boot_id: facts.boot_id,
            privileged: facts.privileged,
            last_seen: Timestamp::now(),
        })
    }

    async fn attach(&self, work: &AttachWork) -> Result<Change<Attached>> {
        self.attach_volume(work).await
    }

    async fn detach(&self, publication: &PublicationId, detach: &Detach) -> Result<Change<()>> {
        self.detach_volume(publication, detach).await
    }

    async fn format(&self, work: &FormatWork) -> Result<Change<()>> {
        self.format_device(work).await
    }

    async fn mount(&self, work: &MountWork) -> Result<Change<()>> {
        self.mount_volume(work).await
    }

    async fn unmount(&self, publication: &PublicationId, target: &Path) -> Result<Change<()>> {
        self.unmount_volume(publication, target).await
    }

    async fn extend(&self, publication: &PublicationId, size: ByteSize) -> Result<ByteSize> {
        self.extend_volume(publication, size).await
    }

    async fn freeze(&self, publication: &PublicationId) -> Result<Change<()>> {
        self.freeze_volume(publication).await
    }

    async fn thaw(&self, publication: &PublicationId) -> Result<Change<()>> {
        self.thaw_volume(publication).await
    }

    async fn attachments(&self) -> Result<Vec<AttachRecord>> {
        Ok(self.registry.list().await?.records)
    }

    async fn usage(&self, publication: &PublicationId, target: &Path) -> Result<FsUsage> {
        self.usage_of(publication, target).await
    }

    async fn health(&self, publication: &PublicationId) -> Result<Health> {
        self.check_health(publication).await
    }

    async fn survey(&self, fix: bool) -> Result<Vec<Finding>> {
        self.survey_host(fix).await
    }

    fn library(&self) -> Option<&dyn Library> {
        Some(self)
    }

    fn pools(&self) -> Option<&dyn Pools> {
        (!self.pools.is_empty()).then_some(self)
    }
}
