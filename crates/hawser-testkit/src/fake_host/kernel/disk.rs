//! Block devices of the tree: nodes, files of sysfs, and the volume behind them.

use std::path::{Path, PathBuf};

use super::errno::{EBADE, EIO, ENODEV, EROFS};
use super::lun::{Lun, Target};
use super::tree::{Node, Tree};

/// What a flush of a device does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flush {
    /// It works.
    #[default]
    Works,
    /// It fails with this number, and what was to be written is lost.
    Fails(i32),
    /// It does not end until this is changed.
    Hangs,
}

/// How a flush ends now.
pub(super) enum Flushed {
    Done(Result<(), i32>),
    NotYet,
}

/// The volume behind a device.
#[derive(Clone)]
enum Behind {
    /// This one, for as long as the device is there.
    Lun(Lun),
    /// Whatever the target shows under this number at the time.
    Slot(Target, u64),
}

/// A block device to add.
pub struct DiskSpec {
    name: String,
    behind: Behind,
    number: Option<(u32, u32)>,
    below: Option<PathBuf>,
    wwid: Option<String>,
    hidden: bool,
    size: Option<u64>,
    links: Vec<String>,
}

impl DiskSpec {
    /// A device of this name over one volume.
    pub fn new(name: impl Into<String>, lun: &Lun) -> Self {
        Self::over(name, Behind::Lun(lun.clone()))
    }

    /// A device over whatever a target shows under a number.
    pub fn slot(name: impl Into<String>, target: &Target, number: u64) -> Self {
        Self::over(name, Behind::Slot(target.clone(), number))
    }

    fn over(name: impl Into<String>, behind: Behind) -> Self {
        Self {
            name: name.into(),
            behind,
            number: None,
            below: None,
            wwid: None,
            hidden: false,
            size: None,
            links: Vec::new(),
        }
    }

    /// A device over what is behind another one, as large as that.
    pub(super) fn like(name: &str, other: &TreeDisk) -> Self {
        Self::over(name, other.behind.clone()).size(other.size)
    }

    /// With these links in `/dev/disk/by-id`, which udev makes a wait later. Where several devices
    /// have the same, a map has it, or else the one that came last.
    #[must_use]
    pub fn links(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.links.extend(names);
        self
    }

    /// With this major and minor number; without it, the next of its kind.
    #[must_use]
    pub fn number(mut self, number: (u32, u32)) -> Self {
        self.number = Some(number);
        self
    }

    /// With this size at first, such as 0; without it, the volume's.
    #[must_use]
    pub fn size(mut self, size: u64) -> Self {
        self.size = Some(size);
        self
    }

    /// Below this folder of sysfs, which becomes its `device`; without it, below `virtual`.
    #[must_use]
    pub fn below(mut self, folder: impl Into<PathBuf>) -> Self {
        self.below = Some(folder.into());
        self
    }

    /// By this name udev and multipathd know what is behind it: it may become a path of a map.
    #[must_use]
    pub fn wwid(mut self, wwid: impl Into<String>) -> Self {
        self.wwid = Some(wwid.into());
        self
    }

    /// Without a node, such as the paths below a native multipath NVMe device.
    #[must_use]
    pub fn hidden(mut self) -> Self {
        self.hidden = true;
        self
    }
}

/// A block device of the tree.
#[derive(Clone)]
pub(super) struct TreeDisk {
    behind: Behind,
    pub(super) number: (u32, u32),
    /// Its folder in sysfs.
    pub(super) folder: PathBuf,
    /// What the kernel believes; the storage system may know better.
    pub(super) size: u64,
    pub(super) read_only: bool,
    pub(super) sequence: u64,
    pub(super) online: bool,
    pub(super) flush: Flush,
    /// Something is cached and not written yet.
    pub(super) dirty: bool,
    /// How often cached data was lost; each opener is told of what happens after its open.
    pub(super) lost: u64,
    pub(super) openers: usize,
    pub(super) wwid: Option<String>,
    links: Vec<String>,
}

impl TreeDisk {
    pub(super) fn lun(&self) -> Option<Lun> {
        match &self.behind {
            Behind::Lun(lun) => Some(lun.clone()),
            Behind::Slot(target, number) => target.get(*number),
        }
    }
}

/// The major number and the step of minor numbers of a kind of device.
fn kind_of(name: &str) -> (u32, u32) {
    for (prefix, kind) in [
        ("sd", (8, 16)),
        ("dm-", (253, 1)),
        ("nvme", (259, 1)),
        ("nbd", (43, 32)),
        ("rbd", (252, 16)),
        ("drbd", (147, 1)),
        ("etherd", (152, 16)),
        ("md", (9, 1)),
    ] {
        if name.starts_with(prefix) {
            return kind;
        }
    }
    (240, 1)
}

/// The node of a device: a `!` in a name of sysfs is a folder in `/dev`.
fn node_of(name: &str) -> String {
    format!("/dev/{}", name.replace('!', "/"))
}

impl Tree {
    /// Adds a block device with its node and its files of sysfs, and tells of it. multipathd, where
    /// it runs, sees it a wait later.
    pub fn add_disk(&mut self, spec: DiskSpec) {
        let name = spec.name;
        assert!(!self.disks.contains_key(&name), "there is a {name} already");
        let number = spec.number.unwrap_or_else(|| self.free_number(&name));
        self.disk_sequence += 1;
        let folder = match &spec.below {
            Some(below) => {
                let below = self.folder(below).resolve(below).expect("just made");
                below.join("block").join(&name)
            }
            None => Path::new("/sys/devices/virtual/block").join(&name),
        };
        let disk = TreeDisk {
            number,
            folder: folder.clone(),
            size: 0,
            read_only: false,
            sequence: self.disk_sequence,
            online: true,
            flush: Flush::Works,
            dirty: false,
            lost: 0,
            openers: 0,
            wwid: spec.wwid,
            links: spec.links.clone(),
            behind: spec.behind,
        };
        let lun = disk.lun();
        let size = spec.size.unwrap_or_else(|| lun.as_ref().map_or(0, Lun::size));
        let read_only = lun.is_some_and(|lun| lun.is_read_only());
        self.value(folder.join("dev"), format!("{}:{}", number.0, number.1))
            .value(folder.join("diskseq"), disk.sequence)
            .value(folder.join("removable"), 0)
            .value(folder.join("hidden"), u8::from(spec.hidden))
            .value(folder.join("queue/logical_block_size"), 512)
            .folder(folder.join("holders"))
            .folder(folder.join("slaves"))
            .link(format!("/sys/block/{name}"), &folder)
            .link(format!("/sys/class/block/{name}"), &folder)
            .link(format!("/sys/dev/block/{}:{}", number.0, number.1), &folder);
        if let Some(below) = spec.below {
            self.link(folder.join("device"), below);
        }
        if !spec.hidden {
            self.block_node(node_of(&name), number);
        }
        self.disks.insert(name.clone(), disk);
        self.set_size(&name, size);
        self.set_read_only(&name, read_only);
        self.multipathd_hears(&name);
        if !spec.links.is_empty() {
            self.later(1, move |tree| tree.relink(&spec.links));
        }
    }

    /// Lets links lead where udev would have them lead now.
    fn relink(&mut self, links: &[String]) {
        for link in links {
            let has = |(_, disk): &(&String, &TreeDisk)| disk.links.contains(link);
            let rank =
                |(name, disk): &(&String, &TreeDisk)| (name.starts_with("dm-"), disk.sequence);
            let best = self.disks.iter().filter(has).max_by_key(rank);
            let path = format!("/dev/disk/by-id/{link}");
            match best.map(|(name, _)| format!("../../{name}")) {
                Some(target) => {
                    self.link(path, target);
                }
                None => {
                    self.remove(path);
                }
            }
        }
    }

    fn free_number(&self, name: &str) -> (u32, u32) {
        let (major, step) = kind_of(name);
        let mut minors = (0_u32..).map(|nth| nth * step);
        let taken = |minor: u32| self.disks.values().any(|disk| disk.number == (major, minor));
        let minor = minors.find(|minor| !taken(*minor)).expect("there are numbers enough");
        (major, minor)
    }

    /// Takes a block device away with its node and its files, also when it is open, and tells of it.
    pub fn remove_disk(&mut self, name: &str) -> bool {
        let Some(disk) = self.disks.remove(name) else { return false };
        self.remove(&disk.folder);
        self.remove(format!("/sys/block/{name}"));
        self.remove(format!("/sys/class/block/{name}"));
        self.remove(format!("/sys/dev/block/{}:{}", disk.number.0, disk.number.1));
        self.remove(node_of(name));
        self.relink(&disk.links);
        self.emit();
        self.multipathd_misses(name);
        true
    }

    /// The names of all block devices.
    pub fn disk_names(&self) -> Vec<String> {
        self.disks.keys().cloned().collect()
    }

    /// The lowest free name of SCSI disks: `sda`, `sdb` and so on.
    pub fn free_sd(&self) -> String {
        let name = |nth: u32| {
            let letter = |n: u32| char::from(b'a' + u8::try_from(n).expect("one of 26"));
            match nth {
                0..26 => format!("sd{}", letter(nth)),
                _ => format!("sd{}{}", letter(nth / 26 - 1), letter(nth % 26)),
            }
        };
        (0..700)
            .map(name)
            .find(|name| !self.disks.contains_key(name))
            .expect("fewer than 700 disks")
    }

    fn disk(&self, name: &str) -> &TreeDisk {
        self.disks.get(name).unwrap_or_else(|| panic!("there is no block device {name}"))
    }

    pub(super) fn disk_mut(&mut self, name: &str) -> &mut TreeDisk {
        self.disks.get_mut(name).unwrap_or_else(|| panic!("there is no block device {name}"))
    }

    /// The volume behind a device now; `None` when its target shows none any more.
    pub fn lun_of(&self, name: &str) -> Option<Lun> {
        self.disk(name).lun()
    }

    /// The volume behind a device, when reads and writes reach it.
    pub(in crate::fake_host) fn working_lun(&self, name: &str) -> Option<Lun> {
        if self.usable(name) { self.lun_of(name) } else { None }
    }

    /// Major and minor number of a device.
    pub fn number_of(&self, name: &str) -> (u32, u32) {
        self.disk(name).number
    }

    /// The read-only mark of a device.
    pub fn is_read_only(&self, name: &str) -> bool {
        self.disk(name).read_only
    }

    /// The size that the kernel believes.
    pub fn size_of(&self, name: &str) -> u64 {
        self.disk(name).size
    }

    /// Lets the kernel believe another size, as after a rescan, and tells of it.
    pub fn set_size(&mut self, name: &str, bytes: u64) {
        let disk = self.disk_mut(name);
        disk.size = bytes;
        let file = disk.folder.join("size");
        self.value(file, bytes / 512);
        self.emit();
    }

    /// Sets or clears the read-only mark, and tells of it.
    pub fn set_read_only(&mut self, name: &str, read_only: bool) {
        let disk = self.disk_mut(name);
        disk.read_only = read_only;
        let file = disk.folder.join("ro");
        self.value(file, u8::from(read_only));
        self.emit();
    }

    /// A path that works or not: reads and writes through it fail when it does not.
    pub fn set_online(&mut self, name: &str, online: bool) {
        self.disk_mut(name).online = online;
        self.emit();
    }

    /// What a flush of this device does from now on.
    pub fn set_flush(&mut self, name: &str, flush: Flush) {
        self.disk_mut(name).flush = flush;
    }

    /// The same for a device over a file of the host, by its node.
    pub(super) fn set_file_flush(&mut self, node: &Path, flush: Flush) {
        self.file_flushes.insert(node.into(), flush);
    }

    /// The device is gone; the next one of its name is another.
    pub(in crate::fake_host) fn forget_file_flush(&mut self, node: &Path) {
        self.file_flushes.remove(node);
    }

    /// What a flush of a device over a file does now; `None` when it does not end.
    pub(in crate::fake_host) fn flush_file(&self, node: &Path) -> Option<Result<(), i32>> {
        match self.file_flushes.get(node).copied().unwrap_or_default() {
            Flush::Works => Some(Ok(())),
            Flush::Fails(errno) => Some(Err(errno)),
            Flush::Hangs => None,
        }
    }

    /// Somebody wrote, and it is still cached.
    pub fn make_dirty(&mut self, name: &str) {
        self.disk_mut(name).dirty = true;
    }

    /// The name of the device behind a node or a number, links followed.
    pub fn disk_at(&self, node: impl AsRef<Path>) -> Option<String> {
        let Some(Node::Block(major, minor)) = self.node(node) else { return None };
        self.disk_by_number((*major, *minor))
    }

    pub(super) fn disk_by_number(&self, number: (u32, u32)) -> Option<String> {
        self.disks.iter().find(|(_, disk)| disk.number == number).map(|(name, _)| name.clone())
    }

    /// What is made of this device: the maps above it.
    pub fn holders_of(&self, name: &str) -> Vec<String> {
        self.list(self.disk(name).folder.join("holders"))
    }

    /// True when somebody has the device open, for himself or not.
    pub fn is_open(&self, name: &str) -> bool {
        self.disk(name).openers > 0 || self.is_claimed(name)
    }

    /// True when somebody has the device for himself.
    pub fn is_claimed(&self, name: &str) -> bool {
        self.in_use.contains(&self.disk(name).number) || !self.holders_of(name).is_empty()
    }

    /// What a flush by an opener does now, who knew of `seen` losses.
    pub(super) fn flush(&mut self, name: &str, seen: &mut u64) -> Flushed {
        let usable = self.usable(name);
        let queueing = self.queues(name);
        let disk = self.disk_mut(name);
        let failed = match (disk.flush, usable) {
            (Flush::Hangs, _) => return Flushed::NotYet,
            (Flush::Fails(errno), _) => Some(errno),
            (Flush::Works, true) => None,
            (Flush::Works, false) if queueing => return Flushed::NotYet,
            (Flush::Works, false) => Some(EIO),
        };
        if let Some(errno) = failed {
            disk.lost += u64::from(std::mem::take(&mut disk.dirty));
            *seen = disk.lost;
            return Flushed::Done(Err(errno));
        }
        disk.dirty = false;
        let told = std::mem::replace(seen, disk.lost);
        Flushed::Done(if told < disk.lost { Err(EIO) } else { Ok(()) })
    }

    /// True when reads and writes reach the volume.
    pub(super) fn usable(&self, name: &str) -> bool {
        match self.maps.values().find(|map| map.disk == name) {
            Some(map) => map.is_usable(self),
            None => self.disk(name).online && self.disk(name).lun().is_some(),
        }
    }

    /// Writes through a device, as a user of this host does.
    pub fn write_disk(&mut self, name: &str, at: u64, bytes: &[u8]) -> Result<(), i32> {
        if !self.usable(name) {
            return Err(EIO);
        }
        let disk = self.disks.get(name).ok_or(ENODEV)?;
        let lun = disk.lun().ok_or(EIO)?;
        if disk.read_only || lun.is_read_only() {
            return Err(EROFS);
        }
        if !lun.registrations(|all| all.may_write(&self.initiator)) {
            return Err(EBADE);
        }
        lun.write_at(at, bytes);
        Ok(())
    }

    /// Reads through a device, as a user of this host does.
    pub fn read_disk(&self, name: &str, at: u64, length: usize) -> Result<Vec<u8>, i32> {
        if !self.usable(name) {
            return Err(EIO);
        }
        let disk = self.disks.get(name).ok_or(ENODEV)?;
        let lun = disk.lun().ok_or(EIO)?;
        let left = usize::try_from(disk.size.saturating_sub(at)).unwrap_or(usize::MAX);
        Ok(lun.read_at(at, length.min(left)))
    }
}
