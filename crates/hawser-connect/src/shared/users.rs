//! Who uses a block device. Drivers of network devices (NBD, AoE, SCSI) let a disk go although it is
//! mounted or open, and its users then get input and output errors; so this is asked before.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::kernel::Files;

use super::error::AttachError;
use super::wait::{self, Deadline};

/// As many as fit into a sentence.
const MOST: usize = 5;

/// udev reads a device after each event, and multipathd looks whether it is a path; they are no
/// users. Nor are the programs of udev's rules that only look: one whose worker has just ended has
/// no parent to be known by.
const UDEV: [&str; 9] = [
    "(udev-worker)",
    "systemd-udevd",
    "udevd",
    "multipathd",
    "multipath",
    "scsi_id",
    "sg_inq",
    "blkid",
    "kpartx",
];

/// How long a program may have a device open that only looks at it.
const A_LOOK: Duration = Duration::from_millis(200);

/// How long udev may take to read a device.
const UDEV_LIMIT: Duration = Duration::from_secs(5);

/// A whole disk: its name in sysfs (`nbd0`, `etherd!e7.1`) and its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    pub(crate) name: String,
    pub(crate) node: PathBuf,
}

impl Whole {
    /// The disk of a name in sysfs.
    pub(crate) fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        let node = Path::new("/dev").join(name.replace('!', "/"));
        Self { name, node }
    }

    /// Its folder in sysfs.
    pub(crate) fn folder(&self) -> PathBuf {
        Path::new("/sys/block").join(&self.name)
    }

    /// One of its attributes as text; `None` when it has none.
    pub(crate) fn attribute(&self, files: &dyn Files, name: &str) -> Result<Option<String>> {
        Ok(files.read_text(&self.folder().join(name))?)
    }

    /// Its size in bytes as sysfs tells it; 0 when it is not there.
    pub(crate) fn size(&self, files: &dyn Files) -> Result<u64> {
        let sectors = self.attribute(files, "size")?.and_then(|text| text.parse::<u64>().ok());
        Ok(sectors.unwrap_or(0).saturating_mul(512))
    }

    /// True when its node leads to this very disk: a node can be stale or made by hand.
    pub(crate) fn has_node(&self, files: &dyn Files) -> Result<bool> {
        let number = self.attribute(files, "dev")?.and_then(|text| parse_number(&text));
        Ok(number.is_some() && files.device_number(&self.node)? == number)
    }

    /// True when the rules of udev have run for it, or there is no udev.
    pub(crate) fn is_known_to_udev(&self, files: &dyn Files) -> Result<bool> {
        const DATABASE: &str = "/run/udev/data";
        if files.resolve(Path::new(DATABASE))?.is_none() {
            return Ok(true);
        }
        let Some(number) = self.attribute(files, "dev")? else { return Ok(false) };
        let entry = Path::new(DATABASE).join(format!("b{number}"));
        Ok(files.resolve(&entry)?.is_some())
    }

    /// True when no request to it is under way, as far as the kernel counts them.
    pub(crate) fn is_quiet(&self, files: &dyn Files) -> Result<bool> {
        let counts = self.attribute(files, "inflight")?.unwrap_or_default();
        Ok(counts.split_whitespace().all(|count| count == "0"))
    }

    /// The disk and its partitions: folder, and device number.
    fn parts(&self, files: &dyn Files) -> Result<Vec<(PathBuf, (u32, u32))>> {
        let whole = self.folder();
        let mut folders = vec![whole.clone()];
        for entry in files.list(&whole)? {
            let folder = whole.join(&entry);
            if entry.starts_with(&self.name) && files.read(&folder.join("partition"))?.is_some() {
                folders.push(folder);
            }
        }
        let mut parts = Vec::new();
        for folder in folders {
            let text = files.read_text(&folder.join("dev"))?;
            if let Some(number) = text.and_then(|text| parse_number(&text)) {
                parts.push((folder, number));
            }
        }
        Ok(parts)
    }
}

/// Refuses a disk that somebody uses. `force` passes those who only have it open, because a process
/// that hangs on a dead device gets free by losing it; mounts and maps must go first in any case.
pub(crate) async fn refuse_used(
    host: &dyn Host,
    disk: &Whole,
    force: bool,
    deadline: Deadline,
) -> Result<()> {
    refuse_used_but(host, disk, &[], force, deadline).await
}

/// The same for a disk that devices of these names may stand on: they belong to it, and go with it.
pub(crate) async fn refuse_used_but(
    host: &dyn Host,
    disk: &Whole,
    own: &[String],
    force: bool,
    deadline: Deadline,
) -> Result<()> {
    match openers_after(host, disk, own, force).await? {
        Some(parts) => refuse_openers(host, disk, &parts, deadline).await,
        None => Ok(()),
    }
}

/// The same for a disk whose driver lets it go at once while udev reads it: that is not waited for.
pub(crate) async fn refuse_users(
    host: &dyn Host,
    disk: &Whole,
    own: &[String],
    force: bool,
    deadline: Deadline,
) -> Result<()> {
    let Some(parts) = openers_after(host, disk, own, force).await? else { return Ok(()) };
    let numbers: Vec<_> = parts.iter().map(|(_, number)| *number).collect();
    let mut events = host.events().subscribe();
    let ourselves = std::process::id();
    let limit = deadline.within(UDEV_LIMIT);
    let settled = wait::until(&mut *events, limit, async || {
        let mut found = openers(&numbers).await;
        found.retain(|opener| !opener.is_udev());
        // A call of our own that was given up may still be at it.
        let only_us = !found.is_empty() && found.iter().all(|opener| opener.pid == ourselves);
        Ok((!only_us).then_some(found))
    })
    .await?;
    let mut found = match settled {
        Some(found) => found,
        None => openers(&numbers).await,
    };
    if !found.is_empty() {
        // A program that only looked is gone in a moment; a user stays.
        tokio::time::sleep(limit.left().min(A_LOOK)).await;
        let now = openers(&numbers).await;
        found.retain(|opener| now.contains(opener));
    }
    match found.as_slice() {
        [] => Ok(()),
        found => Err(busy(disk, found.iter().take(MOST).map(Opener::words).collect())),
    }
}

fn busy(disk: &Whole, users: Vec<String>) -> Error {
    AttachError::Busy { device: disk.node.clone(), users: users.join(", ") }.into()
}

/// Refuses a disk that somebody has for himself; answers its parts where those who only have it
/// open count too.
async fn openers_after(
    host: &dyn Host,
    disk: &Whole,
    own: &[String],
    force: bool,
) -> Result<Option<Vec<(PathBuf, (u32, u32))>>> {
    let parts = disk.parts(host.files())?;
    if parts.is_empty() {
        return Ok(None);
    }
    let mut users = mounts(host, &parts).await?;
    users.extend(swaps(host.files(), &parts)?);
    users.extend(holders(host.files(), &parts, own)?);
    // What stands on it has claimed it.
    if users.is_empty() && own.is_empty() && is_claimed(host, disk).await? {
        users.push("a program that holds it for itself".into());
    }
    if !users.is_empty() {
        return Err(busy(disk, users));
    }
    Ok((!force).then_some(parts))
}

/// A disk that is dead, or a DRBD device that is secondary, cannot be opened to ask; whoever mounted it
/// was found already.
async fn is_claimed(host: &dyn Host, disk: &Whole) -> Result<bool> {
    // EIO, ENXIO, ENODEV, EMEDIUMTYPE.
    const NOBODYS: [Option<i32>; 4] = [Some(5), Some(6), Some(19), Some(124)];
    match host.disks().is_claimed(&disk.node).await {
        Err(error) if NOBODYS.contains(&error.errno()) => Ok(false),
        answer => Ok(answer?),
    }
}

async fn refuse_openers(
    host: &dyn Host,
    disk: &Whole,
    parts: &[(PathBuf, (u32, u32))],
    deadline: Deadline,
) -> Result<()> {
    match openers_beside_udev(host, parts, deadline).await? {
        Some(found) if found.is_empty() => Ok(()),
        Some(found) => Err(busy(disk, found.iter().take(MOST).map(Opener::words).collect())),
        None => {
            let numbers: Vec<_> = parts.iter().map(|(_, number)| *number).collect();
            let left = openers(&numbers).await;
            let words = left.iter().filter(|opener| !opener.is_udev()).map(Opener::words);
            let words: Vec<String> = words.take(MOST).collect();
            if words.is_empty() {
                // Where it hangs with the device it would never end, and it only reads.
                tracing::debug!(device = %disk.node.display(), "udev still reads it");
                return Ok(());
            }
            Err(busy(disk, words))
        }
    }
}

/// Waits until udev does not read a disk, at most as long as that may take.
pub(crate) async fn wait_for_udev(host: &dyn Host, disk: &Whole, deadline: Deadline) -> Result<()> {
    let parts = disk.parts(host.files())?;
    openers_beside_udev(host, &parts, deadline).await.map(drop)
}

/// True when somebody is seen who has a disk open, and it is only udev.
pub(crate) async fn is_read_by_udev(host: &dyn Host, disk: &Whole) -> Result<bool> {
    let parts = disk.parts(host.files())?;
    let numbers: Vec<_> = parts.iter().map(|(_, number)| *number).collect();
    let found = openers(&numbers).await;
    Ok(!found.is_empty() && found.iter().all(Opener::is_udev))
}

/// Who has a disk open as soon as it is not only udev, or a call of our own that was given up and is
/// still at it; `None` when those do not end.
async fn openers_beside_udev(
    host: &dyn Host,
    parts: &[(PathBuf, (u32, u32))],
    deadline: Deadline,
) -> Result<Option<Vec<Opener>>> {
    let numbers: Vec<_> = parts.iter().map(|(_, number)| *number).collect();
    let mut events = host.events().subscribe();
    wait::until(&mut *events, deadline.within(UDEV_LIMIT), async || {
        let found = openers(&numbers).await;
        let passing = |opener: &Opener| opener.is_udev() || opener.pid == std::process::id();
        Ok((found.is_empty() || !found.iter().all(passing)).then_some(found))
    })
    .await
}

async fn mounts(host: &dyn Host, parts: &[(PathBuf, (u32, u32))]) -> Result<Vec<String>> {
    let ours = |number: (u32, u32)| parts.iter().any(|(_, part)| *part == number);
    let mut users = Vec::new();
    for mount in host.mounts().await? {
        // A file system over several devices (btrfs) has a number of its own, and tells one device.
        let by_source = || -> Result<bool> {
            let source = Path::new(&mount.source);
            let is_node = source.starts_with("/dev");
            Ok(is_node && host.files().device_number(source)?.is_some_and(ours))
        };
        if ours(mount.device) || by_source()? {
            users.push(format!("the mount {}", mount.target.display()));
        }
    }
    users.truncate(MOST);
    Ok(users)
}

fn swaps(files: &dyn Files, parts: &[(PathBuf, (u32, u32))]) -> Result<Vec<String>> {
    let table = files.read_text(Path::new("/proc/swaps"))?.unwrap_or_default();
    let mut users = Vec::new();
    for node in swap_nodes(&table) {
        let number = files.device_number(Path::new(node))?;
        if number.is_some_and(|number| parts.iter().any(|(_, part)| *part == number)) {
            users.push(format!("swap on {node}"));
        }
    }
    Ok(users)
}

/// The nodes in `/proc/swaps`. Swap in a file is a use of the file system that has it.
fn swap_nodes(table: &str) -> impl Iterator<Item = &str> {
    let names = table.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| name.starts_with("/dev/"))
}

fn holders(
    files: &dyn Files,
    parts: &[(PathBuf, (u32, u32))],
    own: &[String],
) -> Result<Vec<String>> {
    let mut users = Vec::new();
    for (folder, _) in parts {
        let holders = files.list(&folder.join("holders"))?;
        for holder in holders.into_iter().filter(|holder| !own.contains(holder)) {
            users.push(format!("the device {holder} above it"));
        }
    }
    users.truncate(MOST);
    Ok(users)
}

/// A process that has a device open.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Opener {
    pid: u32,
    program: String,
}

impl Opener {
    fn is_udev(&self) -> bool {
        UDEV.contains(&self.program.as_str())
    }

    fn words(&self) -> String {
        format!("{} ({})", self.program, self.pid)
    }
}

/// Processes that have one of these devices open, without claiming it: virtual machines, copies.
async fn openers(numbers: &[(u32, u32)]) -> Vec<Opener> {
    let numbers = numbers.to_vec();
    // Not an error when it cannot be found out: it is one question more than the kernel asks.
    tokio::task::spawn_blocking(move || scan(Path::new("/proc"), &numbers))
        .await
        .unwrap_or_default()
}

fn scan(proc: &Path, numbers: &[(u32, u32)]) -> Vec<Opener> {
    let mut found = Vec::new();
    let Ok(processes) = fs::read_dir(proc) else { return found };
    for process in processes.flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        if is_kernel_thread(&process.path()) {
            continue;
        }
        let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else { continue };
        if descriptors.flatten().any(|descriptor| leads_to(&descriptor.path(), numbers)) {
            let program = name_of(&process.path());
            // It ended while it was looked at.
            if program.is_empty() {
                continue;
            }
            // A program of udev's rules, such as `multipath -u`, is udev's own.
            let parent = parent_of(&process.path()).map(|parent| name_of(&proc.join(parent)));
            let program = parent.filter(|its| UDEV.contains(&its.as_str())).unwrap_or(program);
            found.push(Opener { pid, program });
        }
    }
    found
}

/// Threads of the kernel run no program and have nothing open. A host has hundreds, and this is one
/// question for each instead of five.
fn is_kernel_thread(process: &Path) -> bool {
    fs::read_link(process.join("exe")).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn name_of(process: &Path) -> String {
    fs::read_to_string(process.join("comm")).unwrap_or_default().trim().to_owned()
}

/// The process that started another, from its line `PPid:`.
fn parent_of(process: &Path) -> Option<String> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    status.lines().find_map(|line| Some(line.strip_prefix("PPid:")?.trim().to_owned()))
}

/// Only names below `/dev` are followed: any other may lead to a server that is dead.
fn leads_to(descriptor: &Path, numbers: &[(u32, u32)]) -> bool {
    let is_node = fs::read_link(descriptor).is_ok_and(|to| to.starts_with("/dev"));
    is_node
        && fs::metadata(descriptor).is_ok_and(|meta| {
            let number = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
            meta.file_type().is_block_device() && numbers.contains(&number)
        })
}

/// `43:16` as major and minor.
fn parse_number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_disk_with_a_folder_in_its_name_has_its_node_there() {
        let disk = Whole::new("etherd!e7.1");

        assert_eq!(disk.node, Path::new("/dev/etherd/e7.1"));
        assert_eq!(disk.folder(), Path::new("/sys/block/etherd!e7.1"));
    }

    #[test]
    fn character_devices_with_the_number_of_a_disk_are_nobodys() {
        // This process has /dev/null open, as 1:3; a ram disk would have that number too.
        let _open = fs::File::open("/dev/null").unwrap();

        assert!(scan(Path::new("/proc"), &[(1, 3)]).is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_a_device_number_or_none(text in "\\PC{0,20}", a: u32, b: u32) {
            let _ = parse_number(&text);
            prop_assert_eq!(parse_number(&format!("{a}:{b}")), Some((a, b)));
        }
    }

    hawser_testkit::fuzz_corpus!(corpus, "device_number", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let _ = parse_number(text.trim());
    });

    hawser_testkit::fuzz_corpus!(swap, "proc_swaps", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let lines = text.lines().filter(|line| line.trim_start().starts_with("/dev/"));
        assert_eq!(swap_nodes(&text).count(), lines.count(), "swap was overlooked");
    });
}
