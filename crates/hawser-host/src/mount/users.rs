//! Who has a path open: best effort, bounded, and never touching the path itself.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The scan is a courtesy of an error message; it must not take longer than what it explains.
const LIMIT: Duration = Duration::from_millis(200);
/// As many as fit into a sentence.
const MOST: usize = 5;

/// The processes with a file, working folder or root at or below `path`, as `name (pid)`.
///
/// Compares the names that `/proc` tells and follows none of them, as one may lead to a server
/// that is dead.
pub(crate) fn openers(path: &Path) -> Vec<String> {
    openers_within(path, LIMIT)
}

/// The same for a caller that goes by the answer: what was not looked at in time is missing in it.
pub(crate) fn openers_within(path: &Path, limit: Duration) -> Vec<String> {
    let end = Instant::now() + limit;
    let mut found = Vec::new();
    let Ok(processes) = fs::read_dir("/proc") else { return found };
    for process in processes.flatten() {
        if found.len() >= MOST || Instant::now() > end {
            break;
        }
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let folder = process.path();
        let leads_there = |link: &Path| fs::read_link(link).is_ok_and(|to| to.starts_with(path));
        let open = ["cwd", "root"].iter().any(|link| leads_there(&folder.join(link)))
            || fs::read_dir(folder.join("fd"))
                .is_ok_and(|fds| fds.flatten().any(|fd| leads_there(&fd.path())));
        if open {
            let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
            found.push(format!("{} ({pid})", name.trim()));
        }
    }
    found
}
