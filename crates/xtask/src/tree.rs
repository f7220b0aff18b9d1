//! The files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::process::program;

/// The repository on disk.
#[derive(Debug)]
pub(crate) struct Tree {
    /// Its top folder.
    pub(crate) root: PathBuf,
}

impl Tree {
    /// The workspace that this program was built from.
    pub(crate) fn of_this_workspace() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let root = root.canonicalize().map_err(|e| format!("finding the workspace: {e}"))?;
        Ok(Self { root })
    }

    /// A file's text; `path` is relative to the root.
    pub(crate) fn read(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        fs::read_to_string(self.root.join(path))
            .map_err(|e| format!("reading {}: {e}", path.display()).into())
    }

    /// Every file git tracks or would track, relative to the root, in order. What git ignores is
    /// not part of the project.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>> {
        let output = program("git")
            .current_dir(&self.root)
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .output()
            .map_err(|e| format!("running git ls-files: {e}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("git ls-files failed: {}", said.trim()).into());
        }
        let mut files: Vec<PathBuf> = String::from_utf8_lossy(&output.stdout)
            .split('\0')
            .filter(|name| !name.is_empty())
            .map(PathBuf::from)
            // A file that was removed and not yet committed is still listed.
            .filter(|path| self.root.join(path).is_file())
            .collect();
        files.sort();
        files.dedup();
        Ok(files)
    }

    /// The Rust files below a folder, relative to the root, in order. Absent folders have none.
    pub(crate) fn rust_files(&self, below: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let mut folders = vec![below.as_ref().to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in self.entries(&folder)? {
                if self.root.join(&entry).is_dir() {
                    folders.push(entry);
                } else if entry.extension().is_some_and(|e| e == "rs") {
                    found.push(entry);
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// The folders directly in a folder, relative to the root, in order.
    pub(crate) fn folders(&self, of: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
        let entries = self.entries(of.as_ref())?;
        Ok(entries.into_iter().filter(|entry| self.root.join(entry).is_dir()).collect())
    }

    fn entries(&self, of: &Path) -> Result<Vec<PathBuf>> {
        let absolute = self.root.join(of);
        if !absolute.is_dir() {
            return Ok(Vec::new());
        }
        let mut entries = Vec::new();
        let listing =
            fs::read_dir(&absolute).map_err(|e| format!("listing {}: {e}", of.display()))?;
        for entry in listing {
            let entry = entry.map_err(|e| format!("listing {}: {e}", of.display()))?;
            entries.push(of.join(entry.file_name()));
        }
        entries.sort();
        Ok(entries)
    }
}
