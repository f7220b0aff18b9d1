//! Several attachments of one volume on this host: a writer is alone, and readers share the device,
//! which goes with the last of them.

use std::time::Duration;

use hawser_core::attach::{AttachRecord, AttachState, Attached};
use hawser_core::port::Connector;
use hawser_core::port::node::AttachWork;
use hawser_core::{Outcome, Result};

use super::NodeHalf;
use super::error::NodeError;
use super::locks::Alone;
use super::same::refuse_difference;
use crate::shared::canonical;

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
    let same_address = info.protocol == wanted.protocol
        && canonical::fields(connector, info).ok() == Some(canonical::fields(connector, wanted)?);
    let same_device = wanted.identity.is_some() && wanted.identity == *there;
    if !same_address && !same_device {
        return Ok(());
    }
    Err(NodeError::OtherName {
        volume: work.volume.clone(),
        other_volume: other.volume.clone(),
        other: other.publication.clone(),
    }
    .into())
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
