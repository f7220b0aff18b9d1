//! VZSTORAGE: a file of a Virtuozzo storage cluster, or the whole cluster as a folder.
//!
//! Data: `{"export": "[MDS1[,MDS2]:/]CLUSTER[:PASSWORD]", "name": …, "options": "-u USER -g GROUP -m
//! MODE", "mount_point_base": …}`; without `name` the cluster's root is the folder. The servers go to
//! `/etc/pstorage/clusters/CLUSTER/bs_list`, which is removed with the last mount where it was not
//! there before; with a password the node is let in first (`pstorage auth-node`, password on standard
//! input); then `pstorage-mount` mounts, and leaves a client in user space behind.
//!
//! A password is split off the export before anything is stored. So the folder of the mount is named
//! by the export without it: os-brick, which names it with the password, does not share that mount.
//!
//! Needs the Virtuozzo storage client, which its maker hands out, and the kernel module `fuse`.
//! Follows os-brick 7 `remotefs/remotefs.py`; proven against a simulation of the client only.

mod data;
mod mount;
#[cfg(test)]
mod tests;

use hawser_core::attach::Attach;
use hawser_core::connection::ConnectionInfo;
use hawser_core::port::Host;
use hawser_core::port::connector::{
    Abilities, ConnectorInfo, Maturity, Need, Packages, Platform, Proof, Proofs,
};

use crate::shared::error::AttachError;
use crate::shared::remote_fs::data::{Naming, Volume};
use crate::shared::remote_fs::{FileProtocol, RemoteFs};
use data::Cluster;

/// Virtuozzo storage; keeps nothing.
pub(crate) struct Vzstorage;

/// Only its maker has packages of it.
const NO_PACKAGE: Packages = Packages { apt: "", dnf: "", zypper: "", apk: "" };

static INFO: ConnectorInfo = ConnectorInfo {
    protocols: &["VZSTORAGE"],
    maturity: Maturity::Preview,
    note: "through pstorage-mount, one mount per cluster; proven against a simulation of the client, \
           never against Virtuozzo; an authorised node stays authorised after a detach",
    platforms: &[Platform::X86, Platform::Ppc64],
    abilities: Abilities { extend: true, multipath: None, encryption: false, reservation: false },
    proofs: Proofs::of(Proof::Simulator),
    own: &[],
    needs: &[
        Need::Root,
        Need::Module("fuse"),
        Need::Program { name: "pstorage-mount", packages: NO_PACKAGE },
        Need::Program { name: "pstorage", packages: NO_PACKAGE },
    ],
};

impl FileProtocol for Vzstorage {
    fn info(&self) -> &'static ConnectorInfo {
        &INFO
    }

    fn read(
        &self,
        host: &dyn Host,
        info: &ConnectionInfo,
        attach: &Attach,
    ) -> Result<(Volume, Box<dyn RemoteFs>), AttachError> {
        // Its options are flags of its own program, not of a mount.
        let mut plain = info.clone();
        plain.data.remove("options");
        let volume = Volume::read(host, &plain, attach, Naming::Digest)?;
        let cluster = Cluster::read(info, &volume)?;
        Ok((volume, Box::new(cluster)))
    }

    fn takes_read_only(&self) -> bool {
        false
    }
}
