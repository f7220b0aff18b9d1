//! The `Locks` part: locks by name, in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use hawser_core::error::Result;
use hawser_core::port::kernel::{LockMode, Locks};
use hawser_core::port::registry::LockGuard;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use super::Kernel;

/// All locks, and how often each is held.
#[derive(Default)]
pub(in crate::fake_host) struct LockTable {
    locks: BTreeMap<String, Arc<RwLock<()>>>,
    held: BTreeMap<String, usize>,
}

impl LockTable {
    /// The names of those that are held.
    pub(in crate::fake_host) fn held(&self) -> Vec<String> {
        self.held.keys().cloned().collect()
    }
}

enum Hold {
    Shared { _guard: OwnedRwLockReadGuard<()> },
    Alone { _guard: OwnedRwLockWriteGuard<()> },
}

struct Guard {
    kernel: Kernel,
    name: String,
    _hold: Hold,
}

impl LockGuard for Guard {}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut state = self.kernel.state();
        if let Some(count) = state.locks.held.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                state.locks.held.remove(&self.name);
            }
        }
    }
}

#[async_trait]
impl Locks for Kernel {
    async fn lock(&self, name: &str, mode: LockMode) -> Result<Box<dyn LockGuard>> {
        let lost = self.begin_lock(format!("{name} {mode:?}")).await?;
        let lock = self.state().locks.locks.entry(name.into()).or_default().clone();
        let hold = match mode {
            LockMode::Shared => Hold::Shared { _guard: lock.read_owned().await },
            LockMode::Exclusive => Hold::Alone { _guard: lock.write_owned().await },
        };
        *self.state().locks.held.entry(name.into()).or_default() += 1;
        let guard = Guard { kernel: self.clone(), name: name.into(), _hold: hold };
        tokio::task::yield_now().await;
        lost.map_or(Ok(Box::new(guard) as Box<dyn LockGuard>), Err)
    }
}
