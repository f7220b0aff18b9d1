//! Several attachments of one volume on this host: a writer is alone, and readers share the device,
//! which goes with the last of them.

use std::slice;
use std::time::Duration;

use hawser_core::attach::{AttachRecord, AttachState, Attached, Identity};
use hawser_core::id::VolumeId;
use hawser_core::port::Connector;
use hawser_core::port::node::AttachWork;
use hawser_core::{Outcome, Result};

use super::NodeHalf;
use super::error::NodeError;
use super::locks::Alone;
use super::same::refuse_difference;
use crate::shared::canonical;
use crate::shared::scsi::{self, Names};

/// How long it may take to see whether somebody is at work on a publication.
const AT_WORK: Duration = Duration::from_millis(200);

/// Refuses work beside another attachment of the volume, unless both read the same device.
pub(super) fn check(
    connector: &dyn Connector,
    other: &AttachRecord,
    work: &AttachWork,
    boot_id: &str,
) -> Result<()> {
    // The device of an earlier boot is gone, and whoever attaches it again comes through here.
    if other.publication == work.publication || other.boot_id != boot_id {
        return Ok(());
    }
    if other.volume != work.volume {
        return refuse_other_name(connector, other, work);
    }
    if !other.attach.read_only || !work.attach.read_only {
        let word = |read_only| if read_only { "read-only" } else { "writable" };
        let there = match other.attach.read_only {
            true => "attached read-only",
            false => "attached writable",
        };
        return Err(NodeError::AnotherWriter {
            volume: work.volume.clone(),
            other: other.publication.clone(),
            instance: other.instance.to_string(),
            there,
            wanted: word(work.attach.read_only),
        }
        .into());
    }
    if other.state == AttachState::Detaching {
        return Err(between(other, "being detached").into());
    }
    refuse_difference(connector, other, work, true)
}

/// Under two names, each of two writers would believe to be alone, and who detaches the one would
/// take away the other's device. A folder has no such trouble.
fn refuse_other_name(
    connector: &dyn Connector,
    other: &AttachRecord,
    work: &AttachWork,
) -> Result<()> {
    let Some(Attached::Block { identity: there, .. }) = &other.attached else { return Ok(()) };
    let (info, wanted) = (&other.info, &work.info);
    // A record whose data cannot be read is compared by its device alone: it must not keep every
    // other volume from this host.
    let at_one_address = info.protocol == wanted.protocol
        && canonical::address(connector, info).ok() == Some(canonical::address(connector, wanted)?);
    let same = match (&wanted.identity, there) {
        // An address may have been given to another volume meanwhile.
        (Some(wanted), Some(there)) => is_same(wanted, there),
        (None, _) | (_, None) => at_one_address,
    };
    if same { Err(other_name(&work.volume, other).into()) } else { Ok(()) }
}

fn other_name(volume: &VolumeId, other: &AttachRecord) -> NodeError {
    NodeError::OtherName {
        volume: volume.clone(),
        other_volume: other.volume.clone(),
        other: other.publication.clone(),
    }
}

/// True when both name one device: a SCSI disk has several names, and each may be spelled in several
/// ways.
fn is_same(one: &Identity, other: &Identity) -> bool {
    let fits = |one: &Identity, other: &Identity| {
        let names = Names::of_udev(&one.value);
        names.is_some_and(|names| scsi::fits_all(&names, slice::from_ref(other)))
    };
    one == other || fits(one, other) || fits(other, one)
}

/// True when the record names this device.
fn names(record: &AttachRecord, found: &Attached) -> bool {
    let Some(there @ Attached::Block { .. }) = &record.attached else { return false };
    // Paths are given again, and a record may be of a device that was taken away by hand.
    match (there.identity(), found.identity()) {
        (Some(there), Some(found)) => is_same(there, found),
        (None, _) | (_, None) => false,
    }
}

/// A volume's device is another volume's too.
pub(super) struct Twin {
    pub(super) refusal: NodeError,
    /// What this attach made is its own, and goes.
    pub(super) takes_back: bool,
}

fn between(other: &AttachRecord, state: &'static str) -> NodeError {
    NodeError::BetweenStates {
        volume: other.volume.clone(),
        other: other.publication.clone(),
        state,
    }
}

/// Who else has a volume.
pub(super) struct Sharers {
    /// Another publication has it attached.
    pub(super) there: bool,
    /// Attaches that somebody began and nobody is at: they wait until this is dropped.
    _given_up: Vec<Alone>,
}

impl NodeHalf {
    /// Another volume's attachment that has the device which was found for this one: by other names
    /// for the way to it, which nobody could know before.
    pub(super) async fn twin(
        &self,
        record: &AttachRecord,
        found: &Attached,
        brought: bool,
    ) -> Result<Option<Twin>> {
        let registered = self.registry.list().await?.records;
        let other = registered.iter().find(|other| {
            other.volume != record.volume && other.boot_id == record.boot_id && names(other, found)
        });
        Ok(other.map(|other| Twin {
            refusal: other_name(&record.volume, other),
            takes_back: brought
                && other.attached.as_ref().map(Attached::path) != Some(found.path()),
        }))
    }

    /// True when the device that would go with the record is another volume's.
    pub(super) async fn is_anothers(&self, record: &AttachRecord) -> Result<bool> {
        if let Some(found) = &record.attached {
            return Ok(self.twin(record, found, false).await?.is_some());
        }
        let registered = self.registry.list().await?.records;
        let is_other = |other: &AttachRecord| {
            other.volume != record.volume
                && other.info.protocol == record.info.protocol
                && matches!(other.attached, Some(Attached::Block { .. }))
        };
        // Looking may take long, and is for nothing where the volume is alone.
        if !registered.iter().any(is_other) {
            return Ok(false);
        }
        // What cannot be found, or is not the right one, is for the steps that follow to refuse.
        let Ok(Some(found)) = self.lookup(record).await else { return Ok(false) };
        Ok(self.twin(record, &found, false).await?.is_some())
    }

    /// Who else has the volume on this host. The caller holds the volume's lock.
    pub(super) async fn sharers(&self, record: &AttachRecord) -> Result<Sharers> {
        let mut sharers = Sharers { there: false, _given_up: Vec::new() };
        for other in self.registry.list().await?.records {
            if other.volume != record.volume
                || other.publication == record.publication
                || other.boot_id != record.boot_id
            {
                continue;
            }
            match other.state {
                AttachState::Attached => sharers.there = true,
                AttachState::Intent => {
                    let registry = self.registry.as_ref();
                    let entered = self.gates.try_enter(registry, &other.publication, AT_WORK);
                    match entered.await? {
                        Some(alone) => sharers._given_up.push(alone),
                        // Whether it will need the device shows when it is through.
                        None => return Err(between(&other, "being attached").into()),
                    }
                }
                AttachState::Detaching => {}
            }
        }
        Ok(sharers)
    }

    /// Ends one publication, and leaves the device to those who have it too.
    pub(super) async fn leave_to_others(&self, record: &AttachRecord) -> Result<()> {
        let table = self.table().await?;
        let live = table.live(record).into_iter();
        let targets: Vec<_> = live.map(|(_, entry)| entry.target.clone()).collect();
        if !targets.is_empty() {
            return Err(NodeError::StillMounted { targets }.into());
        }
        for mount in record.mounts.iter().filter(|mount| mount.made_target) {
            self.host.remove_target(&mount.target).await?;
        }
        let removed = self.registry.remove(&record.publication).await;
        removed.map_err(|error| error.with_outcome(Outcome::Unknown))?;
        self.release_frozen(&record.publication);
        tracing::info!(volume.id = %record.volume, publication.id = %record.publication,
            "detached; another publication still has the device");
        Ok(())
    }
}
