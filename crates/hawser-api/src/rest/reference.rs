//! References to objects in paths and bodies: an id, a native name, or `scope:name`.
//!
//! Native names and ids have no colon, so the three forms never meet; and the text of a
//! [`VolumeRef`], [`SnapshotRef`] or [`GroupRef`] is exactly what these functions read.

use hawser_core::Result;
use hawser_core::group::GroupRef;
use hawser_core::name::{Alias, Scope};
use hawser_core::snapshot::SnapshotRef;
use hawser_core::volume::VolumeRef;

/// Reads a reference to a volume. `Kind::Invalid` when it is neither id nor name.
pub fn volume(text: &str) -> Result<VolumeRef> {
    match outside(text)? {
        Some(alias) => Ok(VolumeRef::Alias(alias)),
        None => VolumeRef::parse(text),
    }
}

/// Reads a reference to a snapshot. `Kind::Invalid` when it is neither id nor name.
pub fn snapshot(text: &str) -> Result<SnapshotRef> {
    match outside(text)? {
        Some(alias) => Ok(SnapshotRef::Alias(alias)),
        None => SnapshotRef::parse(text),
    }
}

/// Reads a reference to a group. `Kind::Invalid` when it is neither id nor name.
pub fn group(text: &str) -> Result<GroupRef> {
    match outside(text)? {
        Some(alias) => Ok(GroupRef::Alias(alias)),
        None => GroupRef::parse(text),
    }
}

fn outside(text: &str) -> Result<Option<Alias>> {
    let Some((word, name)) = text.split_once(':') else { return Ok(None) };
    let scopes = [Scope::Csi, Scope::Heketi, Scope::Docker, Scope::Flex, Scope::Pv];
    match scopes.into_iter().find(|scope| scope.as_str() == word) {
        Some(scope) => Ok(Some(Alias::new(scope, name)?)),
        None => Ok(None),
    }
}
