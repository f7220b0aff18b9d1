//! The one door for programs.
//!
//! A program is named, found once in a fixed list of folders, and started with an argument list, an
//! empty environment, a limit and no shell. Where it runs is decided here: today always on the host
//! itself ([`direct`]); a client container is one more file beside it, and no caller will notice.

mod direct;
mod error;
mod kept;
mod redact;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use hawser_core::port::host::{Tool, ToolOutput};

pub(crate) use error::ExecError;
pub(crate) use redact::blank_out;

/// Where programs are looked for; the caller's `PATH` is never asked.
pub(crate) const DIRECTORIES: [&str; 7] = [
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/usr/local/sbin",
    "/usr/local/bin",
    // Where Huawei puts its own.
    "/usr/local/bin/sds",
];

/// Which Debian package brings a program that we may miss.
const PACKAGES: [(&str, &[&str]); 5] = [
    ("e2fsprogs", &["mkfs.ext4", "e2fsck", "resize2fs", "dumpe2fs", "tune2fs"]),
    ("xfsprogs", &["mkfs.xfs", "xfs_growfs", "xfs_repair", "xfs_io", "xfs_admin"]),
    ("btrfs-progs", &["mkfs.btrfs", "btrfs", "btrfstune"]),
    ("util-linux", &["blkid", "wipefs", "fsfreeze", "blockdev", "findmnt", "lsblk"]),
    ("mount", &["mount", "umount", "losetup", "swapon"]),
];

/// Runs programs and remembers where it found them.
#[derive(Debug, Default)]
pub(crate) struct Exec {
    found: Mutex<HashMap<String, PathBuf>>,
}

impl Exec {
    /// Runs a program to its end.
    pub(crate) async fn run(&self, tool: &Tool) -> Result<ToolOutput, ExecError> {
        let path = self.find(&tool.program)?;
        tracing::debug!(command = %redact::Shown(tool), "running");
        direct::run(&path, tool).await
    }

    /// The absolute path of a program. A miss is not remembered: it may be installed meanwhile.
    fn find(&self, program: &str) -> Result<PathBuf, ExecError> {
        if program.is_empty() || program.contains(['/', '\0']) || program.starts_with('.') {
            return Err(ExecError::NotAName { program: program.to_owned() });
        }
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = found.get(program) {
            return Ok(path.clone());
        }
        let path = DIRECTORIES
            .iter()
            .map(|directory| Path::new(directory).join(program))
            .find(|path| is_program(path))
            .ok_or_else(|| missing(program))?;
        found.insert(program.to_owned(), path.clone());
        Ok(path)
    }
}

fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

fn missing(program: &str) -> ExecError {
    let program = program.to_owned();
    let package = PACKAGES.iter().find(|(_, programs)| programs.contains(&program.as_str()));
    match package {
        Some((package, _)) => ExecError::Missing { program, package },
        None => ExecError::MissingUnknown { program },
    }
}
