//! Extend, lookup and health: looking at what is attached.

use std::sync::Arc;
use std::time::Duration;

use hawser_core::ByteSize;
use hawser_core::attach::{Attached, Health};
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::registry::LockGuard;

use super::connect::{describe, lock};
use super::data::{Volume, Way};
use super::gateway::Gateway;
use super::note::{self, Note};
use super::sdc;
use crate::shared::error::AttachError;
use crate::shared::users::Whole;
use crate::shared::wait::{self, Deadline};

/// How long the gateway may take to say which volume has a name.
const RESOLVE_LIMIT: Duration = Duration::from_secs(30);

/// A new size comes a moment after the client has looked.
const RESIZE_LIMIT: Duration = Duration::from_secs(1);

/// A guard of nothing, for calls that only look.
struct NoGuard;

impl LockGuard for NoGuard {}

/// The id of a volume: as the info says, as it was when it was attached, or as the gateway says;
/// `None` when nobody can be asked.
pub(super) async fn known_id(
    host: &dyn Host,
    volume: &Volume,
    noted: Option<&Note>,
    guard: Arc<dyn LockGuard>,
    deadline: Deadline,
) -> Result<Option<String>> {
    let recorded = volume.id.clone().or_else(|| volume.recorded.clone());
    let known = recorded.or_else(|| noted.map(|note| note.id.clone()));
    let access = match (known, &volume.way) {
        (Some(id), _) => return Ok(Some(id)),
        (None, Way::Mapped(_)) => return Ok(None),
        (None, Way::Gateway(access)) => access,
    };
    if access.password.is_none() && access.token.is_none() && access.group.is_none() {
        return Ok(None);
    }
    let gateway = Gateway::open(host, access, guard, deadline)?;
    gateway.resolve(&volume.name).await.map(Some)
}

/// The disk of a volume, and its id.
async fn find(host: &dyn Host, volume: &Volume) -> Result<Option<(Whole, String)>> {
    let deadline = Deadline::after(RESOLVE_LIMIT);
    let noted = note::read(host, volume)?;
    let id = known_id(host, volume, noted.as_ref(), Arc::new(NoGuard), deadline).await?;
    let Some(id) = id.filter(|id| volume.refuses(id).is_none()) else { return Ok(None) };
    Ok(sdc::find(host.files(), &id)?.map(|disk| (disk, id)))
}

/// Makes the client look for a new size, and answers it.
pub(super) async fn extend(host: &dyn Host, volume: &Volume) -> Result<ByteSize> {
    let _guard = lock(host, volume, Deadline::after(RESOLVE_LIMIT)).await?;
    let missing = || AttachError::NotAttached { what: volume.words() };
    let (disk, _) = find(host, volume).await?.ok_or_else(missing)?;
    let before = disk.size(host.files())?;
    let mut events = host.events().subscribe();
    sdc::rescan(host).await?;
    let limit = Deadline::after(RESIZE_LIMIT);
    let grown = wait::until(&mut *events, limit, async || {
        let now = disk.size(host.files())?;
        Ok((now != before).then_some(now))
    })
    .await?;
    Ok(ByteSize::bytes(grown.unwrap_or(before)))
}

/// What is attached now.
pub(super) async fn lookup(host: &dyn Host, volume: &Volume) -> Result<Option<Attached>> {
    match find(host, volume).await? {
        Some((disk, id)) => describe(host, &disk, &id).map(Some),
        None => Ok(None),
    }
}

/// Whether the volume has its disk.
pub(super) async fn health(
    host: &dyn Host,
    volume: &Volume,
    recorded: Option<&Attached>,
) -> Result<Health> {
    let Some((disk, _)) = find(host, volume).await? else {
        return Ok(Health::bad(format!("{} has no disk on this host", volume.words())));
    };
    let node = disk.node.display();
    if disk.size(host.files())? == 0 {
        return Ok(Health::bad(format!("{} is {node}, which has no size", volume.words())));
    }
    match recorded.map(Attached::path).filter(|path| **path != *disk.node) {
        Some(path) => Ok(Health::bad(format!(
            "{} is {node}, and was recorded as {}",
            volume.words(),
            path.display()
        ))),
        None => Ok(Health::good()),
    }
}
