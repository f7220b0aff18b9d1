//! Who uses a file or a folder of a mounted volume.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use hawser_core::error::Result;
use hawser_core::port::Host;

use super::data::Volume;
use crate::shared::error::AttachError;

/// As many as fit into a sentence.
const MOST: usize = 5;

/// Refuses a volume that somebody uses: a loop device over it, or, unless forced, a process that
/// has it open.
pub(super) async fn refuse_used(host: &dyn Host, volume: &Volume, force: bool) -> Result<()> {
    let path = volume.path();
    let mut users: Vec<String> = host
        .loop_devices()
        .await?
        .into_iter()
        .filter(|device| device.backing_file.starts_with(&path))
        .map(|device| format!("the device {} above it", device.device.display()))
        .collect();
    if users.is_empty() && !force {
        users = openers(path.clone()).await;
    }
    if users.is_empty() {
        return Ok(());
    }
    users.truncate(MOST);
    Err(AttachError::Busy { device: path, users: users.join(", ") }.into())
}

/// Processes with something open at or below a path. Compares the names that `/proc` tells and
/// follows none: one may lead to a server that is dead.
async fn openers(path: PathBuf) -> Vec<String> {
    // Not an error when it cannot be found out: the unmount asks the kernel itself.
    tokio::task::spawn_blocking(move || scan(Path::new("/proc"), &path)).await.unwrap_or_default()
}

fn scan(proc: &Path, path: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let Ok(processes) = fs::read_dir(proc) else { return found };
    for process in processes.flatten() {
        let name = process.file_name();
        if !name.to_str().is_some_and(|name| name.bytes().all(|b| b.is_ascii_digit())) {
            continue;
        }
        let folder = process.path();
        let leads_there = |link: &Path| fs::read_link(link).is_ok_and(|to| to.starts_with(path));
        let open = ["cwd", "root"].iter().any(|link| leads_there(&folder.join(link)))
            || fs::read_dir(folder.join("fd"))
                .is_ok_and(|fds| fds.flatten().any(|fd| leads_there(&fd.path())));
        if open {
            let program = fs::read_to_string(folder.join("comm")).unwrap_or_default();
            found.push(format!("{} ({})", program.trim(), name.to_string_lossy()));
        }
    }
    found
}

/// Programs that mount on a folder at this moment: their caller may have given up or died, and they
/// go on.
pub(super) async fn mounting(target: PathBuf) -> Vec<String> {
    let scan = move || scan_programs(Path::new("/proc"), &target);
    tokio::task::spawn_blocking(scan).await.unwrap_or_default()
}

fn scan_programs(proc: &Path, target: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for process in fs::read_dir(proc).into_iter().flatten().flatten() {
        let Ok(line) = fs::read(process.path().join("cmdline")) else { continue };
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        // The program, or the script that an interpreter runs.
        let mount = words.iter().take(2).find(|word| is_mount_program(word));
        let there = words.contains(&target.as_os_str().as_bytes());
        if let Some(program) = mount.filter(|_| there) {
            let pid = process.file_name();
            let program = String::from_utf8_lossy(program);
            found.push(format!("{program} ({})", pid.to_string_lossy()));
        }
    }
    found
}

fn is_mount_program(word: &[u8]) -> bool {
    let name = word.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    name == b"mount" || name.starts_with(b"mount.") || name == b"pstorage-mount"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_mount_there_are_told_from_those_that_do_not() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, line) in [
            ("1", "/bin/sh\0/usr/sbin/mount.glusterfs\0a:/v\0/mnt/x\0-o\0rw\0"),
            ("2", "/usr/sbin/glusterfs\0--volfile-id=v\0/mnt/x\0"),
            ("3", "mount.nfs\0a:/v\0/mnt/y\0"),
            ("4", "mount\0-t\0quobyte\0r/v\0/mnt/x\0"),
            ("5", ""),
        ] {
            fs::create_dir(proc.path().join(pid)).unwrap();
            fs::write(proc.path().join(pid).join("cmdline"), line).unwrap();
        }

        let mut found = scan_programs(proc.path(), Path::new("/mnt/x"));

        found.sort();
        assert_eq!(found, ["/usr/sbin/mount.glusterfs (1)", "mount (4)"]);
    }

    #[tokio::test]
    async fn whoever_has_a_file_open_is_told() {
        let scratch = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(scratch.path()).unwrap().join("file");
        let file = fs::File::create(&path).unwrap();

        let me = format!("({})", std::process::id());
        assert!(openers(path.clone()).await.iter().any(|who| who.ends_with(&me)));
        drop(file);
        assert!(openers(path).await.is_empty());
    }
}
