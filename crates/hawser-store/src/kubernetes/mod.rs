//! Kubernetes: records as objects of the API server, for servers that have no disk of their own.
//!
//! Needs the resource `records.hawser.storage` ([`crd`], applied once by an administrator) and, in
//! one namespace, the rights to get, list, watch, create, update, patch and delete records and
//! secrets. Written for Kubernetes 1.32 and later, against the API conventions and
//! `kube-apiserver` 1.36.
//!
//! - A key is one object: a `Record`, or below `secret/` a `Secret`. Its name follows from the key
//!   (`name.rs`), its value is text where it is UTF-8, else base64.
//! - **Revisions** are resource versions: etcd counts all changes of a cluster in one row.
//! - **Writes** are single requests with the expected resource version. They are never repeated by
//!   themselves, and an answer that was lost leaves the outcome unknown.
//! - **Reads** come from memory: one list at start, one watch of each resource from there on
//!   (`feed.rs`). What this process wrote it reads at once; what others wrote a few milliseconds
//!   later. A conflict makes the next read of its key ask the API server, so that loops of reading
//!   and writing end. While there is no watch, every read does.
//! - **Pages** of lists wait until the watch has come to what this process wrote, and are then
//!   exactly what the resource was at one revision.
//! - **Watches** of the store read from a ring of the latest changes, and further back from the API
//!   server as long as it has them.
//!
//! Why it is made like this: `docs/adr/0011-records-as-custom-resources.md`.

mod api;
mod cache;
mod error;
mod feed;
mod install;
mod level;
mod name;
mod object;
mod place;
mod resource;
mod ring;
mod send;
mod shelf;
#[cfg(test)]
mod tests;
mod watcher;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::stream::BoxStream;
use hawser_core::Result;
use hawser_core::port::Store;
use hawser_core::port::store::{
    Cas, Key, LONGEST_KEY, Listing, Prefix, Revision, Versioned, Watched,
};
use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::api::Api;
use self::cache::{Cache, WATCH_LIMIT};
use self::error::{Attempt, KubernetesError, Verb};
use self::feed::{Feed, list};
pub use self::install::{crd, install};
use self::level::{level, reach_back};
use self::name::object_name;
use self::object::LARGEST_OBJECT;
use self::place::Place;
use self::resource::Resource;
pub use self::ring::CHANGES_KEPT;
use self::shelf::Look;
use self::watcher::Watcher;
use crate::StoreInfo;

/// The entry of the table of stores.
pub(crate) const INFO: StoreInfo = StoreInfo {
    name: "kubernetes",
    summary: "custom resources and secrets of a cluster (kubernetes:NAMESPACE)",
    open: |place| {
        Box::pin(async move { Ok(Arc::new(Kubernetes::open(&place).await?) as Arc<dyn Store>) })
    },
};

/// The way to a cluster and a namespace in it, as a store setting names them: what follows
/// `kubernetes:`. For whoever has more to say to the API server than records.
///
/// Fails with `Invalid` for a place that is none.
pub async fn connect(place: &str) -> Result<(Client, String)> {
    Ok(Place::parse(place)?.connect().await?)
}

/// A store in a namespace of a cluster.
pub struct Kubernetes {
    api: Arc<Api>,
    cache: Arc<Cache>,
    bell: watch::Receiver<()>,
    /// Ends the watches of the API server, and with them those of the store, when it is dropped.
    _feeds: JoinSet<()>,
}

impl Kubernetes {
    /// Opens the store at a place: what follows `kubernetes:` in a setting. Reads all records.
    ///
    /// Fails with `Invalid` for a place that is none, `Precondition` when the cluster has no
    /// resource for records, `Unauthenticated` or `Denied` when this process may not read them.
    pub async fn open(place: &str) -> Result<Self> {
        let (client, namespace) = Place::parse(place)?.connect().await?;
        Ok(Self::with_client(client, namespace).await?)
    }

    async fn with_client(client: Client, namespace: String) -> Result<Self, KubernetesError> {
        let api = Arc::new(Api::new(client, namespace));
        let (records, secrets) =
            tokio::try_join!(list(&api, Resource::Records), list(&api, Resource::Secrets))?;
        let (bell, rung) = watch::channel(());
        let bell = Arc::new(bell);
        let cache = Arc::new(Cache::new([records, secrets], rung.clone()));
        let mut feeds = JoinSet::new();
        for resource in Resource::ALL {
            let (api, cache, bell) = (Arc::clone(&api), Arc::clone(&cache), Arc::clone(&bell));
            feeds.spawn(Feed { resource, api, cache, bell }.run());
        }
        Ok(Self { api, cache, bell: rung, _feeds: feeds })
    }

    /// Brings what is known of the keys below a prefix to what this process was answered.
    async fn catch_up(&self, prefix: &Prefix) -> Result<(), KubernetesError> {
        let resources = Resource::below(prefix);
        self.cache.come_to(resources, self.cache.told()).await?;
        if resources.len() > 1 {
            level(&self.api, &self.cache, resources, self.cache.newest(resources)).await?;
        }
        Ok(())
    }

    /// The revision of the removal of a key that had `expected`, from the watch.
    async fn remove(&self, key: &Key, expected: Revision) -> Result<Cas, KubernetesError> {
        // Before the request: the watch may be faster than the answer.
        let removed = self.cache.await_removal(key, expected);
        if !self.api.remove(key, expected).await? {
            return Ok(Cas::Conflict);
        }
        let late = || {
            let (resource, name) = (Resource::of(key), Some(object_name(key)));
            let attempt = Attempt { verb: Verb::Remove, resource, name };
            KubernetesError::Untold { attempt, limit: WATCH_LIMIT }
        };
        match timeout(WATCH_LIMIT, removed).await {
            Ok(Ok(revision)) => Ok(Cas::Done(revision)),
            Ok(Err(_)) | Err(_) => Err(late()),
        }
    }
}

/// Makes the next read of a key ask the API server, unless its change is known to be made: a
/// conflict says that others know more, and a change whose answer nobody saw may have happened.
struct Doubt<'a> {
    cache: &'a Cache,
    key: &'a Key,
}

impl Doubt<'_> {
    /// The change was made, and this is the key now.
    fn settle(self, found: Option<Versioned>) {
        if let Some(found) = found {
            self.cache.with_key(self.key, |shelf| shelf.tell(self.key, found));
        }
        std::mem::forget(self);
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        self.cache.with_key(self.key, |shelf| shelf.doubt(self.key));
    }
}

#[async_trait]
impl Store for Kubernetes {
    async fn get(&self, key: &Key) -> Result<Option<Versioned>> {
        match self.cache.look(key) {
            Look::Known(found) => Ok(found),
            Look::Unreadable => {
                let (resource, name) = (Resource::of(key), object_name(key));
                Err(KubernetesError::Unreadable { resource, name }.into())
            }
            Look::Doubtful(known) => {
                let found = self.api.get(key).await?;
                Ok(self.cache.read_through(key, known, found))
            }
        }
    }

    async fn create(&self, key: &Key, value: Bytes) -> Result<Cas> {
        check(key, &value)?;
        let doubt = Doubt { cache: &self.cache, key };
        let cas = self.api.create(key, &value).await?;
        if let Cas::Done(revision) = cas {
            doubt.settle(Some(Versioned { value, revision }));
        }
        Ok(cas)
    }

    async fn put(&self, key: &Key, value: Bytes, expected: Revision) -> Result<Cas> {
        check(key, &value)?;
        let doubt = Doubt { cache: &self.cache, key };
        if !is_possible(expected) {
            return Ok(Cas::Conflict);
        }
        let cas = self.api.replace(key, &value, expected).await?;
        if let Cas::Done(revision) = cas {
            doubt.settle(Some(Versioned { value, revision }));
        }
        Ok(cas)
    }

    async fn delete(&self, key: &Key, expected: Revision) -> Result<Cas> {
        check(key, &Bytes::new())?;
        let doubt = Doubt { cache: &self.cache, key };
        if !is_possible(expected) {
            return Ok(Cas::Conflict);
        }
        let cas = self.remove(key, expected).await?;
        if let Cas::Done(_) = cas {
            // The watch has told it.
            doubt.settle(None);
        }
        Ok(cas)
    }

    async fn list(&self, prefix: &Prefix, after: Option<&Key>, limit: usize) -> Result<Listing> {
        self.catch_up(prefix).await?;
        Ok(self.cache.page(prefix, after, limit)?)
    }

    async fn watch(
        &self,
        prefix: &Prefix,
        after: Revision,
    ) -> Result<BoxStream<'static, Result<Watched>>> {
        for resource in Resource::below(prefix) {
            reach_back(&self.api, &self.cache, *resource, after).await?;
        }
        let (api, cache) = (Arc::clone(&self.api), Arc::clone(&self.cache));
        Ok(Watcher::new(api, cache, self.bell.clone(), prefix.clone(), after).stream())
    }
}

fn check(key: &Key, value: &Bytes) -> Result<(), KubernetesError> {
    let length = key.as_str().len();
    if length > LONGEST_KEY {
        return Err(KubernetesError::KeyTooLong(length));
    }
    if value.len() > LARGEST_OBJECT {
        let (key, size) = (key.to_string(), value.len());
        return Err(KubernetesError::ValueTooLarge { key, size });
    }
    Ok(())
}

/// False for revisions that no object can have: etcd counts in 63 bits from 1, and to the API server
/// 0 means "whichever it has".
fn is_possible(revision: Revision) -> bool {
    revision.0 > 0 && i64::try_from(revision.0).is_ok()
}
