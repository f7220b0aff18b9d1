//! What the host shows of a test: loop devices, mounts and attachment records of one folder.
//!
//! Read from the kernel's own files, not through Hawser, which is what is being tested.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hawser_core::Kind;
use hawser_core::port::Host;
use hawser_host::{HostSettings, LinuxHost};

/// Where root's attachment records are.
const RECORDS: &str = "/run/hawser/attachments";

/// What there is of one folder.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Traces {
    /// Loop devices over files below the folder, and those files.
    pub loops: BTreeMap<PathBuf, PathBuf>,
    /// Folders below it on which something is mounted, and what; a folder that is mounted on twice
    /// is there twice.
    pub mounts: Vec<(PathBuf, String)>,
    /// Publications that the host's registry has for instances below it.
    pub records: BTreeSet<String>,
}

impl Traces {
    /// True when there is nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Everything of a folder, which is spelled without links.
pub fn of(folder: &Path) -> Traces {
    let records = records(folder);
    Traces {
        loops: loops(folder),
        mounts: mounts(folder),
        records: records
            .iter()
            .filter_map(|path| path.file_stem()?.to_str().map(str::to_owned))
            .collect(),
    }
}

fn loops(folder: &Path) -> BTreeMap<PathBuf, PathBuf> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let mut found = BTreeMap::new();
    for device in devices {
        // A device without a file has no such entry.
        let Ok(mut backing) = fs::read(device.path().join("loop/backing_file")) else { continue };
        while backing.last() == Some(&b'\n') {
            backing.pop();
        }
        let backing = PathBuf::from(std::ffi::OsString::from_vec(backing));
        if backing.starts_with(folder) {
            found.insert(Path::new("/dev").join(device.file_name()), backing);
        }
    }
    found
}

fn mounts(folder: &Path) -> Vec<(PathBuf, String)> {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the kernel's mount table");
    let mut found: Vec<(PathBuf, String)> = table
        .lines()
        .filter_map(|line| {
            let (place, rest) = line.split_once(" - ")?;
            let target = PathBuf::from(unescape(place.split(' ').nth(4)?));
            let source = unescape(rest.split(' ').nth(1)?);
            target.starts_with(folder).then_some((target, source))
        })
        .collect();
    found.sort();
    found
}

/// Undoes the `\040` of the mount table.
fn unescape(text: &str) -> String {
    let mut plain = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            plain.push(byte);
            continue;
        }
        let digits = bytes.by_ref().take(3);
        plain.push(digits.fold(0_u8, |sum, digit| sum.wrapping_mul(8).wrapping_add(digit - b'0')));
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// The record files of instances whose state folder is below a folder. A record names its pool's
/// path, and its instance; either tells whose it is.
fn records(folder: &Path) -> Vec<PathBuf> {
    let mut whose: Vec<String> = vec![format!("{}/", folder.display())];
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if let Ok(id) = fs::read_to_string(entry.path().join("instance")) {
            whose.push(id.trim().to_owned());
        }
    }
    let files = fs::read_dir(RECORDS).into_iter().flatten().flatten().map(|entry| entry.path());
    files
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .filter(|path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            whose.iter().any(|word| text.contains(word.as_str()))
        })
        .collect()
}

/// Takes away whatever is there of a folder: mounts, the later ones first, then loop devices, then
/// records. Tries for a while, because a process that was just killed may still let go.
pub fn remove(folder: &Path) {
    for _ in 0..100 {
        let found = of(folder);
        if found.is_empty() {
            return;
        }
        // Frozen file systems cannot be unmounted before they are thawed.
        let folder = folder.to_owned();
        let tidy = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(remove_once(&folder));
        });
        if tidy.join().is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let left = of(folder);
    if !left.is_empty() {
        hawser_testkit::skip::say(&format!("could not be removed: {left:#?}"));
    }
}

async fn remove_once(folder: &Path) {
    let host = LinuxHost::new(HostSettings::default());
    for (target, _) in mounts(folder).iter().rev() {
        let _ = host.thaw(target).await;
        if let Err(error) = host.unmount(target).await
            && error.kind() != Kind::Busy
        {
            hawser_testkit::skip::say(&format!("unmounting {}: {error:?}", target.display()));
        }
    }
    for device in host.loop_devices().await.into_iter().flatten() {
        if device.backing_file.starts_with(folder) {
            let _ = host.detach_loop(&device, false).await;
        }
    }
    for record in records(folder) {
        let _ = fs::remove_file(record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_the_mount_table_are_undone() {
        assert_eq!(unescape(r"/a\040b\134c"), r"/a b\c");
    }

    #[test]
    fn a_folder_that_nobody_uses_has_no_traces() {
        let dir = tempfile::tempdir().unwrap();

        assert!(of(dir.path()).is_empty());
    }
}
