//! What a guest has of sessions, devices, maps, mounts and records, to compare before and after.
//!
//! Read from the kernel's and the daemons' own files, not through what is being tested.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where open-iscsi keeps its records, by the habits of distributions.
const RECORDS: [&str; 6] = [
    "/etc/iscsi/nodes",
    "/etc/iscsi/send_targets",
    "/etc/iscsi/static",
    "/var/lib/iscsi/nodes",
    "/var/lib/iscsi/send_targets",
    "/var/lib/iscsi/static",
];

/// Everything that an attachment may leave, by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftovers {
    found: BTreeMap<&'static str, BTreeSet<String>>,
}

impl Leftovers {
    /// What there is now.
    pub fn snapshot() -> Self {
        super::number();
        let records = RECORDS.iter().flat_map(|folder| files(Path::new(folder)));
        Self {
            found: BTreeMap::from([
                ("iSCSI session", names("/sys/class/iscsi_session")),
                ("iSCSI record", records.collect()),
                ("NVMe controller", names("/sys/class/nvme")),
                ("block device", names("/sys/block").into_iter().filter_map(block).collect()),
                ("mount", mounts()),
                ("record of hawser", files(Path::new("/run/hawser")).into_iter().collect()),
            ]),
        }
    }

    /// Panics when there is now anything more, or anything less, than in this snapshot.
    #[track_caller]
    pub fn assert_restored(&self) {
        let difference = self.difference(&Self::snapshot());
        assert!(difference.is_empty(), "not as before: {difference:#?}");
    }

    /// The same, for what the kernel takes down behind the caller's back.
    #[track_caller]
    pub fn assert_restored_within(&self, limit: Duration) {
        let begun = Instant::now();
        while *self != Self::snapshot() && begun.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(50));
        }
        self.assert_restored();
    }

    /// What is there of one kind, as `/sys` or the mount table spell it.
    pub fn of(&self, kind: &str) -> BTreeSet<String> {
        self.found.get(kind).cloned().unwrap_or_default()
    }

    /// What a later snapshot has more and less, as lines.
    pub fn difference(&self, later: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        for (kind, before) in &self.found {
            let after = later.of(kind);
            lines.extend(after.difference(before).map(|what| format!("left: {kind} {what}")));
            lines.extend(before.difference(&after).map(|what| format!("lost: {kind} {what}")));
        }
        lines
    }
}

fn names(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// A block device with what tells it from another of the same name; none when nothing is behind it,
/// as with the loop and NBD devices that a module makes in advance.
fn block(name: String) -> Option<String> {
    let folder = Path::new("/sys/block").join(&name);
    let read = |file: &str| {
        let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
        text.trim().to_owned()
    };
    if name.starts_with("vd") || name.starts_with("ram") {
        return None;
    }
    if name.starts_with("loop") {
        let file = read("loop/backing_file");
        return (!file.is_empty()).then(|| format!("{name} over {file}"));
    }
    if name.starts_with("nbd") || name.starts_with("drbd") || name.starts_with("zram") {
        return (read("size") != "0").then_some(name);
    }
    if name.starts_with("dm-") {
        return Some(format!("{name} {} {}", read("dm/name"), read("dm/uuid")));
    }
    let identity = [read("wwid"), read("device/wwid")].concat();
    Some(format!("{name} {identity}").trim().to_owned())
}

fn mounts() -> BTreeSet<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let line = |line: &str| {
        let (head, tail) = line.split_once(" - ")?;
        let place = head.split(' ').nth(4)?;
        let mut source = tail.split(' ');
        let (kind, from) = (source.next()?, source.next()?);
        Some(format!("{place} ({kind} {from})"))
    };
    table.lines().filter_map(line).collect()
}

/// All files below a folder; folders of open-iscsi that hold nothing say nothing.
fn files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![PathBuf::from(folder)];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() && !path.is_symlink() {
                open.push(path);
            } else {
                found.insert(path.display().to_string());
            }
        }
    }
    found
}
