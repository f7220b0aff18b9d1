//! What guests are made of: the files of `lab/`.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::error::{Attempt, LabError, Result};
use crate::lab::suites::Image;

/// The read recipe.
#[derive(Debug)]
pub(super) struct Recipe {
    /// `lab/` itself.
    pub(super) folder: PathBuf,
    /// The suite of Debian that has the kernel.
    pub(super) suite: String,
    /// The kernel's series, as `6.12`.
    pub(super) series: String,
    /// Folders of modules that are left out.
    pub(super) without: Vec<String>,
    kernel: String,
    root: String,
    core: Vec<String>,
    full: Vec<String>,
}

impl Recipe {
    /// Reads it.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let text = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).attempt(|| format!("reading {}", path.display()))
        };
        let kernel = text("kernel")?;
        let lines: Vec<(&str, &str)> = entries(&kernel).filter_map(|l| l.split_once(' ')).collect();
        let all = |key: &str| {
            let of_key = lines.iter().filter(|(name, _)| *name == key);
            of_key.map(|(_, value)| value.trim().to_owned()).collect::<Vec<_>>()
        };
        let one =
            |key: &'static str| all(key).pop().ok_or(LabError::Recipe { file: "kernel", key });
        let packages = |name| Ok(entries(&text(name)?).map(str::to_owned).collect());
        Ok(Self {
            folder: folder.to_owned(),
            suite: one("suite")?,
            series: one("series")?,
            without: all("without"),
            root: text("root")?,
            core: packages("packages.core")?,
            full: packages("packages.full")?,
            kernel,
        })
    }

    /// The packages of an image.
    pub(super) fn packages(&self, image: Image) -> Vec<&str> {
        let more: &[String] = match image {
            Image::Core => &[],
            Image::Full => &self.full,
        };
        self.core.iter().chain(more).map(String::as_str).collect()
    }

    /// A name for the root of an image: another one for every other way to make it.
    pub(super) fn root_name(&self, image: Image) -> String {
        let packages = self.packages(image).join("\n");
        format!("root-{}", fingerprint(&[&packages, &self.root]))
    }

    /// The packages of a list for Python, and a name for them.
    pub(super) fn python(&self, list: &str) -> Result<(Vec<String>, String)> {
        let path = self.folder.join(format!("python.{list}"));
        let text = fs::read_to_string(&path).attempt(|| format!("reading {}", path.display()))?;
        let packages: Vec<String> = entries(&text).map(str::to_owned).collect();
        let name = format!("python-{}", fingerprint(&[&packages.join("\n")]));
        Ok((packages, name))
    }

    /// The same for the kernel. Its exact version is not part of it: to know the newest one takes
    /// the network, and a run with everything in the cache must not.
    pub(super) fn kernel_name(&self) -> String {
        let lines = entries(&self.kernel).collect::<Vec<_>>().join("\n");
        format!("kernel-{}", fingerprint(&[&lines]))
    }
}

/// The lines of a file without comments and blanks.
fn entries(text: &str) -> impl Iterator<Item = &str> {
    let bare = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    bare.filter(|line| !line.is_empty())
}

/// Sixteen digits that differ for different texts.
fn fingerprint(texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    }
    hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(core: &str, kernel: &str) -> Recipe {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("kernel", kernel),
            ("root", "#!/bin/sh\n"),
            ("packages.core", core),
            ("packages.full", "samba\n"),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        Recipe::read(folder.path()).unwrap()
    }

    const KERNEL: &str = "suite  backports\nseries  6.12\nwithout kernel/sound # loud\n";

    #[test]
    fn the_recipe_of_the_tree_can_be_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab");
        let recipe = Recipe::read(&folder).unwrap();
        assert!(recipe.packages(Image::Core).contains(&"open-iscsi"));
        assert!(recipe.packages(Image::Full).len() > recipe.packages(Image::Core).len());
        assert!(recipe.without.iter().all(|folder| folder.starts_with("kernel/")));
    }

    #[test]
    fn a_comment_changes_no_name_and_a_package_changes_one() {
        let plain = recipe("a\nb\n", KERNEL);
        let commented = recipe("# words\na\n\nb # more\n", KERNEL);
        let more = recipe("a\nb\nc\n", KERNEL);
        assert_eq!(plain.root_name(Image::Core), commented.root_name(Image::Core));
        assert_ne!(plain.root_name(Image::Core), more.root_name(Image::Core));
        assert_ne!(plain.root_name(Image::Core), plain.root_name(Image::Full));
        assert_eq!(plain.kernel_name(), more.kernel_name());
    }

    #[test]
    fn a_kernel_file_without_a_series_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("kernel"), "suite x\n").unwrap();
        fs::write(folder.path().join("root"), "").unwrap();
        let error = Recipe::read(folder.path()).unwrap_err().to_string();
        assert_eq!(error, "the recipe kernel has no line \"series\"");
    }
}
