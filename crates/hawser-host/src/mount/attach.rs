//! Mounts a file system or binds a folder on an open target.
//!
//! The new mount interface takes descriptors, so nothing is looked up by name between the check of
//! the target and the mount, and its context says in words why a file system was refused. Kernels
//! and sandboxes without it get mount(2) on `/proc/self/fd`, which is as safe and less talkative.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use hawser_core::secret::Secret;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
    move_mount, open_tree,
};

use super::error::MountError;
use super::options::Options;
use crate::exec::blank_out;
use crate::sys;

fn descriptor_path(descriptor: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

/// A file system that is to be mounted.
pub(super) struct NewFilesystem<'a> {
    /// The kernel's name of its type.
    pub(super) fs_type: &'a str,
    /// A device, or what the file system takes for one.
    pub(super) source: &'a Path,
    /// Options that are never shown.
    pub(super) secrets: &'a [(String, Secret)],
}

impl NewFilesystem<'_> {
    /// What the kernel said, without the secrets that it may have repeated.
    fn scrub(&self, log: String) -> String {
        blank_out(self.secrets.iter().map(|(_, secret)| secret.expose()), log)
    }
}

/// Mounts a file system on an open folder.
pub(super) fn filesystem(
    new: &NewFilesystem<'_>,
    folder: BorrowedFd<'_>,
    target: &Path,
    options: &Options,
) -> Result<(), MountError> {
    let failed = |log: String, source: Errno| MountError::Mount {
        source_name: format!("{} ({})", new.source.display(), new.fs_type),
        target: target.to_owned(),
        log: new.scrub(log),
        source: source.into(),
    };
    let context = match fsopen(new.fs_type, FsOpenFlags::FSOPEN_CLOEXEC) {
        Ok(context) => context,
        Err(Errno::NOSYS) => {
            let data = options.joined(new.secrets)?;
            let place = descriptor_path(folder);
            return rustix::mount::mount(new.source, place, new.fs_type, options.flags, &*data)
                .map_err(|errno| failed(String::new(), errno));
        }
        Err(Errno::NODEV) => {
            let log = format!("there is no file system {0}; load the module {0}", new.fs_type);
            return Err(failed(log, Errno::NODEV));
        }
        Err(errno) => return Err(failed(String::new(), errno)),
    };
    let made = configure(&context, new, options)
        .and_then(|()| fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, options.attributes));
    let mount = made.map_err(|errno| failed(log_of(&context), errno))?;
    place(&mount, folder).map_err(|errno| failed(String::new(), errno))
}

fn configure(context: &OwnedFd, new: &NewFilesystem<'_>, options: &Options) -> Result<(), Errno> {
    fsconfig_set_string(context, "source", new.source)?;
    for (key, value) in &options.filesystem {
        match value {
            Some(value) => fsconfig_set_string(context, key.as_str(), value.as_str())?,
            None => fsconfig_set_flag(context, key.as_str())?,
        }
    }
    for (key, secret) in new.secrets {
        fsconfig_set_string(context, key.as_str(), secret.expose())?;
    }
    if options.read_only && !options.written_elsewhere {
        // The file system itself, not only this mount: it must not write to the device either.
        fsconfig_set_flag(context, "ro")?;
    }
    fsconfig_create(context)
}

/// What the kernel put down in the context: one line for each read, `e ` before an error.
fn log_of(context: &OwnedFd) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut buffer = [0_u8; 1024];
    // The kernel keeps 8 lines.
    while lines.len() < 8 {
        match rustix::io::read(context, &mut buffer) {
            Ok(length) if length > 0 => {
                let line = String::from_utf8_lossy(&buffer[..length]);
                let line = line.trim();
                let line = line.strip_prefix("e ").or(line.strip_prefix("w ")).unwrap_or(line);
                lines.push(line.to_owned());
            }
            Ok(_) | Err(_) => break,
        }
    }
    lines.join("; ")
}

fn place(mount: &OwnedFd, folder: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, "", folder, "", flags)
}

/// Binds an open folder on another.
pub(super) fn bind(
    source: &Path,
    source_folder: BorrowedFd<'_>,
    folder: BorrowedFd<'_>,
    target: &Path,
    options: &Options,
) -> Result<(), MountError> {
    let failed = |errno: Errno| MountError::Mount {
        source_name: source.display().to_string(),
        target: target.to_owned(),
        log: String::new(),
        source: errno.into(),
    };
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = match open_tree(source_folder, "", flags) {
        Ok(tree) => tree,
        Err(Errno::NOSYS) => return bind_by_path(source_folder, folder, target, options, failed),
        Err(errno) => return Err(failed(errno)),
    };
    if !options.attributes.is_empty() {
        // Before it is placed, so that there is no instant at which it can be written to. Setting
        // an access-time rule means clearing the others first.
        let times = MountAttrFlags::MOUNT_ATTR__ATIME;
        let clear =
            if options.attributes.intersects(times) { times } else { MountAttrFlags::empty() };
        match sys::set_mount_attributes(&tree, options.attributes, clear) {
            Ok(()) => {}
            Err(Errno::NOSYS) => {
                return bind_by_path(source_folder, folder, target, options, failed);
            }
            Err(errno) => return Err(failed(errno)),
        }
    }
    place(&tree, folder).map_err(failed)
}

/// The way of mount(2): bind, then remount with the flags, and take it back if that fails.
fn bind_by_path(
    source: BorrowedFd<'_>,
    folder: BorrowedFd<'_>,
    target: &Path,
    options: &Options,
    failed: impl Fn(Errno) -> MountError,
) -> Result<(), MountError> {
    let place = descriptor_path(folder);
    rustix::mount::mount_bind(descriptor_path(source), &place).map_err(&failed)?;
    if options.flags.is_empty() {
        return Ok(());
    }
    // The descriptor stands for the folder below; the new mount is reached by name only.
    let flags = MountFlags::BIND | options.flags;
    let remounted = rustix::mount::mount_remount(target, flags, c"");
    remounted.map_err(|first| match rustix::mount::unmount(target, UnmountFlags::NOFOLLOW) {
        Ok(()) => failed(first),
        Err(source) => MountError::Undo { target: target.to_owned(), first, source: source.into() },
    })
}
