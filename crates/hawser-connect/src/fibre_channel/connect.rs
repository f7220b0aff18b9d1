//! Attaching: one scan for the volume over each way, one device of all paths.

use async_trait::async_trait;
use hawser_core::Change;
use hawser_core::attach::{Attach, Attached, Identity, Multipath};
use hawser_core::error::Result;
use hawser_core::port::Host;

use super::data::Volume;
use super::fabric::Adapter;
use super::look::{self, Found, Way};
use super::reach::{self, FABRIC_LIMIT, Reach};
use crate::shared::error::AttachError;
use crate::shared::multipath::{self, Map};
use crate::shared::scsi::{
    self, Address, Assemble, Names, Path, Route, ScsiDisk, TakeBack, Tries, appear, fresh,
    is_wrong_volume,
};
use crate::shared::users;
use crate::shared::wait::Deadline;

/// One attach.
pub(super) struct Connect<'a> {
    pub(super) host: &'a dyn Host,
    pub(super) volume: &'a Volume,
    pub(super) attach: &'a Attach,
    pub(super) given: Option<&'a Identity>,
    pub(super) deadline: Deadline,
}

/// What one call made over one way.
pub(super) struct MadeAt {
    way: Way,
    /// The volume was named to the driver.
    unit: bool,
    /// The device that was there before: not ours to take back.
    before: Option<Address>,
    /// The device, where it was not there before.
    device: Option<Address>,
}

impl Connect<'_> {
    /// Attaches the volume, or finds it attached. What fails is taken back.
    pub(super) async fn run(&self) -> Result<Change<Attached>> {
        let files = self.host.files();
        if Adapter::list(files)?.is_empty() {
            return Err(AttachError::NoHba { kind: "Fibre Channel" }.into());
        }
        if self.attach.multipath == Multipath::Enforced
            && !multipath::is_running(self.host, self.deadline).await?
        {
            return Err(AttachError::NoMultipath { why: "multipathd does not run".into() }.into());
        }
        let all = look::ways(files, self.volume)?;
        let there = look::disks(files, &all)?;
        if there.is_empty() {
            self.clear_leftovers().await?;
        }
        let (host, volume, deadline) = (self.host, self.volume, self.deadline);
        let multipath = self.attach.multipath;
        let disks = there.iter().map(|found| &found.disk);
        let alone = scsi::used_alone(host, disks, multipath, deadline).await?;
        let used = there.iter().find(|found| Some(&found.disk) == alone.as_ref());
        let ways = match used {
            Some(used) => vec![used.way.clone()],
            None => Reach { host, volume, multipath, deadline }.ways(&all).await?,
        };
        let _scanning = reach::scan_lock(host, deadline).await?;
        let mut made = Vec::new();
        let attached = match self.paths(&all, &ways, &mut made).await {
            Ok(paths) => self.assemble(&paths, &made, alone.is_some()).await,
            Err(error) => Err(error),
        };
        match attached {
            Ok((attached, false)) if !made.iter().any(Self::is_anything) => {
                Ok(Change::Already(attached))
            }
            Ok((attached, _)) => Ok(Change::Made(attached)),
            Err(error) => Err(self.undo(made, error).await),
        }
    }

    /// Deals with a map of the volume that lost its paths, where its name is known by now: once new
    /// paths are there, multipathd may put them into it before anybody can look.
    async fn clear_leftovers(&self) -> Result<()> {
        let expected = self.volume.expected.iter();
        for names in expected.filter_map(|identity| Names::of_udev(&identity.value)) {
            multipath::clear_leftover(self.host, &names.wwid(), self.deadline).await?;
        }
        Ok(())
    }

    /// The paths to the volume over ways that are up: one, or all that there are.
    async fn paths(&self, all: &[Way], ways: &[Way], made: &mut Vec<MadeAt>) -> Result<Vec<Path>> {
        if self.attach.multipath == Multipath::Off {
            let there = self.there(all, made).await?;
            return if there.is_empty() { self.first(ways, made).await } else { Ok(there) };
        }
        let (paths, failed) = self.all(ways, made).await?;
        for at in failed.into_iter().filter(Self::is_anything) {
            if let Err(error) = self.take_back(std::slice::from_ref(&at)).await {
                tracing::warn!(way = %at.way, error = %error.sentence(), "it is still there");
                made.push(at);
            }
        }
        Ok(paths)
    }

    /// The paths that are there. One that is down may be the one that somebody has: he would not
    /// see what is written over another. So it is passed over only when nobody uses it.
    async fn there(&self, all: &[Way], made: &mut Vec<MadeAt>) -> Result<Vec<Path>> {
        let mut paths = Vec::new();
        for Found { way, disk } in look::disks(self.host.files(), all)? {
            let mut at = self.begin(&way);
            let path = self.path(&way, &mut at).await;
            made.push(at);
            match path {
                Ok(path) => paths.push(path),
                Err(error) if is_wrong_volume(&error) => return Err(error),
                Err(error) => {
                    tracing::warn!(%way, error = %error.sentence(), "a path is down");
                    let below_map = Map::above(self.host.files(), &disk.disk)?.is_some();
                    if !below_map {
                        let (host, deadline) = (self.host, self.deadline);
                        users::refuse_users(host, &disk.disk, &[], false, deadline).await?;
                    }
                }
            }
        }
        Ok(paths)
    }

    /// One device of all paths; true when its map is new.
    async fn assemble(
        &self,
        paths: &[Path],
        made: &[MadeAt],
        alone: bool,
    ) -> Result<(Attached, bool)> {
        let assemble = Assemble {
            host: self.host,
            given: self.given,
            multipath: self.attach.multipath,
            alone,
            read_only: self.attach.read_only || self.volume.read_only,
            deadline: self.deadline,
        };
        // Only a map of paths that this call brought is its own.
        assemble.run_alone(paths, made.iter().all(|at| at.device.is_some())).await
    }
}

#[async_trait]
impl Tries for Connect<'_> {
    type Way = Way;
    type Made = MadeAt;

    fn begin(&self, way: &Way) -> MadeAt {
        MadeAt { way: way.clone(), unit: false, before: None, device: None }
    }

    fn is_anything(made: &MadeAt) -> bool {
        made.unit || made.device.is_some()
    }

    /// One path: the disk behind a port, and who that is.
    async fn path(&self, way: &Way, at: &mut MadeAt) -> Result<Path> {
        let (host, deadline) = (self.host, self.deadline);
        at.before = way.address(host.files())?;
        if let Some(zfcp) = way.adapter.zfcp.as_ref().filter(|zfcp| zfcp.wants_units())
            && at.before.is_none()
        {
            // A name that is given and not confirmed is taken back all the same.
            at.unit = !zfcp.has_unit(host.files(), way.port)?;
            at.unit = zfcp.add_unit(host, way.port, deadline).await? && at.unit;
        }
        let disk = appear(host, way, deadline.within(FABRIC_LIMIT)).await;
        if at.before.is_none() {
            at.device = way.address(host.files())?;
        }
        let Some(disk) = disk? else {
            return Err(AttachError::VolumeNotFound {
                target: way.port.wwpn.to_string(),
                volume: format!("volume with the number {}", way.port.lun),
                limit: FABRIC_LIMIT.min(deadline.limit()),
            }
            .into());
        };
        let (disk, names) = fresh(host, way, disk, &self.volume.expected, deadline).await?;
        if at.before.is_none() {
            multipath::clear_leftover(host, &names.wwid(), deadline).await?;
        }
        Ok((disk, names))
    }

    async fn take_back(&self, made: &[MadeAt]) -> Result<()> {
        let host = self.host;
        // What is left of the deadline may be nothing; taking back has its own time.
        let deadline = Deadline::after(self.attach.deadline);
        let mut disks = Vec::new();
        for address in made.iter().filter_map(|at| at.device) {
            disks.extend(ScsiDisk::find(host.files(), address)?);
        }
        let back = TakeBack { host, disks: &disks, deadline };
        let wwid = back.map().await?;
        for at in made {
            if let Some(zfcp) = at.way.adapter.zfcp.as_ref().filter(|_| at.unit) {
                zfcp.remove_unit(host, at.way.port, deadline).await?;
            }
            if let Some(address) = at.device {
                scsi::delete_at(host, address, deadline).await?;
            }
        }
        back.settle(wwid.as_deref()).await
    }

    fn deadline(&self) -> Deadline {
        self.deadline
    }
}
