//! Maps as sysfs shows them.

use std::path::Path;

use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::kernel::Files;

use super::status::{self, PathState};
use crate::shared::error::AttachError;
use crate::shared::users::Whole;

/// How the uuids of these maps begin; what follows is the wwid of the volume.
const PREFIX: &str = "mpath-";

/// A map of several paths to one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Map {
    /// Its device, such as `dm-3`.
    pub(crate) disk: Whole,
    /// Its name for device mapper and multipathd: the wwid, or a friendly one.
    pub(crate) name: String,
    /// The volume.
    pub(crate) wwid: String,
}

/// The name and the uuid of a `dm-` device.
fn name_and_uuid(files: &dyn Files, disk: &Whole) -> Result<Option<(String, String)>> {
    // The kernel answers that the question makes no sense about a map that is just going.
    const EINVAL: i32 = 22;
    let read = |name: &str| match files.read_text(&disk.folder().join("dm").join(name)) {
        Err(error) if error.errno() == Some(EINVAL) => Ok(None),
        text => text,
    };
    let (name, uuid) = (read("name")?, read("uuid")?);
    Ok(name.zip(uuid).filter(|(name, _)| !name.is_empty()))
}

impl Map {
    /// The map of a `dm-` device; `None` for maps of other kinds.
    pub(crate) fn of_disk(files: &dyn Files, name: &str) -> Result<Option<Self>> {
        let disk = Whole::new(name);
        Ok(name_and_uuid(files, &disk)?.and_then(|(name, uuid)| {
            let wwid = uuid.strip_prefix(PREFIX)?.to_owned();
            Some(Self { disk, name, wwid })
        }))
    }

    /// The map behind a node, links followed; `None` for every other device.
    pub(crate) fn of_node(files: &dyn Files, node: &Path) -> Result<Option<Self>> {
        let Some((major, minor)) = files.device_number(node)? else { return Ok(None) };
        let folder = files.resolve(Path::new(&format!("/sys/dev/block/{major}:{minor}")))?;
        match folder.as_deref().and_then(Path::file_name).and_then(|name| name.to_str()) {
            Some(name) => Self::of_disk(files, name),
            None => Ok(None),
        }
    }

    /// The map that a path belongs to.
    pub(crate) fn above(files: &dyn Files, path: &Whole) -> Result<Option<Self>> {
        for holder in files.list(&path.folder().join("holders"))? {
            if let Some(map) = Self::of_disk(files, &holder)? {
                return Ok(Some(map));
            }
        }
        Ok(None)
    }

    /// The map of a volume, with or without paths.
    pub(crate) fn of_wwid(files: &dyn Files, wwid: &str) -> Result<Option<Self>> {
        for name in files.list(Path::new("/sys/block"))? {
            if !name.starts_with("dm-") {
                continue;
            }
            if let Some(map) = Self::of_disk(files, &name)?.filter(|map| map.wwid == wwid) {
                return Ok(Some(map));
            }
        }
        Ok(None)
    }

    /// True when it is still there.
    pub(crate) fn is_there(&self, files: &dyn Files) -> Result<bool> {
        Ok(Self::of_disk(files, &self.disk.name)?.is_some_and(|now| now == *self))
    }

    /// The names of the devices that it stands on.
    pub(crate) fn paths(&self, files: &dyn Files) -> Result<Vec<String>> {
        Ok(files.list(&self.disk.folder().join("slaves"))?)
    }

    /// The maps of its partitions, which kpartx makes unasked: they belong to it.
    pub(crate) fn partitions(&self, files: &dyn Files) -> Result<Vec<(String, Whole)>> {
        let ours = format!("-{PREFIX}{}", self.wwid);
        let mut partitions = Vec::new();
        for holder in files.list(&self.disk.folder().join("holders"))? {
            let disk = Whole::new(holder);
            let Some((name, uuid)) = name_and_uuid(files, &disk)? else { continue };
            let number = uuid.strip_prefix("part").and_then(|rest| rest.strip_suffix(&*ours));
            if number.is_some_and(|n| n.bytes().all(|byte| byte.is_ascii_digit())) {
                partitions.push((name, disk));
            }
        }
        Ok(partitions)
    }

    /// How the kernel uses its paths now.
    pub(super) async fn states(&self, host: &dyn Host) -> Result<Vec<PathState>> {
        let attempt = || format!("reading the state of the map {}", self.name);
        let status = host.maps().status(&self.name).await;
        // multipathd takes maps away by itself: one that is gone has no path.
        if status.is_err() && !self.is_there(host.files())? {
            return Ok(Vec::new());
        }
        let status = status.map_err(|source| AttachError::Kernel { attempt: attempt(), source })?;
        // Whatever a map says that we do not understand, no path of it counts as working.
        Ok(status::paths(&status).unwrap_or_default())
    }

    /// How many of its paths work.
    pub(crate) async fn usable(&self, host: &dyn Host) -> Result<usize> {
        Ok(self.states(host).await?.iter().filter(|path| path.active).count())
    }
}
