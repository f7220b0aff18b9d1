//! Pools that are known to be on one node.

use std::collections::BTreeMap;

use async_trait::async_trait;
use hawser_core::Result;
use hawser_core::class::Capacity;
use hawser_core::name::NodeId;
use hawser_core::place::Place;
use hawser_core::port::provider::{HasCapacity, Placement, Provision};

use super::LocalPool;
use super::error::LocalError;
use super::provider::rounded;
use crate::reach::{is_at, listed};

#[async_trait]
impl Placement for LocalPool {
    async fn place(&self, wanted: &Provision, places: &[Place]) -> Result<Place> {
        let here = self.here()?;
        if !places.is_empty() && !places.iter().any(|place| reaches(here, place)) {
            let wanted = listed(places);
            return Err(LocalError::Elsewhere {
                path: self.path(),
                here: here.to_string(),
                wanted,
            }
            .into());
        }
        let size = rounded(wanted.size)?;
        let room = self.capacity().await?;
        if room.largest_volume < size {
            let Capacity { available, promised, total, .. } = room;
            let path = self.path();
            return Err(LocalError::Full { path, wanted: size, available, promised, total }.into());
        }
        Ok(Place::node(here))
    }

    async fn capacity_at(&self, place: &Place) -> Result<Capacity> {
        if reaches(self.here()?, place) { self.capacity().await } else { Ok(Capacity::NONE) }
    }
}

impl LocalPool {
    fn path(&self) -> std::path::PathBuf {
        self.pool.root.path().to_owned()
    }

    /// Asked of pools with a node only: others have no placement.
    fn here(&self) -> Result<&NodeId, LocalError> {
        self.node.as_ref().ok_or_else(|| LocalError::Unplaced { path: self.path() })
    }

    /// Refuses to act on what is recorded to be on another node: here it would look as if it were
    /// gone.
    pub(super) fn check_place(&self, place: Option<&Place>) -> Result<(), LocalError> {
        match (&self.node, place) {
            (Some(here), Some(place)) if !reaches(here, place) => {
                let (here, there) = (here.to_string(), place.to_string());
                Err(LocalError::OtherPlace { path: self.path(), here, there })
            }
            (Some(_) | None, Some(_) | None) => Ok(()),
        }
    }

    /// True when what is asked for is here: a pool that does not know its node is at no place.
    pub(super) fn is_at(&self, place: Option<&Place>) -> bool {
        match (&self.node, place) {
            (Some(_) | None, None) => true,
            (Some(here), Some(place)) => reaches(here, place),
            (None, Some(_)) => false,
        }
    }

    /// Refuses to hand a volume to another node, which could never find it.
    pub(super) fn check_user(&self, user: &NodeId) -> Result<(), LocalError> {
        match &self.node {
            Some(here) if here != user => {
                let (here, user) = (here.to_string(), user.to_string());
                Err(LocalError::OtherUser { path: self.path(), here, user })
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// What a machine says of where it is stands in its node's record, which a pool does not see: a place
/// without a node in it is somewhere else.
fn reaches(here: &NodeId, place: &Place) -> bool {
    is_at(place, here, &BTreeMap::new())
}
