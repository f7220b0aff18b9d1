//! Real copies of real files, with their holes.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use hawser_core::error::Result;
use hawser_core::port::Progress;
use hawser_core::{Error, Kind};
use rustix::fs::XattrFlags;

use super::image::extents;

/// Copies one file and answers how many bytes were moved.
pub(super) fn file(from: &Path, to: &Path, progress: &dyn Progress) -> Result<u64> {
    let meta = fs::symlink_metadata(from).map_err(|error| failed("copying", from, &error))?;
    if !meta.is_file() {
        return Err(Error::new(Kind::Invalid, format!("{} is no plain file", from.display())));
    }
    absent(to)?;
    let mut moved = 0;
    let mut hear = |bytes| {
        moved += bytes;
        progress.amount(moved, meta.len());
    };
    progress.step("copying");
    if let Err(error) = one_file(from, to, &meta, &mut hear) {
        let _ = fs::remove_file(to);
        return Err(failed("copying to", to, &error));
    }
    Ok(moved)
}

/// Copies a folder with all that is in it and answers how many bytes of files were moved.
pub(super) fn tree(from: &Path, to: &Path, progress: &dyn Progress) -> Result<u64> {
    let meta = fs::symlink_metadata(from).map_err(|error| failed("copying", from, &error))?;
    if !meta.is_dir() {
        return Err(Error::new(Kind::Invalid, format!("{} is no folder", from.display())));
    }
    if to.starts_with(from) {
        let why = format!("{} cannot be copied into itself", from.display());
        return Err(Error::new(Kind::Invalid, why));
    }
    absent(to)?;
    let mut moved = 0;
    let mut hear = |bytes| {
        moved += bytes;
        progress.amount(moved, 0);
    };
    progress.step("copying");
    if let Err(error) = one_folder(from, to, &meta, &mut BTreeMap::new(), &mut hear) {
        let _ = fs::remove_dir_all(to);
        return Err(failed("copying to", to, &error));
    }
    Ok(moved)
}

fn absent(to: &Path) -> Result<()> {
    match fs::symlink_metadata(to) {
        Ok(_) => Err(Error::new(Kind::Exists, format!("{} is there already", to.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("looking at", to, &error)),
    }
}

/// Names of files that have several, by device and inode.
type Seen = BTreeMap<(u64, u64), PathBuf>;

fn one_folder(
    from: &Path,
    to: &Path,
    meta: &fs::Metadata,
    seen: &mut Seen,
    hear: &mut dyn FnMut(u64),
) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, copy) = (entry.path(), to.join(entry.file_name()));
        let meta = fs::symlink_metadata(&source)?;
        let kind = meta.file_type();
        if kind.is_dir() {
            one_folder(&source, &copy, &meta, seen, hear)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(&source)?, &copy)?;
            dress(&source, &copy, &meta)?;
        } else if let Some(first) = seen.get(&(meta.dev(), meta.ino())) {
            fs::hard_link(first, &copy)?;
        } else {
            if kind.is_file() {
                one_file(&source, &copy, &meta, hear)?;
            } else if kind.is_fifo() {
                let mode = rustix::fs::Mode::from_raw_mode(meta.mode() & 0o7777);
                rustix::fs::mknodat(rustix::fs::CWD, &copy, rustix::fs::FileType::Fifo, mode, 0)?;
                dress(&source, &copy, &meta)?;
            } else {
                return Err(io::Error::other(format!("{} is of no kind", source.display())));
            }
            if meta.nlink() > 1 {
                seen.insert((meta.dev(), meta.ino()), copy);
            }
        }
    }
    dress(from, to, meta)
}

fn one_file(
    from: &Path,
    to: &Path,
    meta: &fs::Metadata,
    hear: &mut dyn FnMut(u64),
) -> io::Result<()> {
    let source = File::open(from)?;
    let copy = OpenOptions::new().write(true).create_new(true).open(to)?;
    copy.set_len(meta.len())?;
    let mut buffer = vec![0_u8; 1 << 20];
    for (start, end) in extents(&source)? {
        let mut at = start;
        while at < end {
            let want = buffer.len().min(usize::try_from(end - at).unwrap_or(buffer.len()));
            let got = source.read_at(&mut buffer[..want], at)?;
            if got == 0 {
                break;
            }
            copy.write_all_at(&buffer[..got], at)?;
            at += got as u64;
            hear(got as u64);
        }
    }
    dress(from, to, meta)
}

/// Owner, mode, extended attributes and times. Owners are kept where this process may.
fn dress(from: &Path, to: &Path, meta: &fs::Metadata) -> io::Result<()> {
    match std::os::unix::fs::lchown(to, Some(meta.uid()), Some(meta.gid())) {
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
        Ok(()) | Err(_) => {}
    }
    attributes(from, to)?;
    if !meta.file_type().is_symlink() {
        fs::set_permissions(to, fs::Permissions::from_mode(meta.mode() & 0o7777))?;
    }
    let times = rustix::fs::Timestamps {
        last_access: rustix::fs::Timespec { tv_sec: meta.atime(), tv_nsec: meta.atime_nsec() as _ },
        last_modification: rustix::fs::Timespec {
            tv_sec: meta.mtime(),
            tv_nsec: meta.mtime_nsec() as _,
        },
    };
    rustix::fs::utimensat(rustix::fs::CWD, to, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}

fn attributes(from: &Path, to: &Path) -> io::Result<()> {
    let mut names = vec![0_u8; 64 << 10];
    let length = match rustix::fs::llistxattr(from, &mut names[..]) {
        Ok(length) => length,
        Err(rustix::io::Errno::NOTSUP) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0_u8; 64 << 10];
        let length = rustix::fs::lgetxattr(from, name, &mut value[..])?;
        rustix::fs::lsetxattr(to, name, &value[..length], XattrFlags::empty())?;
    }
    Ok(())
}

fn failed(attempt: &str, path: &Path, error: &io::Error) -> Error {
    let kind = if error.kind() == io::ErrorKind::NotFound {
        Kind::NotFound
    } else if error.kind() == io::ErrorKind::StorageFull {
        Kind::NoSpace
    } else {
        Kind::Unavailable
    };
    Error::new(kind, format!("{attempt} {} failed: {error}", path.display()))
}
