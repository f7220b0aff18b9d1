//! The disk that carries a job into the guest.
//!
//! The guest mounts it at `/job`. Its layout is that of a build folder, so that a test finds the
//! program as it does on the host: `target/hawser`, `target/deps/NAME`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::cargo::Built;
use super::error::{Attempt, LabError, Result};
use super::initrd::{copy, copy_tree};
use super::program::{bound, run};
use crate::lab::suites::Suite;

/// What is put on the disk beside the files: room for the file system's own structures.
const MARGIN_MIB: u64 = 16;

/// The files of a job while they are gathered; what is put here is below `/job` in the guest.
#[derive(Debug)]
pub struct Stage {
    folder: PathBuf,
    repo: PathBuf,
}

impl Stage {
    /// The top of the source tree.
    pub fn repo(&self) -> &Path {
        &self.repo
    }

    /// The folder that becomes `/job`; a program may be told to write into it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Copies a file or a folder to `/job/TO`.
    pub fn add(&self, from: &Path, to: &str) -> io::Result<()> {
        let target = self.folder.join(to);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        let copied = if from.is_dir() { copy_tree(from, &target) } else { copy(from, &target) };
        copied.map_err(io::Error::other)
    }
}

/// Gathers a suite's files and makes the disk of them; without a suite it carries the program only.
pub(super) async fn disk(
    repo: &Path,
    built: &Built,
    suite: Option<&Suite>,
    python: Option<&Path>,
    args: &[String],
    folder: &Path,
) -> Result<PathBuf> {
    let stage = Stage { folder: folder.join("job"), repo: repo.to_owned() };
    let deps = stage.folder.join("target/deps");
    fs::create_dir_all(&deps).attempt(|| format!("making {}", deps.display()))?;
    link(&built.hawser, &stage.folder.join("target/hawser"))?;
    for (name, path) in &built.tests {
        if suite.is_none_or(|suite| suite.test == name) {
            link(path, &deps.join(name))?;
        }
    }
    if let Some(packages) = python {
        copy_tree(packages, &stage.folder.join("python"))?;
    }
    let mut script = String::new();
    if let Some(suite) = suite {
        for name in suite.examples {
            let path = built
                .examples
                .get(*name)
                .ok_or_else(|| LabError::NotBuilt { name: (*name).to_owned() })?;
            let folder = stage.folder.join("target/examples");
            fs::create_dir_all(&folder).attempt(|| format!("making {}", folder.display()))?;
            link(path, &folder.join(name))?;
        }
        script = command(suite.test, args);
        if let Some(more) = suite.stage {
            more(&stage).attempt(|| format!("gathering the files of {}", suite.test))?;
        }
    }
    let path = stage.folder.join("run");
    fs::write(&path, script).attempt(|| format!("writing {}", path.display()))?;

    let image = folder.join("job.img");
    let mut mkfs = bound("mkfs.ext4");
    mkfs.args([
        "-q",
        "-F",
        "-m",
        "0",
        "-O",
        "^has_journal,^metadata_csum",
        "-E",
        "nodiscard",
        "-d",
    ]);
    mkfs.arg(&stage.folder).arg(&image).arg(format!("{}M", mib(&stage.folder) + MARGIN_MIB));
    run("making the disk of the job", mkfs).await?;
    Ok(image)
}

/// What the guest's shell runs.
fn command(test: &str, args: &[String]) -> String {
    let mut line = format!("exec /job/target/deps/{test} --test-threads=1");
    for arg in args {
        line.push_str(&format!(" '{}'", arg.replace('\'', r"'\''")));
    }
    line.push('\n');
    line
}

/// Executables are large: they are linked where that can be done.
fn link(from: &Path, to: &Path) -> Result<()> {
    if fs::hard_link(from, to).is_ok() { Ok(()) } else { copy(from, to) }
}

/// How much the files of a folder take, with a little for each of them.
fn mib(folder: &Path) -> u64 {
    fn bytes(folder: &Path) -> u64 {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let sizes = entries.map(|entry| match entry.metadata() {
            Ok(data) if data.is_dir() => bytes(&entry.path()) + 8192,
            Ok(data) => data.len() + 8192,
            Err(_) => 0,
        });
        sizes.sum()
    }
    bytes(folder) * 102 / 100 / (1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_reach_the_test_as_they_were_given() {
        let line = command("vm_a", &["a b".into(), "it's".into()]);
        assert_eq!(line, "exec /job/target/deps/vm_a --test-threads=1 'a b' 'it'\\''s'\n");
    }
}
