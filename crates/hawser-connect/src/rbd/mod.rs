//! RBD: an image of a Ceph pool, mapped by the kernel's own client.
//!
//! Data: `{"name": "pool/image", "hosts": […], "ports": […], "cluster_name": "ceph",
//! "auth_username": …}`; the name may also be `pool/namespace/image` and end in `@snapshot`. Instead
//! of `hosts` and `ports`, `mon_addrs` may list `address:port`, also as `ceph mon dump` writes them
//! (`[v2:a:3300/0,v1:a:6789/0]`). The first messenger is spoken where a monitor has it, unless
//! `ms_mode` says otherwise; where all have the second alone, `prefer-crc`. The key is `secret` (base64) or
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
//! image that was removed and made again under the same name has another id, and is refused. An image
//! of the first format, which clusters only keep from long ago, has no id and so no identity. A
//! mapping is taken for ours only when cluster, pool, namespace, name and snapshot are all ours: pools
//! of one cluster, and clusters, have images of the same name.
//!
//! # Limits
//!
//! The secret is in the text that is written to the kernel, which shows it to root alone, in
//! `config_info` of the mapping. Images with features that the kernel does not know (such as
//! journaling) cannot be mapped. Where the monitors answer and the OSDs do not, the kernel goes on
//! waiting after the caller's deadline, and may map the image when they are back: that is answered
//! as an unknown outcome, and the next connect or disconnect finds it.

mod data;
mod error;
mod map;
mod mapped;
mod monitors;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use hawser_core::attach::{Attach, AttachRecord, Attached, Detach, Health};
use hawser_core::connection::{ConnectionInfo, Data};
use hawser_core::error::{Error, Result};
use hawser_core::port::connector::{
    Abilities, ConnectorInfo, Maturity, Need, Platform, Proof, Proofs,
};
use hawser_core::port::kernel::KernelError;
use hawser_core::port::registry::LockGuard;
use hawser_core::port::{Connector, Host};
use hawser_core::{ByteSize, Change};

use data::Image;
use error::RbdError;
use map::{NODE_LIMIT, UNDO_LIMIT, map, ready, undo, unmap};
use mapped::Mapped;

use crate::shared::error::AttachError;
use crate::shared::release::Failures;
use crate::shared::wait::{self, Deadline};
use crate::shared::{locks, modules, users};

/// Images of Ceph; keeps nothing.
pub(crate) struct Rbd;

static INFO: ConnectorInfo = ConnectorInfo {
    protocols: &["RBD"],
    maturity: Maturity::Stable,
    note: "images of a Ceph pool through the kernel's client; no Ceph package on the host",
    platforms: &[Platform::All],
    abilities: Abilities { extend: true, multipath: None, encryption: true, reservation: false },
    proofs: Proofs::of(Proof::Kernel("vm_rbd")).encryption(Proof::Kernel("vm_rbd")),
    own: &[],
    needs: &[Need::Root, Need::Module("rbd")],
};

/// How long the kernel may take to learn a new size.
const RESIZE_LIMIT: Duration = Duration::from_secs(30);

/// Keeps two maps of one image from being made at once: the kernel would make two devices.
async fn lock(host: &dyn Host, image: &Image, deadline: Deadline) -> Result<Box<dyn LockGuard>> {
    let name = image.name();
    locks::alone(host, &format!("target/rbd/{name}"), &name, deadline).await
}

impl Rbd {
    async fn attach(
        host: &dyn Host,
        image: &Image,
        read_only: bool,
        deadline: Deadline,
    ) -> Result<Change<Attached>> {
        modules::need(host, "rbd").await?;
        let _lock = lock(host, image, deadline).await?;
        if let Some(mapped) = mapped::find(host, image)?.first() {
            return Self::there(host, image, mapped, read_only, deadline).await;
        }
        let before = mapped::all(host)?;
        if let Err(error) = map(host, image, read_only, deadline).await {
            // There was none before: one that is there now is from this call.
            return Err(match mapped::made(host, image, &before) {
                Ok(Some(mapped)) if error.is_unknown() => undo(host, &mapped, error).await,
                Ok(_) | Err(_) => error,
            });
        }
        let Some(mapped) = mapped::made(host, image, &before)? else {
            return Err(RbdError::Vanished { name: image.name() }.into());
        };
        match Self::settle(host, image, &mapped, &before, read_only, deadline).await {
            Ok(Settled::Ours(attached)) => Ok(Change::Made(attached)),
            Ok(Settled::Twin(twin)) => {
                unmap(host, &mapped, false, Deadline::after(UNDO_LIMIT)).await?;
                Self::there(host, image, &twin, read_only, deadline).await
            }
            Err(error) => Err(undo(host, &mapped, error).await),
        }
    }

    /// Answers a mapping that was there before.
    async fn there(
        host: &dyn Host,
        image: &Image,
        mapped: &Mapped,
        read_only: bool,
        deadline: Deadline,
    ) -> Result<Change<Attached>> {
        mapped.check(host, image, read_only)?;
        ready(host, mapped, deadline).await?;
        Ok(Change::Already(mapped.describe(host, image)?))
    }

    /// Looks at what was mapped, and waits until it can be used.
    async fn settle(
        host: &dyn Host,
        image: &Image,
        mapped: &Mapped,
        before: &[Mapped],
        read_only: bool,
        deadline: Deadline,
    ) -> Result<Settled> {
        mapped.check(host, image, read_only)?;
        for other in before {
            // By other monitors of the same cluster, which could not be known before.
            if mapped.is_twin_of(host.files(), other)? {
                return Ok(Settled::Twin(other.clone()));
            }
        }
        ready(host, mapped, deadline).await?;
        Ok(Settled::Ours(mapped.describe(host, image)?))
    }
}

/// What a new mapping turned out to be.
enum Settled {
    /// The only one of its image.
    Ours(Attached),
    /// The second one: two devices over one image do not see what the other one caches.
    Twin(Mapped),
}

/// What says which volume is meant and how it is reached.
const FIELDS: [&str; 11] = [
    "volume_id",
    "name",
    "hosts",
    "ports",
    "mon_addrs",
    "ms_mode",
    "cluster_name",
    "auth_enabled",
    "auth_username",
    "access_mode",
    "wwn",
];

#[async_trait]
impl Connector for Rbd {
    fn info(&self) -> &'static ConnectorInfo {
        &INFO
    }

    fn counts(&self, _data: &Data, field: &str) -> bool {
        FIELDS.contains(&field)
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
        let image = data::read(&record.info)?.expecting(record.attached.as_ref());
        let deadline = Deadline::after(detach.deadline);
        let _lock = lock(host, &image, deadline).await?;
        // More than one when an attach was cut off and the kernel went on with it.
        let all = mapped::find(host, &image)?;
        if all.is_empty() {
            return Ok(Change::Already(()));
        }
        for mapped in &all {
            users::refuse_used(host, &mapped.disk(), detach.force, deadline).await?;
        }
        let mut failures = Failures::new(detach);
        for mapped in &all {
            failures.flush(host, &mapped.disk().node, deadline).await?;
        }
        for mapped in &all {
            if let Err(error) = unmap(host, mapped, detach.force, deadline).await {
                failures.take(error)?;
            }
        }
        failures.answer(&format!("unmapping {}", image.name()))
    }

    async fn extend(&self, host: &dyn Host, record: &AttachRecord) -> Result<ByteSize> {
        let image = data::read(&record.info)?.expecting(record.attached.as_ref());
        let _lock = lock(host, &image, Deadline::after(RESIZE_LIMIT)).await?;
        let missing = || AttachError::NotAttached { what: image.name() };
        let mapped = mapped::find(host, &image)?.into_iter().next().ok_or_else(missing)?;
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
        let found = mapped::find(host, &image)?;
        found.first().map(|mapped| mapped.describe(host, &image)).transpose()
    }

    async fn health(&self, host: &dyn Host, record: &AttachRecord) -> Result<Health> {
        let image = data::read(&record.info)?.expecting(record.attached.as_ref());
        let mapped = match mapped::find(host, &image) {
            Ok(found) => found.into_iter().next(),
            Err(error) => return Ok(Health::bad(error.sentence())),
        };
        let Some(mapped) = mapped else {
            return Ok(Health::bad(format!("{} is not mapped", image.name())));
        };
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
