//! Loop devices: found by backing file and mark, never by number.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hawser_core::port::host::{LoopAttach, LoopDevice, MountEntry};
use hawser_core::{ByteSize, Change};
use linux_raw_sys::loop_device::{LO_FLAGS_DIRECT_IO, LO_FLAGS_READ_ONLY};
use rustix::fs::{
    CWD, FileType, FlockOperation, Mode, OFlags, flock, fstat, makedev, mknodat, open,
};
use rustix::io::Errno;

use super::backing::{self, without_deleted};
use super::error::BlockError;
use super::size;
use crate::mount::{openers_within, table};
use crate::sys::{self, LoopSetup, LoopStatus};
use crate::uevent::Uevents;

/// What our labels begin with. With 55 bytes of mark the label fits the kernel's 63.
const LABEL: &str = "hawser:";
const LONGEST_MARK: usize = 55;
/// How often a device that another process took first is given up for the next.
const ATTEMPTS: usize = 64;
/// How long the kernel may take to let go of a device that nobody has open.
const LETTING_GO: Duration = Duration::from_secs(10);
/// How long a device that is open is looked at again: udev and blkid open each new or changed
/// device for a moment, and that is no use of it.
const GLANCES: Duration = Duration::from_millis(300);

/// One attach or resize at a time in this process. Calls below it do no I/O to the file.
static ATTACHING: Mutex<()> = Mutex::new(());

/// A loop device and what identifies its file.
struct Found {
    device: LoopDevice,
    file: (u64, u64),
}

/// The devices that have a file. Blocks: for workers only.
pub(crate) fn list() -> Result<Vec<LoopDevice>, BlockError> {
    Ok(scan()?.into_iter().map(|found| found.device).collect())
}

fn scan() -> Result<Vec<Found>, BlockError> {
    let mut numbers: Vec<u32> = fs::read_dir("/sys/block")
        .map_err(BlockError::List)?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("loop")?.parse().ok())
        .collect();
    numbers.sort_unstable();
    Ok(numbers.into_iter().filter_map(look).collect())
}

/// Reads one device; `None` when it has no file, or lost it meanwhile.
fn look(number: u32) -> Option<Found> {
    let sysfs = PathBuf::from(format!("/sys/block/loop{number}"));
    let told = backing::told(number)?;
    let path = PathBuf::from(format!("/dev/loop{number}"));
    // A device that we may not open is of others; it is listed with what sysfs tells.
    let status = open_node(&path, OFlags::RDONLY).ok().map(sys::loop_status);
    let status = match status {
        Some(Err(Errno::NXIO)) => return None,
        Some(Ok(status)) => Some(status),
        Some(Err(_)) | None => None,
    };
    let flag = |name: &str| fs::read_to_string(sysfs.join(name)).is_ok_and(|t| t.trim() == "1");
    let sector_size = fs::read_to_string(sysfs.join("queue/logical_block_size"))
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(512);
    let file = status.as_ref().map_or((0, 0), |status| (status.file_device, status.file_inode));
    let device = LoopDevice {
        device: path,
        backing_file: backing::found(told, file),
        mark: status.as_ref().and_then(mark_of),
        // Not the mark of the block layer: that comes and goes with those who use the device.
        read_only: status
            .as_ref()
            .map_or_else(|| flag("ro"), |status| status.flags & LO_FLAGS_READ_ONLY as u32 != 0),
        direct_io: flag("loop/dio"),
        sector_size,
    };
    Some(Found { device, file })
}

fn mark_of(status: &LoopStatus) -> Option<String> {
    let label = std::str::from_utf8(&status.label).ok()?;
    label.strip_prefix(LABEL).map(str::to_owned)
}

fn open_node(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    open(path, flags | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
}

/// Gives a file a loop device. Blocks: for workers only.
pub(crate) fn attach(request: &LoopAttach) -> Result<Change<LoopDevice>, BlockError> {
    check(request)?;
    let failed =
        |source: Errno| BlockError::Open { path: request.file.clone(), source: source.into() };
    let access = if request.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = open(&request.file, flags, Mode::empty()).map_err(failed)?;
    let stat = fstat(&file).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(BlockError::NotAFile { path: request.file.clone() });
    }
    // Keeps other processes away between the look and the act. Through an opening of its own: the
    // device holds on to the other one, and a lock on that would last as long as the device.
    let lock = open(&request.file, flags, Mode::empty()).map_err(failed)?;
    flock(&lock, FlockOperation::LockExclusive)
        .map_err(|source| BlockError::Lock { path: request.file.clone(), source: source.into() })?;
    // And other threads, where the file system does not tell them apart (NFS).
    let _turn = ATTACHING.lock().unwrap_or_else(PoisonError::into_inner);

    let identity = (stat.st_dev, stat.st_ino);
    if let Some(found) = scan()?.into_iter().find(|found| found.file == identity) {
        return already(found.device, request);
    }
    configure_free(&file, request)
}

fn check(request: &LoopAttach) -> Result<(), BlockError> {
    let mark = &request.mark;
    if mark.is_empty() || mark.len() > LONGEST_MARK || mark.chars().any(char::is_control) {
        return Err(BlockError::Mark { mark: mark.chars().take(80).collect() });
    }
    if ![512, 4096].contains(&request.sector_size) {
        return Err(BlockError::SectorSize { sector_size: request.sector_size });
    }
    Ok(())
}

fn already(device: LoopDevice, request: &LoopAttach) -> Result<Change<LoopDevice>, BlockError> {
    let file = request.file.clone();
    if device.mark.as_deref() != Some(&request.mark) {
        let LoopDevice { device, mark, .. } = device;
        return Err(BlockError::OtherOwner { file, device, mark });
    }
    if device.read_only != request.read_only {
        return Err(BlockError::OtherAccess { file, device: device.device });
    }
    Ok(Change::Already(device))
}

fn configure_free(file: &OwnedFd, request: &LoopAttach) -> Result<Change<LoopDevice>, BlockError> {
    let control =
        open("/dev/loop-control", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(
            |source| BlockError::Open { path: "/dev/loop-control".into(), source: source.into() },
        )?;
    for _ in 0..ATTEMPTS {
        let number = sys::loop_get_free(&control)
            .map_err(|source| BlockError::NoFreeDevice(source.into()))?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let node = open_or_make_node(&path, number)?;
        match configure(&node, file, request) {
            Ok(()) => {}
            // Another process was faster.
            Err(Errno::BUSY) => continue,
            Err(source) => {
                let file = request.file.clone();
                return Err(BlockError::Configure { device: path, file, source: source.into() });
            }
        }
        if !request.read_only {
            // A number is used again and again, and keeps a mark that somebody set long ago.
            let cleared = sys::set_read_only(&node, false);
            if let Err(source) = cleared {
                let _ = sys::loop_clear(&node);
                let (attempt, device) = ("allowing writes to", path);
                return Err(BlockError::Ioctl { attempt, device, source: source.into() });
            }
        }
        return match look(number) {
            Some(found) => Ok(Change::Made(found.device)),
            None => Err(BlockError::Gone { device: path, file: request.file.clone() }),
        };
    }
    Err(BlockError::Raced { file: request.file.clone(), attempts: ATTEMPTS })
}

fn configure(node: &OwnedFd, file: &OwnedFd, request: &LoopAttach) -> Result<(), Errno> {
    let label = format!("{LABEL}{}", request.mark);
    let read_only = if request.read_only { LO_FLAGS_READ_ONLY as u32 } else { 0 };
    let with = |flags| {
        let sector_size = request.sector_size;
        sys::loop_configure(
            node,
            &LoopSetup { file: file.as_fd(), sector_size, flags, label: label.as_bytes() },
        )
    };
    // Most kernels drop the flag by themselves where the file system has no direct I/O.
    match with(read_only | LO_FLAGS_DIRECT_IO as u32) {
        Err(Errno::INVAL) => with(read_only),
        answer => answer,
    }
}

/// Opens the node of a device, and makes it where no devtmpfs did (in a container, for one).
fn open_or_make_node(path: &Path, number: u32) -> Result<OwnedFd, BlockError> {
    let failed = |source: Errno| BlockError::Open { path: path.to_owned(), source: source.into() };
    match open_node(path, OFlags::RDWR) {
        Err(Errno::NOENT) => {}
        opened => return opened.map_err(failed),
    }
    let numbers = fs::read_to_string(format!("/sys/block/loop{number}/dev"));
    let (major, minor) = numbers
        .ok()
        .and_then(|text| {
            let (major, minor) = text.trim().split_once(':')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        })
        .ok_or_else(|| failed(Errno::NOENT))?;
    let mode = Mode::from_raw_mode(0o660);
    match mknodat(CWD, path, FileType::BlockDevice, mode, makedev(major, minor)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(source) => {
            return Err(BlockError::Node { path: path.to_owned(), source: source.into() });
        }
    }
    open_node(path, OFlags::RDWR).map_err(failed)
}

/// The number in `/dev/loopN`.
fn number_of(device: &Path) -> Option<u32> {
    let name = device.strip_prefix("/dev").ok()?.to_str()?;
    name.strip_prefix("loop")?.parse().ok()
}

/// True when the device still has the file and mark that `device` names.
fn is_still(node: &OwnedFd, device: &LoopDevice) -> Result<bool, BlockError> {
    let status = match sys::loop_status(node) {
        Ok(status) => status,
        Err(Errno::NXIO) => return Ok(false),
        Err(source) => return Err(ioctl("asking for the state of", device, source)),
    };
    if mark_of(&status) != device.mark {
        return Ok(false);
    }
    let now = number_of(&device.device).and_then(backing::told);
    let by_name =
        now.is_some_and(|now| without_deleted(&now) == without_deleted(&device.backing_file));
    let by_inode = fs::metadata(&device.backing_file).is_ok_and(|meta| {
        use std::os::unix::fs::MetadataExt;
        (meta.dev(), meta.ino()) == (status.file_device, status.file_inode)
    });
    Ok(by_name || by_inode)
}

fn ioctl(attempt: &'static str, device: &LoopDevice, source: Errno) -> BlockError {
    BlockError::Ioctl { attempt, device: device.device.clone(), source: source.into() }
}

/// Takes a device from its file. Blocks: for workers only.
pub(crate) fn detach(device: &LoopDevice, force: bool) -> Result<Change<()>, BlockError> {
    let path = &device.device;
    let Some(number) = number_of(path) else {
        return Err(BlockError::NotADevice { path: path.clone() });
    };
    let Some(told) = backing::told(number) else { return Ok(Change::Already(())) };
    let failed = |source: Errno| BlockError::Open { path: path.clone(), source: source.into() };
    let node = match open_node(path, OFlags::RDONLY) {
        Ok(node) => node,
        Err(Errno::NOENT | Errno::NXIO) => return Ok(Change::Already(())),
        Err(source) => return Err(failed(source)),
    };
    if !is_still(&node, device)? {
        return Ok(Change::Already(()));
    }
    drop(node);
    refuse_mounted(path)?;
    refuse_open(path)?;
    let events = Uevents::subscribe();
    // Exclusive, so that nobody can mount it from here on. The kernel clears a device that others
    // have open only later, and would break it for them without a word.
    let node = match open_node(path, OFlags::RDONLY | OFlags::EXCL) {
        Ok(node) => node,
        Err(Errno::BUSY) => {
            let by = vec!["the kernel or another process, exclusively".to_owned()];
            return Err(BlockError::InUse { device: path.clone(), by });
        }
        Err(source) => return Err(failed(source)),
    };
    if !is_still(&node, device)? {
        return Ok(Change::Already(()));
    }
    let lost = match (write_out(&node), force) {
        (Ok(()), _) => None,
        (Err(source), false) => return Err(BlockError::Flush { device: path.clone(), source }),
        (Err(source), true) => Some(BlockError::Lost { device: path.clone(), source }),
    };
    match sys::loop_clear(&node) {
        Ok(()) | Err(Errno::NXIO) => {}
        Err(source) => return Err(ioctl("detaching", device, source)),
    }
    drop(node);
    // Cleared, or with another file by now.
    let is_other = |now: PathBuf| without_deleted(&now) != without_deleted(&told);
    let gone = || Ok::<_, BlockError>(backing::told(number).is_none_or(is_other));
    if events.wait_for("block", gone, Instant::now() + LETTING_GO)? {
        return lost.map_or(Ok(Change::Made(())), Err);
    }
    Err(BlockError::StillThere { device: path.clone() })
}

/// Writes out what is cached, down to the disk that the file is on.
fn write_out(node: &OwnedFd) -> Result<(), std::io::Error> {
    rustix::fs::fsync(node)?;
    sys::flush_buffers(node)?;
    Ok(())
}

fn refuse_mounted(path: &Path) -> Result<(), BlockError> {
    let number = crate::mount::device_number(path)?;
    let source = path.to_string_lossy();
    let table = table::read()?;
    let uses = |entry: &&MountEntry| {
        entry.device == number || entry.source == source || entry.binds(path, &table)
    };
    match table.iter().find(uses) {
        None => Ok(()),
        Some(entry) => {
            let (device, target) = (path.to_owned(), entry.target.clone());
            Err(BlockError::Mounted { device, target })
        }
    }
}

fn refuse_open(path: &Path) -> Result<(), BlockError> {
    let begun = Instant::now();
    loop {
        let by = openers_within(path, LETTING_GO);
        if by.is_empty() {
            return Ok(());
        }
        // udev reads every device after each change, for longer on a busy machine, and is no user.
        let udev = by.iter().all(|who| who.contains("udev"));
        if begun.elapsed() > if udev { LETTING_GO } else { GLANCES } {
            return Err(BlockError::InUse { device: path.to_owned(), by });
        }
        // No event tells of a close; this is bounded by GLANCES and only runs in the rare case.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Makes a device as large as its file. Blocks: for workers only.
pub(crate) fn resize(device: &LoopDevice) -> Result<ByteSize, BlockError> {
    let gone =
        || BlockError::Gone { device: device.device.clone(), file: device.backing_file.clone() };
    let node = match open_node(&device.device, OFlags::RDONLY) {
        Ok(node) => node,
        Err(Errno::NOENT | Errno::NXIO) => return Err(gone()),
        Err(source) => {
            return Err(BlockError::Open { path: device.device.clone(), source: source.into() });
        }
    };
    if !is_still(&node, device)? {
        return Err(gone());
    }
    sys::loop_set_capacity(&node).map_err(|source| ioctl("resizing", device, source))?;
    size::of_open(&node, &device.device)
}
