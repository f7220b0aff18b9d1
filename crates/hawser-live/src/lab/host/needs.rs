//! Programs of the host without which nothing can be done.

use std::path::Path;

use super::error::{LabError, Result};
use super::program::PATH;

/// A program and the Debian package that has it.
type Need = (&'static str, &'static str);

/// For an image.
pub(super) const TO_BUILD: &[Need] = &[
    ("apt-get", "apt"),
    ("apt-config", "apt"),
    ("dpkg-deb", "dpkg"),
    ("mmdebstrap", "mmdebstrap"),
    ("depmod", "kmod"),
    ("modprobe", "kmod"),
    ("xz", "xz-utils"),
    ("find", "findutils"),
    ("unshare", "util-linux"),
    ("mkfs.ext4", "e2fsprogs"),
    ("setpriv", "util-linux"),
];

/// For a run.
pub(super) const TO_RUN: &[Need] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
    ("mkfs.ext4", "e2fsprogs"),
    ("setpriv", "util-linux"),
];

/// For a peer that is written in Python.
pub(super) const FOR_PYTHON: &[Need] = &[("pip3", "python3-pip"), ("setpriv", "util-linux")];

/// Fails with all that is missing, not with the first one.
pub(super) fn check(needs: &[Need]) -> Result<()> {
    let mut missing = Vec::new();
    for (program, package) in needs {
        if find(program).is_none() {
            missing.push(format!("{program} ({package})"));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(LabError::Missing { programs: missing.join(", ") })
}

/// Where a program is.
pub(super) fn find(program: &str) -> Option<std::path::PathBuf> {
    PATH.split(':').map(|folder| Path::new(folder).join(program)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_missing_programs_are_named_with_their_packages() {
        let needs = [("sh", "dash"), ("no-such-a", "a"), ("no-such-b", "b")];
        let error = check(&needs).unwrap_err().to_string();
        assert!(error.contains("no-such-a (a), no-such-b (b)"), "{error}");
        assert!(!error.contains("dash"), "{error}");
    }
}
