//! GPFS: a file, or a folder, in a GPFS (Spectrum Scale) file system that this host has mounted.
//!
//! Data: `{"device_path": "/gpfs/fs1/volume-1234"}`. Nothing is mounted and nothing is taken away; what
//! is checked is that the path is there and lies on a mounted file system of type `gpfs`, because a
//! file of the same name below an unmounted one would be a file of this host.
//!
//! Needs the file system mounted; its maker hands the client out. Follows os-brick 7
//! `connectors/gpfs.py`; proven against a mount table that was made up.

#[cfg(test)]
mod tests;

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use hawser_core::attach::{Attach, AttachRecord, Attached, Detach, Health, Identity};
use hawser_core::connection::{ConnectionInfo, Data, HINTS};
use hawser_core::error::Result;
use hawser_core::port::connector::{
    Abilities, ConnectorInfo, Maturity, Need, Platform, Proof, Proofs,
};
use hawser_core::port::host::{Seen, SeenKind};
use hawser_core::port::{Connector, Host};
use hawser_core::{ByteSize, Change, Kind};

use crate::shared::error::AttachError;
use crate::shared::fields::{Fields, invalid};

/// How long the file system may take to answer.
const LIMIT: Duration = Duration::from_secs(10);

/// GPFS; keeps nothing.
pub(crate) struct Gpfs;

static INFO: ConnectorInfo = ConnectorInfo {
    protocols: &["GPFS"],
    maturity: Maturity::Preview,
    note: "a path on a GPFS file system that is mounted already; proven against a made-up mount \
           table, never against GPFS",
    platforms: &[Platform::X86, Platform::S390, Platform::Ppc64, Platform::All],
    abilities: Abilities { extend: true, multipath: None, encryption: false, reservation: false },
    proofs: Proofs::of(Proof::Fixtures),
    own: &[],
    needs: &[
        Need::File { path: "/usr/lpp/mmfs/bin", from: "the GPFS client, from its maker" },
        // No GPFS is mounted without it, and nothing is mounted here.
        Need::Daemon { name: "mmfsd", socket: None, from: "the GPFS client: mmstartup" },
    ],
};

/// The path, as it was given.
fn path(info: &ConnectionInfo) -> Result<PathBuf, AttachError> {
    let fields = Fields::of(info)?;
    let text = fields.need_text("device_path")?;
    let path = Path::new(text);
    if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
        return Err(invalid("device_path", "must be an absolute path without `..`"));
    }
    let found = Identity::new("gpfs", text);
    match fields.expected(info)?.into_iter().find(|expected| *expected != found) {
        Some(expected) => {
            let (device, found) = (path.into(), found.to_string());
            Err(AttachError::WrongIdentity { device, expected, found })
        }
        None => Ok(path.components().collect()),
    }
}

/// What is at the path, if it is on GPFS.
async fn find(host: &dyn Host, path: &Path) -> Result<Option<Seen>> {
    let Some(seen) = host.look(path, LIMIT).await? else { return Ok(None) };
    let table = host.mounts().await?;
    let on: Vec<_> = table.iter().filter(|entry| entry.device == seen.device).collect();
    if on.iter().any(|entry| entry.fs_type == "gpfs") {
        return Ok(Some(seen));
    }
    let found = on.first().map_or("a file system of this host", |entry| &entry.fs_type);
    Err(AttachError::WrongIdentity {
        device: path.into(),
        expected: Identity::new("gpfs", path.display().to_string()),
        found: format!("on {found}; is the GPFS file system mounted"),
    }
    .into())
}

fn attached(path: &Path, seen: Seen) -> Result<Attached, AttachError> {
    let path = path.to_owned();
    match seen.kind {
        SeenKind::File => Ok(Attached::File { path }),
        SeenKind::Folder => Ok(Attached::Directory { path }),
        SeenKind::Symlink | SeenKind::BlockDevice | SeenKind::Other => {
            Err(invalid("device_path", "must lead to a plain file or a folder"))
        }
    }
}

async fn need(host: &dyn Host, path: &Path) -> Result<Seen> {
    let missing = || AttachError::VolumeNotFound {
        target: "the GPFS file system".into(),
        volume: path.display().to_string(),
        limit: LIMIT,
    };
    Ok(find(host, path).await?.ok_or_else(missing)?)
}

#[async_trait]
impl Connector for Gpfs {
    fn info(&self) -> &'static ConnectorInfo {
        &INFO
    }

    fn counts(&self, _data: &Data, field: &str) -> bool {
        // Here it is the volume, not an answer that comes back.
        field == "device_path" || !HINTS.contains(&field)
    }

    async fn connect(
        &self,
        host: &dyn Host,
        info: &ConnectionInfo,
        _attach: &Attach,
    ) -> Result<Change<Attached>> {
        let path = path(info)?;
        let seen = need(host, &path).await?;
        Ok(Change::Already(attached(&path, seen)?))
    }

    /// There is nothing of ours to take away.
    async fn disconnect(
        &self,
        _host: &dyn Host,
        _record: &AttachRecord,
        _detach: &Detach,
    ) -> Result<Change<()>> {
        Ok(Change::Already(()))
    }

    async fn extend(&self, host: &dyn Host, record: &AttachRecord) -> Result<ByteSize> {
        let path = path(&record.info)?;
        let seen = need(host, &path).await?;
        Ok(match attached(&path, seen)? {
            Attached::File { .. } => ByteSize::bytes(seen.length),
            Attached::Directory { .. } | Attached::Block { .. } => ByteSize::ZERO,
        })
    }

    async fn lookup(&self, host: &dyn Host, info: &ConnectionInfo) -> Result<Option<Attached>> {
        let path = path(info)?;
        match find(host, &path).await? {
            Some(seen) => Ok(Some(attached(&path, seen)?)),
            None => Ok(None),
        }
    }

    async fn health(&self, host: &dyn Host, record: &AttachRecord) -> Result<Health> {
        let found = match path(&record.info) {
            Ok(path) => need(host, &path).await.map(drop),
            Err(error) => Err(error.into()),
        };
        match found {
            Ok(()) => Ok(Health::good()),
            Err(error) if error.kind() == Kind::Invalid => Err(error),
            Err(error) => Ok(Health::bad(error.sentence())),
        }
    }
}
