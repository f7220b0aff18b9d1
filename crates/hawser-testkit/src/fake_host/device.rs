//! Fake block devices: loop devices over real files, and disks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hawser_core::error::Result;
use hawser_core::port::host::{LoopAttach, LoopDevice};
use hawser_core::{ByteSize, Change, Error, Kind};

/// The kernel keeps 64 bytes for the label, one of them the closing zero; ours has a prefix.
const LONGEST_MARK: usize = 55;

/// The major number of loop devices, and of SCSI disks.
const MAJORS: (u32, u32) = (7, 8);

/// One fake block device.
pub(super) struct Device {
    /// Kept open, as the kernel does: the content outlives the file's name.
    pub(super) file: Arc<File>,
    pub(super) size: u64,
    pub(super) number: (u32, u32),
    /// Was made to refuse writes.
    pub(super) read_only: bool,
    /// Has the read-only mark of the block layer.
    pub(super) marked: bool,
    /// Present on loop devices.
    looped: Option<Looped>,
}

struct Looped {
    mark: Option<String>,
    sector_size: u32,
}

/// All devices, by their node.
#[derive(Default)]
pub(super) struct Devices {
    all: BTreeMap<PathBuf, Device>,
    /// Nodes of devices that went with the read-only mark on, which is there for whoever comes next.
    left_marked: BTreeSet<PathBuf>,
}

impl Devices {
    pub(super) fn get(&self, node: &Path) -> Result<&Device> {
        self.all.get(node).ok_or_else(|| absent(node))
    }

    pub(super) fn get_mut(&mut self, node: &Path) -> Result<&mut Device> {
        self.all.get_mut(node).ok_or_else(|| absent(node))
    }

    /// Loop devices, in the order of their nodes.
    pub(super) fn loops(&self) -> Result<Vec<LoopDevice>> {
        self.all.iter().filter_map(|(node, device)| describe(node, device).transpose()).collect()
    }

    /// A disk that is simply there. Its node leads nowhere: what looks at it without asking the
    /// host must find no plain file in the place of a device.
    pub(super) fn add_disk(
        &mut self,
        dev: &Path,
        name: &str,
        size: ByteSize,
    ) -> io::Result<PathBuf> {
        let node = dev.join(name);
        let file = tempfile::tempfile_in(dev)?;
        file.set_len(size.get())?;
        symlink(format!("disk:{name}"), &node)?;
        let number = (MAJORS.1, 16 * self.all.len() as u32);
        let file = Arc::new(file);
        let (read_only, marked) = (false, false);
        let device = Device { file, size: size.get(), number, read_only, marked, looped: None };
        self.all.insert(node.clone(), device);
        Ok(node)
    }

    /// Gives a file a loop device, as the kernel would: any number of devices per file.
    pub(super) fn add_loop(
        &mut self,
        dev: &Path,
        file: &Path,
        mark: Option<&str>,
        read_only: bool,
        sector_size: u32,
    ) -> Result<LoopDevice> {
        let meta = fs::metadata(file).map_err(|error| failed(file, &error))?;
        if !meta.is_file() {
            return Err(Error::new(Kind::Invalid, format!("{} is no plain file", file.display())));
        }
        let handle = OpenOptions::new()
            .read(true)
            .write(!read_only)
            .open(file)
            .map_err(|error| failed(file, &error))?;
        let minor = (0..u32::MAX)
            .find(|minor| !self.all.contains_key(&node_of(dev, *minor)))
            .expect("fewer than four billion loop devices");
        let node = node_of(dev, minor);
        // Opens the very file even when its name is gone, as a loop device does.
        let link = format!("/proc/{}/fd/{}", std::process::id(), handle.as_raw_fd());
        symlink(link, &node).map_err(|error| failed(&node, &error))?;
        self.left_marked.remove(&node);
        // The kernel counts whole sectors only.
        let size = meta.len() / 512 * 512;
        let looped = Some(Looped { mark: mark.map(str::to_owned), sector_size });
        let file = Arc::new(handle);
        let number = (MAJORS.0, minor);
        let device = Device { file, size, number, read_only, marked: false, looped };
        let described = describe(&node, &device)?.ok_or_else(|| absent(&node))?;
        self.all.insert(node, device);
        Ok(described)
    }

    /// What is refused whoever asks.
    pub(super) fn check(&self, ask: &LoopAttach) -> Result<()> {
        if ask.mark.is_empty() || ask.mark.len() > LONGEST_MARK {
            let why = format!("a mark has 1 to {LONGEST_MARK} bytes, {:?} has not", ask.mark);
            return Err(Error::new(Kind::Invalid, why));
        }
        if ![512, 4096].contains(&ask.sector_size) {
            let why = format!("{} is no sector size: 512 or 4096", ask.sector_size);
            return Err(Error::new(Kind::Invalid, why));
        }
        fs::metadata(&ask.file).map(drop).map_err(|error| failed(&ask.file, &error))
    }

    pub(super) fn attach(&mut self, dev: &Path, ask: &LoopAttach) -> Result<Change<LoopDevice>> {
        let real = fs::canonicalize(&ask.file).map_err(|error| failed(&ask.file, &error))?;
        let same = |device: &LoopDevice| device.backing_file == real;
        if let Some(device) = self.loops()?.into_iter().find(same) {
            if device.mark.as_deref() == Some(&*ask.mark) && device.read_only == ask.read_only {
                return Ok(Change::Already(device));
            }
            let why = format!("{} is attached already: {device:?}", real.display());
            return Err(Error::new(Kind::Precondition, why));
        }
        self.add_loop(dev, &real, Some(&ask.mark), ask.read_only, ask.sector_size).map(Change::Made)
    }

    /// True when the device is still the one described: the same node, file and mark.
    pub(super) fn is_still(&self, device: &LoopDevice) -> Result<bool> {
        let Some(found) = self.all.get(&device.device) else { return Ok(false) };
        Ok(describe(&device.device, found)?
            .is_some_and(|now| now.backing_file == device.backing_file && now.mark == device.mark))
    }

    pub(super) fn remove(&mut self, node: &Path) {
        if self.all.remove(node).is_some_and(|device| device.marked) {
            self.left_marked.insert(node.into());
        }
        let _ = fs::remove_file(node);
    }

    /// Nodes with the read-only mark of the block layer, also of devices that went.
    pub(super) fn marked(&self) -> Vec<PathBuf> {
        let here = self.all.iter().filter(|(_, device)| device.marked).map(|(node, _)| node);
        here.chain(&self.left_marked).cloned().collect()
    }

    pub(super) fn remove_loops(&mut self) {
        let loops: Vec<_> =
            self.all.iter().filter(|(_, d)| d.looped.is_some()).map(|(n, _)| n.clone()).collect();
        for node in loops {
            self.remove(&node);
        }
        // With the kernel's memory go the marks.
        self.left_marked.clear();
    }

    /// Makes a device as large as its file.
    pub(super) fn resize(&mut self, node: &Path) -> Result<ByteSize> {
        let device = self.get_mut(node)?;
        let length = device.file.metadata().map_err(|error| failed(node, &error))?.len();
        device.size = length / 512 * 512;
        Ok(ByteSize::bytes(device.size))
    }
}

fn node_of(dev: &Path, minor: u32) -> PathBuf {
    dev.join(format!("loop{minor}"))
}

fn describe(node: &Path, device: &Device) -> Result<Option<LoopDevice>> {
    let Some(looped) = &device.looped else { return Ok(None) };
    // The kernel's own words for an open file: follows renames, says ` (deleted)`.
    let link = format!("/proc/self/fd/{}", device.file.as_raw_fd());
    let backing_file = fs::read_link(link).map_err(|error| failed(node, &error))?;
    Ok(Some(LoopDevice {
        device: node.into(),
        backing_file,
        mark: looped.mark.clone(),
        read_only: device.read_only,
        direct_io: true,
        sector_size: looped.sector_size,
    }))
}

pub(super) fn absent(node: &Path) -> Error {
    Error::new(Kind::NotFound, format!("{} is no block device of this host", node.display()))
}

fn failed(path: &Path, error: &io::Error) -> Error {
    let kind = if error.kind() == io::ErrorKind::NotFound {
        Kind::NotFound
    } else if error.kind() == io::ErrorKind::PermissionDenied {
        Kind::Denied
    } else {
        Kind::Unavailable
    };
    Error::new(kind, format!("opening {} failed: {error}", path.display()))
}
