//! One change that a client asks for, as data: so that it can be sent twice, dropped and repeated.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use hawser_core::error::Result;
use hawser_core::name::{Alias, Labels, NodeId};
use hawser_core::port::Control;
use hawser_core::port::control::Reply;
use hawser_core::publication::{MountRequest, PublishRequest};
use hawser_core::snapshot::{Snapshot, SnapshotRef, SnapshotRequest};
use hawser_core::volume::{Volume, VolumeRef, VolumeRequest};
use hawser_core::{ByteSize, Change};

/// Longer than any change of a small volume takes.
const WAIT: Duration = Duration::from_secs(60);

/// The node of the tests.
pub(super) const NODE: &str = "here";

/// A native name; tests use legal ones.
pub(super) fn alias(name: &str) -> Alias {
    Alias::native(name).expect("a legal name")
}

/// A volume by name.
pub(super) fn volume(name: &str) -> VolumeRef {
    VolumeRef::Alias(alias(name))
}

/// A snapshot by name.
pub(super) fn snapshot(name: &str) -> SnapshotRef {
    SnapshotRef::Alias(alias(name))
}

/// The node of the tests.
pub(super) fn node() -> NodeId {
    NODE.parse().expect("a legal node id")
}

/// A change; names are those of volumes.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// Makes a volume, from nothing or as a copy.
    Create(VolumeRequest),
    /// Removes it.
    Delete(String),
    /// Makes it so many MiB large.
    Expand(String, u64),
    /// Sets or removes one label.
    Label(String, &'static str, Option<String>),
    /// Takes a snapshot, named first, of a volume.
    Snapshot(String, String),
    /// Removes a snapshot.
    DeleteSnapshot(String),
    /// Gives the node the right.
    Publish(String),
    /// Takes it back.
    Unpublish(String),
    /// Brings the device.
    Attach(String),
    /// Takes it away.
    Detach(String),
    /// Mounts it on a folder.
    Mount(String, PathBuf),
    /// Unmounts all folders.
    Unmount(String),
}

/// What a change answered.
#[derive(Clone, Debug)]
pub(super) enum Answered {
    /// The volume as it is now.
    Volume(Box<Volume>),
    /// The snapshot.
    Snapshot(Box<Snapshot>),
    /// Only that it is done.
    Done,
}

impl Action {
    /// A short word, for counts.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Create(request) => match request.source {
                None => "create",
                Some(hawser_core::volume::SourceRef::Snapshot(_)) => "restore",
                Some(hawser_core::volume::SourceRef::Volume(_)) => "clone",
            },
            Self::Delete(_) => "delete",
            Self::Expand(..) => "expand",
            Self::Label(..) => "label",
            Self::Snapshot(..) => "snapshot",
            Self::DeleteSnapshot(_) => "delete snapshot",
            Self::Publish(_) => "publish",
            Self::Unpublish(_) => "unpublish",
            Self::Attach(_) => "attach",
            Self::Detach(_) => "detach",
            Self::Mount(..) => "mount",
            Self::Unmount(_) => "unmount",
        }
    }

    /// Every word of [`Action::word`].
    pub(super) const WORDS: [&'static str; 14] = [
        "create",
        "restore",
        "clone",
        "delete",
        "expand",
        "label",
        "snapshot",
        "delete snapshot",
        "publish",
        "unpublish",
        "attach",
        "detach",
        "mount",
        "unmount",
    ];

    /// Asks for it and waits for the end.
    pub(super) async fn send(&self, control: &dyn Control) -> Result<Answered> {
        let publish = || PublishRequest::new(node(), false);
        match self {
            Self::Create(request) => {
                made(control.create_volume(request.clone(), WAIT).await?, Self::volume)
            }
            Self::Delete(name) => made(control.delete_volume(&volume(name), WAIT).await?, done),
            Self::Expand(name, mib) => {
                let size = ByteSize::mib(*mib);
                made(control.expand_volume(&volume(name), size, WAIT).await?, Self::volume)
            }
            Self::Label(name, key, value) => {
                let patch = BTreeMap::from([((*key).to_owned(), value.clone())]);
                made(control.label_volume(&volume(name), patch, WAIT).await?, Self::volume)
            }
            Self::Snapshot(name, of) => {
                let labels = Labels::default();
                let request = SnapshotRequest { alias: alias(name), volume: volume(of), labels };
                let taken = control.create_snapshot(request, WAIT).await?;
                made(taken, |snapshot| Answered::Snapshot(Box::new(snapshot)))
            }
            Self::DeleteSnapshot(name) => {
                made(control.delete_snapshot(&snapshot(name), WAIT).await?, done)
            }
            Self::Publish(name) => {
                made(control.publish(&volume(name), publish(), WAIT).await?, |_| Answered::Done)
            }
            Self::Unpublish(name) => {
                made(control.unpublish(&volume(name), &node(), WAIT).await?, done)
            }
            Self::Attach(name) => {
                made(control.attach(&volume(name), publish(), WAIT).await?, |_| Answered::Done)
            }
            Self::Detach(name) => made(control.detach(&volume(name), &node(), WAIT).await?, done),
            Self::Mount(name, target) => {
                let target = target.clone();
                let request =
                    MountRequest { node: node(), target, read_only: false, flags: Vec::new() };
                made(control.mount(&volume(name), request, WAIT).await?, |_| Answered::Done)
            }
            Self::Unmount(name) => {
                made(control.unmount(&volume(name), &node(), None, WAIT).await?, done)
            }
        }
    }

    fn volume(volume: Volume) -> Answered {
        Answered::Volume(Box::new(volume))
    }
}

fn done((): ()) -> Answered {
    Answered::Done
}

fn made<T>(reply: Reply<T>, turn: impl FnOnce(T) -> Answered) -> Result<Answered> {
    match reply {
        Reply::Done(Change::Made(value) | Change::Already(value)) => Ok(turn(value)),
        Reply::Pending(operation) => panic!("not done after {WAIT:?}: {operation:?}"),
    }
}
