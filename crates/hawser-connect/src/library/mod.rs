//! The library's front door: a program names a volume as its storage system does, and gets a device.
//!
//! It is another face of the node half, so a volume that a program has connected is journaled,
//! locked and checked like any other, and `hawser doctor` finds what a crash left. It needs no
//! server and no store.

mod daemon;
mod device;
mod key;
mod ready;
#[cfg(test)]
mod tests;
mod whose;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use hawser_core::attach::{Attach, Attached, Detach};
use hawser_core::connection::ConnectionInfo;
use hawser_core::name::NodeId;
use hawser_core::port::library::{ConnectorStatus, DeviceInfo, PropertiesRequest, VolumeKey};
use hawser_core::port::node::AttachWork;
use hawser_core::port::{Host, Library, Node};
use hawser_core::{ByteSize, Change, Result};
use hawser_host::{HostSettings, LinuxHost};
use serde_json::{Map, Value};

pub(crate) use self::key::Key;
use crate::node::{NodeHalf, NodeParts};
use crate::{CONNECTORS, FileRegistry, properties};

pub(crate) use whose::{instance, is_of_library, name_of};

/// The library on this machine, with every connector that is built in.
///
/// All processes that open it with the same settings share records and locks, and may work at the
/// same time. `Kind::Denied` when the folders of the settings cannot be made: use folders of your
/// own where you are not root.
pub fn open(settings: HostSettings) -> Result<NodeHalf> {
    let registry = FileRegistry::open(&settings.run_dir, &settings.lock_dir)?;
    let host: Arc<dyn Host> = Arc::new(LinuxHost::new(settings));
    Ok(NodeHalf::new(NodeParts {
        id: "localhost".parse::<NodeId>().expect("a legal node id"),
        instance: instance(),
        host,
        connectors: CONNECTORS.into(),
        registry: Arc::new(registry),
        pools: Vec::new(),
    }))
}

fn work(key: &Key, info: &ConnectionInfo, attach: &Attach) -> AttachWork {
    AttachWork {
        publication: key.publication.clone(),
        volume: key.volume.clone(),
        info: info.clone(),
        attach: attach.clone(),
    }
}

impl NodeHalf {
    /// The key that a caller means.
    async fn key(&self, volume: &VolumeKey) -> Result<Key> {
        match volume {
            VolumeKey::Volume(name) => Ok(Key::of_name(name)?),
            VolumeKey::Info(info) => self.key_of(info).await,
        }
    }

    /// The key of an info; that of earlier versions where a record still has it.
    async fn key_of(&self, info: &ConnectionInfo) -> Result<Key> {
        let key = Key::of_info(self.connector(info)?, info)?;
        if let Some(earlier) = Key::of_whole_info(info)
            && earlier != key
            && self.record(&earlier.publication).await?.is_some()
        {
            return Ok(earlier);
        }
        Ok(key)
    }

    fn describe_device(
        &self,
        key: &Key,
        info: &ConnectionInfo,
        attached: &Attached,
    ) -> Result<DeviceInfo> {
        // The words that os-brick has for these; everything else tells its own.
        let kind = match info.protocol.as_str() {
            "GPFS" => Some("gpfs"),
            "LOCAL" if matches!(attached, Attached::Block { .. }) => Some("local"),
            _ => None,
        };
        device::describe(self.host(), &key.name, kind, attached)
    }
}

#[async_trait]
impl Library for NodeHalf {
    async fn properties(&self, wanted: &PropertiesRequest) -> Result<Map<String, Value>> {
        let protocols = self.all_connectors().flat_map(|connector| connector.info().protocols);
        properties::read(self.host(), wanted, protocols.copied().collect()).await
    }

    async fn connect(&self, info: &ConnectionInfo, attach: &Attach) -> Result<Change<DeviceInfo>> {
        let key = self.key_of(info).await?;
        let change = self.attach(&work(&key, info, attach)).await?;
        let described = self.describe_device(&key, info, change.get())?;
        Ok(change.map(|_| described))
    }

    async fn disconnect(
        &self,
        volume: &VolumeKey,
        detach: &Detach,
    ) -> Result<Change<Option<PathBuf>>> {
        let key = self.key(volume).await?;
        let record = self.record(&key.publication).await?;
        let path = record.and_then(|record| record.attached).map(|a| a.path().to_owned());
        let change = match volume {
            VolumeKey::Volume(_) => self.detach(&key.publication, detach).await?,
            // The record may be lost while the volume is there: the info leads to it.
            VolumeKey::Info(info) => {
                self.detach_known(&work(&key, info, &Attach::default()), detach).await?
            }
        };
        Ok(change.map(|()| path))
    }

    async fn extend(&self, volume: &VolumeKey) -> Result<DeviceInfo> {
        let key = self.key(volume).await?;
        Node::extend(self, &key.publication, ByteSize::ZERO).await?;
        let (record, attached) = self.attached_record(&key.publication).await?;
        self.describe_device(&key, &record.info, &attached)
    }

    async fn lookup(&self, volume: &VolumeKey) -> Result<Option<DeviceInfo>> {
        let key = self.key(volume).await?;
        let record = self.record(&key.publication).await?;
        let (info, found) = match (&record, volume) {
            (Some(record), _) => (&record.info, self.find_recorded(record).await?),
            (None, VolumeKey::Info(info)) => (info, self.find(info).await?),
            (None, VolumeKey::Volume(_)) => return Ok(None),
        };
        found.map(|attached| self.describe_device(&key, info, &attached)).transpose()
    }

    async fn connectors(&self) -> Result<Vec<ConnectorStatus>> {
        let mut all = Vec::new();
        for connector in self.all_connectors() {
            all.extend(ready::status(self.host(), connector.info()).await?);
        }
        all.sort_by(|a, b| a.protocol.cmp(&b.protocol));
        Ok(all)
    }
}
