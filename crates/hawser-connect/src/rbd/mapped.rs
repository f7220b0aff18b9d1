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

/// Every mapping of this host.
pub(super) fn all(host: &dyn Host) -> Result<Vec<Mapped>> {
    let names = host.files().list(Path::new(DEVICES))?;
    Ok(names.iter().filter_map(|name| name.parse().ok()).map(|id| Mapped { id }).collect())
}

/// The mappings of this image, whoever made them. Where only others of its name are there, that is
/// refused: another image is where this one should be.
pub(super) fn find(host: &dyn Host, image: &Image) -> Result<Vec<Mapped>> {
    let files = host.files();
    let mut named = Vec::new();
    for mapped in all(host)? {
        if mapped.is_named(files, image)? && mapped.is_of_cluster(files, image)? {
            named.push(mapped);
        }
    }
    let (mut found, mut refused) = (Vec::new(), None);
    for mapped in named {
        match mapped.check_identity(host, image) {
            Ok(()) => found.push(mapped),
            Err(error) => refused = Some(error),
        }
    }
    match refused {
        Some(error) if found.is_empty() => Err(error),
        Some(_) | None => Ok(found),
    }
}

/// The mapping that was made for this image since the others were listed.
pub(super) fn made(host: &dyn Host, image: &Image, before: &[Mapped]) -> Result<Option<Mapped>> {
    let files = host.files();
    let monitors = image.monitors();
    for mapped in all(host)?.into_iter().filter(|mapped| !before.contains(mapped)) {
        // Somebody may have mapped an image of that name in another cluster meanwhile.
        let its = mapped.monitors(files)?;
        if mapped.is_named(files, image)? && (its.is_empty() || its == monitors) {
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

    /// True when every part of the name is the image's.
    fn is_named(&self, files: &dyn Files, image: &Image) -> Result<bool> {
        let same = |name: &str, wanted: &str| -> Result<bool> {
            Ok(self.attribute(files, name)?.unwrap_or_default() == wanted)
        };
        Ok(same("pool", &image.pool)?
            && same("pool_ns", image.namespace.as_deref().unwrap_or_default())?
            && same("name", &image.image)?
            && same("current_snap", image.snapshot.as_deref().unwrap_or("-"))?)
    }

    /// The monitors that it was made with; empty where an old kernel does not tell. The file has
    /// the key too: nothing of it but the first word may be shown.
    fn monitors(&self, files: &dyn Files) -> Result<String> {
        let config = self.attribute(files, "config_info")?.unwrap_or_default();
        Ok(monitors_in(&config).to_owned())
    }

    /// True when both are mappings of one image, by whatever way to its cluster.
    pub(super) fn is_twin_of(&self, files: &dyn Files, other: &Self) -> Result<bool> {
        let both = |name: &str| -> Result<Option<String>> {
            let (one, two) = (self.attribute(files, name)?, other.attribute(files, name)?);
            // An image of the first format has no id, and is no twin of another without one.
            Ok(one.filter(|one| !one.is_empty() && two.as_ref() == Some(one)))
        };
        let mut same = self != other;
        for name in ["cluster_fsid", "pool", "image_id", "current_snap"] {
            same = same && both(name)?.is_some();
        }
        // The namespace is empty for most, and missing on kernels that know none.
        Ok(same && self.attribute(files, "pool_ns")? == other.attribute(files, "pool_ns")?)
    }

    /// By the cluster's id where the caller knows it, else by a monitor that both have.
    fn is_of_cluster(&self, files: &dyn Files, image: &Image) -> Result<bool> {
        let fsid = self.attribute(files, "cluster_fsid")?.unwrap_or_default();
        let known = image.expected.iter().find(|identity| identity.scheme == "rbd");
        if let Some((wanted, _)) = known.and_then(|identity| identity.value.split_once('/')) {
            return Ok(wanted == fsid);
        }
        let monitors = self.monitors(files)?;
        // A mapping that says nothing of its monitors was made by an older kernel.
        Ok(monitors.is_empty() || image.shares_monitor(&monitors))
    }

    /// What the kernel says of the image; `None` where it has no id.
    pub(super) fn identity(&self, files: &dyn Files, image: &Image) -> Result<Option<Identity>> {
        let known = |name: &str| -> Result<Option<String>> {
            Ok(self.attribute(files, name)?.filter(|text| !text.is_empty()))
        };
        let (Some(fsid), Some(id)) = (known("cluster_fsid")?, known("image_id")?) else {
            return Ok(None);
        };
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

/// The monitors at the beginning of what a mapping was asked for with.
pub(super) fn monitors_in(config_info: &str) -> &str {
    config_info.split_whitespace().next().unwrap_or_default()
}
