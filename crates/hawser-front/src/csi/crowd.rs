//! How many volumes each node has.
//!
//! Counted once from the records and then kept, because every publish asks. A node that seems full is
//! counted again before it is told so: others may have released volumes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hawser_core::Result;
use hawser_core::id::VolumeId;
use hawser_core::name::NodeId;
use hawser_core::page::PageRequest;
use hawser_core::port::Control;
use hawser_core::port::control::VolumeFilter;

use super::error::CsiError;

type Volumes = BTreeMap<NodeId, BTreeSet<VolumeId>>;

/// How many volumes each node has.
#[derive(Debug, Default)]
pub(super) struct Crowd(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// As the records have it; `None` until it was counted.
    counted: Option<Volumes>,
    /// Publishing now.
    underway: Volumes,
}

impl State {
    fn has(&self, node: &NodeId, volume: &VolumeId) -> bool {
        let of = |all: &Volumes| all.get(node).is_some_and(|there| there.contains(volume));
        self.counted.as_ref().is_some_and(of) || of(&self.underway)
    }

    fn count(&self, node: &NodeId) -> usize {
        let empty = BTreeSet::new();
        let of = |all: Option<&Volumes>| all.and_then(|all| all.get(node)).cloned();
        let counted = of(self.counted.as_ref()).unwrap_or_default();
        counted.union(self.underway.get(node).unwrap_or(&empty)).count()
    }
}

/// The place of a volume on a node while it is being published; given up unless it is kept.
pub(super) struct Seat<'a> {
    crowd: &'a Crowd,
    node: NodeId,
    volume: VolumeId,
}

impl Crowd {
    /// Takes a place for a volume on a node. `Kind::NoSpace` when the node is full.
    pub(super) async fn enter(
        &self,
        control: &dyn Control,
        node: &NodeId,
        volume: &VolumeId,
        most: u32,
    ) -> Result<Seat<'_>> {
        if let Some(seat) = self.sit(node, volume, most) {
            return Ok(seat);
        }
        let counted = count(control).await?;
        self.state().counted = Some(counted);
        self.sit(node, volume, most).ok_or_else(|| {
            let there = self.state().count(node);
            CsiError::NodeFull { node: node.clone(), there, most }.into()
        })
    }

    fn sit(&self, node: &NodeId, volume: &VolumeId, most: u32) -> Option<Seat<'_>> {
        let mut state = self.state();
        let room = most == 0
            || state.has(node, volume)
            || (state.counted.is_some() && state.count(node) < most as usize);
        if !room {
            return None;
        }
        state.underway.entry(node.clone()).or_default().insert(volume.clone());
        Some(Seat { crowd: self, node: node.clone(), volume: volume.clone() })
    }

    /// A volume was taken from a node.
    pub(super) fn leave(&self, node: &NodeId, volume: &VolumeId) {
        let mut state = self.state();
        if let Some(there) = state.counted.as_mut().and_then(|all| all.get_mut(node)) {
            there.remove(volume);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat<'_> {
    /// The volume is published, or nobody can say that it is not.
    pub(super) fn keep(self) {
        let mut state = self.crowd.state();
        if let Some(counted) = &mut state.counted {
            counted.entry(self.node.clone()).or_default().insert(self.volume.clone());
        }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut state = self.crowd.state();
        if let Some(there) = state.underway.get_mut(&self.node) {
            there.remove(&self.volume);
        }
    }
}

async fn count(control: &dyn Control) -> Result<Volumes> {
    let mut counted = Volumes::new();
    let mut page = PageRequest::largest();
    loop {
        let found = control.list_volumes(&VolumeFilter::default(), &page).await?;
        for volume in found.items {
            for publication in volume.publications {
                counted.entry(publication.node).or_default().insert(volume.id.clone());
            }
        }
        match found.next {
            Some(next) => page.token = Some(next),
            None => return Ok(counted),
        }
    }
}
