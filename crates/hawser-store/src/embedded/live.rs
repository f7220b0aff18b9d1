//! The open database, and how it comes back after the disk refused something.
//!
//! redb stops for good at its first I/O error: every later call, reads too, answers "previous I/O
//! error" until the file is opened again. A full disk must not take the reads away, so whoever
//! meets such a database opens it anew, at the last complete commit.

use std::fs::File;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use hawser_core::Outcome;
use redb::Database;
use rustix::fs::{Advice, fadvise};
use tracing::warn;

use super::error::EmbeddedError;
use super::file::{StoreFile, checked};

/// One database at a time, shared by the readers and the writer.
pub(super) struct Live {
    file: StoreFile,
    state: RwLock<State>,
}

struct State {
    /// `None` after [`Live::close`], or while opening again keeps failing.
    database: Option<Database>,
    /// How often the file was opened, so that of several who saw one failure one opens it again.
    generation: u64,
    closed: bool,
}

/// Why a piece of work on the database was not done.
pub(super) enum Failure {
    /// There is no database to work on.
    Absent(EmbeddedError),
    /// The database answered this, in this generation.
    Database(redb::Error, u64),
}

impl Live {
    pub(super) fn new(file: StoreFile, database: Database) -> Self {
        let state = State { database: Some(database), generation: 0, closed: false };
        Self { file, state: RwLock::new(state) }
    }

    pub(super) fn file(&self) -> &StoreFile {
        &self.file
    }

    /// Works on the database; opens it first where that failed before. Blocks.
    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, Failure> {
        let mut state = self.read_state();
        if state.database.is_none() && !state.closed {
            let generation = state.generation;
            drop(state);
            self.reopen(generation).map_err(Failure::Absent)?;
            state = self.read_state();
        }
        let Some(database) = &state.database else {
            return Err(Failure::Absent(EmbeddedError::Closed { outcome: Outcome::Nothing }));
        };
        checked(|| work(database)).map_err(|error| Failure::Database(error, state.generation))
    }

    /// Opens the file again unless someone did so since `generation`. Waits for all work to end.
    pub(super) fn reopen(&self, generation: u64) -> Result<(), EmbeddedError> {
        let mut state = self.write_state();
        if state.closed || (state.database.is_some() && state.generation != generation) {
            return Ok(());
        }
        // The lock on the file goes with the database, so the old one has to be closed first.
        state.database = None;
        self.forget_cached_pages();
        let database = self.file.open()?;
        state.database = Some(database);
        state.generation += 1;
        warn!(store.path = %self.file.path().display(), "opened the store again after a disk error");
        Ok(())
    }

    /// Ends the use of the file; later work is refused.
    pub(super) fn close(&self) {
        let mut state = self.write_state();
        state.closed = true;
        state.database = None;
    }

    /// After a failed fsync the kernel counts pages as clean that never reached the disk. Without
    /// them in the cache, the next open sees what the disk has.
    fn forget_cached_pages(&self) {
        if let Ok(file) = File::open(self.file.path()) {
            // Advice only: a file system that does not take it has no such cache to forget.
            let _ = fadvise(&file, 0, None, Advice::DontNeed);
        }
    }

    // A panic inside redb leaves the lock poisoned but the state whole: it changes only by
    // assignment.
    fn read_state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_state(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True when only opening the file again can help.
pub(super) fn is_broken(error: &redb::Error) -> bool {
    matches!(error, redb::Error::Io(_) | redb::Error::PreviousIo | redb::Error::LockPoisoned(_))
}
