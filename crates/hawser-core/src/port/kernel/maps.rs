//! Device maps, and the daemon that makes those of several paths.

use std::time::Duration;

use async_trait::async_trait;

use super::KernelResult;

/// Device mapper and multipathd. Names, uuids and what is below a map stand in sysfs.
#[async_trait]
pub trait Maps: Send + Sync {
    /// The status of each target of a map (`DM_TABLE_STATUS`), without waiting for its device.
    async fn status(&self, name: &str) -> KernelResult<Vec<MapTarget>>;

    /// The table of a map (`DM_TABLE_STATUS` with the table flag).
    async fn table(&self, name: &str) -> KernelResult<Vec<MapTarget>>;

    /// Sends a message to the first target of a map, such as `fail_if_no_path`.
    async fn message(&self, name: &str, text: &str) -> KernelResult<()>;

    /// Removes a map that nobody has open; `EBUSY` otherwise. Never deferred.
    async fn remove(&self, name: &str) -> KernelResult<()>;

    /// One command to multipathd through its socket, and its answer. `ECONNREFUSED` when it does
    /// not run.
    async fn multipathd(&self, command: &str, limit: Duration) -> KernelResult<String>;
}

/// One line of a table or its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapTarget {
    /// First sector.
    pub start: u64,
    /// How many sectors.
    pub length: u64,
    /// `multipath`, `crypt`, `linear` and so on.
    pub kind: String,
    /// The rest.
    pub parameters: String,
}
