//! GLUSTERFS: a file of a volume, or the whole volume as a folder.
//!
//! Data: `{"export": "server:/volume", "name": …, "options": "-o …", "backup_servers": […],
//! "mount_point_base": …}`; without `name` the volume itself is the folder. Several servers may stand
//! before the colon, with commas; further ones in `backup_servers` or in the option
//! `backup-volfile-servers`. The servers only hand out the description of the volume: it is enough
//! that one of them answers.
//!
//! Mounted by `mount.glusterfs`, which leaves a client in user space behind that lives as long as the
//! mount. Its log is `/var/log/glusterfs/hawser-DIGEST.log` unless `log-file` says otherwise; what it
//! says there decides which error a failed mount is.
//!
//! Needs glusterfs-client and the kernel module `fuse`. Follows mount.glusterfs(8) of GlusterFS 10 and
//! os-brick 7 `remotefs/remotefs.py`.

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
use data::Source;

/// GlusterFS; keeps nothing.
pub(crate) struct Glusterfs;

static INFO: ConnectorInfo = ConnectorInfo {
    protocols: &["GLUSTERFS"],
    maturity: Maturity::Stable,
    note: "FUSE mount with backup servers, one per volume, shared with os-brick; os-brick registers \
           it for x86 only, nothing in the protocol asks for that; not tried: RDMA, TLS",
    platforms: &[Platform::X86, Platform::S390, Platform::Ppc64, Platform::All],
    abilities: Abilities { extend: true, multipath: None, encryption: false, reservation: false },
    proofs: Proofs::of(Proof::Daemon("vm_gluster")),
    own: &[],
    needs: &[
        Need::Root,
        Need::Module("fuse"),
        Need::Program {
            name: "mount.glusterfs",
            packages: Packages {
                apt: "glusterfs-client",
                dnf: "glusterfs-fuse",
                zypper: "glusterfs",
                apk: "glusterfs-client",
            },
        },
    ],
};

impl FileProtocol for Glusterfs {
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
        let source = Source::read(info, &volume)?;
        Ok((volume, Box::new(source)))
    }
}
