//! Who uses a file or a folder of a mounted volume.

use std::fs;
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

#[cfg(test)]
mod tests {
    use super::*;

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
