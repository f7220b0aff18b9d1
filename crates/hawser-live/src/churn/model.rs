//! What clients know: the facts that were acknowledged to them, and the one that is in doubt.

use std::collections::BTreeMap;

use hawser_core::id::{SnapshotId, VolumeId};
use hawser_core::snapshot::Snapshot;
use hawser_core::volume::Volume;

use super::content::Files;

/// The class of image files.
pub(super) const IMAGES: &str = "default";
/// The class of folders.
pub(super) const FOLDERS: &str = "folders";
/// The label that clients set and take away.
pub(super) const LABEL: &str = "turn";

/// How far a volume is brought to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Use {
    /// Not at all.
    None,
    /// The node has the right.
    Published,
    /// The node has the device.
    Attached,
    /// It is mounted on the folder of its name.
    Mounted,
}

/// A volume as its client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VolumeFact {
    /// Its id; `None` while its making is in doubt.
    pub(super) id: Option<VolumeId>,
    /// Where it lives.
    pub(super) class: String,
    /// How large it is; `None` when the source of a copy decides and may change meanwhile.
    pub(super) mib: Option<u64>,
    /// The value of [`LABEL`].
    pub(super) label: Option<String>,
    /// How far it is brought to the node.
    pub(super) used: Use,
    /// What is in it; `None` when it was copied from a volume that somebody else was writing.
    pub(super) files: Option<Files>,
}

impl VolumeFact {
    /// True when a volume that was found is this one.
    pub(super) fn is(&self, found: &Self) -> bool {
        self.id.as_ref().is_none_or(|id| Some(id) == found.id.as_ref())
            && self.class == found.class
            && self.mib.is_none_or(|mib| Some(mib) == found.mib)
            && self.label == found.label
            && self.used == found.used
    }
}

impl From<&Volume> for VolumeFact {
    /// What a record says; what is in the volume is not known from it.
    fn from(volume: &Volume) -> Self {
        let publication = volume.publications.first();
        let used = match publication {
            None => Use::None,
            Some(publication) if !publication.mounts.is_empty() => Use::Mounted,
            Some(publication) if publication.attached.is_some() => Use::Attached,
            Some(_) => Use::Published,
        };
        Self {
            id: Some(volume.id.clone()),
            class: volume.class.to_string(),
            mib: Some(volume.size.get() >> 20),
            label: volume.labels.get(LABEL).map(str::to_owned),
            used,
            files: None,
        }
    }
}

/// A snapshot as its client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SnapshotFact {
    /// Its id; `None` while its making is in doubt.
    pub(super) id: Option<SnapshotId>,
    /// The class it lives in.
    pub(super) class: String,
    /// How large the volume was.
    pub(super) mib: Option<u64>,
    /// What was in it.
    pub(super) files: Option<Files>,
}

impl SnapshotFact {
    /// True when a snapshot that was found is this one.
    pub(super) fn is(&self, found: &Self) -> bool {
        self.id.as_ref().is_none_or(|id| Some(id) == found.id.as_ref())
            && self.class == found.class
            && self.mib.is_none_or(|mib| Some(mib) == found.mib)
    }
}

impl From<&Snapshot> for SnapshotFact {
    fn from(snapshot: &Snapshot) -> Self {
        Self {
            id: Some(snapshot.id.clone()),
            class: snapshot.class.to_string(),
            mib: Some(snapshot.size.get() >> 20),
            files: None,
        }
    }
}

/// A change that was cut off: what is there if it was made after all. What is there if it was not is
/// in the facts.
#[derive(Clone, Debug)]
pub(super) enum Doubt {
    /// Of a volume.
    Volume(String, Option<VolumeFact>),
    /// Of a snapshot.
    Snapshot(String, Option<SnapshotFact>),
}

/// Everything one client knows.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Its volumes.
    pub(super) volumes: BTreeMap<String, VolumeFact>,
    /// Its snapshots.
    pub(super) snapshots: BTreeMap<String, SnapshotFact>,
    /// The change that was under way when the server died.
    pub(super) doubt: Option<Doubt>,
}

impl Facts {
    /// Takes a change as made.
    pub(super) fn settle(&mut self, change: Doubt) {
        match change {
            Doubt::Volume(name, Some(fact)) => drop(self.volumes.insert(name, fact)),
            Doubt::Volume(name, None) => drop(self.volumes.remove(&name)),
            Doubt::Snapshot(name, Some(fact)) => drop(self.snapshots.insert(name, fact)),
            Doubt::Snapshot(name, None) => drop(self.snapshots.remove(&name)),
        }
    }
}
