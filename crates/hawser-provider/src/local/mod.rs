//! Local pools: a class is a folder on this machine, a volume is a sparse image or a folder in it.
//!
//! - `kind = "image"`: a volume is a sparse file, used through a loop device as a raw block device
//!   or with ext4, xfs or btrfs on it. Needs the right to make loop devices on the node.
//! - `kind = "folder"`: a volume is a plain folder. Needs no privileges. The size is a promise in
//!   the pool's books only: nothing stops a folder from growing past it.
//!
//! Copies (snapshots, clones) share blocks where the pool's file system can (xfs, btrfs), else the
//! data is copied and holes stay holes. Snapshots of images are read-only files; modes inside a
//! folder's snapshot are content and stay as they are. Only shared blocks are of one instant, so what
//! somebody may be writing to is copied by sharing blocks or not at all: a folder, or an image in a
//! pool that cannot share, is refused until its users have stopped.
//!
//! Space is thin: a volume takes what is written to it. What may be promised is what the medium can
//! hold, less `reserve`, times `overcommit`; a volume counts with its full size, a snapshot with
//! what it takes. A full pool is refused before anything is made.
//!
//! In a cluster a pool is on one node, and so are its volumes: opened with the node's id it says so,
//! and a control half elsewhere uses it through [`crate::on_nodes`].
//!
//! Needs Linux 5.6 (`openat2`) and a file system with `RENAME_NOREPLACE` (ext4, xfs, btrfs, tmpfs).
//! One process at a time has a pool open; the lock on `pool.json` ends with the process.

mod attempt;
mod blank;
mod change;
mod error;
mod folder;
mod group;
mod ledger;
mod lock;
mod make;
mod placement;
mod pool;
mod provider;
mod remove;
mod settings;
mod shelf;
mod survey;
#[cfg(test)]
pub(crate) mod tests;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use hawser_core::Result;
use hawser_core::class::Ability;
use hawser_core::filesystem::FsKind;
use hawser_core::id::{SnapshotId, VolumeId};
use hawser_core::name::NodeId;
use hawser_core::port::connector::Maturity;
use hawser_core::port::progress::Silent;
use hawser_core::port::provider::ProviderInfo;
use hawser_core::port::{Host, Provider};
use hawser_core::volume::Access;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

pub use self::settings::{PoolKind, Reserve, SectorSize, Settings};

use self::attempt::{Attempt, PROBE};
use self::error::LocalError;
use self::pool::Pool;
use crate::{Deps, Outline, ProviderType};

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

/// What every pool can do. The getters of [`Provider`] and the outline of the type follow this list,
/// so that a control half without a pool says the same as the pool.
const ABILITIES: [Ability; 7] = [
    Ability::Snapshots,
    Ability::Clones,
    Ability::Expand,
    Ability::Capacity,
    Ability::Inventory,
    Ability::Groups,
    Ability::Blanks,
];

fn can(ability: Ability) -> bool {
    ABILITIES.contains(&ability)
}

/// The handle of a volume: its id, which is all that ever becomes a file name.
fn handle(id: &VolumeId) -> String {
    id.to_string()
}

/// The handle of a snapshot, likewise.
fn snapshot_handle(id: &SnapshotId) -> String {
    id.to_string()
}

/// What a volume of such a pool is used as when nobody says.
fn default_access(kind: PoolKind) -> Access {
    match kind {
        PoolKind::Image => Access::Filesystem(FsKind::Ext4),
        PoolKind::Folder => Access::Folder,
    }
}

/// The kind of storage; [`ProviderType::open`] gives a pool.
pub struct Local;

#[async_trait]
impl ProviderType for Local {
    fn info(&self) -> &'static ProviderInfo {
        &INFO
    }

    async fn open(&self, settings: Map<String, Value>, deps: &Deps) -> Result<Arc<dyn Provider>> {
        let settings: Settings = crate::parse_settings(INFO.name, settings)?;
        let mut pool = LocalPool::open(settings, Arc::clone(&deps.host)).await?;
        pool.node = deps.node.clone();
        Ok(Arc::new(pool))
    }

    fn outline(&self, settings: &Map<String, Value>) -> Result<Option<Outline>> {
        let settings: Settings = crate::parse_settings(INFO.name, settings.clone())?;
        settings.validate()?;
        Ok(Some(Outline {
            abilities: ABILITIES.into(),
            default_access: default_access(settings.kind),
            handle,
            snapshot_handle,
        }))
    }
}

/// One open pool.
pub struct LocalPool {
    pool: Arc<Pool>,
    host: Arc<dyn Host>,
    workers: Arc<Semaphore>,
    /// The node it is on, where that matters to anybody.
    node: Option<NodeId>,
}

impl LocalPool {
    /// Opens the pool of these settings, making it in an empty or missing folder.
    ///
    /// `Kind::Precondition` when the folder holds something else or a newer format, `Kind::Busy`
    /// when another process has it open.
    pub async fn open(settings: Settings, host: Arc<dyn Host>) -> Result<Self> {
        let workers = Arc::new(Semaphore::new(WORKERS));
        let pool = blocking(&workers, move || Pool::open(settings)).await?;
        let opened = Self { pool: Arc::new(pool), host, workers, node: None };
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
