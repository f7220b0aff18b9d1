//! SCALITY: a file in the one SOFS file system of a host.
//!
//! Data: `{"export": "volume dir", "name": …, "mount_point_base": …}`. There is one mount for the whole
//! host, at `mount_point_base`, of what `/etc/sfused.conf` describes; the volume is the file
//! `BASE/EXPORT/00/NAME`, or the folder without `name`. Options of a single volume are refused, and so
//! is the wish for a mount without writes: all volumes share it.
//!
//! Needs Scality's sfused, which its maker hands out, and the kernel module `fuse`. Follows os-brick 7
//! `remotefs/remotefs.py`; proven against a simulation of the mount program only.

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
use crate::shared::fields::{Fields, invalid};
use crate::shared::remote_fs::data::{Naming, Volume};
use crate::shared::remote_fs::{FileProtocol, RemoteFs};
use mount::{SETTINGS, Sofs};

/// Scality SOFS; keeps nothing.
pub(crate) struct Scality;

static INFO: ConnectorInfo = ConnectorInfo {
    protocols: &["SCALITY"],
    maturity: Maturity::Legacy,
    note: "through mount -t sofs, one mount per host, shared with os-brick; proven against a \
           simulation of the mount program, never against Scality; os-brick registers it for x86",
    platforms: &[Platform::X86],
    abilities: Abilities { extend: true, multipath: None, encryption: false, reservation: false },
    proofs: Proofs::of(Proof::Simulator),
    own: &[],
    needs: &[
        Need::Root,
        Need::Module("fuse"),
        Need::File { path: SETTINGS, from: "Scality's sfused, from its maker" },
    ],
};

impl FileProtocol for Scality {
    fn info(&self) -> &'static ConnectorInfo {
        &INFO
    }

    fn read(
        &self,
        host: &dyn Host,
        info: &ConnectionInfo,
        attach: &Attach,
    ) -> Result<(Volume, Box<dyn RemoteFs>), AttachError> {
        if Fields::of(info)?.text("mount_point_base")?.is_none() {
            return Err(invalid("mount_point_base", "is missing: SOFS has one place on a host"));
        }
        let volume = Volume::read(host, info, attach, Naming::Base)?;
        if !volume.options.words().is_empty() {
            return Err(invalid("options", "are not taken: all volumes share one mount"));
        }
        Ok((volume, Box::new(Sofs)))
    }

    fn takes_read_only(&self) -> bool {
        false
    }
}
