//! A map goes: after a flush, before its paths.

use std::time::Duration;

use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::kernel::KernelError;

use super::map::Map;
use crate::shared::error::AttachError;
use crate::shared::users;
use crate::shared::wait::{self, Deadline};

/// How long somebody who only looks at a map (udev, after each change) may keep it.
const REMOVE_LIMIT: Duration = Duration::from_secs(10);

const ENXIO: i32 = 6;
const EBUSY: i32 = 16;

/// Refuses a map that somebody uses, itself or one of its partitions. `force` passes those who only
/// have it open.
pub(crate) async fn refuse_used(
    host: &dyn Host,
    map: &Map,
    force: bool,
    deadline: Deadline,
) -> Result<()> {
    let partitions = map.partitions(host.files())?;
    for (_, partition) in &partitions {
        users::refuse_users(host, partition, &[], force, deadline).await?;
    }
    let ours: Vec<String> = partitions.into_iter().map(|(_, disk)| disk.name).collect();
    users::refuse_users(host, &map.disk, &ours, force, deadline).await
}

/// Removes a map and the maps of its partitions, and makes sure that they are gone. `Kind::Busy`
/// when somebody has it open; nothing that is written to it is lost by this, and nothing is proven
/// to be written either: that is what the flush before is for.
///
/// It is removed by its name of device mapper, as the kernel tells it: by another name old tools
/// answered success and did nothing.
pub(crate) async fn remove(host: &dyn Host, map: &Map, deadline: Deadline) -> Result<()> {
    for (name, _) in map.partitions(host.files())? {
        remove_one(host, &name, &map.disk.node, deadline).await?;
    }
    remove_one(host, &map.name, &map.disk.node, deadline).await?;
    let mut events = host.events().subscribe();
    let limit = deadline.within(REMOVE_LIMIT);
    let gone = async || Ok((!map.is_there(host.files())?).then_some(()));
    match wait::until(&mut *events, limit, gone).await? {
        Some(()) => Ok(()),
        None => {
            let what = format!("the map {}", map.name);
            Err(AttachError::NotRemoved { what, limit: limit.limit() }.into())
        }
    }
}

/// Asks the kernel itself: multipathd would wait for udev, and hears of it anyway.
async fn remove_one(
    host: &dyn Host,
    name: &str,
    node: &std::path::Path,
    deadline: Deadline,
) -> Result<()> {
    let mut events = host.events().subscribe();
    let limit = deadline.within(REMOVE_LIMIT);
    let removed = async || match host.maps().remove(name).await {
        Ok(()) => Ok(Some(())),
        Err(error) if error.errno() == Some(ENXIO) => Ok(Some(())),
        Err(error) if error.errno() == Some(EBUSY) => Ok(None),
        Err(source @ (KernelError::Refused { .. } | KernelError::Late { .. })) => {
            Err(AttachError::kernel(format!("removing the map {name}"))(source).into())
        }
        Err(source @ (KernelError::NotBegun { .. } | KernelError::Nonsense { .. })) => {
            Err(AttachError::kernel(format!("removing the map {name}"))(source).into())
        }
    };
    match wait::until(&mut *events, limit, removed).await? {
        Some(()) => Ok(()),
        None => Err(AttachError::Busy {
            device: node.to_path_buf(),
            users: format!("somebody who has the map {name} open"),
        }
        .into()),
    }
}
