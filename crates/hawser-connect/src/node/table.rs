//! Reading the mount table: what is at a target, and whether it is this attachment's.

use std::path::{Path, PathBuf};

use hawser_core::Result;
use hawser_core::attach::{AttachRecord, Attached};
use hawser_core::port::host::MountEntry;
use hawser_core::port::kernel::Files;

use super::NodeHalf;

impl NodeHalf {
    /// The mount table as it is now.
    pub(super) async fn table(&self) -> Result<Table<'_>> {
        Ok(Table { entries: self.host.mounts().await?, files: self.host.files() })
    }
}

/// The mount table of this host at one instant.
pub(super) struct Table<'a> {
    entries: Vec<MountEntry>,
    /// What links among the names of devices lead to.
    files: &'a dyn Files,
}

#[cfg(test)]
impl<'a> Table<'a> {
    pub(super) fn new(entries: Vec<MountEntry>, files: &'a dyn Files) -> Self {
        Self { entries, files }
    }
}

impl Table<'_> {
    /// What is seen at a target: the last mount made there covers the others.
    pub(super) fn topmost(&self, target: &Path) -> Option<&MountEntry> {
        self.entries.iter().rev().find(|entry| entry.target == target)
    }

    /// Every mount of this device or folder, whoever made it, in mount order. The folder's own place
    /// in the tree is no mount.
    pub(super) fn all_of(&self, attached: &Attached) -> Vec<&MountEntry> {
        let sight = self.sight(attached);
        self.entries.iter().filter(|entry| sight.is_in(entry, &self.entries)).collect()
    }

    /// The topmost entry at a target, if it shows what the record has.
    pub(super) fn ours(&self, record: &AttachRecord, target: &Path) -> Option<&MountEntry> {
        let sight = self.sight(record.attached.as_ref()?);
        self.topmost(target).filter(|entry| sight.is_in(entry, &self.entries))
    }

    /// True when what is attached is mounted at a target, seen or covered by others.
    pub(super) fn is_below(&self, attached: Option<&Attached>, target: &Path) -> bool {
        let Some(attached) = attached else { return false };
        let sight = self.sight(attached);
        let there = |entry: &&MountEntry| entry.target == target;
        self.entries.iter().filter(there).any(|entry| sight.is_in(entry, &self.entries))
    }

    /// The recorded mounts that are really there.
    pub(super) fn live(&self, record: &AttachRecord) -> Vec<(usize, &MountEntry)> {
        let mounts = record.mounts.iter().enumerate();
        mounts
            .filter_map(|(index, mount)| Some((index, self.ours(record, &mount.target)?)))
            .collect()
    }

    fn sight<'s>(&self, attached: &'s Attached) -> Sight<'s> {
        match attached {
            Attached::Block { device, .. } => {
                let node = self.files.resolve(device).ok().flatten();
                Sight::Device { device, node: node.unwrap_or_else(|| device.clone()) }
            }
            Attached::Directory { path } | Attached::File { path } => Sight::Path(path),
        }
    }
}

/// How the kernel tells a thing in the table.
enum Sight<'a> {
    /// A mounted file system by the name that was given for its device, which is ours; the device
    /// itself, shown in a file, by the place of its node.
    Device { device: &'a Path, node: PathBuf },
    /// A bound folder by its place.
    Path(&'a Path),
}

impl Sight<'_> {
    fn is_in(&self, entry: &MountEntry, table: &[MountEntry]) -> bool {
        match self {
            Self::Device { device, node } => {
                // Asked first because it is cheap, and most entries are neither.
                let may_bind = entry.root.file_name() == node.file_name() || entry.shows_removed();
                Path::new(&entry.source) == *device || (may_bind && entry.binds(node, table))
            }
            Self::Path(path) => entry.binds(path, table),
        }
    }
}

/// True when an entry of a device shows the device itself, and not what is on it.
pub(super) fn is_raw(attached: &Attached, entry: &MountEntry) -> bool {
    match attached {
        Attached::Block { device, .. } => Path::new(&entry.source) != device,
        Attached::Directory { .. } | Attached::File { .. } => false,
    }
}

/// An entry in words, for refusals.
pub(super) fn describe(entry: &MountEntry) -> String {
    format!("{} {:?} of {}", entry.fs_type, entry.root, entry.source)
}

#[cfg(test)]
mod tests {
    use hawser_testkit::fake_host::FakeHost;

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

    fn node(id: u64, root: &str, target: &str) -> MountEntry {
        let (target, fs_type, root) = (target.into(), "devtmpfs".into(), root.into());
        MountEntry { device: (0, 6), root, target, fs_type, ..entry(id, "devtmpfs") }
    }

    fn block(device: &str) -> Attached {
        let size = hawser_core::ByteSize::mib(1);
        Attached::Block { device: device.into(), identity: None, size }
    }

    #[test]
    fn a_covered_mount_is_below_and_not_seen() {
        let (host, attached) = (FakeHost::new(), block("/dev/loop7"));
        let target = Path::new("/mnt/data");
        let files: &dyn Files = host.kernel();
        let covered = Table::new(vec![entry(2, "/dev/loop7"), entry(3, "/dev/sdb")], files);
        let strangers = Table::new(vec![entry(3, "/dev/sdb")], files);

        assert!(covered.is_below(Some(&attached), target));
        assert_eq!(covered.topmost(target).unwrap().id, 3);
        assert_eq!(covered.all_of(&attached).len(), 1);
        assert!(!strangers.is_below(Some(&attached), target));
        assert!(!covered.is_below(None, target));
    }

    #[test]
    fn a_device_shown_in_a_file_is_known_by_its_node_whatever_its_name() {
        let host = FakeHost::new();
        host.kernel().edit(|tree| {
            tree.block_node("/dev/dm-3", (253, 3)).link("/dev/mapper/mpatha", "../dm-3");
        });
        let shown = vec![
            node(2, "/", "/dev"),
            node(3, "/dm-3", "/mnt/a"),
            node(4, "/dm-33", "/mnt/other"),
            node(5, "/dm-3//deleted", "/mnt/gone"),
            entry(6, "/dev/mapper/mpatha"),
        ];
        let table = Table::new(shown, host.kernel());
        let attached = block("/dev/mapper/mpatha");

        let found = table.all_of(&attached);

        let ids: Vec<_> = found.iter().map(|entry| entry.id).collect();
        assert_eq!(ids, [3, 5, 6]);
        let raw: Vec<_> = found.iter().map(|entry| is_raw(&attached, entry)).collect();
        assert_eq!(raw, [true, true, false]);
    }
}
