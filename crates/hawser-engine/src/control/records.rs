//! Typed reading and writing of records over the byte-level store.

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use hawser_core::error::{Classify, Error, Kind, Outcome, Result};
use hawser_core::name::Alias;
use hawser_core::port::Store;
use hawser_core::port::store::{Cas, Key, Prefix, Revision};

use super::draft::{DRAFT, Draft, Drafts};
use super::ids;
use super::record::{NameRecord, Record, name_key};

/// A record that cannot be read, or that cannot be written as JSON.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error("the record {key} cannot be read; `hawser doctor` lists such records")]
    Unreadable { key: Key, source: serde_json::Error },
    #[error("the record {key} cannot be written")]
    Unwritable { key: Key, source: serde_json::Error },
    #[error("the record {key} was changed by someone else while an operation held it")]
    HoldLost { key: Key },
}

impl Classify for RecordError {
    fn kind(&self) -> Kind {
        match self {
            Self::Unreadable { .. } | Self::Unwritable { .. } => Kind::Internal,
            Self::HoldLost { .. } => Kind::Unavailable,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Unreadable { .. } | Self::Unwritable { .. } => Outcome::Nothing,
            Self::HoldLost { .. } => Outcome::Unknown,
        }
    }
}

/// The store, in records, and the records that are not written yet. Lists show what is written.
#[derive(Clone)]
pub(crate) struct Records {
    store: Arc<dyn Store>,
    drafts: Drafts,
}

/// One page of records; those that cannot be read are named apart.
pub(crate) struct RecordPage<R> {
    pub(crate) items: Vec<(R, Revision)>,
    pub(crate) unreadable: Vec<(Key, String)>,
    pub(crate) last: Option<Key>,
    pub(crate) more: bool,
}

impl Records {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, drafts: Drafts::default() }
    }

    pub(crate) async fn get<R: DeserializeOwned>(
        &self,
        key: &Key,
    ) -> Result<Option<(R, Revision)>> {
        // First, because a draft becomes a record, and a record no draft.
        let draft = self.drafts.find(key);
        let Some(found) = self.store.get(key).await? else {
            let draft = draft.map(|(_, value)| decode(key, &value)).transpose()?;
            return Ok(draft.map(|record| (record, DRAFT)));
        };
        if let Some((number, _)) = draft {
            self.drafts.end(key, number);
        }
        Ok(Some((decode(key, &found.value)?, found.revision)))
    }

    /// Shows a record that is in no store yet to whoever asks this process for it; `None` when there
    /// is another. Whether the store has one is for the caller to see.
    pub(crate) fn draft<R: Serialize>(&self, key: &Key, record: &R) -> Result<Option<Draft>> {
        Ok(self.drafts.begin(key, encode(key, record)?))
    }

    /// `None` when the key exists.
    pub(crate) async fn create<R: Serialize>(
        &self,
        key: &Key,
        record: &R,
    ) -> Result<Option<Revision>> {
        Ok(done(self.store.create(key, encode(key, record)?).await?))
    }

    /// `None` when the key has another revision.
    pub(crate) async fn put<R: Serialize>(
        &self,
        key: &Key,
        record: &R,
        expected: Revision,
    ) -> Result<Option<Revision>> {
        if expected == DRAFT {
            return Ok(None);
        }
        Ok(done(self.store.put(key, encode(key, record)?, expected).await?))
    }

    /// `None` when the key has another revision or is gone.
    pub(crate) async fn delete(&self, key: &Key, expected: Revision) -> Result<Option<Revision>> {
        if expected == DRAFT {
            return Ok(None);
        }
        Ok(done(self.store.delete(key, expected).await?))
    }

    pub(crate) async fn page<R: DeserializeOwned>(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<RecordPage<R>> {
        let listing = self.store.list(prefix, after, limit).await?;
        let last = listing.items.last().map(|(key, _)| key.clone());
        let mut page =
            RecordPage { items: Vec::new(), unreadable: Vec::new(), last, more: listing.more };
        for (key, found) in listing.items {
            match decode(&key, &found.value) {
                Ok(record) => page.items.push((record, found.revision)),
                Err(RecordError::Unreadable { key, source }) => {
                    page.unreadable.push((key, source.to_string()));
                }
                Err(error @ (RecordError::Unwritable { .. } | RecordError::HoldLost { .. })) => {
                    return Err(error.into());
                }
            }
        }
        Ok(page)
    }

    /// Every record below a prefix, visited page by page.
    pub(crate) async fn each<R: DeserializeOwned>(
        &self,
        prefix: &Prefix,
        mut visit: impl FnMut(R, Revision),
    ) -> Result<Vec<(Key, String)>> {
        let mut after = None;
        let mut unreadable = Vec::new();
        loop {
            let page = self.page::<R>(prefix, after.as_ref(), 1000).await?;
            page.items.into_iter().for_each(|(record, revision)| visit(record, revision));
            unreadable.extend(page.unreadable);
            if !page.more {
                return Ok(unreadable);
            }
            after = page.last;
        }
    }

    /// The id behind a name. Where the id follows from the name, whatever has that id has the name.
    pub(crate) async fn name(&self, of: &str, alias: &Alias) -> Result<Option<(String, Revision)>> {
        if let Some(id) = ids::of_name(of, alias) {
            return Ok(Some((id, Revision::default())));
        }
        let found = self.get::<NameRecord>(&name_key(of, alias)).await?;
        Ok(found.map(|(record, revision)| (record.id, revision)))
    }

    /// Makes a name lead to an id, unless it leads to another; answers whom it leads to.
    pub(crate) async fn reserve_name(&self, of: &str, alias: &Alias, id: &str) -> Result<String> {
        let key = name_key(of, alias);
        let record = NameRecord { id: id.to_owned() };
        loop {
            // Looked up first, because it often leads there already: that is a read, where a create
            // that conflicts waits for the flush of whatever else is being written.
            if let Some((holder, _)) = self.name(of, alias).await? {
                return Ok(holder);
            }
            if self.create(&key, &record).await?.is_some() {
                return Ok(record.id);
            }
        }
    }

    /// Releases a name if it leads to this id.
    pub(crate) async fn release_name(&self, of: &str, alias: &Alias, id: &str) -> Result<()> {
        if ids::of_name(of, alias).is_some() {
            return Ok(());
        }
        match self.name(of, alias).await? {
            Some((holder, revision)) if holder == id => {
                // A conflict means that somebody else released it.
                self.delete(&name_key(of, alias), revision).await?;
                Ok(())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Changes a record that no operation holds; `None` from `change` leaves it as it is.
    pub(crate) async fn update<R: Record>(
        &self,
        key: &Key,
        mut change: impl FnMut(&R) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        loop {
            let Some((record, revision)) = self.get::<R>(key).await? else { return Ok(None) };
            let Some(changed) = change(&record)? else { return Ok(Some(record)) };
            if self.put(key, &changed, revision).await?.is_some() {
                return Ok(Some(changed));
            }
        }
    }
}

fn done(cas: Cas) -> Option<Revision> {
    match cas {
        Cas::Done(revision) => Some(revision),
        Cas::Conflict => None,
    }
}

fn decode<R: DeserializeOwned>(key: &Key, value: &[u8]) -> Result<R, RecordError> {
    serde_json::from_slice(value)
        .map_err(|source| RecordError::Unreadable { key: key.clone(), source })
}

fn encode<R: Serialize>(key: &Key, record: &R) -> Result<Bytes, Error> {
    serde_json::to_vec(record)
        .map(Bytes::from)
        .map_err(|source| RecordError::Unwritable { key: key.clone(), source }.into())
}
