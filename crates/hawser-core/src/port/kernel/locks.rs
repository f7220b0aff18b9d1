//! Locks that keep the processes of one host apart.

use async_trait::async_trait;

use crate::error::Result;
use crate::port::registry::LockGuard;

/// Host-wide locks by name. The order is volume, then target, then map.
///
/// # Contract
///
/// A lock is held until its guard is dropped or its process dies. Any number may share a lock, or one
/// has it alone; waiting does not block the runtime, and a waiter may be dropped.
#[async_trait]
pub trait Locks: Send + Sync {
    /// Waits for the lock of this name.
    async fn lock(&self, name: &str, mode: LockMode) -> Result<Box<dyn LockGuard>>;
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Together with others that share it.
    Shared,
    /// Alone.
    Exclusive,
}
