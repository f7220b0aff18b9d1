//! Disconnect: what is cached is written out, then the volume is taken from this host.

use hawser_core::Change;
use hawser_core::attach::Detach;
use hawser_core::error::Result;
use hawser_core::port::Host;

use super::connect::{lock, vanish};
use super::data::{Volume, Way};
use super::gateway::Gateway;
use super::note;
use super::sdc;
use super::view::known_id;
use crate::shared::error::AttachError;
use crate::shared::release::Failures;
use crate::shared::users::{self, Whole};
use crate::shared::wait::Deadline;

/// Detaches a volume.
pub(super) async fn disconnect(
    host: &dyn Host,
    volume: &Volume,
    detach: &Detach,
) -> Result<Change<()>> {
    let deadline = Deadline::after(detach.deadline);
    let guard = lock(host, volume, deadline).await?;
    let noted = note::read(host, volume)?;
    let id = known_id(host, volume, noted.as_ref(), guard.clone(), deadline).await?;
    let Some(id) = id.filter(|id| volume.refuses(id).is_none()) else {
        // Connect refused it, or nobody knows of it: nothing of this record is attached.
        return Ok(Change::Already(()));
    };
    let mut failures = Failures::new(detach);
    let disk = sdc::find(host.files(), &id)?;
    if let Some(disk) = &disk {
        users::refuse_used(host, disk, detach.force, deadline).await?;
        failures.flush(host, &disk.node, deadline).await?;
    }
    let Way::Gateway(access) = &volume.way else {
        // Whoever mapped it takes it away. Until then its disk is as it was before.
        if let (Some(disk), true) = (&disk, noted.as_ref().is_some_and(|note| note.read_only)) {
            let attempt = format!("making {} take writes again", disk.node.display());
            let set = host.disks().set_read_only(&disk.node, false).await;
            set.or_else(|source| failures.take(AttachError::kernel(attempt)(source)))?;
        }
        note::remove(host, volume).await.or_else(|error| failures.take(error))?;
        if noted.is_none() && failures.is_empty() {
            return Ok(Change::Already(()));
        }
        return failures.answer(&format!("detaching {}", volume.words()));
    };
    let nothing = disk.is_none() && noted.is_none();
    let access = noted.as_ref().map_or_else(|| (**access).clone(), |note| note.complete(access));
    let opened = Gateway::open(host, &access, guard, deadline);
    let given_back = match opened {
        Ok(gateway) => match sdc::guid(host).await {
            Ok(guid) => give_back(host, &gateway, (&id, &guid), disk.as_ref(), deadline).await,
            Err(error) => Err(error),
        },
        // Without a password nobody can ask, and here is nothing to be taken away.
        Err(_) if nothing => return Ok(Change::Already(())),
        Err(error) => Err(error),
    };
    let is_gone = given_back.is_ok();
    given_back.or_else(|error| failures.take(error))?;
    // What is still mapped is tried again, and its note has the password.
    if is_gone || detach.ignore_errors {
        note::remove(host, volume).await.or_else(|error| failures.take(error))?;
    }
    // A mapping that was left from before a boot is gone now, and nothing changed on this host.
    if nothing && failures.is_empty() {
        return Ok(Change::Already(()));
    }
    failures.answer(&format!("detaching {}", volume.words()))
}

/// Takes the volume from this host, and waits until its disk is gone.
pub(super) async fn give_back(
    host: &dyn Host,
    gateway: &Gateway,
    (id, guid): (&str, &str),
    disk: Option<&Whole>,
    deadline: Deadline,
) -> Result<()> {
    gateway.unmap(id, guid).await?;
    match disk {
        Some(disk) => vanish(host, id, &disk.name, deadline).await,
        None => Ok(()),
    }
}
