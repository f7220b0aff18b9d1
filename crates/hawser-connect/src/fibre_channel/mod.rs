//! FIBRE_CHANNEL: volumes behind the ports of a Fibre Channel fabric, or of FCoE.
//!
//! Data, as os-brick 7 and OpenSDS write it: `target_wwns` with `target_luns`, or `target_wwn` (one
//! or a list) with `target_lun`; one number for all ports, or one for each. `initiator_target_map`
//! says which of our ports may use which of theirs, `initiator_target_lun_map` the same with
//! numbers; `addressing_mode`; `enable_wildcard_scan`, true where it is missing; `wwn`, what the
//! device must be; `access_mode`.
//!
//! Needs a driver that registers its ports with the kernel's Fibre Channel class (lpfc, qla2xxx,
//! bfa, fcoe; zfcp on s390x, ibmvfc on ppc64), and no program. Follows os-brick 7
//! `connectors/fibre_channel*.py` and Linux 6.12; proven with LIO behind FCoE.
//!
//! # How a volume is found
//!
//! A pair of ports, one of ours and one of theirs, is a way. The remote port's own number in the
//! SCSI layer stands in sysfs, so exactly one place is scanned for each way. Where none of their
//! ports is known to any of ours, the number alone is scanned for (`- - 5`), never everything, and
//! what that brings in of others is taken away again; `enable_wildcard_scan` switches it off. All
//! ports that are expected are waited for, not just the first.
//!
//! On s390x a volume must be named to the driver (`unit_add`) unless the port is a virtual one
//! (NPIV) and `zfcp.allow_lun_scan` is on; ports that the driver does not know are asked for
//! (`port_rescan`). Which of this applies is read from sysfs.
//!
//! # What stays whose
//!
//! The login to the fabric belongs to nobody's volume, and stays. Detaching takes away the devices
//! of the volume, whoever brought them in: the kernel itself does, when a port appears.

mod connect;
mod data;
mod detach;
mod fabric;
mod look;
mod lun;
mod reach;
mod zfcp;

use async_trait::async_trait;
use hawser_core::attach::{Attach, AttachRecord, Attached, Detach, Health, Multipath};
use hawser_core::connection::{ConnectionInfo, Data};
use hawser_core::error::Result;
use hawser_core::port::connector::{
    Abilities, ConnectorInfo, Maturity, Need, PathsBy, Platform, Proof, Proofs,
};
use hawser_core::port::registry::LockGuard;
use hawser_core::port::{Connector, Host};
use hawser_core::{ByteSize, Change};

use connect::Connect;
use data::Volume;
use detach::Disconnect;
use look::Found;

use crate::shared::error::AttachError;
use crate::shared::locks;
use crate::shared::multipath::Map;
use crate::shared::scsi::{self, Route, Verdict};
use crate::shared::wait::Deadline;

/// Fibre Channel; keeps nothing.
pub(crate) struct FibreChannel;

static INFO: ConnectorInfo = ConnectorInfo {
    protocols: &["FIBRE_CHANNEL"],
    maturity: Maturity::Preview,
    note: "FCP over FCoE (VN2VN) against LIO in the lab, over one path and two, with cables pulled \
           between writes; LUKS2 above a map, and a reservation between two ports of this host; no \
           adapter of a vendor was at hand. s390x (zfcp, with and without automatic scans) and \
           ppc64 (ibmvfc) are proven on simulated sysfs alone",
    platforms: &[Platform::All],
    abilities: Abilities {
        extend: true,
        multipath: Some(PathsBy::DeviceMapper),
        encryption: true,
        reservation: true,
    },
    proofs: Proofs::of(Proof::Kernel("vm_fc"))
        .encryption(Proof::Kernel("vm_fc"))
        .reservation(Proof::Kernel("vm_fc")),
    own: &[],
    needs: &[
        Need::Root,
        Need::Module("sd_mod"),
        Need::File {
            path: "/sys/class/fc_host",
            from: "the driver of a Fibre Channel adapter: lpfc, qla2xxx, bfa, fcoe, zfcp or ibmvfc",
        },
    ],
};

/// What says which volume is meant and how it is reached.
const FIELDS: [&str; 11] = [
    "volume_id",
    "target_wwn",
    "target_wwns",
    "target_lun",
    "target_luns",
    "initiator_target_map",
    "initiator_target_lun_map",
    "addressing_mode",
    "enable_wildcard_scan",
    "access_mode",
    "wwn",
];

/// Reads the data as the platform of this host writes it.
async fn volume(host: &dyn Host, info: &ConnectionInfo) -> Result<Volume> {
    let platform = Platform::of(&host.facts().await?.machine);
    Ok(data::read(info, platform)?)
}

/// Waits to be alone with a volume.
async fn lock(host: &dyn Host, volume: &Volume, limit: Deadline) -> Result<Box<dyn LockGuard>> {
    let name = format!("fibre-channel-volume-{}", volume.key);
    locks::alone(host, &name, "the volume", limit).await
}

#[async_trait]
impl Connector for FibreChannel {
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
        let volume = &volume(host, info).await?;
        let deadline = Deadline::after(attach.deadline);
        let _alone = lock(host, volume, deadline).await?;
        let given = info.identity.as_ref();
        Connect { host, volume, attach, given, deadline }.run().await
    }

    async fn disconnect(
        &self,
        host: &dyn Host,
        record: &AttachRecord,
        detach: &Detach,
    ) -> Result<Change<()>> {
        let volume = &volume(host, &record.info).await?;
        let deadline = Deadline::after(detach.deadline);
        let _alone = lock(host, volume, deadline).await?;
        Disconnect { host, volume, record, detach, deadline }.run().await
    }

    async fn extend(&self, host: &dyn Host, record: &AttachRecord) -> Result<ByteSize> {
        let volume = volume(host, &record.info).await?;
        let deadline = Deadline::after(record.attach.deadline);
        let _alone = lock(host, &volume, deadline).await?;
        let files = host.files();
        let mut disks = Vec::new();
        for Found { way, disk } in look::disks(files, &look::ways(files, &volume)?)? {
            match scsi::judge(host, &disk, &volume.expected).await? {
                Verdict::Ours(_) if way.is_up(files)? => disks.push(disk),
                Verdict::Ours(_) => {
                    let what = disk.disk.node.display().to_string();
                    let why = way.why_down(files)?;
                    return Err(AttachError::PathsDown { what, why }.into());
                }
                Verdict::Other(names) | Verdict::Reused { is: names, .. } => {
                    return Err(scsi::refusal(&disk, &names, &volume.expected));
                }
            }
        }
        if disks.is_empty() {
            let what = format!("volume {} of {}", volume.ports[0].lun, volume.ports[0].wwpn);
            return Err(AttachError::NotAttached { what }.into());
        }
        scsi::grow(host, &disks, deadline).await
    }

    async fn lookup(&self, host: &dyn Host, info: &ConnectionInfo) -> Result<Option<Attached>> {
        let volume = volume(host, info).await?;
        look::attached(host, &volume, info.identity.as_ref()).await
    }

    async fn health(&self, host: &dyn Host, record: &AttachRecord) -> Result<Health> {
        let volume = volume(host, &record.info).await?;
        let files = host.files();
        let ways = look::ways(files, &volume)?;
        let found = look::disks(files, &ways)?;
        let Some(first) = found.first() else {
            let wwpn = volume.ports[0].wwpn;
            return Ok(Health::bad(format!("{wwpn} shows no such volume here")));
        };
        let map = Map::above(files, &first.disk.disk)?;
        let mut problems = Vec::new();
        for Found { way, disk } in &found {
            let (node, state) = (disk.disk.node.display(), disk.state(files)?);
            if !way.is_up(files)? {
                problems.push(format!("{node}: {}", way.why_down(files)?));
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
        if record.attach.multipath != Multipath::Off {
            for way in ways.iter().filter(|way| !found.iter().any(|found| found.way == **way)) {
                // Ports that were never zoned together are no path that is missing; which ones
                // are, the storage system may have told.
                let zoned = volume.zones.is_some() || way.remote(files)?.is_some();
                if zoned && way.disk(files)?.is_none() {
                    problems.push(format!("the path over {way} is missing"));
                }
            }
        }
        if let Some(map) = &map {
            let (paths, usable) = (map.paths(files)?.len(), map.usable(host).await?);
            if usable < paths {
                problems.push(format!("{usable} of {paths} paths of the map {} work", map.name));
            }
        }
        Ok(if problems.is_empty() { Health::good() } else { Health::bad(problems.join("; ")) })
    }
}

#[cfg(test)]
mod tests;
