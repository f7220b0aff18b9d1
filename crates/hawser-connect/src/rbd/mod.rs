//! RBD: an image of a Ceph pool, mapped by the kernel's own client.
//!
//! Data: `{"name": "pool/image", "hosts": […], "ports": […], "cluster_name": "ceph",
//! "auth_username": …}`; the name may also be `pool/namespace/image` and end in `@snapshot`. Instead
//! of `hosts` and `ports`, `mon_addrs` may list `address:port`. The key is `secret` (base64) or
//! `keyring` (the text of a keyring file), else `/etc/ceph/CLUSTER.client.USER.keyring` is read;
//! `auth_enabled` false needs none.
//!
//! Needs the kernel module `rbd`, and no program and no package: images are mapped by a write to
//! `/sys/bus/rbd/add_single_major`, and found again in `/sys/bus/rbd/devices`. Follows
//! `Documentation/ABI/testing/sysfs-bus-rbd` and the driver of Linux 6.12; os-brick 7 for the data.
//!
//! # Identity
//!
//! `rbd`: `FSID/POOL[/NAMESPACE]/IMAGE-ID[@SNAPSHOT]`, as the kernel tells it of the mapped image. An
//! image that was removed and made again under the same name has another id, and is refused. A
//! mapping is taken for ours only when cluster, pool, namespace, name and snapshot are all ours:
//! pools of one cluster, and clusters, have images of the same name.
//!
//! # Limits
//!
//! The secret is in the text that is written to the kernel, which keeps it to itself. Images with
//! features that the kernel does not know (such as journaling) cannot be mapped.

mod data;
mod error;
mod mapped;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use hawser_core::attach::{Attach, AttachRecord, Attached, Detach, Health};
use hawser_core::connection::ConnectionInfo;
use hawser_core::error::{Error, Result};
use hawser_core::port::connector::{Abilities, ConnectorInfo, Maturity, Need, Platform, Proof};
use hawser_core::port::kernel::{KernelError, LockMode};
use hawser_core::port::registry::LockGuard;
use hawser_core::port::{Connector, Host};
use hawser_core::{ByteSize, Change, Outcome};

use data::Image;
use error::RbdError;
use mapped::Mapped;

use crate::shared::error::AttachError;
use crate::shared::release::Failures;
use crate::shared::wait::{self, Deadline};
use crate::shared::{modules, users};

/// Images of Ceph; keeps nothing.
pub(crate) struct Rbd;

static INFO: ConnectorInfo = ConnectorInfo {
    protocols: &["RBD"],
    maturity: Maturity::Stable,
    note: "images of a Ceph pool through the kernel's client; no Ceph package on the host",
    platforms: &[Platform::All],
    abilities: Abilities { extend: true, multipath: None, encryption: true, reservation: false },
    proof: Proof::RealKernel,
    needs: &[Need::Root, Need::Module("rbd")],
};

/// How long a disk may take to appear or go after the kernel has answered.
const NODE_LIMIT: Duration = Duration::from_secs(10);

/// How long the kernel may take to learn a new size.
const RESIZE_LIMIT: Duration = Duration::from_secs(30);

/// Keeps two maps of one image from being made at once: the kernel would make two devices.
async fn lock(host: &dyn Host, image: &Image) -> Result<Box<dyn LockGuard>> {
    host.locks().lock(&format!("target/rbd/{}", image.name()), LockMode::Exclusive).await
}

async fn map(host: &dyn Host, image: &Image, read_only: bool, deadline: Deadline) -> Result<()> {
    let key = image.key(host)?;
    let seconds = deadline.left().as_secs().clamp(1, 60);
    let text = image.request(key.as_ref(), read_only, seconds);
    let file = mapped::control(host, "add")?;
    // The kernel gives up by itself after `mount_timeout`; the limit is for a kernel that hangs.
    let limit = deadline.left() + Duration::from_secs(5);
    host.files()
        .write(&file, text.as_bytes(), limit)
        .await
        .map_err(|source| refused(image, source, deadline.limit()))
}

/// The kernel's reasons in our words; its text is never shown, it holds the key.
fn refused(image: &Image, source: KernelError, limit: Duration) -> Error {
    use rustix::io::Errno;
    let errno = source.errno().map(Errno::from_raw_os_error);
    let (monitors, name) = (image.monitors(), image.name());
    match errno {
        Some(Errno::NOENT) => {
            AttachError::VolumeNotFound { target: monitors, volume: name, limit }.into()
        }
        Some(Errno::ACCESS | Errno::PERM | Errno::KEYREJECTED | Errno::NOKEY) => {
            AttachError::AuthFailed { target: format!("the cluster at {monitors}") }.into()
        }
        Some(Errno::TIMEDOUT) => AttachError::PortalTimeout { portal: monitors, limit }.into(),
        Some(Errno::CONNREFUSED) => AttachError::PortalRefused { portal: monitors }.into(),
        Some(Errno::NXIO) => RbdError::Features { name }.into(),
        Some(_) | None => AttachError::Kernel { attempt: format!("mapping {name}"), source }.into(),
    }
}

/// Waits until the disk of a mapping can be opened.
async fn ready(host: &dyn Host, mapped: &Mapped, deadline: Deadline) -> Result<()> {
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

/// Takes a mapping away and waits until it is gone.
async fn unmap(host: &dyn Host, mapped: &Mapped, force: bool, deadline: Deadline) -> Result<()> {
    let file = mapped::control(host, "remove")?;
    let text = if force { format!("{} force", mapped.id) } else { mapped.id.to_string() };
    let mut events = host.events().subscribe();
    let written = host.files().write(&file, text.as_bytes(), deadline.left()).await;
    if let Err(source) = written {
        let busy = source.errno() == Some(rustix::io::Errno::BUSY.raw_os_error());
        let device = mapped.disk().node;
        return Err(if busy {
            AttachError::Busy { device, users: "a program that has it open".into() }.into()
        } else {
            AttachError::Kernel { attempt: format!("unmapping {}", device.display()), source }
                .into()
        });
    }
    let folder = mapped.folder();
    let gone = wait::until(&mut *events, deadline.within(NODE_LIMIT), async || {
        Ok(host.files().resolve(&folder)?.is_none().then_some(()))
    })
    .await?;
    gone.ok_or_else(|| {
        let what = mapped.disk().node.display().to_string();
        AttachError::NotRemoved { what, limit: NODE_LIMIT }.into()
    })
}

impl Rbd {
    async fn attach(
        host: &dyn Host,
        image: &Image,
        read_only: bool,
        deadline: Deadline,
    ) -> Result<Change<Attached>> {
        modules::need(host, "rbd").await?;
        let _lock = lock(host, image).await?;
        if let Some(mapped) = mapped::find(host, image)? {
            mapped.check(host, image, read_only)?;
            ready(host, &mapped, deadline).await?;
            return Ok(Change::Already(mapped.describe(host, image)?));
        }
        map(host, image, read_only, deadline).await?;
        let Some(mapped) = mapped::find(host, image)? else {
            return Err(RbdError::Vanished { name: image.name() }.into());
        };
        let made = match mapped.check(host, image, read_only) {
            Ok(()) => ready(host, &mapped, deadline).await,
            Err(error) => Err(error),
        };
        let made = match made {
            Ok(()) => mapped.describe(host, image),
            Err(error) => Err(error),
        };
        match made {
            Ok(attached) => Ok(Change::Made(attached)),
            Err(error) => Err(match unmap(host, &mapped, false, deadline).await {
                Ok(()) => error.with_outcome(Outcome::RolledBack),
                Err(undo) => RbdError::Undo { undo: undo.sentence(), source: error }.into(),
            }),
        }
    }
}

#[async_trait]
impl Connector for Rbd {
    fn info(&self) -> &'static ConnectorInfo {
        &INFO
    }

    async fn connect(
        &self,
        host: &dyn Host,
        info: &ConnectionInfo,
        attach: &Attach,
    ) -> Result<Change<Attached>> {
        let image = data::read(info)?;
        let read_only = attach.read_only || image.read_only;
        Self::attach(host, &image, read_only, Deadline::after(attach.deadline)).await
    }

    async fn disconnect(
        &self,
        host: &dyn Host,
        record: &AttachRecord,
        detach: &Detach,
    ) -> Result<Change<()>> {
        let image = data::read(&record.info)?;
        let deadline = Deadline::after(detach.deadline);
        let _lock = lock(host, &image).await?;
        let Some(mapped) = mapped::find(host, &image)? else { return Ok(Change::Already(())) };
        mapped.check_identity(host, &image)?;
        let disk = mapped.disk();
        users::refuse_used(host, &disk, detach.force, deadline).await?;
        let mut failures = Failures::new(detach);
        failures.flush(host, &disk.node, deadline).await?;
        if let Err(error) = unmap(host, &mapped, detach.force, deadline).await {
            failures.take(error)?;
        }
        failures.answer(&format!("unmapping {}", image.name()))
    }

    async fn extend(&self, host: &dyn Host, record: &AttachRecord) -> Result<ByteSize> {
        let image = data::read(&record.info)?;
        let _lock = lock(host, &image).await?;
        let missing = || AttachError::NotAttached { what: image.name() };
        let mapped = mapped::find(host, &image)?.ok_or_else(missing)?;
        mapped.check_identity(host, &image)?;
        let mut events = host.events().subscribe();
        let refresh = mapped.folder().join("refresh");
        host.files()
            .write(&refresh, b"1", RESIZE_LIMIT)
            .await
            .map_err(AttachError::kernel(format!("asking for the size of {}", image.name())))?;
        let seen = wait::until(&mut *events, Deadline::after(RESIZE_LIMIT), async || {
            let told = mapped.size(host.files())?;
            Ok((mapped.disk().size(host.files())? == told).then_some(told))
        })
        .await?;
        let size = seen.ok_or_else(|| AttachError::Deadline {
            attempt: format!("growing {}", mapped.disk().node.display()),
            limit: RESIZE_LIMIT,
        })?;
        Ok(ByteSize::bytes(size))
    }

    async fn lookup(&self, host: &dyn Host, info: &ConnectionInfo) -> Result<Option<Attached>> {
        let image = data::read(info)?;
        mapped::find(host, &image)?.map(|mapped| mapped.describe(host, &image)).transpose()
    }

    async fn health(&self, host: &dyn Host, record: &AttachRecord) -> Result<Health> {
        let image = data::read(&record.info)?;
        let Some(mapped) = mapped::find(host, &image)? else {
            return Ok(Health::bad(format!("{} is not mapped", image.name())));
        };
        if let Err(error) = mapped.check_identity(host, &image) {
            return Ok(Health::bad(error.sentence()));
        }
        let node = mapped.disk().node;
        let recorded = record.attached.as_ref().map(Attached::path);
        if let Some(path) = recorded.filter(|path| *path != node) {
            return Ok(Health::bad(format!(
                "{} is {}, and was recorded as {}",
                image.name(),
                node.display(),
                path.display()
            )));
        }
        Ok(match answers(host, &node).await {
            Ok(()) => Health::good(),
            Err(error) => {
                Health::bad(format!("{}: {}", node.display(), Error::from(error).sentence()))
            }
        })
    }
}

/// Reads the first block from the cluster.
async fn answers(host: &dyn Host, node: &Path) -> Result<(), KernelError> {
    let disk = host.disks().open(node).await?;
    disk.read(0, 4096, NODE_LIMIT).await.map(drop)
}
