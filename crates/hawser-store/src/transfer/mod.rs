//! Moves records between stores, as lines of JSON: `hawser store export` and `import`.
//!
//! ```text
//! {"hawser_store_export":1,"hawser":"0.1.0"}
//! {"key":"volume/v1","value":{"size":1}}
//! {"key":"blob","base64":"AAEC"}
//! {"records":2}
//! ```
//!
//! The last line counts the records, so an export that was cut short is noticed. Keys under
//! `secret/` are left out. Values come back byte for byte; revisions are the new store's own.

mod error;
mod line;
mod source;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io::{Read, Write};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use hawser_core::Result;
use hawser_core::port::Store;
use hawser_core::port::store::{Cas, Key, Prefix};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

use self::error::TransferError;
use self::line::is_secret;
use self::source::{Checked, check};

/// How many keys an export asks for at a time.
const PAGE: usize = 500;

/// How many records an import writes at a time: stores share one flush among those.
const WRITERS: usize = 128;

/// What an import did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Records written now.
    pub written: u64,
    /// Records that an earlier import of the same file had written.
    pub already: u64,
}

/// Writes every record but the secrets, and answers how many there were.
///
/// Records that change meanwhile are exported as they are when their page is read; for a picture of
/// one instant, stop the server first. Fails with `NoSpace` when the file's disk is full.
pub async fn export(store: &dyn Store, writer: impl Write + Send + 'static) -> Result<u64> {
    let (lines, written) = write_lines(writer);
    // Once the receiver is gone, `written` says why.
    let mut open = lines.send(line::header()).await.is_ok();
    let mut records = 0;
    let mut after: Option<Key> = None;
    while open {
        let page = store.list(&Prefix::all(), after.as_ref(), PAGE).await?;
        let mut text = Vec::new();
        for (key, found) in page.items.iter().filter(|(key, _)| !is_secret(key)) {
            text.extend(line::record(key, &found.value));
            records += 1;
        }
        after = page.items.last().map(|(key, _)| key.clone());
        if !page.more {
            text.extend(line::end(records));
        }
        open = lines.send(text).await.is_ok() && page.more;
    }
    drop(lines);
    written.await.map_err(|_| TransferError::Stopped)?.map_err(TransferError::Write)?;
    Ok(records)
}

fn write_lines(
    mut writer: impl Write + Send + 'static,
) -> (mpsc::Sender<Vec<u8>>, JoinHandle<std::io::Result<()>>) {
    let (lines, mut waiting) = mpsc::channel::<Vec<u8>>(2);
    let written = spawn_blocking(move || {
        while let Some(text) = waiting.blocking_recv() {
            writer.write_all(&text)?;
        }
        writer.flush()
    });
    (lines, written)
}

/// Writes every record of an export into a store that is empty, or that holds nothing but what an
/// earlier, interrupted import of the same file wrote. Secrets in the store do not count.
///
/// The whole file is checked first; nothing is written if any line of it is wrong (`Invalid`, with
/// the line's number) or the store holds something else (`Precondition`). If it is interrupted,
/// importing the same file again completes it.
pub async fn import(store: &dyn Store, reader: impl Read + Send + 'static) -> Result<Imported> {
    let checked = spawn_blocking(move || check(reader)).await;
    let Checked { keys, spool } = checked.map_err(|_| TransferError::Stopped)??;
    let present = find_present(store, &keys).await?;

    if !present.is_empty() {
        let (records, read) = spool.clone().replay();
        each_record(records, |key, value| require_equal(store, &present, key, value)).await?;
        read.await.map_err(|_| TransferError::Stopped)??;
    }

    let (records, read) = spool.replay();
    let done = each_record(records, |key, value| write(store, key, value)).await?;
    read.await.map_err(|_| TransferError::Stopped)??;
    let written = done.iter().filter(|made| **made).count() as u64;
    Ok(Imported { written, already: done.len() as u64 - written })
}

/// Runs `work` for every record, several at a time.
async fn each_record<T, F: Future<Output = Result<T>>>(
    records: mpsc::Receiver<(Key, Bytes)>,
    work: impl Fn(Key, Bytes) -> F,
) -> Result<Vec<T>> {
    stream::unfold(records, |mut records| async move {
        let record = records.recv().await?;
        Some((record, records))
    })
    .map(|(key, value)| work(key, value))
    .buffer_unordered(WRITERS)
    .try_collect()
    .await
}

/// The keys of the store; one that the export does not have is refused.
async fn find_present(store: &dyn Store, keys: &BTreeSet<Key>) -> Result<BTreeSet<Key>> {
    let mut present = BTreeSet::new();
    let mut after: Option<Key> = None;
    loop {
        let page = store.list(&Prefix::all(), after.as_ref(), PAGE).await?;
        after = page.items.last().map(|(key, _)| key.clone());
        for (key, _) in page.items {
            if is_secret(&key) {
                continue;
            }
            if !keys.contains(&key) {
                return Err(TransferError::Foreign(key).into());
            }
            present.insert(key);
        }
        if !page.more {
            return Ok(present);
        }
    }
}

async fn require_equal(
    store: &dyn Store,
    present: &BTreeSet<Key>,
    key: Key,
    value: Bytes,
) -> Result<()> {
    if !present.contains(&key) {
        return Ok(());
    }
    match store.get(&key).await? {
        Some(found) if found.value != value => Err(TransferError::Differs(key).into()),
        Some(_) | None => Ok(()),
    }
}

/// Writes one record; false when it was there already.
async fn write(store: &dyn Store, key: Key, value: Bytes) -> Result<bool> {
    match store.create(&key, value.clone()).await? {
        Cas::Done(_) => Ok(true),
        Cas::Conflict => match store.get(&key).await? {
            Some(found) if found.value == value => Ok(false),
            Some(_) | None => Err(TransferError::Raced(key).into()),
        },
    }
}
