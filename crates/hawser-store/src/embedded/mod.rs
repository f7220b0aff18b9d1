//! Embedded: all records in one file on this machine; nothing to set up.
//!
//! The file is a `redb` database (copy-on-write B-trees, one writer, snapshot readers). Needs no
//! tool and no service, only a file system that honours `fsync` and `flock`.
//!
//! - **Writes** go through one queue to one thread. It takes everything that waits, makes each
//!   compare-and-set in turn inside one transaction, flushes once and only then answers. So one
//!   caller pays for a flush, and many callers share it.
//! - **Reads** run on snapshots beside the writer, on two threads of their own and never on the
//!   runtime, because a page that is in no cache is a disk access.
//! - **Growth**: redb uses the pages of replaced and removed records again, two commits later, so
//!   the file is as large as its fullest moment needed (it doubles while small and is sparse until
//!   written) and does not grow with the number of changes.
//! - **After a crash** the file opens at the last commit. Each commit also records which pages are
//!   free ("quick repair"). That costs a second flush per commit and buys an open in some 10 ms
//!   whatever the size; without it a start after a kill walks the whole file (0.7 s for 113 000
//!   records of 1 KiB that were still in the page cache, more from a disk).

mod changes;
mod error;
mod file;
mod live;
mod readers;
#[cfg(test)]
mod tests;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::stream::BoxStream;
use hawser_core::port::Store;
use hawser_core::port::store::{
    Cas, Key, LONGEST_KEY, Listing, Prefix, Revision, Versioned, Watched,
};
use hawser_core::{Outcome, Result};
use redb::{Database, ReadableDatabase};
use tokio::sync::{mpsc, oneshot, watch};

use self::changes::{Changes, watch_changes};
use self::error::EmbeddedError;
use self::file::{DATA, META, REVISION, StoreFile, read_meta};
use self::live::{Failure, Live, is_broken};
use self::readers::Readers;
use self::writer::{Action, Change, QUEUE, Writer};
use crate::{LARGEST_VALUE, StoreInfo};

/// The entry of the table of stores.
pub(crate) const INFO: StoreInfo = StoreInfo {
    name: "embedded",
    summary: "one file on this machine, flushed to disk with every change (embedded:/path)",
    open: |place| {
        Box::pin(async move {
            if place.is_empty() {
                return Err(EmbeddedError::NoPath(format!("embedded:{place}")).into());
            }
            Ok(Arc::new(Embedded::open(place).await?) as Arc<dyn Store>)
        })
    },
};

/// The most bytes of values in one page of a list; at least one key always fits.
const PAGE_BYTES: usize = 16 << 20;

/// A store in one file.
///
/// Dropping it waits until every change in the queue is on disk and closes the file.
pub struct Embedded {
    live: Arc<Live>,
    changes: Arc<Changes>,
    readers: Readers,
    bell: watch::Receiver<()>,
    /// `None` only while dropping.
    queue: Option<mpsc::Sender<Change>>,
    writer: Option<JoinHandle<()>>,
}

impl Embedded {
    /// Opens the store in this file, and makes it (mode 0600) if there is none.
    ///
    /// Fails with `Busy` when another server uses it, `Precondition` when a newer Hawser wrote it,
    /// `Internal` when the file is damaged or no store; in all of these the file stays as it is.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let file = StoreFile::new(path.into());
        let opened = tokio::task::spawn_blocking(move || Self::open_blocking(file)).await;
        Ok(opened.map_err(|_| EmbeddedError::Closed { outcome: Outcome::Nothing })??)
    }

    fn open_blocking(file: StoreFile) -> Result<Self, EmbeddedError> {
        let database = file.open_or_create()?;
        let latest = Revision(read_meta(&database, REVISION).map_err(|source| {
            EmbeddedError::Damaged { path: file.path().into(), source: Box::new(source) }
        })?);
        let live = Arc::new(Live::new(file, database));
        let changes = Arc::new(Changes::new(latest));
        let (bell, rung) = watch::channel(());
        let (queue, queued) = mpsc::channel(QUEUE);
        let thread_error = |source| EmbeddedError::Open { path: live.file().path().into(), source };
        let readers = Readers::start().map_err(thread_error)?;
        let writer =
            Writer { live: Arc::clone(&live), changes: Arc::clone(&changes), bell, latest };
        let writer = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || writer.run(queued))
            .map_err(thread_error)?;
        Ok(Self { live, changes, readers, bell: rung, queue: Some(queue), writer: Some(writer) })
    }

    async fn change(&self, key: &Key, action: Action) -> Result<Cas> {
        check_key(key)?;
        let (answer, answered) = oneshot::channel();
        let change = Change { key: key.clone(), action, answer };
        let closed = |outcome| EmbeddedError::Closed { outcome };
        let queue = self.queue.as_ref().ok_or(closed(Outcome::Nothing))?;
        queue.send(change).await.map_err(|_| closed(Outcome::Nothing))?;
        // Without an answer the writer died in the middle of it.
        Ok(answered.await.map_err(|_| closed(Outcome::Unknown))??)
    }

    async fn read<T: Send + 'static>(
        &self,
        what: String,
        work: impl Fn(&Database) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T> {
        let live = Arc::clone(&self.live);
        let read = self.readers.run(move || read_blocking(&live, what, work)).await;
        Ok(read.ok_or(EmbeddedError::Closed { outcome: Outcome::Nothing })??)
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            // It panicked: redb's own check on the next open says what is left.
            let _ = writer.join();
        }
    }
}

#[async_trait]
impl Store for Embedded {
    async fn get(&self, key: &Key) -> Result<Option<Versioned>> {
        let name = key.clone();
        self.read(format!("key {key}"), move |database| {
            let data = database.begin_read()?.open_table(DATA)?;
            let found = data.get(name.as_str())?;
            Ok(found.map(|found| versioned(found.value())))
        })
        .await
    }

    async fn create(&self, key: &Key, value: Bytes) -> Result<Cas> {
        check_value(key, &value)?;
        self.change(key, Action::Create(value)).await
    }

    async fn put(&self, key: &Key, value: Bytes, expected: Revision) -> Result<Cas> {
        check_value(key, &value)?;
        self.change(key, Action::Put(value, expected)).await
    }

    async fn delete(&self, key: &Key, expected: Revision) -> Result<Cas> {
        self.change(key, Action::Delete(expected)).await
    }

    async fn list(&self, prefix: &Prefix, after: Option<&Key>, limit: usize) -> Result<Listing> {
        let (prefix, after) = (prefix.clone(), after.cloned());
        self.read(format!("keys below {:?}", prefix.as_str()), move |database| {
            list(database, &prefix, after.as_ref(), limit)
        })
        .await
    }

    async fn watch(
        &self,
        prefix: &Prefix,
        after: Revision,
    ) -> Result<BoxStream<'static, Result<Watched>>> {
        Ok(watch_changes(Arc::clone(&self.changes), self.bell.clone(), prefix.clone(), after))
    }
}

fn read_blocking<T>(
    live: &Live,
    what: String,
    work: impl Fn(&Database) -> Result<T, redb::Error>,
) -> Result<T, EmbeddedError> {
    let mut result = live.with(&work);
    if let Err(Failure::Database(error, generation)) = &result
        && is_broken(error)
    {
        live.reopen(*generation)?;
        result = live.with(&work);
    }
    result.map_err(|failure| match failure {
        Failure::Absent(error) => error,
        Failure::Database(source, _) => {
            EmbeddedError::Read { what, path: live.file().path().into(), source: Box::new(source) }
        }
    })
}

fn list(
    database: &Database,
    prefix: &Prefix,
    after: Option<&Key>,
    limit: usize,
) -> Result<Listing, redb::Error> {
    let snapshot = database.begin_read()?;
    let revision = snapshot.open_table(META)?.get(REVISION)?.map_or(0, |found| found.value());
    let mut listing = Listing { items: Vec::new(), more: false, revision: Revision(revision) };
    let mut bytes = 0;
    let data = snapshot.open_table(DATA)?;
    // A token may come from outside and lie before the prefix.
    let from = after.map_or("", Key::as_str).max(prefix.as_str());
    for entry in data.range(from..)? {
        let (key, value) = entry?;
        let key = key.value();
        if !key.starts_with(prefix.as_str()) {
            break;
        }
        if after.is_some_and(|after| key <= after.as_str()) {
            continue;
        }
        if listing.items.len() >= limit || bytes >= PAGE_BYTES {
            listing.more = true;
            break;
        }
        let value = versioned(value.value());
        bytes += value.value.len();
        let key = key.parse().map_err(|_| {
            redb::Error::Corrupted(format!("the store holds {key:?}, which is no key"))
        })?;
        listing.items.push((key, value));
    }
    Ok(listing)
}

fn versioned((revision, value): (u64, &[u8])) -> Versioned {
    Versioned { value: Bytes::copy_from_slice(value), revision: Revision(revision) }
}

fn check_key(key: &Key) -> Result<(), EmbeddedError> {
    let length = key.as_str().len();
    if length > LONGEST_KEY { Err(EmbeddedError::KeyTooLong(length)) } else { Ok(()) }
}

fn check_value(key: &Key, value: &Bytes) -> Result<(), EmbeddedError> {
    if value.len() > LARGEST_VALUE {
        let (key, size) = (key.to_string(), value.len());
        return Err(EmbeddedError::ValueTooLarge { key, size });
    }
    Ok(())
}
