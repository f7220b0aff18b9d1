//! Attaching: a session for each way, one scan for the volume in each, one device of all paths.

use std::collections::BTreeSet;

use async_trait::async_trait;
use hawser_core::attach::{Attach, Attached, Identity, Multipath};
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::{Change, Reason};

use super::data::{Credentials, Target, Volume};
use super::discovery;
use super::leave::Leave;
use super::login::{Login, Made};
use super::look::{self, Found};
use super::notes::{Claim, Key, Notes};
use super::session::Session;
use crate::shared::error::AttachError;
use crate::shared::multipath;
use crate::shared::scsi::{
    self, Address, Assemble, Names, Path, Route, ScsiDisk, TakeBack, Tries, appear, fresh,
};
use crate::shared::wait::Deadline;

/// One attach.
pub(super) struct Connect<'a> {
    pub(super) host: &'a dyn Host,
    pub(super) volume: &'a Volume,
    pub(super) credentials: &'a Credentials,
    pub(super) attach: &'a Attach,
    pub(super) given: Option<&'a Identity>,
    pub(super) deadline: Deadline,
}

/// What one call made at one target.
pub(super) struct MadeAt {
    target: Target,
    made: Made,
    /// The device that was there before: not ours to take back.
    before: Option<Address>,
    /// The device, where it was not there before.
    device: Option<Address>,
}

impl Connect<'_> {
    /// Attaches the volume, or finds it attached. What fails is taken back.
    pub(super) async fn run(&self) -> Result<Change<Attached>> {
        let claims = Notes::claims(self.host, &self.volume.key)?;
        let mut there = look::disks(self.host, &look::ways(self.host, self.volume, &claims)?)?;
        if there.is_empty() {
            self.clear_leftovers(&claims).await?;
        }
        self.need_multipath().await?;
        let (multipath, deadline) = (self.attach.multipath, self.deadline);
        let disks = there.iter().map(|found| &found.disk);
        let alone = scsi::used_alone(self.host, disks, multipath, deadline).await?;
        let mut made = Vec::new();
        let paths = match &alone {
            Some(used) => {
                there.retain(|found| found.disk == *used);
                let ways: Vec<Target> = there.iter().map(|found| found.target.clone()).collect();
                self.one(&ways, &there, &mut made).await
            }
            None => {
                let ways = self.ways(&claims, &there).await?;
                self.paths(&ways, &claims, &there, &mut made).await
            }
        };
        let attached = match paths {
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

    /// Refuses before anything is made where several paths are enforced and cannot be.
    async fn need_multipath(&self) -> Result<()> {
        if self.attach.multipath == Multipath::Enforced
            && !multipath::is_running(self.host, self.deadline).await?
        {
            return Err(AttachError::NoMultipath { why: "multipathd does not run".into() }.into());
        }
        Ok(())
    }

    /// Deals with maps of the volume that lost their paths, as far as its name is known by now: once
    /// new paths are there, multipathd may put them into such a map before anybody can look.
    async fn clear_leftovers(&self, claims: &[Claim]) -> Result<()> {
        let expected = self.volume.expected.iter().map(|identity| identity.value.as_str());
        let claimed = claims.iter().filter_map(|claim| claim.wwid.as_deref());
        let names = expected.chain(claimed).filter_map(Names::of_udev);
        let wwids: BTreeSet<String> = names.map(|names| names.wwid()).collect();
        for wwid in wwids {
            multipath::clear_leftover(self.host, &wwid, self.deadline).await?;
        }
        Ok(())
    }

    /// The ways to try. A target is asked for its portals only where a volume is not attached over
    /// all that were found before.
    async fn ways(&self, claims: &[Claim], there: &[Found]) -> Result<Vec<Target>> {
        let wants_more = self.volume.discover && self.attach.multipath != Multipath::Off;
        let complete = !claims.is_empty()
            && claims.iter().all(|claim| there.iter().any(|found| found.target == claim.target));
        if !wants_more || complete {
            let mut ways = self.volume.targets.clone();
            let known = claims.iter().map(|claim| claim.target.clone());
            ways.extend(known.filter(|known| !self.volume.targets.contains(known)));
            return Ok(ways);
        }
        let chap = self.credentials.discovery.as_ref();
        let found = discovery::ways(self.host, self.volume, chap, self.deadline).await;
        match found {
            Ok(ways) => Ok(ways),
            Err(error) if error.is_unknown() => Err(error),
            // The one way that was given may still work.
            Err(error) if error.reason() != Some(Reason::TargetNotFound) => {
                tracing::warn!(error = %error.sentence(), "the other portals are not known");
                Ok(self.volume.targets.clone())
            }
            Err(error) => Err(error),
        }
    }

    /// The paths to the volume: one, or all that there are.
    async fn paths(
        &self,
        ways: &[Target],
        claims: &[Claim],
        there: &[Found],
        made: &mut Vec<MadeAt>,
    ) -> Result<Vec<Path>> {
        if self.attach.multipath == Multipath::Off {
            return self.one(ways, there, made).await;
        }
        let (ways, renamed) = self.by_name(ways, claims);
        let (mut paths, failed) = self.all(&ways, made).await?;
        self.drop_failed(failed, made, &paths).await?;
        self.add_renamed(&renamed, &mut paths, made).await;
        Ok(paths)
    }

    /// Takes back what was made for ways that lead nowhere.
    async fn drop_failed(
        &self,
        failed: Vec<MadeAt>,
        made: &mut Vec<MadeAt>,
        paths: &[Path],
    ) -> Result<()> {
        let hosts: Vec<u32> = paths.iter().map(|(disk, _)| disk.address.host).collect();
        for at in failed.into_iter().filter(Self::is_anything) {
            let sessions = Session::of(self.host.files(), &at.target)?;
            if sessions.iter().any(|session| hosts.contains(&session.host)) {
                made.push(at);
            } else if let Err(error) =
                self.leave().target(&at.target, at.before.as_slice(), &[]).await
            {
                tracing::warn!(target = %at.target, error = %error.sentence(),
                    "what a failed path left is still there");
                made.push(at);
            }
        }
        Ok(())
    }

    /// The path that is there, or the first way that works.
    async fn one(
        &self,
        ways: &[Target],
        there: &[Found],
        made: &mut Vec<MadeAt>,
    ) -> Result<Vec<Path>> {
        let mut paths = Vec::new();
        for target in ways.iter().filter(|way| there.iter().any(|found| found.target == **way)) {
            let mut at = self.begin(target);
            let path = self.path(target, &mut at).await;
            made.push(at);
            paths.push(path?);
        }
        if paths.is_empty() { self.first(ways, made).await } else { Ok(paths) }
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

    fn leave(&self) -> Leave<'_> {
        Leave {
            host: self.host,
            volume: &self.volume.key,
            iface: &self.volume.iface,
            // What is left of the deadline may be nothing; taking back has its own time.
            deadline: Deadline::after(self.attach.deadline),
        }
    }
}

#[async_trait]
impl Tries for Connect<'_> {
    type Way = Target;
    type Made = MadeAt;

    fn begin(&self, way: &Target) -> MadeAt {
        MadeAt { target: way.clone(), made: Made::default(), before: None, device: None }
    }

    fn is_anything(made: &MadeAt) -> bool {
        made.made.claim || made.made.login || made.device.is_some()
    }

    /// One path: a session, the disk in it, and who that is.
    async fn path(&self, target: &Target, at: &mut MadeAt) -> Result<Path> {
        let (host, volume, deadline) = (self.host, self.volume, self.deadline);
        let login = Login { host, volume, credentials: self.credentials, deadline };
        let session = login.session(target, &mut at.made).await?;
        let route = session.route(target.lun);
        at.before = route.address(host.files())?;
        let disk = appear(host, &route, deadline).await;
        if at.before.is_none() {
            at.device = route.address(host.files())?;
        }
        let Some(disk) = disk? else {
            return Err(AttachError::VolumeNotFound {
                target: target.to_string(),
                volume: format!("volume with the number {}", target.lun),
                limit: deadline.limit(),
            }
            .into());
        };
        let (disk, names) = fresh(host, &route, disk, &volume.expected, deadline).await?;
        if at.before.is_none() {
            multipath::clear_leftover(host, &names.wwid(), deadline).await?;
        }
        let claim = Claim { target: target.clone(), wwid: Some(names.wwid()) };
        Notes::of(host, &Key::of(target)).set_claim(&volume.key, &claim).await?;
        Ok((disk, names))
    }

    async fn take_back(&self, made: &[MadeAt]) -> Result<()> {
        let host = self.host;
        let files = host.files();
        let leave = self.leave();
        let mut disks = Vec::new();
        for at in made {
            let Some(address) = at.device else { continue };
            let notes = Notes::of(host, &Key::of(&at.target));
            // Who came meanwhile may have a map of it already.
            if !leave.is_anothers(&notes, &at.target, address)? {
                disks.extend(ScsiDisk::find(files, address)?);
            }
        }
        let back = TakeBack { host, disks: &disks, deadline: leave.deadline };
        let wwid = back.map().await?;
        for at in made {
            if at.made.claim || at.made.login {
                leave.target(&at.target, at.before.as_slice(), &[]).await?;
            } else if let Some(address) = at.device
                && disks.iter().any(|disk| disk.address == address)
            {
                scsi::delete_at(host, address, leave.deadline).await?;
            }
        }
        back.settle(wwid.as_deref()).await
    }

    fn deadline(&self) -> Deadline {
        self.deadline
    }
}
