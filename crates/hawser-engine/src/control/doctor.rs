//! The doctor: compares records with each other, with the storage and with the nodes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use hawser_core::Timestamp;
use hawser_core::attach::Detach;
use hawser_core::doctor::{Finding, FindingCode, Repair};
use hawser_core::error::Result;
use hawser_core::name::{ClassName, NodeId};
use hawser_core::port::Node;
use hawser_core::port::provider::Held;
use hawser_core::port::store::Prefix;
use hawser_core::snapshot::Snapshot;
use hawser_core::volume::{Volume, VolumeState};

use super::group;
use super::record::{
    GroupHead, GroupRecord, Journal, NameRecord, SnapshotRecord, VolumeRecord, name_key,
};
use super::restore::{There, bring_back, is_used};
use super::world::{ClassEntry, Subject, World};

/// An operation that has run or waited for longer than this deserves a look.
const STUCK_AFTER: Duration = Duration::from_secs(600);

/// Looks everywhere; with `fix` repairs what is provably safe.
pub(crate) async fn examine(world: &Arc<World>, fix: bool) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let known = Known::read(world, &mut findings).await?;
    names(world, &known, fix, &mut findings).await?;
    let snapshots: Vec<_> = known.snapshots_at_rest().collect();
    let groups: Vec<_> = known.groups_at_rest().collect();
    findings.extend(group::examine(world, &groups, &snapshots).await?);
    storage(world, &known, fix, &mut findings).await?;
    for id in world.nodes.ids().await? {
        if let Ok(node) = world.nodes.get(&id).await {
            // First: what the node forgets here is brought back there if a record wants it.
            findings.extend(node.survey(fix).await?);
            attachments(world, &known, &id, &*node, fix, &mut findings).await?;
        }
    }
    Ok(findings)
}

/// All records, as they were when the doctor began. What an operation holds is left out of every
/// comparison: it is allowed to be half-way.
struct Known {
    volumes: HashMap<String, VolumeRecord>,
    snapshots: HashMap<String, SnapshotRecord>,
    groups: HashMap<String, GroupRecord>,
}

impl Known {
    async fn read(world: &World, findings: &mut Vec<Finding>) -> Result<Self> {
        let mut volumes = HashMap::new();
        let mut snapshots = HashMap::new();
        let mut groups = HashMap::new();
        let mut unreadable = world
            .records
            .each::<VolumeRecord>(&VolumeRecord::prefix(), |record, _| {
                volumes.insert(record.volume.id.to_string(), record);
            })
            .await?;
        unreadable.extend(
            world
                .records
                .each::<SnapshotRecord>(&SnapshotRecord::prefix(), |record, _| {
                    snapshots.insert(record.snapshot.id.to_string(), record);
                })
                .await?,
        );
        // After the snapshots: the record of a group is there before those of its snapshots.
        unreadable.extend(
            world
                .records
                .each::<GroupRecord>(&GroupRecord::prefix(), |record, _| {
                    groups.insert(record.group.id.to_string(), record);
                })
                .await?,
        );
        findings.extend(unreadable.into_iter().map(|(key, why)| {
            let explanation = format!("the record cannot be read: {why}");
            let advice = "export the store, mend the line, import it into a new one";
            finding(FindingCode::UnreadableRecord, key.to_string(), explanation, advice, false)
        }));
        let of_volumes = volumes.values().filter_map(|record| {
            record.journal.as_ref().map(|j| (Subject::volume(&record.volume), j))
        });
        let of_groups = groups.values().filter_map(|record| {
            record.journal.as_ref().map(|j| (group::subject(&record.group), j))
        });
        findings
            .extend(of_volumes.chain(of_groups).filter_map(|(of, journal)| stuck(&of, journal)));
        Ok(Self { volumes, snapshots, groups })
    }

    fn at_rest(&self) -> impl Iterator<Item = &Volume> {
        self.volumes.values().filter(|record| record.journal.is_none()).map(|record| &record.volume)
    }

    fn snapshots_at_rest(&self) -> impl Iterator<Item = &Snapshot> {
        self.snapshots
            .values()
            .filter(|record| {
                let of_volume = self.volumes.get(record.snapshot.volume.as_str());
                let of_group =
                    record.snapshot.group.as_ref().and_then(|id| self.groups.get(id.as_str()));
                record.journal.is_none()
                    && of_volume.is_none_or(|volume| volume.journal.is_none())
                    && of_group.is_none_or(|group| group.journal.is_none())
            })
            .map(|record| &record.snapshot)
    }

    fn groups_at_rest(&self) -> impl Iterator<Item = &GroupHead> {
        self.groups.values().filter(|record| record.journal.is_none()).map(|record| &record.group)
    }
}

/// An operation that deserves a look.
fn stuck(of: &Subject, journal: &Journal) -> Option<Finding> {
    let age = Timestamp::now().duration_since(journal.started);
    if Duration::try_from(age).unwrap_or_default() <= STUCK_AFTER {
        return None;
    }
    let (id, kind) = (&journal.id, journal.work.kind());
    let explanation = format!(
        "operation {id} ({kind}) on {} began at {} and is not through",
        of.name, journal.started
    );
    let advice = "see its error with: hawser operation show";
    Some(finding(FindingCode::StuckOperation, id.to_string(), explanation, advice, false))
}

pub(crate) fn finding(
    code: FindingCode,
    subject: String,
    explanation: impl Into<String>,
    advice: &str,
    fixable: bool,
) -> Finding {
    Finding {
        code,
        subject,
        explanation: explanation.into(),
        advice: advice.into(),
        fixable,
        repair: None,
    }
}

fn repaired(result: Result<()>) -> Option<Repair> {
    Some(match result {
        Ok(()) => Repair::Done,
        Err(error) => Repair::Failed(error.sentence()),
    })
}

/// Names that lead to nothing, and objects that their names do not lead to.
async fn names(world: &World, known: &Known, fix: bool, findings: &mut Vec<Finding>) -> Result<()> {
    for of in ["volume", "snapshot", "group"] {
        let mut dead = Vec::new();
        world
            .records
            .each::<NameRecord>(&Prefix::below(&["name", of]), |record, revision| {
                let there = known.volumes.contains_key(&record.id)
                    || known.snapshots.contains_key(&record.id)
                    || known.groups.contains_key(&record.id);
                if !there {
                    dead.push((record.id, revision));
                }
            })
            .await?;
        for (id, _) in dead {
            // Read again: it may have been made since.
            let key = hawser_core::port::store::Key::join(&[of, &id]);
            if world.records.get::<serde_json::Value>(&key).await?.is_some() {
                continue;
            }
            let explanation = format!("a name leads to {id}, which does not exist");
            let advice = "harmless: the name is given anew when it is asked for";
            findings.push(finding(FindingCode::NameWithoutObject, id, explanation, advice, false));
        }
    }
    let mut named = Vec::new();
    for volume in known.at_rest() {
        named.extend(volume.aliases.iter().map(|alias| ("volume", alias, volume.id.to_string())));
    }
    for snapshot in known.snapshots_at_rest() {
        named.push(("snapshot", &snapshot.alias, snapshot.id.to_string()));
    }
    for group in known.groups_at_rest() {
        named.push(("group", &group.alias, group.id.to_string()));
    }
    for (of, alias, id) in named {
        let holder = world.records.name(of, alias).await?.map(|(holder, _)| holder);
        if holder.as_ref() == Some(&id) {
            continue;
        }
        let explanation = match &holder {
            Some(other) => format!("{of} {id} is called {alias}, but that name leads to {other}"),
            None => format!("{of} {id} is called {alias}, but that name leads nowhere"),
        };
        let fixable = holder.is_none();
        let advice = if fixable { "--fix makes the name lead to it" } else { "use its id" };
        let mut found =
            finding(FindingCode::ObjectWithoutName, id.clone(), explanation, advice, fixable);
        if fix && fixable {
            let record = NameRecord { id };
            let made = world.records.create(&name_key(of, alias), &record).await;
            found.repair = repaired(made.map(drop));
        }
        findings.push(found);
    }
    Ok(())
}

/// What the storage holds against what the records say.
async fn storage(
    world: &World,
    known: &Known,
    fix: bool,
    findings: &mut Vec<Finding>,
) -> Result<()> {
    for entry in &world.classes {
        let Some(inventory) = entry.provider.inventory() else { continue };
        findings.extend(inventory.survey(fix).await?);
        let held = inventory.list().await?;
        findings.extend(lost(known, &entry.class.name, &held));
        let recorded: HashSet<_> = known
            .volumes
            .values()
            .map(|record| record.volume.handle.as_str())
            .chain(known.snapshots.values().map(|record| record.snapshot.handle.as_str()))
            .collect();
        let mut strays = Vec::new();
        for handle in held.volumes.iter().chain(&held.snapshots) {
            if !recorded.contains(handle.as_str()) && !is_recorded_now(world, handle).await? {
                strays.push(handle);
            }
        }
        if !strays.is_empty() {
            let unfinished = unfinished(world, entry).await?;
            let class = &entry.class.name;
            let found = strays.into_iter().map(|h| stray(class, h, unfinished.contains(h)));
            findings.extend(found);
        }
    }
    Ok(())
}

/// The handles of volumes that hold nothing, where volumes are made before they are recorded.
async fn unfinished(world: &World, entry: &ClassEntry) -> Result<HashSet<String>> {
    let Some(blanks) = entry.provider.blanks().filter(|_| world.drafts.is_some()) else {
        return Ok(HashSet::new());
    };
    let found = blanks.blanks(None).await?;
    Ok(found.into_iter().map(|blank| entry.provider.handle(&blank.id)).collect())
}

/// Records of a class whose storage does not hold them.
fn lost(known: &Known, class: &ClassName, held: &Held) -> Vec<Finding> {
    let volumes: HashSet<_> = held.volumes.iter().map(String::as_str).collect();
    let snapshots: HashSet<_> = held.snapshots.iter().map(String::as_str).collect();
    let lost_volumes = known
        .at_rest()
        .filter(|volume| volume.class == *class && volume.state == VolumeState::Ready)
        .filter(|volume| !volumes.contains(volume.handle.as_str()))
        .map(|volume| ("volume", volume.id.to_string(), volume.display_name()));
    let lost_snapshots = known
        .snapshots_at_rest()
        .filter(|snapshot| snapshot.class == *class)
        .filter(|snapshot| !snapshots.contains(snapshot.handle.as_str()))
        .map(|snapshot| ("snapshot", snapshot.id.to_string(), snapshot.alias.to_string()));
    let lost = lost_volumes.chain(lost_snapshots).map(|(of, id, name)| {
        let explanation =
            format!("{of} {name} is recorded in class {class}, whose storage does not hold it");
        let advice = format!("restore the pool's files, or delete the {of}");
        finding(FindingCode::RecordWithoutStorage, id, explanation, &advice, false)
    });
    lost.collect()
}

fn stray(class: &ClassName, handle: &str, unfinished: bool) -> Finding {
    let explanation = format!("class {class} holds {handle}, which no record names");
    let advice = if unfinished {
        "there is nothing in it: it is removed by itself unless it is asked for again soon"
    } else {
        "it may be data of another store: look at it, then remove it by hand"
    };
    finding(FindingCode::StorageWithoutRecord, handle.to_owned(), explanation, advice, false)
}

/// A handle may have come into being after the records were read.
async fn is_recorded_now(world: &World, handle: &str) -> Result<bool> {
    for of in ["volume", "snapshot"] {
        let key = hawser_core::port::store::Key::join(&[of, handle]);
        if world.records.get::<serde_json::Value>(&key).await?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What a node has attached against what the records say.
async fn attachments(
    world: &Arc<World>,
    known: &Known,
    id: &NodeId,
    node: &dyn Node,
    fix: bool,
    findings: &mut Vec<Finding>,
) -> Result<()> {
    let attached = node.attachments().await?;
    for record in attached.iter().filter(|record| record.instance == world.instance) {
        let volume = known.volumes.get(record.volume.as_str());
        let wanted = volume.is_some_and(|volume| {
            volume.journal.is_some()
                || volume.volume.publications.iter().any(|p| p.id == record.publication)
        });
        if wanted || is_published_now(world, record).await? {
            continue;
        }
        let explanation = format!(
            "node {id} has volume {} attached as {}, which no record asks for",
            record.volume, record.publication
        );
        let fixable = record.mounts.is_empty();
        let advice =
            if fixable { "--fix detaches it" } else { "unmount it, then --fix detaches it" };
        let code = FindingCode::AttachmentWithoutVolume;
        let mut found = finding(code, record.publication.to_string(), explanation, advice, fixable);
        if fix && fixable {
            let detached = node.detach(&record.publication, &Detach::default()).await;
            found.repair = repaired(detached.map(drop));
        }
        findings.push(found);
    }
    let there = There::look(world, id).await?;
    for volume in known.at_rest() {
        let publications = volume.publications.iter().filter(|p| p.node == *id && is_used(p));
        for publication in publications {
            if there.has(publication) || !is_unchanged(world, volume).await? {
                continue;
            }
            let explanation = format!(
                "volume {} is recorded as attached to node {id} or mounted there, and the node has it not",
                volume.display_name()
            );
            let advice = "--fix attaches and mounts it again";
            let code = FindingCode::VolumeWithoutAttachment;
            let mut found = finding(code, volume.id.to_string(), explanation, advice, true);
            if fix {
                found.repair = repaired(bring_back(world, &volume.id, id).await);
            }
            findings.push(found);
        }
    }
    Ok(())
}

/// True when nobody has worked on the volume since the doctor began.
async fn is_unchanged(world: &World, volume: &Volume) -> Result<bool> {
    let now = world.records.get::<VolumeRecord>(&VolumeRecord::key_of(&volume.id)).await?;
    Ok(now.is_some_and(|(now, _)| now.journal.is_none() && now.volume == *volume))
}

async fn is_published_now(
    world: &World,
    record: &hawser_core::attach::AttachRecord,
) -> Result<bool> {
    let key = VolumeRecord::key_of(&record.volume);
    let now = world.records.get::<VolumeRecord>(&key).await?;
    Ok(now
        .is_some_and(|(now, _)| now.volume.publications.iter().any(|p| p.id == record.publication)))
}
