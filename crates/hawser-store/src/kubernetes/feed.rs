//! Keeps the cache as the API server has it: a list, then a watch from there on, for ever.
//!
//! Written by hand because the watcher of the client's runtime does not tell revisions, and the
//! store is made of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use hawser_core::port::store::Revision;
use hawser_core::{Error, Kind};
use kube::core::{Status, WatchEvent};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::api::Api;
use super::cache::{Bell, Cache};
use super::error::{KubernetesError, Verb};
use super::object::{self, Content, Object, ObjectError};
use super::resource::Resource;
use super::ring::{Change, Now};
use super::shelf::{Entry, Kept, Listed};

/// How many events are taken at once, when that many are there.
const EVENTS: usize = 256;

/// How long a watch may be silent while there is something that it must tell.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a watch is believed that tells nothing: its connection may be gone without a word. An API
/// server sends a mark about every minute, but for a resource that nobody has written since it started.
const SILENCE: Duration = Duration::from_secs(150);

/// How long to wait after the first failure, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// How often a list is begun again because it took longer than the API server keeps its pages.
const LISTS: usize = 5;

/// What follows one resource.
pub(super) struct Feed {
    pub(super) resource: Resource,
    pub(super) api: Arc<Api>,
    pub(super) cache: Arc<Cache>,
    pub(super) bell: Arc<Bell>,
}

/// How one watch ended.
enum End {
    /// The API server ended it, as it does every few minutes, or it has told nothing for as long.
    Closed,
    /// The changes that are needed next are no longer there.
    Gone,
}

/// What one event means.
pub(super) enum Event {
    Change(Change),
    /// There was nothing else up to this revision.
    Mark(Revision),
    /// The changes that are needed next are no longer there.
    Gone,
}

impl Feed {
    /// Follows the resource until the store is closed.
    pub(super) async fn run(self) {
        let mut failures = 0;
        loop {
            let started = Instant::now();
            let ended = match self.follow().await {
                Ok(End::Closed) => Ok(()),
                Ok(End::Gone) => self.relist().await,
                Err(error) => Err(error),
            };
            // One that ends at once is no success, whatever the API server calls it.
            let lasted = started.elapsed() >= PAUSES.0;
            failures = if ended.is_ok() && lasted { 0 } else { failures + 1 };
            if let Err(error) = ended {
                self.lose(failures, error);
            }
            if failures > 0 {
                sleep(pause(failures)).await;
            }
        }
    }

    /// Watches from where the cache is.
    async fn follow(&self) -> Result<End, KubernetesError> {
        let seen = self.cache.with(self.resource, |shelf| shelf.seen);
        let events = match self.api.watch(self.resource, seen).await {
            Ok(events) => events,
            Err(error) if error.is_gone() => return Ok(End::Gone),
            Err(error) => return Err(error),
        };
        self.found();
        let mut chunks = events.ready_chunks(EVENTS);
        let mut heard = Instant::now();
        loop {
            let Ok(chunk) = timeout(PATIENCE, chunks.next()).await else {
                if self.is_overdue() {
                    return Err(KubernetesError::Silent);
                }
                if heard.elapsed() >= SILENCE {
                    return Ok(End::Closed);
                }
                continue;
            };
            let Some(chunk) = chunk else { return Ok(End::Closed) };
            heard = Instant::now();
            for event in chunk {
                let event = event.map_err(|error| self.api.watch_failed(self.resource, error))?;
                match read(&self.api, self.resource, event)? {
                    Event::Change(change) => {
                        self.cache.with(self.resource, |shelf| shelf.apply(change));
                    }
                    Event::Mark(at) => self.cache.with(self.resource, |shelf| shelf.pass(at)),
                    Event::Gone => return Ok(End::Gone),
                }
            }
            self.bell.send_replace(());
        }
    }

    /// True when an answer told of a change that the watch has not told yet.
    fn is_overdue(&self) -> bool {
        self.cache.with(self.resource, |shelf| shelf.told > shelf.seen)
    }

    /// Starts anew from a list; watchers are told that they missed something.
    async fn relist(&self) -> Result<(), KubernetesError> {
        let listed = list(&self.api, self.resource).await?;
        info!(
            store.resource = self.resource.word(),
            store.keys = listed.keys.len(),
            "listed the records anew, because the API server no longer has all changes"
        );
        self.cache.with(self.resource, |shelf| shelf.relist(listed));
        self.bell.send_replace(());
        Ok(())
    }

    fn found(&self) {
        let was_live =
            self.cache.with(self.resource, |shelf| std::mem::replace(&mut shelf.live, true));
        if !was_live {
            info!(store.resource = self.resource.word(), "the watch of the API server is back");
            self.bell.send_replace(());
        }
    }

    fn lose(&self, failures: u32, error: KubernetesError) {
        let was_live =
            self.cache.with(self.resource, |shelf| std::mem::replace(&mut shelf.live, false));
        if was_live {
            let error = Error::from(error).sentence();
            let resource = self.resource.word();
            warn!(
                store.resource = resource, attempt = failures, %error,
                "the watch of the API server is lost; values are read one by one until it is back"
            );
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        // Whatever ends it, nobody may take what is known for what is there.
        self.cache.with(self.resource, |shelf| shelf.live = false);
    }
}

/// How long to wait after so many failures in a row.
fn pause(failures: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
    PAUSES.0.saturating_mul(doubled).min(PAUSES.1)
}

/// All records of a resource, as they are at one revision.
pub(super) async fn list(api: &Api, resource: Resource) -> Result<Listed, KubernetesError> {
    let mut lists = 0;
    let mut listed = Listed::default();
    let mut token: Option<String> = None;
    loop {
        let Some(page) = api.page(resource, token.as_deref()).await? else {
            // The pages after the first are gone.
            lists += 1;
            if lists == LISTS {
                return Err(KubernetesError::Endless { resource });
            }
            (listed, token) = (Listed::default(), None);
            continue;
        };
        let uncounted = |source| KubernetesError::uncounted(Verb::List, resource, source);
        listed.revision = object::revision(&page.metadata.resource_version).map_err(uncounted)?;
        for object in page.items {
            let revision = object.revision().map_err(uncounted)?;
            keep(&mut listed.keys, resource, revision, object);
        }
        token = page.metadata.next.filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok(listed);
        }
    }
}

fn keep(keys: &mut BTreeMap<Entry, Kept>, resource: Resource, revision: Revision, object: Object) {
    let name = object.name().to_owned();
    match object.content(resource) {
        Content::Record(key, value) => {
            keys.insert(Entry(key), Kept { revision, value: Some(value) });
        }
        Content::Unreadable(key, error) => {
            report(resource, &name, error);
            keys.insert(Entry(key), Kept { revision, value: None });
        }
        Content::Tick => {}
        Content::Foreign(error) => report(resource, &name, error),
    }
}

/// What an event of a watch means.
pub(super) fn read(
    api: &Api,
    resource: Resource,
    event: WatchEvent<Object>,
) -> Result<Event, KubernetesError> {
    let uncounted = |source| KubernetesError::uncounted(Verb::Watch, resource, source);
    let (object, removed) = match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
        WatchEvent::Deleted(object) => (object, true),
        WatchEvent::Bookmark(mark) => {
            let revision = object::revision(&mark.metadata.resource_version);
            return revision.map(Event::Mark).map_err(uncounted);
        }
        WatchEvent::Error(status) => return ended(api, resource, status),
    };
    let name = object.name().to_owned();
    let revision = object.revision().map_err(uncounted)?;
    let (key, now) = match object.content(resource) {
        Content::Record(key, _) | Content::Unreadable(key, _) if removed => (key, Now::Removed),
        Content::Record(key, value) => (key, Now::Is(value)),
        Content::Unreadable(key, error) => {
            report(resource, &name, error);
            (key, Now::Unreadable)
        }
        Content::Tick => return Ok(Event::Mark(revision)),
        Content::Foreign(error) => {
            report(resource, &name, error);
            return Ok(Event::Mark(revision));
        }
    };
    Ok(Event::Change(Change { key, revision, now }))
}

fn ended(api: &Api, resource: Resource, status: Box<Status>) -> Result<Event, KubernetesError> {
    let error = api.watch_failed(resource, kube::Error::Api(status));
    if error.is_gone() { Ok(Event::Gone) } else { Err(error) }
}

fn report(resource: Resource, name: &str, error: ObjectError) {
    let resource = resource.word();
    let source = Error::from_source(Kind::Internal, error).sentence();
    warn!(
        store.resource = resource, store.object = name, error = %source,
        "an object in the namespace of the store is no readable record"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let pauses: Vec<_> = [1, 2, 3, 8, 40].map(|failures| pause(failures).as_millis()).into();
        assert_eq!(pauses, [100, 200, 400, 10_000, 10_000]);
    }
}
