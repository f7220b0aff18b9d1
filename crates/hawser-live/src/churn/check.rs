//! What must be true after a crash: nothing acknowledged is lost, nothing is half-made, nothing
//! leaks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use hawser_core::attach::Attached;
use hawser_core::doctor::{Finding, FindingCode};
use hawser_core::page::PageRequest;
use hawser_core::port::Control;
use hawser_core::port::control::{OperationFilter, VolumeFilter};
use hawser_core::publication::PublicationState;
use hawser_core::snapshot::{Snapshot, SnapshotState};
use hawser_core::volume::{Volume, VolumeState};

use super::client::{Client, Shared, verify};
use super::model::{Doubt, FOLDERS, IMAGES, SnapshotFact, Use, VolumeFact};
use crate::process::Ground;
use crate::traces;

/// Work that was cut off ends within this after a start.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);

/// How many changes in doubt were found made, and how many not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doubts {
    /// They are there.
    pub(super) made: u64,
    /// They are not.
    pub(super) undone: u64,
}

/// Everything that is recorded.
pub(super) struct Records {
    /// Volumes.
    pub(super) volumes: Vec<Volume>,
    /// Snapshots.
    pub(super) snapshots: Vec<Snapshot>,
}

/// Waits until nothing runs any more, and answers what there is.
pub(super) async fn settle(control: &dyn Control) -> Records {
    let everything = PageRequest::largest();
    let begun = Instant::now();
    loop {
        let some = PageRequest { limit: 100, token: None };
        let operations = control.list_operations(&OperationFilter::default(), &some).await;
        let operations = operations.expect("operations can be listed").items;
        let open = operations.into_iter().find(|operation| !operation.state.is_final());
        let volumes = control.list_volumes(&VolumeFilter::default(), &everything).await;
        let volumes = volumes.expect("volumes can be listed").items;
        let held = volumes.iter().find(|volume| volume.operation.is_some());
        if open.is_none() && held.is_none() {
            let snapshots = control.list_snapshots(None, &everything).await;
            let snapshots = snapshots.expect("snapshots can be listed").items;
            return Records { volumes, snapshots };
        }
        assert!(begun.elapsed() < SETTLE_LIMIT, "not settled: {open:#?}, held {held:#?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Checks everything, and tells the clients how their doubts ended.
pub(super) async fn check(ground: &Ground, shared: &Shared, clients: &mut [Client]) -> Doubts {
    let records = settle(&shared.control).await;
    assert_finished(&records);
    let doubts = compare(&records, clients);
    assert_host(ground, &records).await;
    for (name, fact) in clients.iter().flat_map(|client| &client.facts.volumes) {
        if fact.used == Use::Mounted {
            verify(ground.mounts().join(name), fact).await;
        }
    }
    let mut findings = shared.control.doctor(false).await.expect("the doctor looks");
    findings.retain(|finding| is_ours(finding, ground, &records));
    assert_eq!(findings, [], "the doctor found something");
    doubts
}

/// False for what the doctor finds on the host and another instance is at work on: the registry is
/// one for all of them. What is ours there is compared with the records by `assert_host`, too.
fn is_ours(finding: &Finding, ground: &Ground, records: &Records) -> bool {
    match finding.code {
        FindingCode::LoopWithoutRecord
        | FindingCode::RecordWithoutDevice
        | FindingCode::MountWithoutRecord
        | FindingCode::RecordWithoutMount
        | FindingCode::IdentityMismatch
        | FindingCode::AttachmentWithoutVolume
        | FindingCode::HalfMadeAttachment
        | FindingCode::LeftFrozen => {
            let text = format!("{} {}", finding.subject, finding.explanation);
            let volumes = records.volumes.iter();
            text.contains(&ground.path().display().to_string())
                || volumes.clone().any(|volume| text.contains(volume.id.as_str()))
                || volumes
                    .flat_map(|volume| &volume.publications)
                    .any(|publication| text.contains(publication.id.as_str()))
        }
        FindingCode::VolumeWithoutAttachment
        | FindingCode::StorageWithoutRecord
        | FindingCode::RecordWithoutStorage
        | FindingCode::StagingLeftover
        | FindingCode::NameWithoutObject
        | FindingCode::ObjectWithoutName
        | FindingCode::StuckOperation
        | FindingCode::BrokenGroup
        | FindingCode::UnreadableRecord => true,
    }
}

/// Nothing is half-made by its own account.
fn assert_finished(records: &Records) {
    for volume in &records.volumes {
        assert_eq!(volume.state, VolumeState::Ready, "{volume:#?}");
        for publication in &volume.publications {
            assert_eq!(publication.state, PublicationState::Published, "{volume:#?}");
            assert!(publication.info.is_some(), "{volume:#?}");
            assert!(publication.mounts.iter().all(|mount| mount.ready), "{volume:#?}");
            let mounted = !publication.mounts.is_empty();
            assert!(!mounted || publication.attached.is_some(), "{volume:#?}");
        }
    }
    for snapshot in &records.snapshots {
        assert_eq!(snapshot.state, SnapshotState::Ready, "{snapshot:#?}");
    }
}

/// Everything acknowledged is there, and nothing that nobody asked for.
fn compare(records: &Records, clients: &mut [Client]) -> Doubts {
    let mut volumes: BTreeMap<String, VolumeFact> =
        records.volumes.iter().map(|found| (found.display_name(), found.into())).collect();
    assert_eq!(volumes.len(), records.volumes.len(), "two volumes have one name");
    let mut snapshots: BTreeMap<String, SnapshotFact> =
        records.snapshots.iter().map(|found| (found.alias.to_string(), found.into())).collect();
    assert_eq!(snapshots.len(), records.snapshots.len(), "two snapshots have one name");
    let mut doubts = Doubts::default();
    for client in clients.iter_mut() {
        let doubt = client.facts.doubt.take();
        if let Some(doubt) = doubt {
            resolve(client, doubt, &volumes, &snapshots, &mut doubts);
        }
        for (name, fact) in &client.facts.volumes {
            let found = volumes.remove(name);
            let right = found.as_ref().is_some_and(|found| fact.is(found));
            assert!(right, "volume {name} was acknowledged as {fact:?}, found {found:?}");
        }
        for (name, fact) in &client.facts.snapshots {
            let found = snapshots.remove(name);
            let right = found.as_ref().is_some_and(|found| fact.is(found));
            assert!(right, "snapshot {name} was acknowledged as {fact:?}, found {found:?}");
        }
    }
    assert!(volumes.is_empty(), "nobody has these volumes: {volumes:#?}");
    assert!(snapshots.is_empty(), "nobody has these snapshots: {snapshots:#?}");
    doubts
}

/// Finds out whether a change that was cut off was made. If it was not, the comparison of the facts
/// finds whatever is between.
fn resolve(
    client: &mut Client,
    doubt: Doubt,
    volumes: &BTreeMap<String, VolumeFact>,
    snapshots: &BTreeMap<String, SnapshotFact>,
    doubts: &mut Doubts,
) {
    let facts = &mut client.facts;
    let made = match doubt {
        Doubt::Volume(name, Some(after)) => {
            // A change that leaves the facts as they are counts as made; its content may differ.
            let found = volumes.get(&name).filter(|found| after.is(found)).cloned();
            found.map(|found| {
                let (id, mib) = (found.id, found.mib);
                Doubt::Volume(name, Some(VolumeFact { id, mib, ..after }))
            })
        }
        Doubt::Volume(name, None) => {
            (!volumes.contains_key(&name)).then_some(Doubt::Volume(name, None))
        }
        Doubt::Snapshot(name, Some(after)) => {
            let found = snapshots.get(&name).filter(|found| after.is(found)).cloned();
            found.map(|found| Doubt::Snapshot(name, Some(SnapshotFact { id: found.id, ..after })))
        }
        Doubt::Snapshot(name, None) => {
            (!snapshots.contains_key(&name)).then_some(Doubt::Snapshot(name, None))
        }
    };
    match made {
        Some(change) => {
            doubts.made += 1;
            facts.settle(change);
        }
        None => doubts.undone += 1,
    }
}

/// Loop devices, mounts, registry and pools hold exactly what the records say.
async fn assert_host(ground: &Ground, records: &Records) {
    let pool = ground.state().join("pool");
    let (mut loops, mut mounts, mut attached) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
    for volume in &records.volumes {
        for publication in &volume.publications {
            let Some(what) = &publication.attached else { continue };
            attached.insert(publication.id.to_string());
            if let Attached::Block { device, .. } = what {
                let image = pool.join("volumes").join(format!("{}.img", volume.id));
                loops.insert(device.clone(), image);
            }
            mounts.extend(publication.mounts.iter().map(|mount| mount.target.clone()));
        }
    }
    let found = traces::of(ground.path());
    assert_eq!(found.loops, loops, "loop devices (left) and attachments (right)");
    let targets: Vec<_> = found.mounts.iter().map(|(target, _)| target.clone()).collect();
    assert_eq!(targets, Vec::from_iter(mounts), "mounts (left) and records (right)");
    assert_eq!(found.records, attached, "attachment files (left) and publications (right)");
    let folders: Vec<_> =
        names(&ground.mounts()).into_iter().map(|name| ground.mounts().join(name)).collect();
    assert_eq!(folders, targets, "folders (left) and mounts (right)");
    for (class, folder, ending) in [(IMAGES, "pool", ".img"), (FOLDERS, "pool-folders", "")] {
        assert_pool(&ground.state().join(folder), class, ending, records).await;
    }
}

async fn assert_pool(pool: &Path, class: &str, ending: &str, records: &Records) {
    let volumes = records.volumes.iter().filter(|volume| volume.class.as_str() == class);
    let volumes: BTreeSet<_> = volumes.map(|volume| format!("{}{ending}", volume.id)).collect();
    assert_eq!(names(&pool.join("volumes")), volumes, "files (left) and volumes (right)");
    let snapshots = records.snapshots.iter().filter(|snapshot| snapshot.class.as_str() == class);
    let snapshots: BTreeSet<_> = snapshots.map(|found| format!("{}{ending}", found.id)).collect();
    assert_eq!(names(&pool.join("snapshots")), snapshots, "files (left) and snapshots (right)");
    // What was cut off is emptied in the background.
    let begun = Instant::now();
    loop {
        let left = names(&pool.join("staging"));
        if left.is_empty() {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "left in staging: {left:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The names in a folder.
pub(super) fn names(folder: &Path) -> BTreeSet<String> {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
