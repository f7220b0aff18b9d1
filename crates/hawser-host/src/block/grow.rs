//! Makes a mounted file system as large as its device.
//!
//! ext4 by its ioctl; xfs and btrfs by their tools, whose structures change more often. Whether
//! anything grew is told by the size before and after, not by what a tool prints.

use std::path::Path;
use std::time::Duration;

use hawser_core::Change;
use hawser_core::filesystem::FsKind;
use hawser_core::port::host::{HostMount, MountEntry, Tool};
use rustix::fs::{Mode, OFlags, ext4_ioc_resize_fs, open, statvfs};
use rustix::io::{Errno, pread};

use super::error::BlockError;
use super::{size, unmounted};
use crate::facts::may_resize_ext4;
use crate::mount::{device_number, table, target, topmost};

const LIMIT: Duration = Duration::from_secs(600);

/// How growing goes on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Done by the kernel.
    Done(Change<()>),
    /// A tool does it; the size before, for [`after_tool`].
    Tool { blocks: u64 },
    /// Not while it is mounted; how to mount it again afterwards.
    Unmounted(HostMount),
}

/// Checks that `mounted` has `device`, and grows it where the kernel does so by itself. Blocks.
pub(crate) fn begin(device: &Path, fs: FsKind, mounted: &Path) -> Result<Step, BlockError> {
    target::check_plain(mounted)?;
    let number = device_number(device)?;
    let table = table::read()?;
    let entry = topmost(&table, mounted).filter(|entry| {
        entry.device == number
            || device_number(Path::new(&entry.source)).is_ok_and(|own| own == number)
    });
    let Some(entry) = entry else {
        let (device, mounted) = (device.to_owned(), mounted.to_owned());
        return Err(BlockError::NotMounted { fs, device, mounted });
    };
    match fs {
        FsKind::Ext4 => grow_ext4(device, entry, &table),
        FsKind::Xfs => Ok(Step::Tool { blocks: blocks(mounted)? }),
        // The kernel refuses every size below 256 MiB, also the one that it has.
        FsKind::Btrfs if fills_device(device, mounted)? => Ok(Step::Done(Change::Already(()))),
        FsKind::Btrfs => Ok(Step::Tool { blocks: blocks(mounted)? }),
    }
}

/// True when a mounted btrfs is as large as its device, apart from the rest of a sector.
fn fills_device(device: &Path, mounted: &Path) -> Result<bool, BlockError> {
    /// The largest sector of a btrfs is the largest page of any machine.
    const SECTOR: u64 = 64 << 10;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let node = open(device, flags, Mode::empty())
        .map_err(|source| BlockError::Open { path: device.to_owned(), source: source.into() })?;
    let there = size::of_open(&node, device)?.get();
    let stat = statvfs(mounted)
        .map_err(|source| BlockError::Size { path: mounted.to_owned(), source: source.into() })?;
    Ok(stat.f_blocks.saturating_mul(stat.f_frsize).saturating_add(SECTOR) > there)
}

/// The tool that goes on where the kernel cannot.
pub(crate) fn command(device: &Path, fs: FsKind, mounted: &Path) -> Tool {
    let tool = match fs {
        FsKind::Ext4 => Tool::new("resize2fs").arg(device),
        FsKind::Xfs => Tool::new("xfs_growfs").arg("-d").arg(mounted),
        FsKind::Btrfs => Tool::new("btrfs").args(["filesystem", "resize", "max"]).arg(mounted),
    };
    tool.limit(LIMIT)
}

/// Whether a tool changed anything. Blocks.
pub(crate) fn after_tool(mounted: &Path, before: u64) -> Result<Change<()>, BlockError> {
    let grown = blocks(mounted)? != before;
    Ok(if grown { Change::Made(()) } else { Change::Already(()) })
}

fn blocks(mounted: &Path) -> Result<u64, BlockError> {
    let stat = statvfs(mounted)
        .map_err(|source| BlockError::Size { path: mounted.to_owned(), source: source.into() })?;
    Ok(stat.f_blocks)
}

fn grow_ext4(device: &Path, entry: &MountEntry, table: &[MountEntry]) -> Result<Step, BlockError> {
    let mounted = &*entry.target;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = |path: &Path| {
        open(path, flags, Mode::empty())
            .map_err(|source| BlockError::Open { path: path.to_owned(), source: source.into() })
    };
    let node = opened(device)?;
    let folder = opened(mounted)?;
    let before = Superblock::read(&node, device)?;
    let wanted = size::of_open(&node, device)?.get() / before.block_size;
    if wanted <= before.blocks {
        return Ok(Step::Done(Change::Already(())));
    }
    match ext4_ioc_resize_fs(&folder, wanted) {
        Ok(()) => {}
        Err(Errno::PERM) if !may_resize_ext4() => {
            unmounted::refuse_elsewhere(device, entry, table)?;
            return Ok(Step::Unmounted(unmounted::mount_again(device, entry)));
        }
        // Layouts that the kernel does not grow alone; resize2fs knows what to do or to say.
        Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOTTY | Errno::PERM) => {
            return Ok(Step::Tool { blocks: blocks(mounted)? });
        }
        Err(source) => {
            let device = device.to_owned();
            return Err(BlockError::Ioctl {
                attempt: "growing ext4 on",
                device,
                source: source.into(),
            });
        }
    }
    // A last group that is too small for its own tables is left off; then nothing changes.
    let grown = Superblock::read(&node, device)?.blocks > before.blocks;
    Ok(Step::Done(if grown { Change::Made(()) } else { Change::Already(()) }))
}

/// What we need of an ext4 superblock. Read through the device's cache, which a mounted file
/// system shares.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    pub(super) blocks: u64,
    pub(super) block_size: u64,
}

impl Superblock {
    fn read(node: impl std::os::fd::AsFd, device: &Path) -> Result<Self, BlockError> {
        let mut bytes = [0; 1024];
        let length = pread(node, &mut bytes[..], 1024).map_err(|source| BlockError::Read {
            device: device.to_owned(),
            at: 1024,
            source: source.into(),
        })?;
        Self::parse(&bytes[..length])
            .ok_or_else(|| BlockError::NoSuperblock { device: device.to_owned() })
    }

    /// Offsets as in the kernel's `struct ext4_super_block`.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
        };
        const WIDE: u32 = 0x80;
        if bytes.get(0x38..0x3a)? != [0x53, 0xef] {
            return None;
        }
        let wide = word(0x60)? & WIDE != 0;
        let high = if wide { word(0x150)? } else { 0 };
        let blocks = u64::from(high) << 32 | u64::from(word(0x4)?);
        let shift = word(0x18)?;
        if shift > 6 {
            return None;
        }
        Some(Self { blocks, block_size: 1024 << shift })
    }
}
