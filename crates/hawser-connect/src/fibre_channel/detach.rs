//! Detaching: what the kernel shows decides what goes.

use hawser_core::Change;
use hawser_core::attach::{AttachRecord, Attached, Detach, Identity};
use hawser_core::error::Result;
use hawser_core::port::Host;

use super::data::Volume;
use super::look::{self, Way};
use crate::shared::release::Failures;
use crate::shared::scsi::{self, Names, Release, Route, ScsiDisk, Verdict};
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
    disks: Vec<ScsiDisk>,
    /// Disks that were its, and lead to another volume now.
    reused: Vec<(ScsiDisk, Names)>,
    /// Ways where something of it may be, and nothing of another volume.
    ways: Vec<Way>,
    wwid: Option<String>,
}

impl Disconnect<'_> {
    /// Takes the volume away. The login to the fabric stays: it belongs to no volume.
    pub(super) async fn run(&self) -> Result<Change<()>> {
        let expected = self.expected();
        let here = self.look(&expected).await?;
        let (host, detach, deadline) = (self.host, self.detach, self.deadline);
        let mut failures = Failures::new(detach);
        scsi::refuse_reused(host, &here.reused, &expected, detach, &mut failures, deadline).await?;
        let release = Release {
            host,
            wwid: here.wwid.as_deref(),
            used: self.record.attached.as_ref().map(Attached::path),
            disks: &here.disks,
            detach,
            deadline,
        };
        let map = release.map()?.is_some();
        release.top(&mut failures).await?;
        let mut something = map || !here.disks.is_empty() || !here.reused.is_empty();
        for way in &here.ways {
            match self.leave(way).await {
                Ok(left) => something |= left,
                Err(error) => failures.take(error)?,
            }
        }
        something |= release.settle(&mut failures).await?;
        match something {
            true => failures.answer("detaching the volume"),
            false => Ok(Change::Already(())),
        }
    }

    /// Every identity that the volume must have, as far as anybody knows it.
    fn expected(&self) -> Vec<Identity> {
        let attached = self.record.attached.as_ref().and_then(Attached::identity).cloned();
        attached.into_iter().chain(self.volume.expected.iter().cloned()).collect()
    }

    /// Finds what is here of the volume, and leaves out what is another's.
    async fn look(&self, expected: &[Identity]) -> Result<Here> {
        let files = self.host.files();
        let mut here = Here::default();
        for way in look::ways(files, self.volume)? {
            let Some(disk) = way.disk(files)? else {
                let names = match way.address(files)? {
                    Some(address) => scsi::remembered_at(files, address)?,
                    None => None,
                };
                // A device that is no disk yet, or a volume that was named and never found.
                if names.is_none_or(|names| scsi::fits_all(&names, expected)) {
                    here.ways.push(way);
                }
                continue;
            };
            match scsi::judge(self.host, &disk, expected).await? {
                Verdict::Ours(names) => {
                    here.wwid.get_or_insert_with(|| names.wwid());
                    here.disks.push(disk);
                    here.ways.push(way);
                }
                Verdict::Reused { was, is } => {
                    here.wwid.get_or_insert_with(|| was.wwid());
                    here.reused.push((disk, is));
                    here.ways.push(way);
                }
                Verdict::Other(names) => {
                    let (device, is) = (disk.disk.node.display(), names.wwid());
                    tracing::warn!(%device, %is, "another volume has the number; it stays");
                }
            }
        }
        if here.wwid.is_none() {
            let names = expected.iter().find_map(|identity| Names::of_udev(&identity.value));
            here.wwid = names.map(|names| names.wwid());
        }
        Ok(here)
    }

    /// Takes the volume away at one port; it is flushed and unused. True when it was there.
    async fn leave(&self, way: &Way) -> Result<bool> {
        let mut left = false;
        if let Some(zfcp) = &way.adapter.zfcp {
            left = zfcp.remove_unit(self.host, way.port, self.deadline).await?;
        }
        // The driver took the device with the unit, where there was one.
        if let Some(address) = way.address(self.host.files())? {
            scsi::delete_at(self.host, address, self.deadline).await?;
            left = true;
        }
        Ok(left)
    }
}
