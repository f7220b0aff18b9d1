//! A volume grew at its storage system, and this host is to see it.

use hawser_core::ByteSize;
use hawser_core::error::Result;
use hawser_core::port::Host;

use super::disk::ScsiDisk;
use crate::shared::error::AttachError;
use crate::shared::multipath::{self, Map};
use crate::shared::wait::Deadline;

/// Makes every path see the size that the storage system shows now, then their map; answers the
/// size of what the user has. All paths must work: one that does not learn of the new size would
/// fail everything that is written past its end.
pub(crate) async fn grow(
    host: &dyn Host,
    disks: &[ScsiDisk],
    deadline: Deadline,
) -> Result<ByteSize> {
    let files = host.files();
    let Some(first) = disks.first() else { return Ok(ByteSize::ZERO) };
    let what = || first.disk.node.display().to_string();
    let refused = |why: String| AttachError::PathsDown { what: what(), why };
    for disk in disks {
        let state = disk.state(files)?;
        if state != "running" {
            return Err(refused(format!("{} is {state}", disk.disk.node.display())).into());
        }
    }
    let map = Map::above(files, &first.disk)?;
    if let Some(map) = &map {
        let (paths, usable) = (map.paths(files)?.len(), map.usable(host).await?);
        if usable < paths {
            let why = format!("{usable} of {paths} paths of the map {} work", map.name);
            return Err(refused(why).into());
        }
    }
    for disk in disks {
        disk.rescan(host, deadline).await?;
    }
    let mut sizes = Vec::new();
    for disk in disks {
        sizes.push(disk.disk.size(files)?);
    }
    if sizes.windows(2).any(|pair| pair[0] != pair[1]) {
        return Err(refused(format!("the paths have different sizes: {sizes:?}")).into());
    }
    match &map {
        Some(map) => {
            multipath::grow(host, map, sizes[0], deadline).await?;
            Ok(ByteSize::bytes(map.disk.size(files)?))
        }
        None => Ok(ByteSize::bytes(sizes[0])),
    }
}
