//! Detaching: what the kernel shows decides what goes.

use futures_util::future::join_all;
use hawser_core::Change;
use hawser_core::attach::{AttachRecord, Attached, Detach, Identity};
use hawser_core::error::Result;
use hawser_core::port::Host;

use super::data::{Target, Volume};
use super::discovery;
use super::leave::Leave;
use super::look::{self, Found};
use super::notes::{Claim, Key, Notes};
use super::session::Session;
use super::{record, recover};
use crate::shared::release::Failures;
use crate::shared::scsi::{self, Address, Names, Release, ScsiDisk, Verdict};
use crate::shared::users;
use crate::shared::wait::Deadline;

/// One detach.
pub(super) struct Disconnect<'a> {
    pub(super) host: &'a dyn Host,
    pub(super) volume: &'a Volume,
    pub(super) record: &'a AttachRecord,
    pub(super) detach: &'a Detach,
    pub(super) deadline: Deadline,
}

/// What of the volume is here.
#[derive(Default)]
struct Here {
    /// Its disks, with the ways that lead to them.
    disks: Vec<Found>,
    /// Disks that were its, and lead to another volume now.
    reused: Vec<(ScsiDisk, Names)>,
    /// Disks of other volumes under its number.
    others: Vec<Found>,
    /// Those of them that an attach brought which was cut off while it tried a way, and nobody uses.
    tried: Vec<Address>,
    /// Ways where something of it may be left, whether it has a disk or not.
    ways: Vec<Target>,
    wwid: Option<String>,
}

impl Disconnect<'_> {
    /// Takes the volume away.
    pub(super) async fn run(&self) -> Result<Change<()>> {
        let here = self.look().await?;
        let mut failures = Failures::new(self.detach);
        let (reused, expected) = (&here.reused, &self.volume.expected);
        let (host, detach, deadline) = (self.host, self.detach, self.deadline);
        scsi::refuse_reused(host, reused, expected, detach, &mut failures, deadline).await?;
        self.let_recover(&here).await;
        let disks: Vec<ScsiDisk> = here.disks.iter().map(|found| found.disk.clone()).collect();
        let release = Release {
            host: self.host,
            wwid: here.wwid.as_deref(),
            used: self.record.attached.as_ref().map(Attached::path),
            disks: &disks,
            detach: self.detach,
            deadline: self.deadline,
        };
        let map = release.map()?.is_some();
        release.top(&mut failures).await?;
        let mut something = map || !disks.is_empty() || !here.reused.is_empty();
        for left in self.leave(&here).await {
            match left {
                Ok(left) => something |= left,
                Err(error) => failures.take(error)?,
            }
        }
        something |= release.settle(&mut failures).await?;
        if self.volume.discover {
            something |= self.sweep().await?;
        }
        for target in &self.volume.targets {
            something |= discovery::clear(self.host, &target.portal, self.deadline).await?;
        }
        match something {
            true => failures.answer("detaching the volume"),
            false => Ok(Change::Already(())),
        }
    }

    /// Where no session is up, iscsid may be bringing one back, and what is cached can be written then.
    async fn let_recover(&self, here: &Here) {
        let up = here.disks.iter().any(|found| found.session.is_up());
        let Some(down) = here.disks.first().filter(|_| !up && !self.detach.force) else { return };
        let (host, iface) = (self.host, &self.volume.iface);
        if let Err(error) = recover::session(host, iface, &down.target, self.deadline).await {
            tracing::warn!(error = %error.sentence(), "the volume cannot be written to");
        }
    }

    /// Every identity that the volume must have, as far as anybody knows it.
    fn expected(&self, claims: &[Claim]) -> Vec<Identity> {
        let attached = self.record.attached.as_ref().and_then(Attached::identity).cloned();
        let mut expected: Vec<Identity> =
            attached.into_iter().chain(self.volume.expected.iter().cloned()).collect();
        if expected.is_empty() {
            let wwid = claims.iter().find_map(|claim| claim.wwid.clone());
            expected.extend(wwid.map(|wwid| Identity::new("wwid", wwid)));
        }
        expected
    }

    /// Finds what is here of the volume, and leaves out what is another's.
    async fn look(&self) -> Result<Here> {
        let claims = Notes::claims(self.host, &self.volume.key)?;
        let expected = self.expected(&claims);
        let known = |wwid: &str| {
            Names::of_udev(wwid).is_some_and(|names| scsi::fits_all(&names, &expected))
        };
        // A claim of another volume that has the same name here: not ours to drop.
        let claims: Vec<Claim> =
            claims.into_iter().filter(|claim| claim.wwid.as_deref().is_none_or(known)).collect();
        let mut here =
            Here { wwid: claims.iter().find_map(|claim| claim.wwid.clone()), ..Here::default() };
        let ways = self.ways(&claims)?;
        for found in look::disks(self.host, &ways)? {
            match scsi::judge(self.host, &found.disk, &expected).await? {
                Verdict::Ours(names) => {
                    here.wwid.get_or_insert_with(|| names.wwid());
                    here.disks.push(found);
                }
                Verdict::Reused { was, is } => {
                    here.wwid.get_or_insert_with(|| was.wwid());
                    here.reused.push((found.disk, is));
                }
                Verdict::Other(_) => here.others.push(found),
            }
        }
        if here.wwid.is_none() {
            let names = expected.iter().find_map(|identity| Names::of_udev(&identity.value));
            here.wwid = names.map(|names| names.wwid());
        }
        let of_a_try = |way: &Target| {
            let tried = |claim: &Claim| claim.wwid.is_none() && claim.target == *way;
            claims.iter().any(tried) && !self.volume.targets.contains(way)
        };
        for Found { target, disk, .. } in &here.others {
            if of_a_try(target)
                && users::refuse_used(self.host, &disk.disk, false, self.deadline).await.is_ok()
            {
                here.tried.push(disk.address);
            }
        }
        let claimed = |way: &Target| claims.iter().any(|claim| claim.target == *way);
        let other = |way: &Target| here.others.iter().any(|found| found.target == *way);
        here.ways = ways.into_iter().filter(|way| claimed(way) || !other(way)).collect();
        Ok(here)
    }

    /// Every way where something of the volume may be: those that are known, and those of records
    /// that were made before a reboot. One at which another volume of ours is was not made for this one.
    fn ways(&self, claims: &[Claim]) -> Result<Vec<Target>> {
        let mut ways = look::ways(self.host, self.volume, claims)?;
        let tried = claims.iter().map(|claim| claim.target.clone());
        ways.extend(tried.filter(|way| !ways.contains(way)).collect::<Vec<_>>());
        if let (true, Some(given)) = (self.volume.discover, self.volume.targets.first()) {
            for portal in record::ours(self.host.files(), &given.iqn)? {
                let way = Target { portal, ..given.clone() };
                if !ways.contains(&way) {
                    ways.push(way);
                }
            }
        }
        let mut own = Vec::new();
        for way in ways {
            let known = self.volume.targets.contains(&way)
                || claims.iter().any(|claim| claim.target == way);
            let notes = Notes::of(self.host, &Key::of(&way));
            if known || !notes.is_way_of_others(&way, &self.volume.key, None)? {
                own.push(way);
            }
        }
        Ok(own)
    }

    /// Removes records of ours that nobody needs: with a reboot went all sessions, and what told of the
    /// names under which the volume was tried.
    async fn sweep(&self) -> Result<bool> {
        let files = self.host.files();
        let Some(given) = self.volume.targets.first() else { return Ok(false) };
        let (volume, iface) = (&self.volume.key, &self.volume.iface);
        let leave = Leave { host: self.host, volume, iface, deadline: self.deadline };
        let mut swept = false;
        for iqn in record::targets(files)? {
            for portal in record::ours(files, &iqn)? {
                let target = Target { iqn: iqn.clone(), portal, ..given.clone() };
                let notes = Notes::of(self.host, &Key::of(&target));
                if !notes.are_there()? && Session::of(files, &target)?.is_empty() {
                    swept |= leave.target(&target, &[], &[]).await?;
                }
            }
        }
        Ok(swept)
    }

    /// Leaves every target, all at once.
    async fn leave(&self, here: &Here) -> Vec<Result<bool>> {
        let (host, volume, iface) = (self.host, &self.volume.key, &self.volume.iface);
        let leave = Leave { host, volume, iface, deadline: self.deadline };
        let spared: Vec<Address> = here.others.iter().map(|found| found.disk.address).collect();
        join_all(here.ways.iter().map(|way| leave.target(way, &spared, &here.tried))).await
    }
}
