//! The connector port over any protocol that mounts.

use async_trait::async_trait;
use hawser_core::attach::{Attach, AttachRecord, Attached, Detach, Health};
use hawser_core::connection::{ConnectionInfo, Data};
use hawser_core::error::Result;
use hawser_core::port::connector::ConnectorInfo;
use hawser_core::port::{Connector, Host};
use hawser_core::{ByteSize, Change};

use super::attach as attach_volume;
use super::data::Volume;
use super::error::RemoteError;
use super::{RemoteFs, release, view};
use crate::shared::error::AttachError;

/// A protocol: how its connection info is read.
pub(crate) trait FileProtocol: Send + Sync {
    /// What it says of itself.
    fn info(&self) -> &'static ConnectorInfo;

    /// Reads a connection info.
    fn read(
        &self,
        host: &dyn Host,
        info: &ConnectionInfo,
        attach: &Attach,
    ) -> Result<(Volume, Box<dyn RemoteFs>), AttachError>;

    /// True when a mount can refuse writes.
    fn takes_read_only(&self) -> bool {
        true
    }
}

/// The connector of a protocol; keeps nothing.
pub(crate) struct Remote<P>(pub(crate) P);

/// What says which volume is meant and how it is mounted, for all protocols.
const FIELDS: [&str; 10] = [
    "volume_id",
    "export",
    "name",
    "options",
    "mount_point_base",
    "backup_servers",
    "username",
    "domain",
    "access_mode",
    "wwn",
];

#[async_trait]
impl<P: FileProtocol> Connector for Remote<P> {
    fn info(&self) -> &'static ConnectorInfo {
        self.0.info()
    }

    fn counts(&self, _data: &Data, field: &str) -> bool {
        FIELDS.contains(&field)
    }

    async fn connect(
        &self,
        host: &dyn Host,
        info: &ConnectionInfo,
        attach: &Attach,
    ) -> Result<Change<Attached>> {
        let (volume, fs) = self.0.read(host, info, attach)?;
        volume.check_identity(info)?;
        if volume.read_only && !self.0.takes_read_only() {
            let protocol = self.0.info().protocols[0];
            return Err(RemoteError::NoReadOnly { target: volume.target, protocol }.into());
        }
        attach_volume::connect(host, &*fs, &volume, attach).await
    }

    async fn disconnect(
        &self,
        host: &dyn Host,
        record: &AttachRecord,
        detach: &Detach,
    ) -> Result<Change<()>> {
        let (volume, fs) = self.0.read(host, &record.info, &record.attach)?;
        if volume.check_identity(&record.info).is_err() {
            // Connect refused it by name, so nothing of this record is attached.
            return Ok(Change::Already(()));
        }
        release::disconnect(host, &*fs, &volume, detach).await
    }

    async fn extend(&self, host: &dyn Host, record: &AttachRecord) -> Result<ByteSize> {
        let (volume, fs) = self.0.read(host, &record.info, &record.attach)?;
        volume.check_identity(&record.info)?;
        view::extend(host, &*fs, &volume).await
    }

    async fn lookup(&self, host: &dyn Host, info: &ConnectionInfo) -> Result<Option<Attached>> {
        // Whether it is attached for readers or for writers is not said; both are looked for.
        for read_only in [false, true] {
            let attach = Attach { read_only, ..Attach::default() };
            let (volume, fs) = self.0.read(host, info, &attach)?;
            if volume.check_identity(info).is_err() {
                return Ok(None);
            }
            if let Some(attached) = view::lookup(host, &*fs, &volume).await? {
                return Ok(Some(attached));
            }
        }
        Ok(None)
    }

    async fn health(&self, host: &dyn Host, record: &AttachRecord) -> Result<Health> {
        let (volume, fs) = self.0.read(host, &record.info, &record.attach)?;
        match volume.check_identity(&record.info) {
            Ok(()) => view::health(host, &*fs, &volume).await,
            Err(error) => Ok(Health::bad(error.to_string())),
        }
    }
}
