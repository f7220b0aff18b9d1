//! Mapping and unmapping, by the kernel's files.

use std::time::Duration;

use hawser_core::Outcome;
use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::kernel::KernelError;

use super::data::Image;
use super::error::RbdError;
use super::mapped::{self, Mapped};
use crate::shared::error::AttachError;
use crate::shared::users;
use crate::shared::wait::{self, Deadline};

/// How long a disk may take to appear or go after the kernel has answered.
pub(super) const NODE_LIMIT: Duration = Duration::from_secs(10);

/// How long a device may be open for somebody who is no user of it.
const BUSY_LIMIT: Duration = Duration::from_secs(10);

/// How long taking back may take after a failed attach.
pub(super) const UNDO_LIMIT: Duration = Duration::from_secs(15);

/// Maps an image; the kernel answers when it is mapped or refused.
pub(super) async fn map(
    host: &dyn Host,
    image: &Image,
    read_only: bool,
    deadline: Deadline,
) -> Result<()> {
    let key = image.key(host)?;
    let seconds = deadline.left().as_secs().clamp(1, 60);
    let text = image.request(key.as_ref(), read_only, seconds);
    let file = mapped::control(host, "add")?;
    // The kernel gives up by itself after `mount_timeout`; the limit is for a kernel that hangs.
    let limit = deadline.left() + Duration::from_secs(5);
    host.files()
        .write(&file, text.as_bytes(), limit)
        .await
        .map_err(|source| refused(image, source, key.is_some(), deadline.limit()))
}

/// The kernel's reasons in our words; its text is never shown, it holds the key.
fn refused(image: &Image, source: KernelError, with_key: bool, limit: Duration) -> Error {
    use rustix::io::Errno;
    let errno = source.errno().map(Errno::from_raw_os_error);
    let (monitors, name) = (image.monitors(), image.name());
    match errno {
        Some(Errno::NOENT) => RbdError::NoImage { name, monitors }.into(),
        Some(Errno::ACCESS | Errno::PERM | Errno::KEYREJECTED | Errno::NOKEY) => {
            AttachError::AuthFailed { target: format!("the cluster at {monitors}") }.into()
        }
        // A cluster that asks for a key, and none was given.
        Some(Errno::INVAL) if !with_key => {
            AttachError::AuthFailed { target: format!("the cluster at {monitors}") }.into()
        }
        Some(Errno::INVAL) => RbdError::Options { name }.into(),
        Some(Errno::TIMEDOUT) => AttachError::PortalTimeout { portal: monitors, limit }.into(),
        Some(Errno::CONNREFUSED) => AttachError::PortalRefused { portal: monitors }.into(),
        Some(Errno::NXIO) => RbdError::Features { name }.into(),
        Some(_) | None => AttachError::Kernel { attempt: format!("mapping {name}"), source }.into(),
    }
}

/// Waits until the disk of a mapping can be opened.
pub(super) async fn ready(host: &dyn Host, mapped: &Mapped, deadline: Deadline) -> Result<()> {
    let mut events = host.events().subscribe();
    let there = wait::until(&mut *events, deadline.within(NODE_LIMIT), async || {
        Ok(mapped.disk().has_node(host.files())?.then_some(()))
    })
    .await?;
    match there {
        Some(()) => Ok(()),
        None => {
            let attempt = format!("waiting for {}", mapped.disk().node.display());
            Err(AttachError::Deadline { attempt, limit: NODE_LIMIT }.into())
        }
    }
}

/// Takes a mapping away and waits until it is gone. The kernel refuses a device that is open, and
/// udev opens it whenever somebody who wrote has closed it: so that is waited for, users are not.
pub(super) async fn unmap(
    host: &dyn Host,
    mapped: &Mapped,
    force: bool,
    deadline: Deadline,
) -> Result<()> {
    let file = mapped::control(host, "remove")?;
    let text = if force { format!("{} force", mapped.id) } else { mapped.id.to_string() };
    let device = mapped.disk().node;
    let patience = deadline.within(BUSY_LIMIT);
    let mut events = host.events().subscribe();
    loop {
        let written = host.files().write(&file, text.as_bytes(), deadline.left()).await;
        let Err(source) = written else { break };
        if source.errno() != Some(rustix::io::Errno::BUSY.raw_os_error()) {
            let attempt = format!("unmapping {}", device.display());
            return Err(AttachError::Kernel { attempt, source }.into());
        }
        users::refuse_used(host, &mapped.disk(), force, patience).await?;
        if !wait::again(&mut *events, patience).await {
            let users = "a program that has it open".into();
            return Err(AttachError::Busy { device, users }.into());
        }
    }
    let folder = mapped.folder();
    let gone = wait::until(&mut *events, deadline.within(NODE_LIMIT), async || {
        Ok(host.files().resolve(&folder)?.is_none().then_some(()))
    })
    .await?;
    gone.ok_or_else(|| {
        let what = device.display().to_string();
        AttachError::NotRemoved { what, limit: NODE_LIMIT }.into()
    })
}

/// Takes back what a failed attach made, and answers its error with what is known now.
pub(super) async fn undo(host: &dyn Host, mapped: &Mapped, error: Error) -> Error {
    match unmap(host, mapped, false, Deadline::after(UNDO_LIMIT)).await {
        Ok(()) => error.with_outcome(Outcome::RolledBack),
        Err(undo) => RbdError::Undo { undo: undo.sentence(), source: error }.into(),
    }
}
