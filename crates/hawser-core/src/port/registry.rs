//! The registry port: what this host has attached, shared by every instance on it.

use std::path::PathBuf;

use async_trait::async_trait;

use crate::attach::AttachRecord;
use crate::change::Change;
use crate::error::Result;
use crate::id::PublicationId;

/// Keeps one record per attachment, and the locks that keep processes of this host apart.
///
/// # Contract
///
/// Every implementation passes `registry_contract!`:
/// - `put` and `remove` are durable and atomic: a reader sees the old or the new record, never half;
/// - a lock is held by one holder on this host, in whatever process, until its guard is dropped or
///   the process dies; waiting does not block the runtime;
/// - a record that cannot be read is reported in the listing, never skipped in silence and never
///   removed.
#[async_trait]
pub trait Registry: Send + Sync {
    /// Waits for the lock of this name.
    async fn lock(&self, name: &str) -> Result<Box<dyn LockGuard>>;

    /// One record.
    async fn get(&self, publication: &PublicationId) -> Result<Option<AttachRecord>>;

    /// Writes a record.
    async fn put(&self, record: &AttachRecord) -> Result<()>;

    /// Removes a record; absent is `Already`.
    async fn remove(&self, publication: &PublicationId) -> Result<Change<()>>;

    /// All records.
    async fn list(&self) -> Result<Registered>;
}

/// Holds a lock until it is dropped.
pub trait LockGuard: Send + Sync {}

/// What a registry holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registered {
    /// Records, in the order of their ids.
    pub records: Vec<AttachRecord>,
    /// Files that are no records, and why.
    pub unreadable: Vec<(PathBuf, String)>,
}
