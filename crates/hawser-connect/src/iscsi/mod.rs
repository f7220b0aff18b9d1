//! ISCSI and ISER: volumes of targets that speak SCSI over TCP or RDMA.
//!
//! Data, as os-brick 7 and OpenSDS write it: `target_portal`, `target_iqn` and `target_lun`, or
//! `target_portals`, `target_iqns` and `target_luns` with one entry for each way; `auth_method`,
//! `auth_username`, `auth_password` for CHAP, with `_in` at the end for the target's own proof, and the
//! same after `discovery_` for the list of portals; `addressing_mode`; `iscsi_iface`, a record of
//! `iscsiadm` for an interface; `wwn`, what the device must be; `access_mode`.
//!
//! | what is given | and wanted | what is done |
//! |---|---|---|
//! | all ways | several paths | all are used, at once |
//! | one way | several paths | the target is asked for its portals first |
//! | one or several | one path | the first that works |
//!
//! A portal that does not list the target may have it under another name; what is tried there and
//! proves to be another volume is left again.
//!
//! Needs the kernel modules `iscsi_tcp` or `ib_iser`, and open-iscsi: `iscsid` keeps the sessions.
//! `iscsiadm` logs in, once per portal, and asks a target for its portals; logging out is a message to
//! `iscsid`; everything else is read from sysfs and written to the node database directly
//! (`docs/adr/0009-iscsid.md`). Follows os-brick 7
//! `connectors/iscsi.py`, open-iscsi 2.1.8 and Linux 6.12; proven with LIO.
//!
//! # What stays whose
//!
//! A session that somebody else made is used and never ended; one that we made ends with its last
//! volume. Which one that is stands in notes below the run folder, written before the login; so does
//! every volume that needs a session, also while its device is gone. Records of the node database
//! that we made carry a mark and go with the session.
//!
//! Only the volume that is asked for is scanned (`node.session.scan` is `manual`), so no volume of
//! somebody else appears.
//!
//! # Identity
//!
//! Page 0x83 of the device itself, asked by INQUIRY, compared with what the kernel remembers and with
//! what the caller expects. A device whose number was given to another volume is refused.

mod admin;
mod connect;
mod data;
mod detach;
mod discovery;
mod kept;
mod leave;
mod login;
mod look;
mod notes;
mod portal;
mod probe;
mod record;
mod recover;
mod renamed;
mod session;

use async_trait::async_trait;
use hawser_core::attach::{Attach, AttachRecord, Attached, Detach, Health, Multipath};
use hawser_core::connection::{ConnectionInfo, Data};
use hawser_core::error::Result;
use hawser_core::port::connector::{
    Abilities, AbstractSocket, ConnectorInfo, Maturity, Need, Own, Packages, PathsBy, Platform,
    Proof, Proofs,
};
use hawser_core::port::{Connector, Host};
use hawser_core::{ByteSize, Change};

use connect::Connect;
use data::Transport;
use detach::Disconnect;
use look::Found;
use notes::{Claim, Notes};

use crate::shared::error::AttachError;
use crate::shared::modules;
use crate::shared::multipath::Map;
use crate::shared::scsi::{self, Verdict};
use crate::shared::wait::Deadline;

/// iSCSI over TCP and over RDMA; keeps nothing.
pub(crate) struct Iscsi;

static INFO: ConnectorInfo = ConnectorInfo {
    protocols: &["ISCSI", "ISER"],
    maturity: Maturity::Stable,
    note: "CHAP one-way and mutual, for sessions and for discovery; IPv6; up to four portals with \
           dm-multipath; LUKS2 above one path and above a map; proven with LIO as the target",
    platforms: &[Platform::All],
    abilities: Abilities {
        extend: true,
        multipath: Some(PathsBy::DeviceMapper),
        encryption: true,
        reservation: true,
    },
    proofs: Proofs::of(Proof::Kernel("vm_iscsi"))
        .encryption(Proof::Kernel("vm_layers"))
        .reservation(Proof::Kernel("vm_layers")),
    own: &[Own {
        protocol: "ISER",
        note: "the same connector over RDMA: proven over soft RoCE with LIO as the target, with CHAP \
               one-way, IPv4, two portals as one map, LUKS2 above one path; a \
               wrong secret may end as a timeout. Never over a real RDMA card; \
               mutual CHAP, discovery, IPv6 and more portals were tried over TCP alone",
        proofs: Proofs::of(Proof::Kernel("vm_iser")).encryption(Proof::Kernel("vm_iser")),
    }],
    needs: &[
        Need::Root,
        Need::ModuleOf { protocol: "ISCSI", module: "iscsi_tcp" },
        Need::ModuleOf { protocol: "ISER", module: "ib_iser" },
        Need::Program {
            name: "iscsiadm",
            packages: Packages {
                apt: "open-iscsi",
                dnf: "iscsi-initiator-utils",
                zypper: "open-iscsi",
                apk: "open-iscsi",
            },
        },
        Need::File { path: "/etc/iscsi/initiatorname.iscsi", from: "the package of open-iscsi" },
        // Nothing here starts it. iscsiadm does where its settings say how, as most distributions
        // ship them and its makers do not.
        Need::Daemon {
            name: "iscsid",
            socket: Some(AbstractSocket {
                name: "ISCSIADM_ABSTRACT_NAMESPACE",
                starter: Some(("/etc/iscsi/iscsid.conf", "iscsid.startup")),
            }),
            from: "the package of open-iscsi (with systemd: systemctl enable --now iscsid.socket)",
        },
    ],
};

/// What says which volume is meant and how it is reached; who asks for it is no part of that.
const FIELDS: [&str; 12] = [
    "volume_id",
    "target_portal",
    "target_portals",
    "target_iqn",
    "target_iqns",
    "target_lun",
    "target_luns",
    "addressing_mode",
    "iscsi_iface",
    "transport",
    "access_mode",
    "wwn",
];

#[async_trait]
impl Connector for Iscsi {
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
        let volume = data::read(info)?;
        let credentials = data::credentials(info)?;
        let deadline = Deadline::after(attach.deadline);
        let _alone = Notes::lock_volume(host, &volume.key, deadline).await?;
        modules::need(host, module(volume.transport)).await?;
        let (volume, credentials, given) = (&volume, &credentials, info.identity.as_ref());
        Connect { host, volume, credentials, attach, given, deadline }.run().await
    }

    async fn disconnect(
        &self,
        host: &dyn Host,
        record: &AttachRecord,
        detach: &Detach,
    ) -> Result<Change<()>> {
        let volume = data::read(&record.info)?;
        let deadline = Deadline::after(detach.deadline);
        let _alone = Notes::lock_volume(host, &volume.key, deadline).await?;
        Disconnect { host, volume: &volume, record, detach, deadline }.run().await
    }

    async fn extend(&self, host: &dyn Host, record: &AttachRecord) -> Result<ByteSize> {
        let volume = data::read(&record.info)?;
        let deadline = Deadline::after(record.attach.deadline);
        let _alone = Notes::lock_volume(host, &volume.key, deadline).await?;
        let claims = Notes::claims(host, &volume.key)?;
        let ways = look::ways(host, &volume, &claims)?;
        let mut disks = Vec::new();
        for Found { disk, session, .. } in look::disks(host, &ways)? {
            match scsi::judge(host, &disk, &volume.expected).await? {
                Verdict::Ours(_) if session.is_up() => disks.push(disk),
                Verdict::Ours(_) => {
                    let what = disk.disk.node.display().to_string();
                    let why = format!("its session is {}", session.state());
                    return Err(AttachError::PathsDown { what, why }.into());
                }
                Verdict::Other(names) | Verdict::Reused { is: names, .. } => {
                    return Err(scsi::refusal(&disk, &names, &volume.expected));
                }
            }
        }
        if disks.is_empty() {
            let what = volume.targets[0].to_string();
            return Err(AttachError::NotAttached { what }.into());
        }
        scsi::grow(host, &disks, deadline).await
    }

    async fn lookup(&self, host: &dyn Host, info: &ConnectionInfo) -> Result<Option<Attached>> {
        let volume = data::read(info)?;
        look::attached(host, &volume, info.identity.as_ref()).await
    }

    async fn health(&self, host: &dyn Host, record: &AttachRecord) -> Result<Health> {
        let volume = data::read(&record.info)?;
        let claims = Notes::claims(host, &volume.key)?;
        let ways = look::ways(host, &volume, &claims)?;
        let found = look::disks(host, &ways)?;
        let Some(first) = found.first() else {
            return Ok(Health::bad(format!("{} shows no volume here", volume.targets[0])));
        };
        let map = Map::above(host.files(), &first.disk.disk)?;
        let mut problems = Vec::new();
        for Found { disk, session, target } in &found {
            let node = disk.disk.node.display();
            let state = disk.state(host.files())?;
            if !session.is_up() {
                problems.push(format!("the session with {target} is {}", session.state()));
            } else if state != "running" {
                problems.push(format!("{node} is {state}"));
            } else {
                match scsi::judge(host, disk, &volume.expected).await? {
                    Verdict::Ours(_) => {}
                    Verdict::Other(names) | Verdict::Reused { is: names, .. } => {
                        problems.push(scsi::refusal(disk, &names, &volume.expected).sentence());
                    }
                }
            }
        }
        for target in &ways {
            // A way that led nowhere when the volume was attached has no claim, or one of a try.
            let given =
                record.attach.multipath != Multipath::Off && volume.targets.contains(target);
            let claimed = |claim: &Claim| claim.wwid.is_some() && claim.target == *target;
            let wanted = given || claims.iter().any(claimed);
            if wanted && !found.iter().any(|found| found.target == *target) {
                problems.push(format!("the path over {target} is missing"));
            }
        }
        if let Some(map) = &map {
            let (paths, usable) = (map.paths(host.files())?.len(), map.usable(host).await?);
            if usable < paths {
                problems.push(format!("{usable} of {paths} paths of the map {} work", map.name));
            }
        }
        Ok(if problems.is_empty() { Health::good() } else { Health::bad(problems.join("; ")) })
    }
}

/// What carries the sessions in the kernel.
fn module(transport: Transport) -> &'static str {
    match transport {
        Transport::Tcp => "iscsi_tcp",
        Transport::Iser => "ib_iser",
    }
}

#[cfg(test)]
mod tests;
