//! A volume goes: first what its user had, then its paths.

use std::path::Path;

use hawser_core::attach::Detach;
use hawser_core::error::Result;
use hawser_core::port::Host;

use super::disk::{ScsiDisk, gone};
use crate::shared::flush::{self, Top};
use crate::shared::multipath::{self, Map};
use crate::shared::release::Failures;
use crate::shared::users::{self, Whole};
use crate::shared::wait::Deadline;

/// The steps of a detach that do not depend on the transport. In between the transport takes its
/// paths away: [`Release::top`], then the paths, then [`Release::settle`].
pub(crate) struct Release<'a> {
    pub(crate) host: &'a dyn Host,
    /// The volume as udev names it, where that is known.
    pub(crate) wwid: Option<&'a str>,
    /// The device that its user had, where that is known.
    pub(crate) used: Option<&'a Path>,
    /// The paths that are there.
    pub(crate) disks: &'a [ScsiDisk],
    pub(crate) detach: &'a Detach,
    pub(crate) deadline: Deadline,
}

impl Release<'_> {
    /// The map of the volume: what is there decides, not what was asked for at attach. A map that
    /// lost all of its paths is found by its volume.
    pub(crate) fn map(&self) -> Result<Option<Map>> {
        let files = self.host.files();
        for disk in self.disks {
            if let Some(map) = Map::above(files, &disk.disk)? {
                return Ok(Some(map));
            }
        }
        match self.wwid {
            Some(wwid) => Map::of_wwid(files, wwid),
            None => Ok(None),
        }
    }

    /// Refuses a volume in use, writes out what is cached, and removes its map. Unless forced, any
    /// failure ends it with the volume still usable.
    pub(crate) async fn top(&self, failures: &mut Failures<'_>) -> Result<()> {
        let (host, force, deadline) = (self.host, self.detach.force, self.deadline);
        let mut map = self.map()?;
        while let Err(error) = self.refuse_used(map.as_ref()).await {
            // multipathd may put the paths together at this moment, as after an attach whose process
            // died: what stands on them is the volume itself.
            let now = self.map()?;
            if now.is_none() || now == map || deadline.passed() {
                return Err(error);
            }
            map = now;
        }
        let Some(map) = &map else { return self.flush_disks(failures).await };
        flush::flush(host, Top::Map(map), force, failures, deadline).await?;
        if let Err(error) = multipath::remove(host, map, deadline).await {
            failures.take(error)?;
        }
        Ok(())
    }

    /// Refuses a volume that somebody uses, over its map or over a path.
    async fn refuse_used(&self, map: Option<&Map>) -> Result<()> {
        let (host, force, deadline) = (self.host, self.detach.force, self.deadline);
        if let Some(map) = map {
            multipath::refuse_used(host, map, force, deadline).await?;
        }
        let own: Vec<String> = map.iter().map(|map| map.disk.name.clone()).collect();
        for disk in self.disks {
            let below = !own.is_empty() && is_held_by(host, &disk.disk, &own)?;
            // multipathd has the paths of its maps open; who else looks at one is no user of the
            // volume.
            let pass = force || below;
            users::refuse_users(host, &disk.disk, &own, pass, deadline).await?;
        }
        Ok(())
    }

    /// Without a map each path has a cache of its own; only the one that was used has anything in
    /// it, and another may be dead.
    async fn flush_disks(&self, failures: &mut Failures<'_>) -> Result<()> {
        let is_used = |disk: &&ScsiDisk| self.used == Some(disk.disk.node.as_path());
        let used: Vec<&ScsiDisk> = match self.disks.iter().find(is_used) {
            Some(disk) => vec![disk],
            None => self.disks.iter().collect(),
        };
        for disk in used {
            let (host, force) = (self.host, self.detach.force);
            flush::flush(host, Top::Disk(&disk.disk), force, failures, self.deadline).await?;
        }
        Ok(())
    }

    /// After the transport took the paths away: makes sure that they are gone, that multipathd knows
    /// it, and that no map came back meanwhile. True when something was left that it took away.
    pub(crate) async fn settle(&self, failures: &mut Failures<'_>) -> Result<bool> {
        let (host, deadline) = (self.host, self.deadline);
        if let Err(error) = gone(host, self.disks, deadline).await {
            failures.take(error)?;
        }
        let Some(wwid) = self.wwid else { return Ok(false) };
        let names: Vec<Whole> = self.disks.iter().map(|disk| disk.disk.clone()).collect();
        if let Err(error) = multipath::forgotten(host, wwid, &names, deadline).await {
            failures.take(error)?;
        }
        if let Some(map) = Map::of_wwid(host.files(), wwid)?
            && map.paths(host.files())?.is_empty()
            && let Err(error) = multipath::remove(host, &map, deadline).await
        {
            failures.take(error)?;
        }
        match multipath::forget_wwid(host, wwid).await {
            Ok(forgotten) => Ok(forgotten),
            Err(error) => {
                failures.take(error)?;
                Ok(true)
            }
        }
    }
}

/// True when one of these devices stands on the disk.
fn is_held_by(host: &dyn Host, disk: &Whole, names: &[String]) -> Result<bool> {
    let holders = host.files().list(&disk.folder().join("holders"))?;
    Ok(holders.iter().any(|holder| names.contains(holder)))
}
