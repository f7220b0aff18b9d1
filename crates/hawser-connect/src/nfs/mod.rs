//! NFS: a file of an export, or the whole export as a folder.
//!
//! Data: `{"export": "server:/path", "name": …, "options": "-o …", "mount_point_base": …}`; without
//! `name` the folder itself is the volume. The server may be a name, an IPv4 address, or an IPv6
//! address in brackets.
//!
//! Version 4 is mounted through the kernel directly (`fsopen`), the newest first: 4.2, 4.1, 4.0; the
//! next one is tried only when the server says that it does not speak a version, so that any other
//! refusal is told as it is. Version 3 goes through `mount.nfs`, which asks the server's mountd and
//! starts `rpc.statd`. Options with `vers`, `nfsvers`, `minorversion` or `v4.1` decide it.
//!
//! Needs the kernel modules `nfs` and `nfsv4` (the kernel loads them itself), and nfs-utils for
//! version 3. Follows nfs(5) of nfs-utils 2.6 and os-brick 7 `remotefs/remotefs.py`.

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
use data::Export;

/// Network File System; keeps nothing.
pub(crate) struct Nfs;

static INFO: ConnectorInfo = ConnectorInfo {
    protocols: &["NFS"],
    maturity: Maturity::Stable,
    note: "versions 4.2, 4.1 and 4.0 without a helper program, 3 through mount.nfs; one mount per \
           export, shared with os-brick; not tried: Kerberos, RDMA",
    platforms: &[Platform::X86, Platform::S390, Platform::Ppc64, Platform::All],
    abilities: Abilities { extend: true, multipath: None, encryption: false, reservation: false },
    proofs: Proofs::of(Proof::Kernel("vm_nfs")),
    own: &[],
    needs: &[
        Need::Root,
        Need::Module("nfs"),
        Need::Module("nfsv4"),
        Need::Program {
            name: "mount.nfs",
            packages: Packages {
                apt: "nfs-common",
                dnf: "nfs-utils",
                zypper: "nfs-client",
                apk: "nfs-utils",
            },
        },
    ],
};

impl FileProtocol for Nfs {
    fn info(&self) -> &'static ConnectorInfo {
        &INFO
    }

    fn read(
        &self,
        host: &dyn Host,
        info: &ConnectionInfo,
        attach: &Attach,
    ) -> Result<(Volume, Box<dyn RemoteFs>), AttachError> {
        let volume = Volume::read(host, info, attach, Naming::Digest)?;
        let export = Export::read(&volume)?;
        Ok((volume, Box::new(export)))
    }
}
