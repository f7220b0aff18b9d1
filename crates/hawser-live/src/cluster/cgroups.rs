//! The cgroups below which kubelet puts pods: made before it starts, removed after it ended.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::error::{Attempt, Result};

/// How long killed processes may keep a group from being removed.
const EMPTY_LIMIT: Duration = Duration::from_secs(10);

/// What kubelet wants to set for pods, where the machine has one hierarchy for all.
const CONTROLLERS: &str = "+cpu +cpuset +io +memory +pids";

/// A group in every hierarchy of the machine.
#[derive(Debug)]
pub(super) struct Cgroup {
    name: String,
}

impl Cgroup {
    /// Makes it; what a killed run left under its name goes first.
    pub(super) fn make(name: &str) -> Result<Self> {
        let group = Self::named(name);
        group.remove();
        if let Err(error) = group.fill() {
            group.remove();
            return Err(error);
        }
        Ok(group)
    }

    /// One that may be there or not.
    pub(super) fn named(name: &str) -> Self {
        Self { name: name.to_owned() }
    }

    fn fill(&self) -> Result<()> {
        for hierarchy in hierarchies() {
            let folder = hierarchy.folder.join(&self.name);
            fs::create_dir(&folder)
                .attempt(|| format!("making the cgroup {}", folder.display()))?;
            match hierarchy.version {
                // A new group of these has no processors and no memory, and takes no process so.
                Version::One => {
                    for file in ["cpuset.cpus", "cpuset.mems"] {
                        inherit(&hierarchy.folder, &folder, file)?;
                    }
                }
                Version::Two => {
                    // Beside the first version it has no controllers, and refuses.
                    for folder in [&hierarchy.folder, &folder] {
                        let _ = fs::write(folder.join("cgroup.subtree_control"), CONTROLLERS);
                    }
                }
            }
        }
        Ok(())
    }

    /// Its name, as kubelet is told it.
    pub(super) fn path(&self) -> String {
        format!("/{}", self.name)
    }

    /// Removes it with everything below; answers what cannot be removed.
    pub(super) fn remove(&self) -> Vec<String> {
        let folders = || hierarchies().into_iter().map(|h| h.folder.join(&self.name));
        let begun = Instant::now();
        loop {
            folders().for_each(|folder| remove_tree(&folder));
            let left: Vec<PathBuf> = folders().filter(|folder| folder.exists()).collect();
            if left.is_empty() || begun.elapsed() > EMPTY_LIMIT {
                return left.iter().map(|folder| format!("cgroup {}", folder.display())).collect();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// One hierarchy of cgroups.
struct Hierarchy {
    folder: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

fn hierarchies() -> Vec<Hierarchy> {
    parse(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

/// The hierarchies of a mount table, each once.
fn parse(table: &str) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for line in table.lines() {
        let Some((head, tail)) = line.split_once(" - ") else { continue };
        let version = match tail.split(' ').next() {
            Some("cgroup") => Version::One,
            Some("cgroup2") => Version::Two,
            Some(_) | None => continue,
        };
        let Some(folder) = head.split(' ').nth(4).map(PathBuf::from) else { continue };
        if found.iter().all(|other| other.folder != folder) {
            found.push(Hierarchy { folder, version });
        }
    }
    found
}

/// Gives a group the value of the one above, where its hierarchy has such a file.
fn inherit(above: &Path, folder: &Path, file: &str) -> Result<()> {
    let Ok(value) = fs::read_to_string(above.join(file)) else { return Ok(()) };
    fs::write(folder.join(file), value.trim())
        .attempt(|| format!("setting {file} of {}", folder.display()))
}

/// Removes groups from the bottom up; one with processes stays.
fn remove_tree(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_found_in_the_mount_table() {
        let table = "30 23 0:26 / /sys/fs/cgroup ro shared:9 - tmpfs tmpfs ro\n\
                     31 30 0:27 / /sys/fs/cgroup/cpu rw shared:10 - cgroup cgroup rw,cpu\n\
                     32 30 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                     33 30 0:27 / /sys/fs/cgroup/cpu rw shared:10 - cgroup cgroup rw,cpu\n";
        let found: Vec<(String, Version)> =
            parse(table).iter().map(|h| (h.folder.display().to_string(), h.version)).collect();
        let wanted =
            [("/sys/fs/cgroup/cpu", Version::One), ("/sys/fs/cgroup/unified", Version::Two)];
        assert_eq!(found, wanted.map(|(folder, version)| (folder.to_owned(), version)));
    }

    #[test]
    fn groups_are_removed_from_the_bottom_up() {
        let top = tempfile::tempdir().unwrap();
        let group = top.path().join("group");
        fs::create_dir_all(group.join("pod/container")).unwrap();
        remove_tree(&group);
        assert!(!group.exists());
    }
}
