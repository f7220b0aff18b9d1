//! Ways to a target that goes by another name at other portals.
//!
//! Some storage systems name a target per portal, others show targets of other volumes at portals that
//! do not have the one that is asked for, and the list of portals looks the same. Only the device
//! tells. So these ways are tried when the volume is known, and one that leads to another volume is
//! left as it was and is no error: nobody said that the volume is there.

use std::time::Duration;

use futures_util::future::join_all;
use hawser_core::attach::Identity;

use super::connect::{Connect, MadeAt};
use super::data::Target;
use super::notes::Claim;
use crate::shared::scsi::{Path, Tries};

/// How long all tries may take together: the volume is there without them, and a target that does not
/// have it shows nothing for as long as anybody waits.
const A_TRY: Duration = Duration::from_secs(10);

impl Connect<'_> {
    /// The ways to the volume for certain, and those that are tried: under names that nobody gave and
    /// under which it was not found before.
    pub(super) fn by_name(&self, ways: &[Target], claims: &[Claim]) -> (Vec<Target>, Vec<Target>) {
        let given = |way: &Target| self.volume.targets.iter().any(|given| given.iqn == way.iqn);
        let found =
            |way: &Target| claims.iter().any(|claim| claim.wwid.is_some() && claim.target == *way);
        ways.iter().cloned().partition(|way| given(way) || found(way))
    }

    /// Adds the paths over ways that may lead to the volume of the paths that are there, and takes back
    /// what was made for the others.
    pub(super) async fn add_renamed(
        &self,
        ways: &[Target],
        paths: &mut Vec<Path>,
        made: &mut Vec<MadeAt>,
    ) {
        let Some((_, names)) = paths.first() else { return };
        let mut volume = self.volume.clone();
        volume.expected.push(Identity::new("wwid", names.wwid()));
        let same = Connect { volume: &volume, deadline: self.deadline.within(A_TRY), ..*self };
        for (at, path) in join_all(ways.iter().map(|way| same.try_way(way))).await {
            paths.extend(path);
            made.extend(at);
        }
    }

    /// The path over a way, if it is one, and what was made for it. What was made for another volume
    /// is taken back at once: whoever that belongs to may come to use it.
    async fn try_way(&self, way: &Target) -> (Option<MadeAt>, Option<Path>) {
        let mut at = self.begin(way);
        let error = match self.path(way, &mut at).await {
            Ok(path) => return (Some(at), Some(path)),
            Err(error) => error,
        };
        tracing::info!(%way, error = %error.sentence(), "no way to the volume");
        if !Self::is_anything(&at) {
            return (None, None);
        }
        match self.take_back(std::slice::from_ref(&at)).await {
            Ok(()) => (None, None),
            Err(error) => {
                tracing::warn!(%way, error = %error.sentence(), "what a try left is still there");
                (Some(at), None)
            }
        }
    }
}
