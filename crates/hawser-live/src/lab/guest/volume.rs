//! A volume as a program has it that uses the library: attach, detach, extend, over the real host.

use hawser_connect::find;
use hawser_core::attach::{Attach, AttachRecord, AttachState, Attached, Detach, Health};
use hawser_core::connection::ConnectionInfo;
use hawser_core::error::{Error, Result};
use hawser_core::id::{InstanceId, PublicationId, VolumeId};
use hawser_core::port::Connector;
use hawser_core::{ByteSize, Change, Reason, Timestamp};
use hawser_host::{HostSettings, LinuxHost};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// One volume of one protocol.
pub struct Volume {
    /// The host, for what a test does by hand.
    pub host: LinuxHost,
    /// The way to the volume.
    pub info: ConnectionInfo,
    connector: &'static dyn Connector,
    runtime: Runtime,
}

impl Volume {
    /// The volume that this data describes.
    #[track_caller]
    pub fn new(protocol: &str, data: Value) -> Self {
        super::number();
        let info = json!({ "driver_volume_type": protocol, "data": data });
        let info: ConnectionInfo = serde_json::from_value(info).expect("a connection info");
        let connector = find(&info.protocol).expect("a connector");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let host = LinuxHost::new(HostSettings::default());
        Self { host, info, connector, runtime: runtime.expect("a runtime") }
    }

    /// Attaches it.
    pub fn connect(&self) -> Result<Change<Attached>> {
        self.connect_as(&Attach::default())
    }

    /// Attaches it in another way.
    pub fn connect_as(&self, attach: &Attach) -> Result<Change<Attached>> {
        self.wait(self.connector.connect(&self.host, &self.info, attach))
    }

    /// Begins to attach it and gives up after so long; true when it was through by then.
    pub fn connect_cut_off(&self, after: std::time::Duration) -> bool {
        let attach = Attach::default();
        let work = self.connector.connect(&self.host, &self.info, &attach);
        self.wait(async { tokio::time::timeout(after, work).await }).is_ok()
    }

    /// The same for a detach.
    pub fn disconnect_cut_off(&self, after: std::time::Duration) -> bool {
        let (record, detach) = (self.record(&Attach::default()), Detach::default());
        let work = self.connector.disconnect(&self.host, &record, &detach);
        self.wait(async { tokio::time::timeout(after, work).await }).is_ok()
    }

    /// Detaches it.
    pub fn disconnect(&self) -> Result<Change<()>> {
        self.disconnect_as(&Attach::default(), &Detach::default())
    }

    /// Detaches it although something fails.
    pub fn force(&self, ignore_errors: bool) -> Result<Change<()>> {
        let detach = Detach { force: true, ignore_errors, ..Detach::default() };
        self.disconnect_as(&Attach::default(), &detach)
    }

    /// Detaches what was attached in another way.
    pub fn disconnect_as(&self, attach: &Attach, detach: &Detach) -> Result<Change<()>> {
        self.wait(self.connector.disconnect(&self.host, &self.record(attach), detach))
    }

    /// Makes the host see its size.
    pub fn extend(&self) -> Result<ByteSize> {
        let record = self.record(&Attach::default());
        self.wait(self.connector.extend(&self.host, &record))
    }

    /// What is attached now.
    pub fn lookup(&self) -> Result<Option<Attached>> {
        self.wait(self.connector.lookup(&self.host, &self.info))
    }

    /// Whether it works.
    pub fn health(&self) -> Result<Health> {
        let record = self.record(&Attach::default());
        self.wait(self.connector.health(&self.host, &record))
    }

    /// Waits for a call of the host.
    pub fn wait<F: Future>(&self, work: F) -> F::Output {
        self.runtime.block_on(work)
    }

    /// The record as it stands before the connector acts.
    fn record(&self, attach: &Attach) -> AttachRecord {
        AttachRecord {
            publication: PublicationId::generate(),
            volume: VolumeId::generate(),
            info: self.info.without_secrets(),
            attach: attach.clone(),
            state: AttachState::Intent,
            attached: None,
            mounts: Vec::new(),
            frozen: None,
            instance: InstanceId::generate(),
            boot_id: "this".into(),
            created: Timestamp::UNIX_EPOCH,
        }
    }
}

/// An error that has this reason.
#[track_caller]
pub fn refusal<T: std::fmt::Debug>(result: Result<T>, reason: Reason) -> Error {
    let error = result.expect_err("a refusal");
    assert_eq!(error.reason(), Some(reason), "{error:?}");
    error
}
