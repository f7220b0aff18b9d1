//! A path that somebody uses as it is stays his.

use hawser_core::Kind;
use hawser_core::attach::Multipath;
use hawser_core::error::Result;
use hawser_core::port::Host;

use super::disk::ScsiDisk;
use crate::shared::multipath::Map;
use crate::shared::users;
use crate::shared::wait::Deadline;

/// The disk that somebody uses without a map, where several paths are wanted now. A map would be
/// another device above it, whose writes he does not see, so he keeps the one path that he has;
/// where several are enforced it is refused. Into a map that is there new paths come unnoticed.
pub(crate) async fn used_alone(
    host: &dyn Host,
    disks: impl Iterator<Item = &ScsiDisk> + Clone,
    multipath: Multipath,
    deadline: Deadline,
) -> Result<Option<ScsiDisk>> {
    if multipath == Multipath::Off {
        return Ok(None);
    }
    for disk in disks.clone() {
        if Map::above(host.files(), &disk.disk)?.is_some() {
            return Ok(None);
        }
    }
    for disk in disks {
        match users::refuse_users(host, &disk.disk, &[], false, deadline).await {
            Ok(()) => {}
            // multipathd has put the paths together meanwhile: that is the map.
            Err(_) if Map::above(host.files(), &disk.disk)?.is_some() => return Ok(None),
            Err(error) if error.kind() == Kind::Busy && multipath == Multipath::Wanted => {
                tracing::warn!(error = %error.sentence(), "one path is used, and stays alone");
                return Ok(Some(disk.clone()));
            }
            Err(error) => return Err(error.context("making a map of the volume's paths")),
        }
    }
    Ok(None)
}
