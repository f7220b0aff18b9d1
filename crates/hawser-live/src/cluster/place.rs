//! Where everything of a cluster is found and kept, and the programs that are built there.
//!
//! ```text
//! MODULE-VERSION-HASH/NAME   programs and files, moved to their place when they are complete
//! debian-HASH/               unpacked packages
//! work/                      what is being built; only the holder of `lock` is in there
//! run/N/                     a running cluster: certificates, data, logs; `slot-N` is held while it runs
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use super::error::{Attempt, ClusterError, Result};
use super::versions::{self, Item, Module};
use super::{build, debian, say};

/// Where things are.
#[derive(Clone, Debug)]
pub struct Place {
    /// The top of the source tree.
    pub repo: PathBuf,
    /// What is built, and everything that a cluster writes.
    pub cache: PathBuf,
    /// Go; needed only while something is missing in the cache.
    pub go: Option<PathBuf>,
}

impl Place {
    /// As the environment says: `XDG_CACHE_HOME` or `HOME`, `GO` or the path.
    #[expect(
        clippy::disallowed_methods,
        reason = "tests have no other settings, and read them here"
    )]
    pub fn of_environment() -> Self {
        let value = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let cache = value("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| {
            let home = value("HOME")?;
            Some(Path::new(&home).join(".cache"))
        });
        let path = value("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain(["/usr/local/go/bin".into()]);
        let on_path = || folders.map(|folder| folder.join("go")).find(|go| go.is_file());
        Self {
            repo: Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
            cache: cache.unwrap_or_else(|| "/var/cache".into()).join("hawser-cluster"),
            go: value("GO").map(PathBuf::from).or_else(on_path),
        }
    }

    /// The program or files of this name in `lab/cluster.versions`; built when they are missing.
    pub fn program(&self, name: &str) -> Result<PathBuf> {
        let mut found = self.programs(&[name])?;
        found.remove(name).ok_or_else(|| ClusterError::Unknown { name: name.to_owned() })
    }

    /// The same for several: what is missing of one module is built together.
    pub fn programs(&self, names: &[&str]) -> Result<BTreeMap<String, PathBuf>> {
        let modules = self.versions()?;
        let mut found = BTreeMap::new();
        let mut missing: Vec<(&Module, Vec<&Item>)> = Vec::new();
        for name in names {
            let (module, item) = versions::find(&modules, name)?;
            let path = self.part(module, item);
            if !path.exists() {
                match missing.iter_mut().find(|(other, _)| *other == module) {
                    Some((_, items)) => items.push(item),
                    None => missing.push((module, vec![item])),
                }
            }
            found.insert((*name).to_owned(), path);
        }
        if missing.is_empty() {
            return Ok(found);
        }
        let _building = self.building()?;
        for (module, items) in missing {
            // Somebody else may have built it while we waited.
            let items: Vec<&Item> =
                items.into_iter().filter(|item| !self.part(module, item).exists()).collect();
            if !items.is_empty() {
                build::build(self, module, &items)?;
            }
        }
        Ok(found)
    }

    /// The names of everything that can be asked for, and where it is or will be.
    pub fn all(&self) -> Result<Vec<(String, PathBuf)>> {
        let modules = self.versions()?;
        let all = modules.iter().flat_map(|module| {
            module.items.iter().map(|item| (item.name.clone(), self.part(module, item)))
        });
        Ok(all.collect())
    }

    /// The folder with the unpacked Debian packages of `lab/packages.cluster`; made when missing.
    pub fn debian(&self) -> Result<PathBuf> {
        let folder = self.cache.join(debian::name(self)?);
        if !folder.is_dir() {
            let _building = self.building()?;
            if !folder.is_dir() {
                debian::unpack(self, &folder)?;
            }
        }
        Ok(folder)
    }

    /// Removes what nothing asks for any more, or everything; says what. Running clusters stay.
    pub fn clean(&self, all: bool) -> Result<()> {
        let _building = self.building()?;
        let mut keep = vec!["lock".to_owned(), "run".to_owned()];
        if !all {
            keep.push(debian::name(self)?);
            keep.extend(self.versions()?.iter().map(Module::folder));
        }
        let listing = || format!("listing {}", self.cache.display());
        for entry in fs::read_dir(&self.cache).attempt(listing)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if keep.contains(&name) || name.starts_with("slot-") || name == "ports" {
                continue;
            }
            remove(&entry.path())?;
            say(&format!("removed {}", entry.path().display()));
        }
        Ok(())
    }

    fn versions(&self) -> Result<Vec<Module>> {
        versions::parse(&self.recipe("cluster.versions")?)
    }

    /// A file of `lab/`.
    pub(super) fn recipe(&self, name: &str) -> Result<String> {
        let path = self.repo.join("lab").join(name);
        fs::read_to_string(&path).attempt(|| format!("reading {}", path.display()))
    }

    /// Where something built is, or will be.
    pub(super) fn part(&self, module: &Module, item: &Item) -> PathBuf {
        self.cache.join(module.folder()).join(&item.name)
    }

    /// An empty folder to build in, by whoever holds the right to build.
    pub(super) fn work(&self, name: &str) -> Result<PathBuf> {
        let path = self.cache.join("work").join(name);
        remove(&path)?;
        fs::create_dir_all(&path).attempt(|| format!("making {}", path.display()))?;
        Ok(path)
    }

    /// Waits until nobody else builds.
    fn building(&self) -> Result<File> {
        self.lock("lock", "somebody else is building; waiting for it")
    }

    /// Takes a lock of the cache, and says why it waits.
    pub(super) fn lock(&self, name: &str, why: &str) -> Result<File> {
        let lock = self.open_lock(name)?;
        if !try_lock(&lock)? {
            say(why);
            lock.lock().attempt(|| format!("waiting for {name} of the cache"))?;
        }
        Ok(lock)
    }

    /// Takes a lock of the cache if nobody has it.
    pub(super) fn try_lock(&self, name: &str) -> Result<Option<File>> {
        let lock = self.open_lock(name)?;
        Ok(try_lock(&lock)?.then_some(lock))
    }

    fn open_lock(&self, name: &str) -> Result<File> {
        fs::create_dir_all(&self.cache).attempt(|| format!("making {}", self.cache.display()))?;
        let path = self.cache.join(name);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        file.attempt(|| format!("opening {}", path.display()))
    }
}

/// True when it is ours now, false when somebody else holds it.
fn try_lock(lock: &File) -> Result<bool> {
    match lock.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(source)) => {
            Err(ClusterError::Io { what: "taking a lock of the cache".into(), source })
        }
    }
}

/// Removes a file or folder that may be gone already.
pub(super) fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.attempt(|| format!("removing {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree with a recipe of its own, and no Go.
    fn place(top: &Path) -> Place {
        let recipe = "module example.org/a v1.0.0\nprogram a ./a\nprogram b ./b\n";
        fs::create_dir_all(top.join("repo/lab")).unwrap();
        fs::write(top.join("repo/lab/cluster.versions"), recipe).unwrap();
        fs::write(top.join("repo/lab/packages.cluster"), "etcd-server\n").unwrap();
        Place { repo: top.join("repo"), cache: top.join("cache"), go: None }
    }

    #[test]
    fn what_is_in_the_cache_needs_no_go_and_what_is_not_says_how_to_get_it() {
        let top = tempfile::tempdir().unwrap();
        let place = place(top.path());
        let all = place.all().unwrap();
        let (name, path) = &all[0];
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "built").unwrap();

        assert_eq!(place.program(name).unwrap(), *path);
        let error = place.program("b").unwrap_err().to_string();
        assert!(error.contains("building b needs Go"), "{error}");
        assert!(error.contains("go.dev/dl"), "{error}");
    }

    #[test]
    fn cleaning_removes_other_versions_and_keeps_running_clusters() {
        let top = tempfile::tempdir().unwrap();
        let place = place(top.path());
        let kept = place.all().unwrap()[0].1.parent().unwrap().to_owned();
        let run = place.cache.join("run/0");
        let old = place.cache.join("a-v0.9.0-000000000000");
        for folder in [&kept, &run, &old] {
            fs::create_dir_all(folder).unwrap();
        }

        place.clean(false).unwrap();
        assert_eq!([kept.exists(), run.exists(), old.exists()], [true, true, false]);
        place.clean(true).unwrap();
        assert_eq!([kept.exists(), run.exists()], [false, true]);
    }

    #[test]
    fn a_lock_that_is_held_is_not_given_twice() {
        let top = tempfile::tempdir().unwrap();
        let place = place(top.path());
        let held = place.try_lock("slot-0").unwrap();
        assert!(held.is_some());
        assert!(place.try_lock("slot-0").unwrap().is_none());
        drop(held);
        assert!(place.try_lock("slot-0").unwrap().is_some());
    }
}
