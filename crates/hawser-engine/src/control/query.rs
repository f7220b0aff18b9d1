//! Reading: lists in pages, health, capacity, nodes.

use std::sync::Arc;

use hawser_core::attach::Health;
use hawser_core::class::Capacity;
use hawser_core::error::{Error, Kind, Result};
use hawser_core::id::{OperationId, SnapshotId, VolumeId};
use hawser_core::name::ClassName;
use hawser_core::node::NodeRecord;
use hawser_core::operation::Operation;
use hawser_core::page::{Page, PageRequest};
use hawser_core::place::Place;
use hawser_core::port::control::{OperationFilter, VolumeFilter};
use hawser_core::port::store::{Key, Prefix};
use hawser_core::snapshot::Snapshot;
use hawser_core::volume::{Volume, VolumeRef};

use super::record::{SnapshotRecord, VolumeRecord};
use super::world::{World, at_provider};

fn bad_token(token: &str) -> Error {
    let shown: String = token.chars().take(64).collect();
    Error::new(Kind::Invalid, format!("{shown:?} is not a page token of this list"))
}

/// Fills one page from a prefix, skipping what the filter does not want.
async fn fill<R: serde::de::DeserializeOwned, T>(
    world: &World,
    prefix: &Prefix,
    mut after: Option<Key>,
    limit: usize,
    wanted: impl Fn(R) -> Option<T>,
) -> Result<Page<T>> {
    let mut items = Vec::new();
    loop {
        // One more than wanted would decide `next` exactly; a page that ends the list exactly is
        // answered with a token to an empty page at worst, never with a missing item.
        let page = world.records.page::<R>(prefix, after.as_ref(), limit - items.len()).await?;
        items.extend(page.items.into_iter().filter_map(|(record, _)| wanted(record)));
        after = page.last.or(after);
        if !page.more || items.len() >= limit {
            let next =
                if page.more { after.map(|key| key.last_segment().to_owned()) } else { None };
            return Ok(Page { items, next });
        }
    }
}

pub(crate) async fn volumes(
    world: &World,
    filter: &VolumeFilter,
    page: &PageRequest,
) -> Result<Page<Volume>> {
    let after = match &page.token {
        None => None,
        Some(token) => {
            let id: VolumeId = token.parse().map_err(|_| bad_token(token))?;
            Some(VolumeRecord::key_of(&id))
        }
    };
    fill(world, &VolumeRecord::prefix(), after, page.limit(), |record: VolumeRecord| {
        let volume = &record.volume;
        let wanted = filter.class.as_ref().is_none_or(|class| *class == volume.class)
            && volume.labels.matches(&filter.labels);
        wanted.then(|| record.view())
    })
    .await
}

pub(crate) async fn snapshots(
    world: &World,
    volume: Option<&VolumeRef>,
    page: &PageRequest,
) -> Result<Page<Snapshot>> {
    let volume = match volume {
        None => None,
        // The volume may be gone while its snapshots are not, so an id need not exist.
        Some(VolumeRef::Id(id)) => Some(id.clone()),
        Some(by_name @ VolumeRef::Alias(_)) => Some(world.get_volume(by_name).await?.0.volume.id),
    };
    let after = match &page.token {
        None => None,
        Some(token) => {
            let id: SnapshotId = token.parse().map_err(|_| bad_token(token))?;
            Some(SnapshotRecord::key_of(&id))
        }
    };
    fill(world, &SnapshotRecord::prefix(), after, page.limit(), |record: SnapshotRecord| {
        let wanted = volume.as_ref().is_none_or(|volume| *volume == record.snapshot.volume);
        wanted.then_some(record.snapshot)
    })
    .await
}

pub(crate) fn operations(
    world: &World,
    filter: &OperationFilter,
    page: &PageRequest,
) -> Result<Page<Operation>> {
    let before: Option<OperationId> = match &page.token {
        None => None,
        Some(token) => Some(token.parse().map_err(|_| bad_token(token))?),
    };
    let mut rest = world.jobs.all().into_iter().filter(|operation| {
        before.as_ref().is_none_or(|before| operation.id < *before)
            && filter.state.is_none_or(|state| operation.state == state)
            && filter.subject.as_ref().is_none_or(|subject| {
                operation.subject == *subject || operation.subject_name == *subject
            })
    });
    let items: Vec<_> = rest.by_ref().take(page.limit()).collect();
    let next = rest.next().and(items.last()).map(|last| last.id.to_string());
    Ok(Page { items, next })
}

pub(crate) async fn health(world: &Arc<World>, volume: &VolumeRef) -> Result<Health> {
    let (record, _) = world.get_volume(volume).await?;
    let volume = record.volume;
    let storage = world.provider(&volume.class)?.health(&at_provider(&volume)).await?;
    if !storage.healthy {
        return Ok(storage);
    }
    for publication in volume.publications.iter().filter(|p| p.attached.is_some()) {
        let here = match world.nodes.get(&publication.node).await {
            Ok(node) => node.health(&publication.id).await?,
            Err(error) => Health::bad(error.sentence()),
        };
        if !here.healthy {
            return Ok(Health::bad(format!("on node {}: {}", publication.node, here.message)));
        }
    }
    Ok(Health::good())
}

/// The room of a class, or what of it is at one place. Storage that every node reaches has the same
/// room everywhere.
pub(crate) async fn capacity(
    world: &World,
    class: &ClassName,
    place: Option<&Place>,
) -> Result<Capacity> {
    let provider = world.provider(class)?;
    if let (Some(place), Some(placement)) = (place, provider.placement()) {
        return placement.capacity_at(place).await;
    }
    match provider.capacity() {
        Some(ability) => ability.capacity().await,
        None => {
            let message = format!("class {class} cannot tell how much room it has");
            Err(Error::new(Kind::Unsupported, message))
        }
    }
}

/// All nodes: those that are connected as they are now, the others as they were last seen.
pub(crate) async fn nodes(world: &World) -> Result<Vec<NodeRecord>> {
    let mut known = Vec::new();
    world
        .records
        .each::<NodeRecord>(&Prefix::below(&["node"]), |record, _| known.push(record))
        .await?;
    for id in world.nodes.ids().await? {
        if let Ok(node) = world.nodes.get(&id).await {
            let now = node.describe().await?;
            known.retain(|record| record.id != id);
            known.push(now);
        }
    }
    known.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(known)
}
