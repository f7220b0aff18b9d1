//! Reading the mount table: what is at a target, and whether it is this attachment's.

use std::path::{Path, PathBuf};

use hawser_core::attach::{AttachRecord, Attached};
use hawser_core::port::host::MountEntry;

/// What is seen at a target: the last mount made there covers the others.
pub(super) fn topmost<'a>(table: &'a [MountEntry], target: &Path) -> Option<&'a MountEntry> {
    table.iter().rev().find(|entry| entry.target == target)
}

/// True when the entry shows this device or folder.
///
/// A device is known by its node, which is what the kernel tells as the source. A bound folder has
/// no name of its own in the table: it is a folder of some file system, which is found through the
/// mount that its path lies on.
pub(super) fn shows(attached: &Attached, entry: &MountEntry, table: &[MountEntry]) -> bool {
    match attached {
        Attached::Block { device, .. } => Path::new(&entry.source) == device,
        Attached::Directory { path } | Attached::File { path } => {
            // The entry itself may cover the path, when it is bound onto itself.
            let below = table
                .iter()
                .filter(|other| other.id != entry.id && path.starts_with(&other.target))
                // Later mounts cover earlier ones, and max_by_key answers the last of equals.
                .max_by_key(|other| other.target.components().count());
            match below {
                Some(below) => {
                    let inside = path.strip_prefix(&below.target).unwrap_or(Path::new(""));
                    entry.device == below.device && entry.root == plain_join(&below.root, inside)
                }
                None => entry.root == *path,
            }
        }
    }
}

/// `join` leaves a trailing slash when it joins nothing.
fn plain_join(root: &Path, inside: &Path) -> PathBuf {
    if inside.as_os_str().is_empty() { root.to_path_buf() } else { root.join(inside) }
}

/// Every mount of this device or folder, whoever made it, in mount order. The folder's own place in
/// the tree is no mount.
pub(super) fn all_of<'a>(attached: &Attached, table: &'a [MountEntry]) -> Vec<&'a MountEntry> {
    table.iter().filter(|entry| shows(attached, entry, table)).collect()
}

/// The topmost entry at a target, if it shows what the record has.
pub(super) fn ours<'a>(
    record: &AttachRecord,
    table: &'a [MountEntry],
    target: &Path,
) -> Option<&'a MountEntry> {
    let attached = record.attached.as_ref()?;
    topmost(table, target).filter(|entry| shows(attached, entry, table))
}

/// True when what is attached is mounted at a target, seen or covered by others.
pub(super) fn is_below(attached: Option<&Attached>, table: &[MountEntry], target: &Path) -> bool {
    let Some(attached) = attached else { return false };
    table.iter().any(|entry| entry.target == target && shows(attached, entry, table))
}

/// The recorded mounts that are really there.
pub(super) fn live<'a>(
    record: &AttachRecord,
    table: &'a [MountEntry],
) -> Vec<(usize, &'a MountEntry)> {
    record
        .mounts
        .iter()
        .enumerate()
        .filter_map(|(index, mount)| Some((index, ours(record, table, &mount.target)?)))
        .collect()
}

/// An entry in words, for refusals.
pub(super) fn describe(entry: &MountEntry) -> String {
    format!("{} {:?} of {}", entry.fs_type, entry.root, entry.source)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u64, source: &str) -> MountEntry {
        MountEntry {
            id,
            parent: 1,
            device: (7, 0),
            root: "/".into(),
            target: "/mnt/data".into(),
            options: Vec::new(),
            propagation: Vec::new(),
            fs_type: "ext4".into(),
            source: source.into(),
            super_options: Vec::new(),
        }
    }

    #[test]
    fn a_covered_mount_is_below_and_not_seen() {
        let attached = Attached::Block {
            device: "/dev/loop7".into(),
            identity: None,
            size: hawser_core::ByteSize::mib(1),
        };
        let target = Path::new("/mnt/data");
        let covered = [entry(2, "/dev/loop7"), entry(3, "/dev/sdb")];
        let strangers = [entry(3, "/dev/sdb")];

        assert!(is_below(Some(&attached), &covered, target));
        assert!(!shows(&attached, topmost(&covered, target).unwrap(), &covered));
        assert!(!is_below(Some(&attached), &strangers, target));
        assert!(!is_below(None, &covered, target));
    }
}
