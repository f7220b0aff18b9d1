//! Groups that everything below a folder is given to. Files are real, and so are their groups and modes:
//! a test that runs without root can give to a group of its own only.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

use hawser_core::error::Result;
use hawser_core::{Change, Error, Kind};

use super::mount;
use super::state::State;

/// What a folder has that was given.
const FOLDER: u32 = 0o2070;

impl State {
    pub(super) fn give_to_group(&self, folder: &Path, group: u32) -> Result<Change<()>> {
        mount::folder(folder)?;
        if group == u32::MAX {
            return Err(Error::new(Kind::Invalid, format!("{group} is no group")));
        }
        if self.mounts.over(folder).is_some_and(|entry| entry.read_only()) {
            let why = format!("{} is mounted read-only", folder.display());
            return Err(Error::new(Kind::Precondition, why));
        }
        let failed = |error: io::Error| {
            let denied = error.kind() == io::ErrorKind::PermissionDenied;
            let kind = if denied { Kind::Denied } else { Kind::Unavailable };
            Error::new(kind, format!("changing the group of {}: {error}", folder.display()))
        };
        let meta = fs::metadata(folder).map_err(failed)?;
        if meta.gid() == group && meta.mode() & FOLDER == FOLDER {
            return Ok(Change::Already(()));
        }
        self.give_below(folder, group).map_err(failed)?;
        give(folder, &meta, group).map_err(failed)?;
        Ok(Change::Made(()))
    }

    fn give_below(&self, folder: &Path, group: u32) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if self.mounts.at(&path).is_some() {
                continue;
            }
            let meta = fs::symlink_metadata(&path)?;
            if meta.is_dir() {
                self.give_below(&path, group)?;
            }
            give(&path, &meta, group)?;
        }
        Ok(())
    }
}

fn give(path: &Path, meta: &Metadata, group: u32) -> io::Result<()> {
    if meta.gid() != group {
        lchown(path, None, Some(group))?;
    }
    if meta.is_symlink() {
        return Ok(());
    }
    let mode = meta.mode() & 0o7777;
    let added = match meta.is_dir() {
        true => FOLDER,
        false => 0o060 | if mode & 0o111 == 0 { 0 } else { 0o010 },
    };
    if mode & added == added {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode | added))
}
