//! Images that are mapped now, as the kernel tells it.

use std::path::{Path, PathBuf};

use hawser_core::ByteSize;
use hawser_core::attach::{Attached, Identity};
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::kernel::Files;

use super::data::Image;
use super::error::RbdError;
use crate::shared::error::AttachError;
use crate::shared::users::Whole;

const DEVICES: &str = "/sys/bus/rbd/devices";

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapped {
    pub(super) id: u32,
}

/// The kernel's file for a change; which one depends on how the module numbers its devices.
pub(super) fn control(host: &dyn Host, verb: &str) -> Result<PathBuf> {
    let single = Path::new("/sys/module/rbd/parameters/single_major");
    let single = host.files().read_text(single)?.as_deref() == Some("Y");
    let name = if single { format!("{verb}_single_major") } else { verb.to_owned() };
    Ok(Path::new("/sys/bus/rbd").join(name))
}

/// The mapping of this image, whoever made it.
pub(super) fn find(host: &dyn Host, image: &Image) -> Result<Option<Mapped>> {
    let files = host.files();
    for name in files.list(Path::new(DEVICES))? {
        let Ok(id) = name.parse() else { continue };
        let mapped = Mapped { id };
        if mapped.is(files, image)? {
            return Ok(Some(mapped));
        }
    }
    Ok(None)
}

impl Mapped {
    pub(super) fn folder(&self) -> PathBuf {
        Path::new(DEVICES).join(self.id.to_string())
    }

    pub(super) fn disk(&self) -> Whole {
        Whole::new(format!("rbd{}", self.id))
    }

    fn attribute(&self, files: &dyn Files, name: &str) -> Result<Option<String>> {
        Ok(files.read_text(&self.folder().join(name))?)
    }

    /// True when every part of the name and the cluster are the image's.
    fn is(&self, files: &dyn Files, image: &Image) -> Result<bool> {
        let same = |name: &str, wanted: &str| -> Result<bool> {
            Ok(self.attribute(files, name)?.unwrap_or_default() == wanted)
        };
        let named = same("pool", &image.pool)?
            && same("pool_ns", image.namespace.as_deref().unwrap_or_default())?
            && same("name", &image.image)?
            && same("current_snap", image.snapshot.as_deref().unwrap_or("-"))?;
        Ok(named && self.is_of_cluster(files, image)?)
    }

    /// By the cluster's id where the caller knows it, else by a monitor that both have.
    fn is_of_cluster(&self, files: &dyn Files, image: &Image) -> Result<bool> {
        let fsid = self.attribute(files, "cluster_fsid")?.unwrap_or_default();
        let known = image.expected.iter().find(|identity| identity.scheme == "rbd");
        if let Some((wanted, _)) = known.and_then(|identity| identity.value.split_once('/')) {
            return Ok(wanted == fsid);
        }
        let config = self.attribute(files, "config_info")?.unwrap_or_default();
        let monitors = config.split_whitespace().next().unwrap_or_default();
        // A mapping that says nothing of its monitors was made by an older kernel.
        Ok(monitors.is_empty()
            || monitors.split(',').any(|monitor| image.addresses.iter().any(|a| a == monitor)))
    }

    /// What the kernel says of the image.
    pub(super) fn identity(&self, files: &dyn Files, image: &Image) -> Result<Option<Identity>> {
        let fsid = self.attribute(files, "cluster_fsid")?;
        let id = self.attribute(files, "image_id")?;
        let (Some(fsid), Some(id)) = (fsid, id) else { return Ok(None) };
        let namespace = image.namespace.as_ref().map(|n| format!("{n}/")).unwrap_or_default();
        let snapshot = image.snapshot.as_ref().map(|s| format!("@{s}")).unwrap_or_default();
        Ok(Some(Identity::new("rbd", format!("{fsid}/{}/{namespace}{id}{snapshot}", image.pool))))
    }

    /// Refuses another image than the expected one.
    pub(super) fn check_identity(&self, host: &dyn Host, image: &Image) -> Result<()> {
        let found = self.identity(host.files(), image)?;
        for expected in &image.expected {
            if found.as_ref() != Some(expected) {
                let found = found.map_or_else(|| "unknown".to_owned(), |f| f.to_string());
                let (device, expected) = (self.disk().node, expected.clone());
                return Err(AttachError::WrongIdentity { device, expected, found }.into());
            }
        }
        Ok(())
    }

    /// Refuses a mapping that is not as it was asked for.
    pub(super) fn check(&self, host: &dyn Host, image: &Image, read_only: bool) -> Result<()> {
        self.check_identity(host, image)?;
        let there = self.disk().attribute(host.files(), "ro")?.as_deref() == Some("1");
        let wanted = read_only || image.snapshot.is_some();
        if there == wanted {
            return Ok(());
        }
        let word = |read_only| if read_only { "read-only" } else { "writable" };
        let (there, wanted) = (word(there), word(wanted));
        Err(RbdError::OtherMode { name: image.name(), there, wanted }.into())
    }

    /// The size that the cluster told the kernel, in bytes.
    pub(super) fn size(&self, files: &dyn Files) -> Result<u64> {
        let text = self.attribute(files, "size")?;
        Ok(text.and_then(|text| text.parse().ok()).unwrap_or(0))
    }

    pub(super) fn describe(&self, host: &dyn Host, image: &Image) -> Result<Attached> {
        Ok(Attached::Block {
            device: self.disk().node,
            identity: self.identity(host.files(), image)?,
            size: ByteSize::bytes(self.disk().size(host.files())?),
        })
    }
}
