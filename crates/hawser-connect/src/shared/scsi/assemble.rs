//! The paths of a volume become the one device that its user gets.

use std::time::Duration;

use hawser_core::ByteSize;
use hawser_core::attach::{Attached, Identity, Multipath};
use hawser_core::error::Result;
use hawser_core::port::Host;

use super::disk::ScsiDisk;
use super::identity::told;
use super::names::Names;
use crate::shared::error::AttachError;
use crate::shared::multipath::{self, Join, Map};
use crate::shared::users::Whole;
use crate::shared::wait::Deadline;

/// How long a device that refuses writes may take to accept them: paths change their state, and a
/// map is made anew.
const WRITABLE_LIMIT: Duration = Duration::from_secs(10);

/// How long it is left alone before it is asked again; each time twice as long. Asking raises events
/// itself, which keep udev busy and would hit the next attach: so it is not asked after each event.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// What is to become of the paths of a volume.
pub(crate) struct Assemble<'a> {
    pub(crate) host: &'a dyn Host,
    /// The identity that the caller gave, to answer it in his own words.
    pub(crate) given: Option<&'a Identity>,
    pub(crate) multipath: Multipath,
    /// The one path is used as it is: no map is made of it.
    pub(crate) alone: bool,
    pub(crate) read_only: bool,
    pub(crate) deadline: Deadline,
}

impl Assemble<'_> {
    /// Makes one device of paths that were found to be the expected volume, each with its names.
    /// There is at least one.
    async fn run(&self, paths: &[(ScsiDisk, Names)]) -> Result<Attached> {
        let Some(((first, names), others)) = paths.split_first() else {
            let attempt = "looking for a path".to_owned();
            return Err(AttachError::Deadline { attempt, limit: self.deadline.limit() }.into());
        };
        for (disk, its) in others {
            if !names.same(its) {
                return Err(AttachError::WrongIdentity {
                    device: disk.disk.node.clone(),
                    expected: Identity::new("wwid", names.wwid()),
                    found: format!("wwid:{}", its.wwid()),
                }
                .into());
            }
        }
        let disks: Vec<&ScsiDisk> = paths.iter().map(|(disk, _)| disk).collect();
        same_size(self.host, &disks, self.deadline).await?;
        if !self.read_only {
            // Before there is a map: one that takes writes has no room for a path that does not.
            self.paths_take_writes(&disks).await?;
        }
        let map = self.map(&names.wwid(), &disks).await?;
        let top = map.as_ref().map_or(&first.disk, |map| &map.disk);
        self.set_access(top, map.as_ref()).await?;
        Ok(Attached::Block {
            device: top.node.clone(),
            identity: Some(told(names, self.given)),
            size: ByteSize::bytes(top.size(self.host.files())?),
        })
    }

    /// The same; true when a map is new. Where it fails, a new map goes again if this call brought
    /// all of its paths.
    pub(crate) async fn run_alone(
        &self,
        paths: &[(ScsiDisk, Names)],
        all_new: bool,
    ) -> Result<(Attached, bool)> {
        let files = self.host.files();
        let wwid = paths.first().map(|(_, names)| names.wwid()).unwrap_or_default();
        let before = Map::of_wwid(files, &wwid)?;
        let attached = self.run(paths).await;
        let now = Map::of_wwid(files, &wwid)?.filter(|_| before.is_none());
        match (attached, now) {
            (Ok(attached), now) => Ok((attached, now.is_some())),
            (Err(error), Some(map)) if all_new => {
                if let Err(undo) = multipath::remove(self.host, &map, self.deadline).await {
                    tracing::warn!(map = %map.name, error = %undo.sentence(), "it is still there");
                }
                Err(error)
            }
            (Err(error), _) => Err(error),
        }
    }

    /// The map of the paths, where there is to be one.
    async fn map(&self, wwid: &str, disks: &[&ScsiDisk]) -> Result<Option<Map>> {
        if self.alone {
            return Ok(None);
        }
        let (host, deadline) = (self.host, self.deadline);
        let paths: Vec<Whole> = disks.iter().map(|disk| disk.disk.clone()).collect();
        let join = Join { host, wwid, paths: &paths, deadline };
        if !multipath::is_running(host, deadline).await? {
            // Maps outlive their daemon.
            if let Some(map) = Map::above(host.files(), &paths[0])? {
                return Ok(Some(map));
            }
            return match self.multipath {
                Multipath::Off | Multipath::Wanted => Ok(None),
                Multipath::Enforced => {
                    Err(AttachError::NoMultipath { why: "multipathd does not run".into() }.into())
                }
            };
        }
        // One path is enough for him, but what multipathd takes cannot be used without its map.
        if self.multipath == Multipath::Off && !join.is_taken_anyway().await? {
            return Ok(None);
        }
        let joined = join.run().await?;
        match (joined, self.multipath) {
            (Some(joined), _) => {
                if !joined.missing.is_empty() {
                    tracing::warn!(map = %joined.map.name, missing = ?joined.missing,
                        "some paths are not in the map yet");
                }
                Ok(Some(joined.map))
            }
            (None, Multipath::Off | Multipath::Wanted) => {
                tracing::warn!(%wwid, "multipathd makes no map of this volume; one path is used");
                Ok(None)
            }
            (None, Multipath::Enforced) => {
                let why = format!("multipathd makes no map of {wwid}; look at its configuration");
                Err(AttachError::NoMultipath { why }.into())
            }
        }
    }

    /// Waits until every path takes writes. One that did not when it was found says so until it is
    /// asked again.
    async fn paths_take_writes(&self, disks: &[&ScsiDisk]) -> Result<()> {
        let mut asking = Asking::new(self.deadline);
        loop {
            let mut refusing = None;
            for disk in disks {
                if self.refuses(&disk.disk)? {
                    disk.rescan(self.host, self.deadline).await?;
                    self.allow_writes(&disk.disk).await?;
                }
                if self.refuses(&disk.disk)? {
                    refusing = Some(disk);
                }
            }
            let Some(refusing) = refusing else { return Ok(()) };
            if !asking.again().await {
                return Err(AttachError::ReadOnly { device: refusing.disk.node.clone() }.into());
            }
        }
    }

    /// Makes the device refuse writes, or makes sure that it takes them.
    async fn set_access(&self, top: &Whole, map: Option<&Map>) -> Result<()> {
        if self.read_only {
            if self.refuses(top)? {
                return Ok(());
            }
            let attempt = format!("setting the access of {}", top.node.display());
            let set = self.host.disks().set_read_only(&top.node, true).await;
            return Ok(set.map_err(AttachError::kernel(attempt))?);
        }
        let mut asking = Asking::new(self.deadline);
        while self.refuses(top)? {
            // A map that was made of paths that took no writes yet.
            if let Some(map) = map {
                multipath::reload(self.host, map, self.deadline).await?;
            }
            self.allow_writes(top).await?;
            if self.refuses(top)? && !asking.again().await {
                return Err(AttachError::ReadOnly { device: top.node.clone() }.into());
            }
        }
        Ok(())
    }

    /// Takes back what this host may have forbidden; what the storage forbids stays.
    async fn allow_writes(&self, disk: &Whole) -> Result<()> {
        if self.refuses(disk)?
            && let Err(error) = self.host.disks().set_read_only(&disk.node, false).await
        {
            tracing::debug!(device = %disk.node.display(), %error, "not writable yet");
        }
        Ok(())
    }

    fn refuses(&self, disk: &Whole) -> Result<bool> {
        Ok(disk.attribute(self.host.files(), "ro")?.as_deref() == Some("1"))
    }
}

/// Asking a device that refuses writes, until it takes them.
struct Asking {
    limit: Deadline,
    pause: Duration,
}

impl Asking {
    fn new(deadline: Deadline) -> Self {
        Self { limit: deadline.within(WRITABLE_LIMIT), pause: ASK_AGAIN }
    }

    /// Leaves the device alone for a while; false when it has had its time.
    async fn again(&mut self) -> bool {
        if self.limit.passed() {
            return false;
        }
        tokio::time::sleep(self.limit.left().min(self.pause)).await;
        self.pause *= 2;
        true
    }
}

/// Refuses paths that disagree about the size, after each was asked again.
async fn same_size(host: &dyn Host, disks: &[&ScsiDisk], deadline: Deadline) -> Result<()> {
    let sizes =
        || -> Result<Vec<u64>> { disks.iter().map(|disk| disk.disk.size(host.files())).collect() };
    let differ = |sizes: &[u64]| sizes.windows(2).any(|pair| pair[0] != pair[1]);
    if !differ(&sizes()?) {
        return Ok(());
    }
    for disk in disks {
        disk.rescan(host, deadline).await?;
    }
    let sizes = sizes()?;
    if !differ(&sizes) {
        return Ok(());
    }
    let what = disks[0].disk.node.display().to_string();
    let why = format!("its paths have different sizes: {sizes:?}");
    Err(AttachError::PathsDown { what, why }.into())
}
