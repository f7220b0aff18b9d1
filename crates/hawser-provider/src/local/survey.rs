//! What the pool holds, and what in it belongs to nothing.

use hawser_core::doctor::{Finding, FindingCode, Repair};
use hawser_core::port::provider::Held;

use super::attempt::attempt_owner;
use super::error::LocalError;
use super::folder::Folder;
use super::pool::Pool;
use super::remove::remove_folder;
use super::shelf::Shelf;

/// Names in the pool's own folder that are ours or the file system's.
const KNOWN: [&str; 6] =
    ["pool.json", "pool.json.new", "volumes", "snapshots", "staging", "lost+found"];

/// The handles of all that stands on the shelves.
pub(super) fn list(pool: &Pool) -> Result<Held, LocalError> {
    let handles = |shelf| -> Result<Vec<String>, LocalError> {
        let names = pool.shelf(shelf).names()?;
        let mut ids: Vec<String> =
            names.iter().filter_map(|name| pool.id_of(shelf, name)).map(str::to_owned).collect();
        ids.sort_unstable();
        Ok(ids)
    };
    Ok(Held { volumes: handles(Shelf::Volumes)?, snapshots: handles(Shelf::Snapshots)? })
}

/// Everything in the pool that is not as it should be.
pub(super) fn survey(pool: &Pool, fix: bool) -> Result<Vec<Finding>, LocalError> {
    let mut findings = Vec::new();
    for name in pool.root.names()? {
        if !KNOWN.contains(&name.as_str()) {
            findings.push(foreign(&pool.root, &name));
        }
    }
    for shelf in [Shelf::Volumes, Shelf::Snapshots] {
        let place = pool.shelf(shelf);
        for name in place.names()? {
            match pool.id_of(shelf, &name).map(|id| pool.find_item(shelf, id)) {
                None => findings.push(foreign(place, &name)),
                Some(Ok(_)) => {}
                Some(Err(error)) => findings.push(unreadable(place, &name, &error)),
            }
        }
    }
    for name in pool.staging.names()? {
        if attempt_owner(&name).is_none() {
            findings.push(foreign(&pool.staging, &name));
        } else if let Some(finding) = leftover(pool, &name, fix)? {
            findings.push(finding);
        }
    }
    Ok(findings)
}

/// An attempt that nobody works on; `None` when somebody does, or when it has ended since.
fn leftover(pool: &Pool, name: &str, fix: bool) -> Result<Option<Finding>, LocalError> {
    // In this order: a name is live before it exists and until after it is gone, and is never given
    // twice. So a name that is not live and still exists is dead; nobody else has the pool open.
    if pool.live().contains(name) || pool.staging.find(name)?.is_none() {
        return Ok(None);
    }
    let repair = fix.then(|| match remove_folder(&pool.staging, name) {
        Ok(_) => Repair::Done,
        Err(error) => Repair::Failed(hawser_core::Error::from(error).sentence()),
    });
    Ok(Some(Finding {
        code: FindingCode::StagingLeftover,
        subject: pool.staging.path().join(name).display().to_string(),
        explanation: "work on this volume or snapshot was cut off by a crash and left an \
                      unfinished piece, which nothing uses"
            .into(),
        advice: "hawser doctor --fix removes it".into(),
        fixable: true,
        repair,
    }))
}

fn foreign(place: &Folder, name: &str) -> Finding {
    Finding {
        code: FindingCode::StorageWithoutRecord,
        subject: place.path().join(name).display().to_string(),
        explanation: "the pool did not make this; somebody put it here".into(),
        advice: "move it out of the pool by hand; it is never touched by itself".into(),
        fixable: false,
        repair: None,
    }
}

fn unreadable(place: &Folder, name: &str, error: &LocalError) -> Finding {
    Finding {
        code: FindingCode::UnreadableRecord,
        subject: place.path().join(name).display().to_string(),
        explanation: format!("it cannot be read, so the pool does not count it: {error}"),
        advice: "restore it from a backup, delete its volume, or move it out of the pool by hand"
            .into(),
        fixable: false,
        repair: None,
    }
}
