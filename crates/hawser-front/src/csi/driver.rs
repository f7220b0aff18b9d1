//! One driver: what all of its services share.

use std::sync::Arc;

use hawser_core::class::Ability;

use super::crowd::Crowd;
use super::exclusive::{Exclusive, Tasks};
use super::node::Staged;
use super::settings::{CsiParts, CsiSettings};

/// One driver at work.
pub(super) struct Driver {
    pub(super) parts: CsiParts,
    pub(super) settings: CsiSettings,
    pub(super) tasks: Tasks,
    /// Volumes that the node service is at work on.
    pub(super) busy: Exclusive,
    /// How many volumes each node has.
    pub(super) crowd: Crowd,
    /// What was learned when volumes were staged here.
    pub(super) staged: Staged,
}

impl Driver {
    /// A driver that does nothing yet.
    pub(super) fn new(parts: CsiParts, settings: CsiSettings) -> Arc<Self> {
        Arc::new(Self {
            parts,
            settings,
            tasks: Tasks::default(),
            busy: Exclusive::default(),
            crowd: Crowd::default(),
            staged: Staged::default(),
        })
    }

    /// True when at least one class can do this.
    pub(super) fn can(&self, ability: Ability) -> bool {
        self.parts.abilities.contains(&ability)
    }
}
