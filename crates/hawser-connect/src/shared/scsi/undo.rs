//! An attach that failed: what it says, and how its paths are taken back.

use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::{Kind, Reason};

use super::disk::{ScsiDisk, gone};
use crate::shared::error::AttachError;
use crate::shared::multipath::{self, Map};
use crate::shared::users::Whole;
use crate::shared::wait::Deadline;

/// Disks that a failed attach brought. In between the transport takes them away:
/// [`TakeBack::map`], then the paths, then [`TakeBack::settle`].
pub(crate) struct TakeBack<'a> {
    pub(crate) host: &'a dyn Host,
    pub(crate) disks: &'a [ScsiDisk],
    pub(crate) deadline: Deadline,
}

impl TakeBack<'_> {
    /// Removes the map that was made of these disks alone; answers the volume's name, where it is
    /// known.
    pub(crate) async fn map(&self) -> Result<Option<String>> {
        let files = self.host.files();
        let mut wwid = None;
        for disk in self.disks {
            if let Some(map) = Map::above(files, &disk.disk)? {
                // New paths in a map that was there before are multipathd's to drop.
                let paths = map.paths(files)?;
                let ours = |path: &String| self.disks.iter().any(|disk| disk.disk.name == *path);
                if paths.iter().all(ours) {
                    match multipath::remove(self.host, &map, self.deadline).await {
                        // It was there before, without a path, and somebody waits for it.
                        Err(error) if error.kind() == Kind::Busy => {}
                        removed => removed?,
                    }
                }
                wwid = Some(map.wwid);
            }
            if let (None, Some(names)) = (&wwid, disk.remembered(files)?) {
                wwid = Some(names.wwid());
            }
        }
        Ok(wwid)
    }

    /// After the disks were taken away: makes sure that they went, and that multipathd knows it.
    pub(crate) async fn settle(&self, wwid: Option<&str>) -> Result<()> {
        let (host, deadline) = (self.host, self.deadline);
        gone(host, self.disks, deadline).await?;
        let Some(wwid) = wwid else { return Ok(()) };
        let names: Vec<Whole> = self.disks.iter().map(|disk| disk.disk.clone()).collect();
        multipath::forgotten(host, wwid, &names, deadline).await?;
        if Map::of_wwid(host.files(), wwid)?.is_none() {
            multipath::forget_wwid(host, wwid).await?;
        }
        Ok(())
    }
}

/// True when another volume was where this one should be.
pub(crate) fn is_wrong_volume(error: &Error) -> bool {
    error.reason() == Some(Reason::IdentityMismatch)
}

/// Of several failures the one that says most about what to do.
pub(crate) fn most_telling(mut errors: Vec<Error>, deadline: Deadline) -> Error {
    let rank = |error: &Error| match error.kind() {
        Kind::Busy | Kind::Precondition => 0,
        Kind::Denied | Kind::Unauthenticated => 1,
        Kind::Unsupported | Kind::Invalid => 2,
        Kind::NotFound => 3,
        Kind::Timeout | Kind::Unavailable => 5,
        Kind::Exists | Kind::OutOfRange | Kind::NoSpace | Kind::Internal => 4,
    };
    errors.sort_by_key(rank);
    match errors.into_iter().next() {
        Some(error) => error,
        None => {
            let attempt = "attaching the volume".to_owned();
            AttachError::Deadline { attempt, limit: deadline.limit() }.into()
        }
    }
}
