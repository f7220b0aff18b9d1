//! The whole life of volumes as a list of steps, and a model of what is there after each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use hawser_core::error::{Error, Kind, Result};
use hawser_core::group::{GroupRef, GroupRequest};
use hawser_core::id::OperationId;
use hawser_core::name::{Alias, Labels};
use hawser_core::operation::OperationState;
use hawser_core::page::PageRequest;
use hawser_core::port::Control;
use hawser_core::port::control::{OperationFilter, Reply, VolumeFilter};
use hawser_core::port::host::Tool;
use hawser_core::port::store::{Prefix, Revision};
use hawser_core::publication::{MountRequest, PublishRequest};
use hawser_core::size::ByteSize;
use hawser_core::snapshot::{SnapshotRef, SnapshotRequest};
use hawser_core::volume::{SourceRef, VolumeRef, VolumeRequest};

use crate::rig::{Life, Rig};

/// Long enough for anything on a fake host.
const WAIT: Duration = Duration::from_secs(60);

/// One thing that a caller does. Each may be repeated.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Makes a volume of a class, so many MiB large.
    Create(&'static str, &'static str, u64),
    /// Makes a volume from a snapshot, so many MiB large.
    Restore(&'static str, &'static str, u64),
    /// Makes a volume from another.
    Clone(&'static str, &'static str),
    /// Makes a volume larger.
    Expand(&'static str, u64),
    /// Labels a volume.
    Label(&'static str),
    /// Takes a snapshot of a volume.
    Snapshot(&'static str, &'static str),
    /// Takes a group of volumes.
    Group(&'static str, &'static [&'static str]),
    /// Publishes a volume.
    Publish(&'static str),
    /// Takes that back.
    Unpublish(&'static str),
    /// Attaches a volume.
    Attach(&'static str),
    /// Takes it away.
    Detach(&'static str),
    /// Mounts a volume on a folder of its name.
    Mount(&'static str),
    /// Mounts it on a second folder, read-only.
    MountAgain(&'static str),
    /// Unmounts all folders.
    Unmount(&'static str),
    /// Removes a snapshot.
    DeleteSnapshot(&'static str),
    /// Removes a group.
    DeleteGroup(&'static str),
    /// Removes a volume.
    Delete(&'static str),
    /// Begins to make a volume from another and cancels it half-way.
    CancelClone(&'static str, &'static str),
    /// Begins to take a snapshot of a volume and cancels it half-way.
    CancelSnapshot(&'static str, &'static str),
    /// Begins to take a group and cancels it half-way.
    CancelGroup(&'static str, &'static [&'static str]),
    /// Takes a group, which fails while it is cut.
    FailGroup(&'static str, &'static [&'static str]),
    /// Mounts a volume, which fails at the last step.
    FailMount(&'static str),
    /// Mounts it on a second folder, which fails at the last step.
    FailMountAgain(&'static str),
    /// Reads everything that can be read.
    Look,
}

/// The whole life of several volumes; nothing is left at its end.
pub const LIFE: &[Step] = &[
    Step::Create("data", "default", 64),
    Step::Mount("data"),
    Step::FailMountAgain("data"),
    Step::MountAgain("data"),
    Step::Snapshot("s1", "data"),
    Step::Clone("copy", "data"),
    Step::Restore("back", "s1", 96),
    Step::CancelClone("never", "data"),
    Step::CancelSnapshot("never", "data"),
    Step::FailMount("copy"),
    Step::Expand("data", 128),
    Step::Label("data"),
    Step::Publish("copy"),
    Step::Look,
    Step::Unpublish("copy"),
    Step::Attach("copy"),
    Step::Mount("back"),
    Step::Detach("copy"),
    Step::CancelGroup("never", &["data", "back"]),
    Step::FailGroup("never", &["data", "back"]),
    Step::Group("g", &["back", "copy", "data"]),
    Step::Create("plain", "folders", 10),
    Step::Mount("plain"),
    Step::Expand("plain", 20),
    Step::Unmount("plain"),
    // Nobody can hold a folder still that is in use.
    Step::Snapshot("s2", "plain"),
    Step::Restore("plain2", "s2", 20),
    Step::Look,
    Step::Unmount("back"),
    Step::Unmount("data"),
    Step::DeleteGroup("g"),
    Step::DeleteSnapshot("s1"),
    Step::Delete("data"),
    Step::DeleteSnapshot("s2"),
    Step::Delete("plain"),
    Step::Delete("plain2"),
    Step::Delete("copy"),
    Step::Delete("back"),
];

/// What is there, as a caller can see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// Volumes and their MiB.
    pub volumes: BTreeMap<String, u64>,
    /// Snapshots.
    pub snapshots: BTreeSet<String>,
    /// Groups.
    pub groups: BTreeSet<String>,
    /// Volumes that are published, and whether attached.
    pub published: BTreeMap<String, bool>,
    /// Folders that are mounted.
    pub mounts: BTreeSet<String>,
    /// Volumes that have the label.
    pub labelled: BTreeSet<String>,
}

impl Model {
    /// What is there after a step.
    pub fn apply(&mut self, step: Step) {
        match step {
            Step::Create(name, _, mib) | Step::Restore(name, _, mib) | Step::Expand(name, mib) => {
                self.volumes.insert(name.into(), mib);
            }
            Step::Clone(name, of) => {
                let mib = self.volumes.get(of).copied().unwrap_or_default();
                self.volumes.insert(name.into(), mib);
            }
            Step::Label(name) => {
                self.labelled.insert(name.into());
            }
            Step::Snapshot(name, _) => {
                self.snapshots.insert(name.into());
            }
            Step::Group(name, of) => {
                self.groups.insert(name.into());
                self.snapshots.extend(of.iter().map(|of| member(name, of)));
            }
            Step::Publish(name) => {
                self.published.insert(name.into(), false);
            }
            Step::Attach(name) => {
                self.published.insert(name.into(), true);
            }
            Step::Unpublish(name) | Step::Detach(name) => {
                self.published.remove(name);
            }
            Step::Mount(name) => {
                self.published.insert(name.into(), true);
                self.mounts.insert(name.into());
            }
            Step::MountAgain(name) => {
                self.mounts.insert(again(name));
            }
            Step::Unmount(name) => {
                self.published.remove(name);
                self.mounts.remove(name);
                self.mounts.remove(&again(name));
            }
            Step::DeleteSnapshot(name) => {
                self.snapshots.remove(name);
            }
            Step::DeleteGroup(name) => {
                self.groups.remove(name);
                self.snapshots.retain(|of| !of.starts_with(&member(name, "")));
            }
            Step::Delete(name) => {
                self.volumes.remove(name);
                self.labelled.remove(name);
            }
            Step::CancelClone(..)
            | Step::CancelSnapshot(..)
            | Step::CancelGroup(..)
            | Step::FailGroup(..)
            | Step::FailMount(_)
            | Step::FailMountAgain(_)
            | Step::Look => {}
        }
    }

    /// What is there after a step that is to fail, when a crash came first and nothing failed.
    pub fn apply_without_failure(&mut self, step: Step) {
        self.apply(step);
        if let Step::CancelClone(name, of) = step {
            self.apply(Step::Clone(name, of));
        }
        if let Step::CancelSnapshot(name, of) = step {
            self.apply(Step::Snapshot(name, of));
        }
        if let Step::CancelGroup(name, of) | Step::FailGroup(name, of) = step {
            self.apply(Step::Group(name, of));
        }
        if let Step::FailMount(name) = step {
            self.apply(Step::Mount(name));
        }
        if let Step::FailMountAgain(name) = step {
            self.apply(Step::MountAgain(name));
        }
    }

    /// What is there now.
    pub async fn read(control: &dyn Control) -> Result<Self> {
        let mut model = Self::default();
        let everything = PageRequest::largest();
        for volume in control.list_volumes(&VolumeFilter::default(), &everything).await?.items {
            let name = volume.display_name();
            model.volumes.insert(name.clone(), volume.size.get() >> 20);
            if volume.labels.get("tier").is_some() {
                model.labelled.insert(name.clone());
            }
            for publication in &volume.publications {
                model.published.insert(name.clone(), publication.attached.is_some());
                model.mounts.extend(publication.mounts.iter().map(|mount| {
                    mount.target.file_name().unwrap_or_default().to_string_lossy().into_owned()
                }));
            }
        }
        for snapshot in control.list_snapshots(None, &everything).await?.items {
            model.snapshots.insert(snapshot.alias.to_string());
            if let Some(id) = snapshot.group {
                let group = control.get_group(&GroupRef::Id(id)).await?;
                model.groups.insert(group.alias.to_string());
            }
        }
        Ok(model)
    }
}

fn again(name: &str) -> String {
    format!("{name}-again")
}

/// What the snapshot of a volume is called that was taken with a group.
fn member(group: &str, volume: &str) -> String {
    format!("{group}.{volume}")
}

fn alias(name: &str) -> Alias {
    Alias::native(name).expect("the steps use legal names")
}

fn volume(name: &str) -> VolumeRef {
    VolumeRef::Alias(alias(name))
}

fn snapshot(name: &str) -> SnapshotRef {
    SnapshotRef::Alias(alias(name))
}

fn group(name: &str) -> GroupRef {
    GroupRef::Alias(alias(name))
}

fn done<T>(reply: Reply<T>) -> Result<T> {
    match reply {
        Reply::Done(change) => Ok(change.into_inner()),
        Reply::Pending(operation) => {
            Err(Error::new(Kind::Timeout, format!("{operation:?} is still running")))
        }
    }
}

impl Step {
    /// Does it.
    pub async fn perform(self, rig: &Rig, life: &Life) -> Result<()> {
        let control = &*life.control;
        let node = &life.node;
        match self {
            Self::Create(name, class, mib) => {
                let mut request = VolumeRequest::new(alias(name), ByteSize::mib(mib));
                request.class = Some(class.parse()?);
                done(control.create_volume(request, WAIT).await?).map(drop)
            }
            Self::Restore(name, from, mib) => {
                let mut request = VolumeRequest::new(alias(name), ByteSize::mib(mib));
                request.source = Some(SourceRef::Snapshot(snapshot(from)));
                done(control.create_volume(request, WAIT).await?).map(drop)
            }
            Self::Clone(name, of) => {
                let mut request = VolumeRequest::new(alias(name), ByteSize::ZERO);
                request.size = None;
                request.source = Some(SourceRef::Volume(volume(of)));
                done(control.create_volume(request, WAIT).await?).map(drop)
            }
            Self::Expand(name, mib) => {
                done(control.expand_volume(&volume(name), ByteSize::mib(mib), WAIT).await?)
                    .map(drop)
            }
            Self::Label(name) => {
                let patch = BTreeMap::from([("tier".to_owned(), Some("gold".to_owned()))]);
                done(control.label_volume(&volume(name), patch, WAIT).await?).map(drop)
            }
            Self::Snapshot(name, of) => {
                let request = SnapshotRequest {
                    alias: alias(name),
                    volume: volume(of),
                    labels: Labels::default(),
                };
                done(control.create_snapshot(request, WAIT).await?).map(drop)
            }
            Self::Group(name, of) => {
                let volumes = of.iter().map(|name| volume(name)).collect();
                let (alias, labels) = (alias(name), Labels::default());
                let request = GroupRequest { alias, volumes, labels };
                done(control.create_group(request, WAIT).await?).map(drop)
            }
            Self::Publish(name) => {
                let request = PublishRequest::new(node.clone(), false);
                done(control.publish(&volume(name), request, WAIT).await?).map(drop)
            }
            Self::Unpublish(name) => done(control.unpublish(&volume(name), node, WAIT).await?),
            Self::Attach(name) => {
                let request = PublishRequest::new(node.clone(), false);
                done(control.attach(&volume(name), request, WAIT).await?).map(drop)
            }
            Self::Detach(name) => done(control.detach(&volume(name), node, WAIT).await?),
            Self::Mount(name) => mount(life, name, rig.path(&format!("mnt/{name}")), false).await,
            Self::MountAgain(name) => {
                mount(life, name, rig.path(&format!("mnt/{}", again(name))), true).await
            }
            Self::Unmount(name) => done(control.unmount(&volume(name), node, None, WAIT).await?),
            Self::DeleteSnapshot(name) => {
                done(control.delete_snapshot(&snapshot(name), WAIT).await?)
            }
            Self::DeleteGroup(name) => done(control.delete_group(&group(name), WAIT).await?),
            Self::Delete(name) => done(control.delete_volume(&volume(name), WAIT).await?),
            Self::CancelClone(name, of) => {
                Self::Delete(name).perform_again(rig, life).await?;
                cancelled(rig, life, name, Self::Clone(name, of)).await
            }
            Self::CancelSnapshot(name, of) => {
                Self::DeleteSnapshot(name).perform_again(rig, life).await?;
                cancelled(rig, life, name, Self::Snapshot(name, of)).await
            }
            Self::CancelGroup(name, of) => {
                Self::DeleteGroup(name).perform_again(rig, life).await?;
                cancelled(rig, life, name, Self::Group(name, of)).await
            }
            Self::FailGroup(name, of) => {
                Self::DeleteGroup(name).perform_again(rig, life).await?;
                rig.host.fail_next("copy_file", Error::new(Kind::Precondition, "not today"));
                let refused = Self::Group(name, of).perform_again(rig, life).await;
                assert_eq!(refused.err().map(|error| error.kind()), Some(Kind::Precondition));
                assert!(rig.host.snapshot().frozen.is_empty(), "{name}: left frozen");
                Ok(())
            }
            Self::FailMount(name) => {
                Self::Unmount(name).perform_again(rig, life).await?;
                failing_mount(rig, life, Self::Mount(name)).await
            }
            Self::FailMountAgain(name) => {
                let target = Some(rig.path(&format!("mnt/{}", again(name))));
                done(control.unmount(&volume(name), node, target, WAIT).await?)?;
                failing_mount(rig, life, Self::MountAgain(name)).await
            }
            Self::Look => look(rig, life).await,
        }
    }

    /// A step within a step.
    async fn perform_again(self, rig: &Rig, life: &Life) -> Result<()> {
        Box::pin(self.perform(rig, life)).await
    }
}

/// A mount that the host refuses.
async fn failing_mount(rig: &Rig, life: &Life, step: Step) -> Result<()> {
    rig.host.fail_next("mount", Error::new(Kind::Precondition, "not today"));
    let refused = step.perform_again(rig, life).await;
    assert_eq!(refused.err().map(|error| error.kind()), Some(Kind::Precondition));
    Ok(())
}

/// Begins a step that copies, and cancels it in the middle of that.
async fn cancelled(rig: &Rig, life: &Life, name: &str, step: Step) -> Result<()> {
    rig.host.forget_calls();
    rig.host.hang_always("copy_file");
    let cancel = async {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        while !rig.host.calls().iter().any(|call| call.method == "copy_file") {
            assert!(tokio::time::Instant::now() < deadline, "{name}: no copy was begun");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let all = PageRequest::largest();
        let open = life.control.list_operations(&OperationFilter::default(), &all).await?;
        let open = open.items.into_iter().find(|operation| !operation.state.is_final());
        let Some(open) = open else {
            let message = format!("nothing runs that could be cancelled for {name}");
            return Err(Error::new(Kind::Internal, message));
        };
        life.control.cancel_operation(&open.id).await
    };
    let (answer, cancelled) = tokio::join!(step.perform_again(rig, life), cancel);
    rig.host.heal();
    assert_eq!(cancelled?.state, OperationState::Failed);
    assert_eq!(answer.err().map(|error| error.kind()), Some(Kind::Precondition));
    assert!(rig.host.snapshot().frozen.is_empty(), "{name}: left frozen");
    Ok(())
}

async fn mount(life: &Life, name: &str, target: PathBuf, read_only: bool) -> Result<()> {
    let node = life.node.clone();
    let request = MountRequest { node, target, read_only, flags: Vec::new() };
    done(life.control.mount(&volume(name), request, WAIT).await?).map(drop)
}

/// Reads everything that can be read, and calls what no change calls.
async fn look(rig: &Rig, life: &Life) -> Result<()> {
    let control = &*life.control;
    let largest = PageRequest::largest();
    for found in control.list_volumes(&VolumeFilter::default(), &largest).await?.items {
        let by_id = VolumeRef::Id(found.id.clone());
        control.get_volume(&by_id).await?;
        let health = control.volume_health(&by_id).await?;
        assert!(health.healthy, "{}: {}", found.display_name(), health.message);
    }
    for found in control.list_snapshots(None, &largest).await?.items {
        control.get_snapshot(&SnapshotRef::Id(found.id)).await?;
        if let Some(group) = found.group {
            control.get_group(&GroupRef::Id(group)).await?;
        }
    }
    for operation in control.list_operations(&OperationFilter::default(), &largest).await?.items {
        control.get_operation(&operation.id, Duration::ZERO).await?;
    }
    let missing = control.cancel_operation(&OperationId::generate()).await;
    assert_eq!(missing.err().map(|error| error.kind()), Some(Kind::NotFound));
    for class in control.list_classes().await? {
        control.capacity(&class.name, None).await?;
    }
    assert_eq!(control.list_nodes().await?.len(), 1);
    drop(control.events(None).await?);
    assert!(control.ready().await?);
    assert_eq!(control.doctor(false).await?, []);
    drop(life.store.watch(&Prefix::all(), Revision::default()).await?);
    rig.host.on_tool("true", |tool| {
        Ok(hawser_core::port::host::ToolOutput {
            program: tool.program.clone(),
            code: Some(0),
            stdout: String::new(),
            stderr: String::new(),
        })
    });
    life.host.run(&Tool::new("true")).await?;
    Ok(())
}
