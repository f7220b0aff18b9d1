//! SMBFS: a file of a share, or the whole share as a folder.
//!
//! Data: `{"export": "//server/share", "name": …, "options": "-o …", "username": …, "domain": …,
//! "password": …, "mount_point_base": …}`; without `name` the share itself is the volume. User and
//! domain may stand among the options (`username`, `user`, `domain`, `dom`, `workgroup`), as may
//! `guest`, and `credentials` with a file as mount.cifs(8) describes it. The password goes to the
//! kernel directly and stands in no argument, no file and no record.
//!
//! Mounted through the kernel (`fsopen`), version 3.1.1 unless `vers` says otherwise; `seal` asks
//! for encryption, and then a mount without it is not used either.
//!
//! Needs the kernel module `cifs` (the kernel loads it itself), no program; Kerberos (`sec=krb5`)
//! needs cifs-utils. Follows mount.cifs(8) of cifs-utils 7.0, and os-brick 7
//! `remotefs/remotefs.py` for the place of mounts.

mod data;
mod mount;
#[cfg(test)]
mod tests;

use hawser_core::attach::Attach;
use hawser_core::connection::ConnectionInfo;
use hawser_core::port::Host;
use hawser_core::port::connector::{
    Abilities, ConnectorInfo, Maturity, Need, Platform, Proof, Proofs,
};

use crate::shared::error::AttachError;
use crate::shared::remote_fs::data::{Naming, Volume};
use crate::shared::remote_fs::{FileProtocol, RemoteFs};
use data::Share;

/// Server Message Block; keeps nothing.
pub(crate) struct Smb;

static INFO: ConnectorInfo = ConnectorInfo {
    protocols: &["SMBFS"],
    maturity: Maturity::Stable,
    note: "version 3.1.1 without a helper program, plain and encrypted (seal); one mount per share; \
           os-brick has it for Windows only, so every platform is listed; not tried: Kerberos, DFS",
    platforms: &[Platform::X86, Platform::S390, Platform::Ppc64, Platform::All],
    abilities: Abilities { extend: true, multipath: None, encryption: false, reservation: false },
    proofs: Proofs::of(Proof::Kernel("vm_smb")),
    own: &[],
    needs: &[Need::Root, Need::Module("cifs")],
};

impl FileProtocol for Smb {
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
        let share = Share::read(host, info, &volume)?;
        Ok((volume, Box::new(share)))
    }
}
