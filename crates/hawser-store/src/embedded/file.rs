//! The one file: found or made whole, checked, and locked against other servers.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redb::{Database, Durability, ReadableDatabase, TableDefinition, TableError};
use tracing::info;

use super::error::EmbeddedError;

/// Records: key to revision and bytes.
pub(super) const DATA: TableDefinition<'_, &str, (u64, &[u8])> = TableDefinition::new("data");
/// Facts about the store itself: [`FORMAT`] and [`REVISION`].
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// The format of the tables, in [`META`].
pub(super) const FORMAT: &str = "format";
/// The revision of the last change, in [`META`].
pub(super) const REVISION: &str = "revision";

/// What this build writes, and the newest it reads.
pub(super) const FORMAT_VERSION: u64 = 1;

/// redb's own default is 1 GiB, which its cache would fill over time; `hawser up` with 10 000
/// volumes has to stay below 60 MiB in all. The kernel's page cache stands behind this one, so a
/// miss costs a `pread`, not a disk access.
const CACHE_BYTES: usize = 8 << 20;

/// Knows how to open the database of one path, the first time and after a disk failure.
pub(super) struct StoreFile {
    path: PathBuf,
    #[cfg(test)]
    pub(super) faults: std::sync::Arc<super::tests::Faults>,
}

impl StoreFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            #[cfg(test)]
            faults: std::sync::Arc::default(),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the store, and makes it if there is none.
    pub(super) fn open_or_create(&self) -> Result<Database, EmbeddedError> {
        if self.exists()? { self.open() } else { self.create() }
    }

    /// Opens a store that is there.
    pub(super) fn open(&self) -> Result<Database, EmbeddedError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&self.path)
            .map_err(|source| self.open_error(source))?;
        let length = file.metadata().map_err(|source| self.open_error(source))?.len();
        if length == 0 {
            // redb would start afresh in it. A store of ours is never empty, not even for an
            // instant, so its records were lost: that is for a person to decide.
            let source = io::Error::new(io::ErrorKind::InvalidData, "the file is empty");
            return Err(self.damaged(source.into()));
        }
        let database = self.start(file)?;
        let found =
            checked(|| read_meta(&database, FORMAT)).map_err(|source| self.start_error(source))?;
        if found > FORMAT_VERSION {
            let path = self.path.clone();
            return Err(EmbeddedError::Newer { path, found, known: FORMAT_VERSION });
        }
        Ok(database)
    }

    /// Makes the store under another name and renames it when it is complete, so that a crash
    /// leaves no half-made store, and whatever is found under the final name is never overwritten.
    fn create(&self) -> Result<Database, EmbeddedError> {
        let draft = self.draft_path();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&draft)
            .map_err(|source| self.open_error(source))?;
        if file.try_lock().is_err() {
            return Err(self.held());
        }
        // Between open and lock another server may have finished this very file and renamed it.
        if !is_same_file(&file, &draft) || self.exists()? {
            return Err(self.held());
        }
        file.set_len(0).map_err(|source| self.open_error(source))?;
        let made = self.start(file).and_then(|database| {
            write_format(&database).map_err(|source| self.start_error(source))?;
            std::fs::rename(&draft, &self.path)
                .and_then(|()| sync_parent(&self.path))
                .map_err(|source| self.open_error(source))?;
            Ok(database)
        });
        let database = made.inspect_err(|_| {
            // Best effort: what stays is started afresh by the next attempt.
            let _ = std::fs::remove_file(&draft);
        })?;
        info!(store.path = %self.path.display(), "made an empty store");
        Ok(database)
    }

    fn start(&self, file: File) -> Result<Database, EmbeddedError> {
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        let started = checked(|| {
            #[cfg(not(test))]
            return Ok(builder.create_file(file)?);
            #[cfg(test)]
            return Ok(builder
                .create_with_backend(self.faults.wrap(redb::backends::FileBackend::new(file)?))?);
        });
        started.map_err(|error| self.start_error(error))
    }

    fn start_error(&self, error: redb::Error) -> EmbeddedError {
        // What redb says about a file that is none of its own, or is cut short.
        const NOT_OURS: [io::ErrorKind; 2] =
            [io::ErrorKind::InvalidData, io::ErrorKind::UnexpectedEof];
        if let redb::Error::DatabaseAlreadyOpen = error {
            return self.held();
        }
        if let redb::Error::Io(source) = error {
            if NOT_OURS.contains(&source.kind()) {
                return self.damaged(source.into());
            }
            return self.open_error(source);
        }
        self.damaged(error)
    }

    fn exists(&self) -> Result<bool, EmbeddedError> {
        match std::fs::metadata(&self.path) {
            Ok(found) if found.is_file() => Ok(true),
            Ok(_) => Err(EmbeddedError::NotAFile { path: self.path.clone() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(self.open_error(source)),
        }
    }

    fn draft_path(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".new");
        name.into()
    }

    fn held(&self) -> EmbeddedError {
        EmbeddedError::Held { path: self.path.clone() }
    }

    fn damaged(&self, source: redb::Error) -> EmbeddedError {
        EmbeddedError::Damaged { path: self.path.clone(), source: Box::new(source) }
    }

    fn open_error(&self, source: io::Error) -> EmbeddedError {
        EmbeddedError::Open { path: self.path.clone(), source }
    }
}

/// Runs work on the database. redb answers most damage with an error, but trusts the contents of a
/// page whose place in the tree is right, and panics when they are not what they should be; that
/// must end the request, not the server.
pub(super) fn checked<T>(work: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, redb::Error> {
    // Nothing of ours is shared with the work but the database, which guards itself: a write
    // transaction that unwinds is rolled back.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(redb::Error::Corrupted("a page does not hold what it should".into()))
    })
}

/// A number of the [`META`] table; a store without it is not one of ours.
pub(super) fn read_meta(database: &Database, name: &str) -> Result<u64, redb::Error> {
    let meta = database.begin_read()?.open_table(META)?;
    let found = meta.get(name)?.map(|value| value.value());
    found.ok_or_else(|| TableError::TableDoesNotExist(format!("meta: {name}")).into())
}

fn write_format(database: &Database) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    {
        let mut meta = transaction.open_table(META)?;
        meta.insert(FORMAT, FORMAT_VERSION)?;
        meta.insert(REVISION, 0)?;
        transaction.open_table(DATA)?;
    }
    Ok(transaction.commit()?)
}

fn is_same_file(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(ours), Ok(theirs)) => (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino()),
        (Err(_), _) | (_, Err(_)) => false,
    }
}

/// A new name is durable only once its directory is.
fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}
