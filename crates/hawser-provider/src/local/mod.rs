//! Local pools: a class is a folder on this machine, a volume is a sparse image or a folder in it.
//!
//! - `kind = "image"`: a volume is a sparse file, used through a loop device as a raw block device
//!   or with ext4, xfs or btrfs on it. Needs the right to make loop devices on the node.
//! - `kind = "folder"`: a volume is a plain folder. Needs no privileges. The size is a promise in
//!   the pool's books only: nothing stops a folder from growing past it. A snapshot or clone of a
//!   folder that is being written is not of one instant unless the caller holds the writers still.
//!
//! Copies (snapshots, clones) share blocks where the pool's file system can (xfs, btrfs), else the
//! data is copied and holes stay holes. Snapshots of images are read-only files; modes inside a
//! folder's snapshot are content and stay as they are.
//!
//! Space is thin: a volume takes what is written to it. What may be promised is what the medium can
//! hold, less `reserve`, times `overcommit`; a volume counts with its full size, a snapshot with
//! what it takes. A full pool is refused before anything is made.
//!
//! Needs Linux 5.6 (`openat2`) and a file system with `RENAME_NOREPLACE` (ext4, xfs, btrfs, tmpfs).
//! One process at a time has a pool open; the lock on `pool.json` ends with the process.

mod attempt;
mod change;
mod error;
mod folder;
mod ledger;
mod lock;
mod make;
mod pool;
mod provider;
mod remove;
mod settings;
mod shelf;
mod survey;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use hawser_core::Result;
use hawser_core::port::connector::Maturity;
use hawser_core::port::progress::Silent;
use hawser_core::port::provider::ProviderInfo;
use hawser_core::port::{Host, Provider};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

pub use self::settings::{PoolKind, Reserve, SectorSize, Settings};

use self::attempt::{Attempt, PROBE};
use self::error::LocalError;
use self::pool::Pool;
use crate::{Deps, ProviderType};

/// Sizes are multiples of this: whole for every sector size and file system, and readable.
const UNIT: u64 = 1 << 20;
/// Blocking calls of one pool at a time: a dead disk below it must not take every thread of the
/// runtime, and more than this many gain nothing on one file system.
const WORKERS: usize = 16;

static INFO: ProviderInfo = ProviderInfo {
    name: "local",
    maturity: Maturity::Stable,
    summary: "sparse images or plain folders in a folder of this machine",
};

/// The kind of storage; [`ProviderType::open`] gives a pool.
pub struct Local;

#[async_trait]
impl ProviderType for Local {
    fn info(&self) -> &'static ProviderInfo {
        &INFO
    }

    async fn open(&self, settings: Map<String, Value>, deps: &Deps) -> Result<Arc<dyn Provider>> {
        let settings: Settings = crate::parse_settings(INFO.name, settings)?;
        Ok(Arc::new(LocalPool::open(settings, Arc::clone(&deps.host)).await?))
    }
}

/// One open pool.
pub struct LocalPool {
    pool: Arc<Pool>,
    host: Arc<dyn Host>,
    workers: Arc<Semaphore>,
}

impl LocalPool {
    /// Opens the pool of these settings, making it in an empty or missing folder.
    ///
    /// `Kind::Precondition` when the folder holds something else or a newer format, `Kind::Busy`
    /// when another process has it open.
    pub async fn open(settings: Settings, host: Arc<dyn Host>) -> Result<Self> {
        let workers = Arc::new(Semaphore::new(WORKERS));
        let pool = blocking(&workers, move || Pool::open(settings)).await?;
        let opened = Self { pool: Arc::new(pool), host, workers };
        opened.probe_sharing().await?;
        Ok(opened)
    }

    /// Finds out by trying whether copies share their blocks in this pool.
    async fn probe_sharing(&self) -> Result<()> {
        let begin = |pool: &Arc<Pool>| {
            let attempt = Attempt::begin(pool, PROBE, None, None)?;
            let mut file = std::fs::File::from(attempt.folder().make_file("a")?);
            let content = [0x5a; 64 * 1024];
            // A full file system must not keep the pool from being opened; nothing is shared then.
            let written = file.write_all(&content).and_then(|()| file.sync_data()).is_ok();
            Ok((attempt, written))
        };
        let (attempt, written) = match self.on_pool(begin).await {
            Ok(begun) => begun,
            Err(error) => {
                tracing::warn!(error = error.sentence(), "trying whether copies share blocks");
                return Ok(());
            }
        };
        if written {
            let path = attempt.folder().path();
            let copied = self.host.copy_file(&path.join("a"), &path.join("b"), &Silent).await;
            match copied {
                Ok(copied) => self.pool.shares_blocks.store(copied.shared, Ordering::Relaxed),
                Err(error) => {
                    tracing::warn!(error = error.sentence(), "trying whether copies share blocks");
                }
            }
        }
        self.on_pool(move |_| attempt.empty().map(drop)).await
    }

    /// Runs blocking work on the pool. The work goes on to its end when the caller is dropped; what
    /// it must exclude until then moves into it.
    async fn on_pool<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Pool>) -> Result<T, LocalError> + Send + 'static,
    ) -> Result<T> {
        let pool = Arc::clone(&self.pool);
        blocking(&self.workers, move || work(&pool)).await
    }
}

async fn blocking<T: Send + 'static>(
    workers: &Arc<Semaphore>,
    work: impl FnOnce() -> Result<T, LocalError> + Send + 'static,
) -> Result<T> {
    let permit = Arc::clone(workers).acquire_owned().await.map_err(|_| LocalError::CutOff)?;
    let worked = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work()
    });
    match worked.await {
        Ok(result) => Ok(result?),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(LocalError::CutOff.into()),
        },
    }
}
