//! [`FileRegistry`]: what this host has attached, one JSON file per attachment.
//!
//! The files belong to the host and not to an instance: every Hawser process of the host reads and
//! writes the same ones, so a detach never guesses, and a crash between intent and result leaves a
//! name to look for. Records hold no secrets; the files are private all the same.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use hawser_core::Change;
use hawser_core::attach::AttachRecord;
use hawser_core::error::Result;
use hawser_core::id::PublicationId;
use hawser_core::port::Registry;
use hawser_core::port::kernel::{LockMode, Locks};
use hawser_core::port::registry::{LockGuard, Registered};
use hawser_host::FileLocks;
use tokio::sync::RwLock;

use crate::error::RegistryError;
use crate::record_file as file;

/// Records below `<run_dir>/attachments/`, locks in a folder of their own.
///
/// Works unprivileged, with any two folders. All processes that share devices must use the same two.
pub struct FileRegistry {
    dir: PathBuf,
    locks: FileLocks,
    /// Held by the work itself: a write whose caller went away, and with him what kept others from the
    /// record, must not land behind what is done next.
    turn: Arc<RwLock<()>>,
}

impl FileRegistry {
    /// Opens the registry and makes its folders where they are missing (records: mode 0700).
    ///
    /// Blocks for a few file calls; meant for start-up. `Kind::Denied` when the folders cannot be
    /// made or belong to somebody else.
    pub fn open(run_dir: &Path, lock_dir: &Path) -> Result<Self> {
        let dir = run_dir.join("attachments");
        file::prepare(&dir)?;
        Ok(Self { dir, locks: FileLocks::open(lock_dir)?, turn: Arc::default() })
    }

    /// Changes files on a worker. It runs to its end when the caller goes away: a record is never half
    /// written, and whoever comes next waits for it.
    async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> Result<T, RegistryError> + Send + 'static,
    ) -> Result<T> {
        let turn = Arc::clone(&self.turn).write_owned().await;
        self.work(turn, work).await
    }

    async fn look<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> Result<T, RegistryError> + Send + 'static,
    ) -> Result<T> {
        let turn = Arc::clone(&self.turn).read_owned().await;
        self.work(turn, work).await
    }

    async fn work<T: Send + 'static>(
        &self,
        turn: impl Send + 'static,
        work: impl FnOnce(&Path) -> Result<T, RegistryError> + Send + 'static,
    ) -> Result<T> {
        let dir = self.dir.clone();
        let done = tokio::task::spawn_blocking(move || {
            let done = work(&dir);
            drop(turn);
            done
        });
        Ok(done.await.map_err(RegistryError::Worker)??)
    }
}

#[async_trait]
impl Registry for FileRegistry {
    async fn lock(&self, name: &str) -> Result<Box<dyn LockGuard>> {
        self.locks.lock(name, LockMode::Exclusive).await
    }

    async fn get(&self, publication: &PublicationId) -> Result<Option<AttachRecord>> {
        let publication = publication.clone();
        self.look(move |dir| file::read(dir, &publication)).await
    }

    async fn put(&self, record: &AttachRecord) -> Result<()> {
        let record = record.clone();
        self.change(move |dir| file::write(dir, &record)).await
    }

    async fn remove(&self, publication: &PublicationId) -> Result<Change<()>> {
        let publication = publication.clone();
        self.change(move |dir| file::remove(dir, &publication)).await
    }

    async fn list(&self) -> Result<Registered> {
        self.look(file::list).await
    }
}
