//! The connector port: one protocol on this host.

use async_trait::async_trait;

use crate::attach::{Attach, AttachRecord, Attached, Detach, Health};
use crate::change::Change;
use crate::connection::ConnectionInfo;
use crate::error::Result;
use crate::port::host::Host;
use crate::size::ByteSize;

/// Makes a remote volume usable on this host, and takes it away again.
///
/// # Contract
///
/// Every implementation passes `connector_contract!`:
/// - a second `connect` to the same target answers `Change::Already` with the same path;
/// - `disconnect` of something absent is `Change::Already`, never an error;
/// - a failed `connect` leaves nothing behind on the host;
/// - a device whose identity differs from `info.identity` is refused by name and left alone;
/// - the future may be dropped at any `.await`; either call is safe afterwards.
///
/// A connector keeps no state: what it needs to disconnect is in the record, which the caller wrote
/// before `connect` (as an intent, without `attached`) and after it.
#[async_trait]
pub trait Connector: Send + Sync {
    /// Protocol names this connector answers to, and how well it is supported.
    fn info(&self) -> &'static ConnectorInfo;

    /// Attaches the volume and waits until its device, directory or file can be opened.
    async fn connect(
        &self,
        host: &dyn Host,
        info: &ConnectionInfo,
        attach: &Attach,
    ) -> Result<Change<Attached>>;

    /// Flushes and detaches what the record names. A record that is only an intent may name nothing,
    /// something, or all of it.
    async fn disconnect(
        &self,
        host: &dyn Host,
        record: &AttachRecord,
        detach: &Detach,
    ) -> Result<Change<()>>;

    /// Makes this host see the volume's new size, and answers it. Never shrinks. For folders: the
    /// size the storage system enforces, or 0 where it enforces none.
    async fn extend(&self, host: &dyn Host, record: &AttachRecord) -> Result<ByteSize>;

    /// What is attached for this information now, without changing anything.
    async fn lookup(&self, host: &dyn Host, info: &ConnectionInfo) -> Result<Option<Attached>>;

    /// Whether the attachment works.
    async fn health(&self, host: &dyn Host, record: &AttachRecord) -> Result<Health>;
}

/// What a connector says of itself.
#[derive(Clone, Copy, Debug)]
pub struct ConnectorInfo {
    /// The protocol names it answers to, canonical one first.
    pub protocols: &'static [&'static str],
    /// How well it is supported.
    pub maturity: Maturity,
    /// What proves it, and what limits it.
    pub note: &'static str,
}

/// How well something is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maturity {
    /// Proven against the real thing in every test run.
    Stable,
    /// Complete, proven against less than the real thing.
    Preview,
    /// For a storage system that is no longer sold.
    Legacy,
}
