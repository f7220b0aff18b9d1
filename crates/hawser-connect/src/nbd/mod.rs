//! NBD: an export of a network block device server, through the kernel's own client.
//!
//! Data: `{"host": …, "port": 10809, "export_name": …}` or `{"unix_socket": …, "export_name": …}`, and
//! `connections` (1), `timeout` (30 s for a request), `dead_conn_timeout` (60 s), `readonly`,
//! `block_size`, `volume_id`. Hosts are names, IPv4 or IPv6 addresses. An `export_name` must be given
//! and may be empty: then the server's default export is meant.
//!
//! Needs the kernel module `nbd` of Linux 5.14 or newer and no program: the handshake is made here
//! (fixed newstyle, `NBD_OPT_GO`, with `NBD_OPT_EXPORT_NAME` for old servers), and the connection then
//! goes to the kernel over generic netlink. Follows `doc/proto.md` of the NBD project and the driver
//! of Linux 6.12; proven with nbdkit 1.32 and qemu-nbd 7.2.
//!
//! # Identity
//!
//! A server tells nothing that would make its exports distinct. What is checked is what the kernel
//! keeps with a device (`/sys/block/nbdN/backend`): server, export and volume, as one URI. A device is
//! found, grown and taken away by that alone, never by its number. An `identity` of the scheme `nbd`
//! with the volume's id or the URI is honoured; any other is refused, as nobody can check it. Two
//! devices over one export are refused, as each has a cache of its own.
//!
//! # Dead connections
//!
//! Requests to a server that has gone wait `dead_conn_timeout` seconds for a new connection and fail
//! then. Nobody waits in the background to make one: calling `connect` again does. It reads a block
//! and looks at each connection, and gives the device new ones in the place of dead ones; what waits
//! goes on, also when the device is mounted. `health` looks in the same way. Single connections are
//! seen over TCP only; a device over a Unix socket is asked as a whole.
//!
//! # Growing
//!
//! `extend` asks the server on a connection of its own, so the server must take one more. Most
//! servers fix the size of an export for each connection; then the connections are ended and made
//! anew while the device is in use (`sock_diag`, which needs `CAP_NET_ADMIN` and a kernel with
//! `CONFIG_INET_DIAG_DESTROY`), and requests that were under way are sent again after `timeout`. Over a
//! Unix socket that cannot be done: such a server is told by name, and the device keeps its size.
//!
//! # Limits
//!
//! TLS is refused by name (`tls.mode` `require`): the kernel takes a plain socket, and a program that
//! would encrypt in between had to live as long as the device.

mod connect;
mod data;
mod device;
mod dial;
mod error;
mod grow;
mod handshake;
mod links;
mod wire;

use async_trait::async_trait;
use hawser_core::attach::{Attach, AttachRecord, Attached, Detach, Health};
use hawser_core::connection::{ConnectionInfo, Data};
use hawser_core::error::Result;
use hawser_core::port::connector::{
    Abilities, ConnectorInfo, Maturity, Need, PathsBy, Platform, Proof, Proofs,
};
use hawser_core::port::{Connector, Host};
use hawser_core::{ByteSize, Change};

use connect::Connect;
use data::Target;
use error::NbdError;
use grow::Grow;
use links::Notes;

use crate::shared::error::AttachError;
use crate::shared::release::Failures;
use crate::shared::users;
use crate::shared::wait::Deadline;

/// Network block devices; keeps nothing.
pub(crate) struct Nbd;

static INFO: ConnectorInfo = ConnectorInfo {
    protocols: &["NBD"],
    maturity: Maturity::Stable,
    note: "any newstyle server over TCP or a Unix socket, without TLS; Linux 5.14 or newer; \
           several connections where the server allows them",
    platforms: &[Platform::All],
    abilities: Abilities {
        extend: true,
        multipath: Some(PathsBy::Connections),
        encryption: true,
        reservation: false,
    },
    proofs: Proofs::of(Proof::Kernel("vm_nbd")).encryption(Proof::Kernel("vm_nbd")),
    own: &[],
    needs: &[Need::Root, Need::Module("nbd")],
};

/// What a record means: the export, or that `connect` refused it, so that nothing can be there.
fn recorded(record: &AttachRecord) -> Result<Option<Target>> {
    match data::read(&record.info) {
        Ok(target) => Ok(Some(target)),
        Err(NbdError::OtherIdentity { .. } | NbdError::TlsAsked) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What says which volume is meant and how it is reached.
const FIELDS: [&str; 13] = [
    "volume_id",
    "export_name",
    "host",
    "port",
    "unix_socket",
    "tls",
    "connections",
    "timeout",
    "dead_conn_timeout",
    "block_size",
    "access_mode",
    "readonly",
    "wwn",
];

#[async_trait]
impl Connector for Nbd {
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
        let target = data::read(info)?;
        let read_only = attach.read_only || target.read_only;
        let deadline = Deadline::after(attach.deadline);
        Connect { host, target: &target, read_only, deadline }.run().await
    }

    async fn disconnect(
        &self,
        host: &dyn Host,
        record: &AttachRecord,
        detach: &Detach,
    ) -> Result<Change<()>> {
        let Some(target) = recorded(record)? else { return Ok(Change::Already(())) };
        let deadline = Deadline::after(detach.deadline);
        let _lock = connect::lock(host, &target, deadline).await?;
        let found = device::find(host.files(), &target)?.ours;
        let notes = Notes::of(host, &target);
        if found.is_empty() {
            notes.remove().await?;
            return Ok(Change::Already(()));
        }
        for device in &found {
            users::refuse_used(host, &device.disk, detach.force, deadline).await?;
        }
        let mut failures = Failures::new(detach);
        let mut gone = true;
        for device in &found {
            failures.flush(host, &device.disk.node, deadline).await?;
            if let Err(error) = device.take_away(host, deadline).await {
                gone = false;
                failures.take(error)?;
            }
        }
        if gone && let Err(error) = notes.remove().await {
            failures.take(error)?;
        }
        failures.answer(&format!("detaching {}", target.uri()))
    }

    async fn extend(&self, host: &dyn Host, record: &AttachRecord) -> Result<ByteSize> {
        let target = data::read(&record.info)?;
        let _lock = connect::lock(host, &target, Deadline::after(grow::RESIZE)).await?;
        let found = device::find(host.files(), &target)?.ours.into_iter().next();
        let missing = || AttachError::NotAttached { what: target.uri() };
        let device = found.ok_or_else(missing)?;
        Grow { host, target: &target, device: &device }.run().await
    }

    async fn lookup(&self, host: &dyn Host, info: &ConnectionInfo) -> Result<Option<Attached>> {
        let target = data::read(info)?;
        let found = device::find(host.files(), &target)?;
        found.ours.first().map(|device| device.describe(host.files(), &target)).transpose()
    }

    async fn health(&self, host: &dyn Host, record: &AttachRecord) -> Result<Health> {
        let target = match data::read(&record.info) {
            Ok(target) => target,
            Err(error @ (NbdError::OtherIdentity { .. } | NbdError::TlsAsked)) => {
                return Ok(Health::bad(error.to_string()));
            }
            Err(error) => return Err(error.into()),
        };
        let found = device::find(host.files(), &target)?;
        let Some(device) = found.ours.first() else {
            return Ok(Health::bad(format!("{} has no device", target.uri())));
        };
        let node = device.disk.node.display();
        if let Some(path) = record.attached.as_ref().map(Attached::path)
            && path != device.disk.node
        {
            let path = path.display();
            return Ok(Health::bad(format!(
                "{} is {node}, and was recorded as {path}",
                target.uri()
            )));
        }
        let wrong = connect::complaint(host, &target, device, connect::ANSWER).await?;
        Ok(wrong.map_or_else(Health::good, |wrong| {
            Health::bad(format!("{node}: {wrong}; connecting it again makes new connections"))
        }))
    }
}

#[cfg(test)]
mod tests;
