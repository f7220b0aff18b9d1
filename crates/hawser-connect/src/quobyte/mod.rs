//! QUOBYTE: a file of a Quobyte volume, or the whole volume as a folder.
//!
//! Data: `{"export": "registry/volume", "name": …, "options": "-o …", "mount_point_base": …}`; without
//! `name` the volume itself is the folder. Mounted by `mount -t quobyte`, which leaves a client in user
//! space behind.
//!
//! Needs the Quobyte client, which its maker hands out, and the kernel module `fuse`. Follows os-brick 7
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
use crate::shared::fields::invalid;
use crate::shared::remote_fs::data::{Naming, Volume};
use crate::shared::remote_fs::{FileProtocol, RemoteFs};
use mount::Export;

/// Quobyte; keeps nothing.
pub(crate) struct Quobyte;

static INFO: ConnectorInfo = ConnectorInfo {
    protocols: &["QUOBYTE"],
    maturity: Maturity::Preview,
    note: "through mount -t quobyte, one mount per volume, shared with os-brick; proven against a \
           simulation of the mount program, never against Quobyte; os-brick registers it for x86",
    platforms: &[Platform::X86],
    abilities: Abilities { extend: true, multipath: None, encryption: false, reservation: false },
    proofs: Proofs::of(Proof::Simulator),
    own: &[],
    needs: &[
        Need::Root,
        Need::Module("fuse"),
        Need::File { path: "/sbin/mount.quobyte", from: "the Quobyte client, from its maker" },
    ],
};

impl FileProtocol for Quobyte {
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
        let export = volume.export.clone();
        let named = export.split_once('/').is_some_and(|(registry, volume)| {
            !registry.is_empty() && !volume.is_empty() && !volume.contains("..")
        });
        if !named {
            return Err(invalid("export", "must be registry/volume"));
        }
        Ok((volume, Box::new(Export(export))))
    }
}
