//! How the watches of the two resources are brought to one revision, and back before their start.
//!
//! Each watch tells the changes of its resource in order, but says nothing while there are none: no
//! watch of secrets tells that there was no change of a secret up to now. Whoever reads both at once
//! needs just that, or would get a change before an earlier one. So an object is written that is
//! there for nothing else; when its change comes past, everything before it has. That is done only
//! for reads of all keys at once, such as an export, and for watches from before the start.

use futures_util::StreamExt;
use hawser_core::port::store::Revision;
use tokio::time::timeout;

use super::api::Api;
use super::cache::Cache;
use super::error::KubernetesError;
use super::feed::{Event, read};
use super::resource::Resource;
use super::send::REQUEST_LIMIT;

/// Waits until the watches of these resources have come to `target`, and makes those come that
/// would not by themselves.
pub(super) async fn level(
    api: &Api,
    cache: &Cache,
    resources: &[Resource],
    target: Revision,
) -> Result<(), KubernetesError> {
    for resource in resources {
        if cache.with(*resource, |shelf| shelf.seen >= target) {
            continue;
        }
        let at = api.tick(*resource, target).await?;
        cache.with(*resource, |shelf| shelf.expect(at));
        cache.come_to(&[*resource], [target; 2]).await?;
    }
    Ok(())
}

/// Gets the changes of a resource from `after` to where the cache began, for a watcher who knows the
/// store from before. Gets none when the API server no longer has them: the watcher is told then.
pub(super) async fn reach_back(
    api: &Api,
    cache: &Cache,
    resource: Resource,
    after: Revision,
) -> Result<(), KubernetesError> {
    let Some(start) = cache.with(resource, |shelf| shelf.ring.lacks(after)) else { return Ok(()) };
    let mut events = match api.watch(resource, after).await {
        Ok(events) => events,
        Err(error) if error.is_gone() => return Ok(()),
        Err(error) => return Err(error),
    };
    // Its change comes after all that are wanted.
    let at = api.tick(resource, start).await?;
    cache.with(resource, |shelf| shelf.expect(at));
    let mut changes = Vec::new();
    let reading = async {
        while let Some(event) = events.next().await {
            let event = event.map_err(|error| api.watch_failed(resource, error))?;
            match read(api, resource, event)? {
                Event::Change(change) if change.revision <= start => changes.push(change),
                Event::Mark(at) if at < start => {}
                Event::Change(_) | Event::Mark(_) => return Ok(true),
                Event::Gone => return Ok(false),
            }
        }
        // It ended before it came so far.
        Ok(false)
    };
    let read: Result<bool, KubernetesError> = timeout(REQUEST_LIMIT, reading)
        .await
        .map_err(|_| KubernetesError::Behind { limit: REQUEST_LIMIT })?;
    if read? {
        cache.with(resource, |shelf| shelf.ring.precede(after, start, changes));
    }
    Ok(())
}
