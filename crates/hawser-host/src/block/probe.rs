//! What is on a device: `blkid -p`, and our own look at what must be zero.
//!
//! `blkid` answers "nothing found" with the same exit code as "could not read", so its word alone
//! never makes a device blank. Blank is: it found nothing, complained of nothing, and everything we
//! read ourselves, past the page cache and in full, is zero.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use hawser_core::filesystem::FsKind;
use hawser_core::port::host::{Content, Tool, ToolOutput};
use rustix::fs::{Advice, Mode, OFlags, fadvise, fcntl_setfl, open};
use rustix::io::{Errno, pread};

use super::error::BlockError;
use super::size;
use crate::sys;

/// Satisfies the direct I/O of every device there is.
const ALIGNMENT: usize = 4096;
const BUFFER: usize = 1 << 20;
/// Covers the signatures at the front: partition tables, LVM, LUKS, ext4 (1 KiB), jfs, reiserfs,
/// gfs2 and btrfs (64 KiB), ufs (256 KiB), the first two ZFS labels, VMFS (1 and 2 MiB).
const FRONT: u64 = 4 << 20;
/// Covers the signatures at the end: md 0.90 and 1.0, DDF, the backup GPT, the last two ZFS labels.
const BACK: u64 = 1 << 20;
/// Second superblocks further in: ext4 with 1 KiB and 4 KiB blocks, btrfs' second and third copy.
const INNER: [u64; 4] = [8 << 20, 128 << 20, 64 << 20, 256 << 30];
/// How much is read around each of them.
const AROUND: u64 = 64 << 10;

/// The low-level probe, which uses no cache of its own, in a form made for programs.
pub(crate) fn command(device: &Path) -> Tool {
    Tool::new("blkid").args(["-p", "-o", "export"]).arg(device)
}

/// What `blkid -p -o export` said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Signature {
    /// No signature that it knows.
    Nothing,
    /// One.
    Found(Content),
}

/// Reads the answer of `blkid -p -o export`.
pub(crate) fn signature(device: &Path, output: &ToolOutput) -> Result<Signature, BlockError> {
    let failed = || BlockError::Probe { device: device.to_owned(), source: output.failed() };
    match output.code {
        Some(0) => content(device, &output.stdout).map(Signature::Found),
        // 2 also stands for what could not be read; then it complains.
        Some(2) if output.stderr.trim().is_empty() => Ok(Signature::Nothing),
        Some(8) => Err(BlockError::Ambivalent { device: device.to_owned() }),
        Some(_) | None => Err(failed()),
    }
}

fn content(device: &Path, text: &str) -> Result<Content, BlockError> {
    let malformed = |line: &str| BlockError::Malformed {
        device: device.to_owned(),
        line: line.chars().take(200).collect(),
    };
    let (mut kind, mut table, mut uuid) = (None, None, None);
    for line in text.lines().filter(|line| !line.is_empty()) {
        let (key, value) = line.split_once('=').ok_or_else(|| malformed(line))?;
        match key {
            "TYPE" => kind = Some(unescape(value)),
            "PTTYPE" => table = Some(unescape(value)),
            "UUID" => uuid = value.parse().ok(),
            _ => {}
        }
    }
    match (kind, table) {
        (Some(kind), _) => Ok(match kind.parse::<FsKind>() {
            Ok(fs) => Content::Filesystem { fs, uuid },
            Err(_) => Content::Other(kind),
        }),
        (None, Some(table)) => Ok(Content::Other(table)),
        // It found something and does not say what.
        (None, None) => Err(malformed(text.trim())),
    }
}

/// Undoes the backslashes that `-o export` puts before what a shell would mind.
fn unescape(value: &str) -> String {
    let mut plain = String::with_capacity(value.len());
    let mut escaped = false;
    for c in value.chars() {
        if c == '\\' && !escaped {
            escaped = true;
            continue;
        }
        escaped = false;
        plain.push(c);
    }
    plain
}

/// Forgets what is cached of a device, so that `blkid` reads what is there. Blocks.
pub(crate) fn forget_cache(device: &Path) -> Result<(), BlockError> {
    let file = open_for_reading(device)?;
    drop_cache(&file);
    Ok(())
}

fn open_for_reading(device: &Path) -> Result<OwnedFd, BlockError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    open(device, flags, Mode::empty())
        .map_err(|source| BlockError::Open { path: device.to_owned(), source: source.into() })
}

/// Best effort: our own reads bypass the cache or follow a flush, whatever this could do.
fn drop_cache(file: &OwnedFd) {
    if sys::flush_buffers(file).is_err() {
        let _ = rustix::fs::fdatasync(file);
        let _ = fadvise(file, 0, None, Advice::DontNeed);
    }
}

/// True when everything that must be zero on a blank device was read and is zero. Blocks.
pub(crate) fn is_zero(device: &Path) -> Result<bool, BlockError> {
    let file = open_for_reading(device)?;
    let size = size::of_open(&file, device)?.get();
    if size == 0 {
        return Err(BlockError::Empty { device: device.to_owned() });
    }
    drop_cache(&file);
    // Where the file system has no direct I/O, the flush above has to do.
    let _ = fcntl_setfl(&file, OFlags::DIRECT);
    let mut storage = vec![0_u8; BUFFER + ALIGNMENT];
    let start = storage.as_ptr().align_offset(ALIGNMENT);
    let buffer = &mut storage[start..start + BUFFER];
    for (from, to) in regions(size) {
        if !region_is_zero(file.as_fd(), device, (from, to), size, buffer)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What is read of a device of `size` bytes, on aligned bounds; the last may reach past the end.
pub(super) fn regions(size: u64) -> Vec<(u64, u64)> {
    let align = ALIGNMENT as u64;
    let front = (0, FRONT);
    let inner = INNER.iter().map(|middle| (middle - AROUND, middle + AROUND));
    let back = (size.saturating_sub(BACK), size);
    std::iter::once(front)
        .chain(inner)
        .chain([back])
        .filter(|(from, _)| *from < size)
        .map(|(from, to)| (from / align * align, to.min(size).next_multiple_of(align)))
        .collect()
}

fn region_is_zero(
    file: impl AsFd,
    device: &Path,
    (from, to): (u64, u64),
    size: u64,
    buffer: &mut [u8],
) -> Result<bool, BlockError> {
    let end = to.min(size);
    let mut at = from;
    while at < end {
        let wanted = usize::try_from(to - at).map_or(buffer.len(), |left| left.min(buffer.len()));
        let length = match pread(&file, &mut buffer[..wanted], at) {
            Ok(length) => length,
            Err(Errno::INTR) => continue,
            Err(source) => {
                return Err(BlockError::Read {
                    device: device.to_owned(),
                    at,
                    source: source.into(),
                });
            }
        };
        if length == 0 {
            let missing = end - at;
            return Err(BlockError::ShortRead { device: device.to_owned(), at, missing });
        }
        if buffer[..length].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += length as u64;
    }
    Ok(true)
}
