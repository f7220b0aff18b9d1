//! The device that a user gets: the namespace itself, or the map that multipathd makes of several.
//!
//! With native multipath the kernel has made one device of all ways already. Without it each
//! controller has a device of its own; multipathd makes a map of them, and what it has taken can only
//! be used through that map.

use hawser_core::attach::Multipath;
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::kernel::Files;

use super::ids::Wanted;
use super::portal::Portal;
use super::sight::Sight;
use super::sysfs::Namespace;
use crate::shared::error::AttachError;
use crate::shared::flush::Top;
use crate::shared::multipath::{self, Join, Map};
use crate::shared::users::{self, Whole};
use crate::shared::wait::Deadline;

/// What a user gets.
#[derive(Clone, Debug)]
pub(super) struct Device {
    /// The namespace, or one of several devices of it.
    namespace: Whole,
    pub(super) map: Option<Map>,
}

impl Device {
    /// The device to use.
    pub(super) fn disk(&self) -> &Whole {
        self.map.as_ref().map_or(&self.namespace, |map| &map.disk)
    }

    /// For a flush.
    pub(super) fn top(&self) -> Top<'_> {
        self.map.as_ref().map_or(Top::Disk(&self.namespace), Top::Map)
    }

    /// Refuses one that somebody uses.
    pub(super) async fn refuse_used(
        &self,
        host: &dyn Host,
        force: bool,
        deadline: Deadline,
    ) -> Result<()> {
        match &self.map {
            Some(map) => multipath::refuse_used(host, map, force, deadline).await,
            None => users::refuse_used(host, &self.namespace, force, deadline).await,
        }
    }
}

/// The device of a namespace as it is now.
pub(super) fn of(files: &dyn Files, namespace: &Namespace) -> Result<Device> {
    let disk = Whole::new(&namespace.device);
    let map = if namespace.is_alone() { Map::above(files, &disk)? } else { None };
    Ok(Device { namespace: disk, map })
}

/// The devices of every way to a namespace.
pub(super) fn paths(sight: &Sight) -> Vec<Whole> {
    sight.found.iter().map(|namespace| Whole::new(&namespace.device)).collect()
}

/// Whether every way is wanted, and can be made into one device.
pub(super) async fn is_for_all(
    host: &dyn Host,
    native: bool,
    wanted: Multipath,
    ways: &[Portal],
    deadline: Deadline,
) -> Result<bool> {
    let can = match wanted {
        Multipath::Off => return Ok(false),
        Multipath::Wanted | Multipath::Enforced if native => true,
        Multipath::Wanted | Multipath::Enforced => multipath::is_running(host, deadline).await?,
    };
    if !can && wanted == Multipath::Enforced {
        let why = "nvme_core was loaded with multipath=N, and multipathd does not run".to_owned();
        return Err(AttachError::NoMultipath { why }.into());
    }
    Ok(can && ways.len() > 1)
}

/// Takes away what an earlier attach left in the way of the map of this volume.
pub(super) async fn clear_leftover(
    host: &dyn Host,
    wanted: &Wanted,
    deadline: Deadline,
) -> Result<()> {
    match wanted.wwid() {
        Some(wwid) => multipath::clear_leftover(host, &wwid, deadline).await,
        None => Ok(()),
    }
}

/// Makes one device of what was found and checked.
pub(super) async fn assemble(
    host: &dyn Host,
    sight: &Sight,
    namespace: &Namespace,
    wanted: Multipath,
    deadline: Deadline,
) -> Result<Device> {
    let now = of(host.files(), namespace)?;
    let running = multipath::is_running(host, deadline).await?;
    if !namespace.is_alone() || !running {
        return Ok(now);
    }
    let wwid = &namespace.ids.wwid;
    let paths = paths(sight);
    let join = Join { host, wwid, paths: &paths, deadline };
    // One path is enough for him, but what multipathd takes cannot be used without its map.
    if wanted == Multipath::Off && now.map.is_none() && !join.is_taken_anyway().await? {
        return Ok(now);
    }
    match (join.run().await?, wanted) {
        (Some(joined), _) => {
            if !joined.missing.is_empty() {
                tracing::warn!(map = %joined.map.name, missing = ?joined.missing,
                    "some paths are not in the map yet");
            }
            Ok(Device { map: Some(joined.map), ..now })
        }
        (None, Multipath::Off | Multipath::Wanted) => {
            tracing::warn!(%wwid, "multipathd makes no map of this volume; one path is used");
            Ok(now)
        }
        (None, Multipath::Enforced) => {
            let why = format!("multipathd makes no map of {wwid}; look at its configuration");
            Err(AttachError::NoMultipath { why }.into())
        }
    }
}
