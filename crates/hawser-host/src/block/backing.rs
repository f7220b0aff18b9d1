//! The file of a loop device, by the path that leads to it here.
//!
//! The kernel tells the path through the mount by which the file was opened. When that mount is gone, as the
//! one of a container that was replaced, what is left of the path begins at the root of the mount.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hawser_core::port::host::MountEntry;
use rustix::fs::makedev;

use crate::mount::table;

/// What the kernel adds to the name of a file that is gone.
const DELETED: &[u8] = b" (deleted)";

/// The file as the kernel tells it; `None` for a device without one.
pub(super) fn told(number: u32) -> Option<PathBuf> {
    let text = fs::read(format!("/sys/block/loop{number}/loop/backing_file")).ok()?;
    let text = text.strip_suffix(b"\n").unwrap_or(&text);
    Some(PathBuf::from(OsString::from_vec(text.to_vec())))
}

/// The path of a file that the kernel told, by its device and inode; as it was told where no path leads to it
/// here.
pub(super) fn found(told: PathBuf, file: (u64, u64)) -> PathBuf {
    if is_it(&told, file) || told.as_os_str().as_bytes().ends_with(DELETED) {
        return told;
    }
    match table::read() {
        Ok(table) => found_below(&table, &told, file).unwrap_or(told),
        Err(_) => told,
    }
}

/// The file below a mount of its own file system: no other is touched, because it may not answer.
fn found_below(table: &[MountEntry], told: &Path, file: (u64, u64)) -> Option<PathBuf> {
    let below = told.strip_prefix("/").ok()?;
    let same = |entry: &&MountEntry| makedev(entry.device.0, entry.device.1) == file.0;
    let paths = table.iter().rev().filter(same).map(|entry| entry.target.join(below));
    paths.into_iter().find(|path| is_it(path, file))
}

fn is_it(path: &Path, file: (u64, u64)) -> bool {
    fs::metadata(path).is_ok_and(|meta| (meta.dev(), meta.ino()) == file)
}

/// Without what the kernel adds to the name of a file that is gone.
pub(super) fn without_deleted(path: &Path) -> &[u8] {
    let bytes = path.as_os_str().as_bytes();
    bytes.strip_suffix(DELETED).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{major, minor};

    use super::*;

    #[test]
    fn a_file_is_found_whose_mount_was_replaced_and_no_other_of_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let (pool, other) = (dir.path().join("new/pool"), dir.path().join("other/pool"));
        for folder in [&pool, &other] {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join("v.img"), b"").unwrap();
        }
        let meta = fs::metadata(pool.join("v.img")).unwrap();
        let entry = |target: &str, minor| {
            let (major, target) = (major(meta.dev()), dir.path().join(target));
            format!("1 0 {major}:{minor} / {} rw - ext4 /dev/x rw\n", target.display())
        };
        let here = minor(meta.dev());
        let text = [entry("new", here), entry("other", here), entry("new", here + 1)].concat();
        let table = table::parse(text.as_bytes()).unwrap();
        let (told, file) = (Path::new("/pool/v.img"), (meta.dev(), meta.ino()));

        assert_eq!(found_below(&table, told, file), Some(pool.join("v.img")));
        assert_eq!(found_below(&table[1..], told, file), None, "others are not it");
        assert_eq!(found(told.to_owned(), (meta.dev(), u64::MAX)), told);
    }

    #[test]
    fn a_file_that_is_where_it_was_told_or_gone_keeps_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("v.img");
        fs::write(&path, b"").unwrap();
        let meta = fs::metadata(&path).unwrap();
        let gone = PathBuf::from("/pool/v.img (deleted)");

        assert_eq!(found(path.clone(), (meta.dev(), meta.ino())), path);
        assert_eq!(found(gone.clone(), (meta.dev(), meta.ino())), gone);
        assert_eq!(without_deleted(&gone), b"/pool/v.img");
    }
}
