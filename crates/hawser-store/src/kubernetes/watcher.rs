//! One watch of the store: the changes below a prefix, from the ring, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_core::stream::BoxStream;
use futures_util::stream;
use hawser_core::Result;
use hawser_core::port::store::{Prefix, Revision, Versioned, Watched};
use tokio::sync::watch;

use super::api::Api;
use super::cache::{Cache, Found, Marks};
use super::error::KubernetesError;
use super::level::level;
use super::name::object_name;
use super::resource::Resource;
use super::ring::{Change, Now};

/// Where one watcher is. It has no queue of its own beyond one look at the ring, so a slow watcher
/// costs no memory and delays nobody.
pub(super) struct Watcher {
    api: Arc<Api>,
    cache: Arc<Cache>,
    bell: watch::Receiver<()>,
    prefix: Prefix,
    seen: Revision,
    ready: VecDeque<Result<Watched>>,
    ended: bool,
}

impl Watcher {
    pub(super) fn new(
        api: Arc<Api>,
        cache: Arc<Cache>,
        bell: watch::Receiver<()>,
        prefix: Prefix,
        after: Revision,
    ) -> Self {
        Self { api, cache, bell, prefix, seen: after, ready: VecDeque::new(), ended: false }
    }

    /// The stream of what it sees.
    pub(super) fn stream(self) -> BoxStream<'static, Result<Watched>> {
        Box::pin(stream::unfold(self, |mut watcher| async move {
            let next = watcher.next().await?;
            Some((next, watcher))
        }))
    }

    async fn next(&mut self) -> Option<Result<Watched>> {
        loop {
            if let Some(next) = self.ready.pop_front() {
                return Some(next);
            }
            if self.ended {
                return None;
            }
            let open = self.come_to(self.cache.told()).await;
            // Marked before the look, so that a change right after it rings again.
            self.bell.borrow_and_update();
            match self.cache.changes(&self.prefix, self.seen) {
                Found::Gone => {
                    self.ended = true;
                    return Some(Ok(Watched::Compacted));
                }
                // Nobody will tell what is missing any more.
                Found::Held(_) if !open => self.ended = true,
                Found::Held(target) => {
                    let resources = Resource::below(&self.prefix);
                    if let Err(error) = level(&self.api, &self.cache, resources, target).await {
                        // Nothing is lost: the next one who asks tries again.
                        return Some(Err(error.into()));
                    }
                }
                Found::Changes(changes, until) => {
                    self.seen = until;
                    self.ready = changes.into_iter().map(watched).collect();
                    if self.ready.is_empty() && (!open || self.bell.changed().await.is_err()) {
                        self.ended = true;
                    }
                }
            }
        }
    }

    /// Waits until the watches of the API server have come to what this process was answered before
    /// it looks, so that whoever writes and then reads a watch finds its own changes in it. False
    /// when the store is closed.
    async fn come_to(&mut self, told: Marks) -> bool {
        let resources = Resource::below(&self.prefix);
        loop {
            self.bell.borrow_and_update();
            if self.cache.has_come_to(resources, &told) {
                return true;
            }
            if self.bell.changed().await.is_err() {
                return false;
            }
        }
    }
}

fn watched(change: Change) -> Result<Watched> {
    let Change { key, revision, now } = change;
    match now {
        Now::Is(value) => Ok(Watched::Put(key, Versioned { value, revision })),
        Now::Removed => Ok(Watched::Deleted(key, revision)),
        Now::Unreadable => {
            let (resource, name) = (Resource::of(&key), object_name(&key));
            Err(KubernetesError::Unreadable { resource, name }.into())
        }
    }
}
