//! The folder in which the lab keeps images, and everything that a run writes.
//!
//! ```text
//! root-HASH/  kernel-HASH/  python-HASH/
//!                            finished parts, renamed to their place when they are complete
//! work/                      what is being built; only the holder of `lock` is in there
//! run/run-RANDOM/            one run: its disks, sockets, consoles; `lock` is held while it lives
//! slot-N                     held by a job while its guests run
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::error::{Attempt, LabError, Result};
use super::say;

/// How often a job that waits looks whether another one has ended.
const SLOT_PAUSE: Duration = Duration::from_millis(500);

/// The folder.
#[derive(Debug)]
pub(super) struct Cache {
    folder: PathBuf,
}

/// The right to build; given back when dropped.
pub(super) struct Building<'a> {
    cache: &'a Cache,
    _lock: File,
}

/// The right to run guests; given back when dropped.
pub(super) struct Slot {
    _lock: File,
}

/// A folder in which a part is built; removed when dropped.
pub(super) struct Work {
    path: PathBuf,
}

/// The folder of one run; removed when dropped.
pub(super) struct RunFolder {
    dir: TempDir,
    _lock: File,
}

impl Cache {
    /// Makes the folder where it is missing, and removes what killed runs left.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let cache = Self { folder: folder.to_owned() };
        let runs = cache.runs();
        fs::create_dir_all(&runs).attempt(|| format!("making {}", runs.display()))?;
        let _others = cache.lock_runs()?;
        for run in cache.entries("run")? {
            if !is_locked(&run.join("lock")) {
                remove(&run)?;
            }
        }
        Ok(cache)
    }

    fn runs(&self) -> PathBuf {
        self.folder.join("run")
    }

    /// Held for moments: a folder is seen by others only together with its lock.
    fn lock_runs(&self) -> Result<File> {
        let path = self.folder.join("run.lock");
        let lock = open_lock(&path)?;
        lock.lock().attempt(|| format!("locking {}", path.display()))?;
        Ok(lock)
    }

    fn entries(&self, below: &str) -> Result<Vec<PathBuf>> {
        let folder = self.folder.join(below);
        let entries = fs::read_dir(&folder).attempt(|| format!("listing {}", folder.display()))?;
        Ok(entries.flatten().map(|entry| entry.path()).collect())
    }

    /// Where a finished part is, or will be.
    pub(super) fn part(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The folder itself.
    pub(super) fn path(&self) -> &Path {
        &self.folder
    }

    /// Waits until nobody else builds.
    pub(super) async fn building(&self) -> Result<Building<'_>> {
        let lock = open_lock(&self.folder.join("lock"))?;
        let lock = match try_lock(&lock)? {
            true => lock,
            false => wait_lock(lock, "another lab is building; waiting for it").await?,
        };
        Ok(Building { cache: self, _lock: lock })
    }

    /// Waits until fewer jobs run on this machine than it has processors: more would only make
    /// each other reach their limits.
    pub(super) async fn slot(&self) -> Result<Slot> {
        let count = std::thread::available_parallelism().map_or(1, |count| count.get());
        let mut waits = false;
        loop {
            for number in 0..count {
                let slot = open_lock(&self.folder.join(format!("slot-{number}")))?;
                if try_lock(&slot)? {
                    return Ok(Slot { _lock: slot });
                }
            }
            if !waits {
                say(&format!("{count} jobs run on this machine; waiting for one of them"));
                waits = true;
            }
            // Whichever ends first: the kernel can wait for one lock, not for any of several.
            tokio::time::sleep(SLOT_PAUSE).await;
        }
    }

    /// A folder for one run.
    pub(super) fn run_folder(&self) -> Result<RunFolder> {
        let runs = self.runs();
        let _others = self.lock_runs()?;
        let dir = tempfile::Builder::new().prefix("run-").tempdir_in(&runs);
        let dir = dir.attempt(|| format!("a folder in {}", runs.display()))?;
        let lock = open_lock(&dir.path().join("lock"))?;
        lock.lock().attempt(|| format!("locking {}", dir.path().display()))?;
        Ok(RunFolder { dir, _lock: lock })
    }

    /// Removes every part but these; refuses while a lab runs.
    pub(super) fn clean(&self, keep: &[String]) -> Result<()> {
        let lock = open_lock(&self.folder.join("lock"))?;
        if lock.try_lock().is_err() || !self.entries("run")?.is_empty() {
            return Err(LabError::InUse(self.folder.clone()));
        }
        remove_busy(&self.folder.join("work"))?;
        for path in self.entries("")? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let part = ["root-", "kernel-", "python-"].iter().any(|kind| name.starts_with(kind));
            if part && !keep.contains(&name) {
                remove(&path)?;
                say(&format!("removed {}", path.display()));
            }
        }
        Ok(())
    }
}

impl Building<'_> {
    /// An empty folder to build in. What an earlier, killed build left in its place is removed.
    pub(super) fn work(&self, name: &str) -> Result<Work> {
        let path = self.cache.folder.join("work").join(name);
        remove_busy(&path)?;
        fs::create_dir_all(&path).attempt(|| format!("making {}", path.display()))?;
        Ok(Work { path })
    }

    /// Puts a finished part in its place, and removes what was there.
    pub(super) fn finish(&self, work: &Work, files: &[&str], name: &str) -> Result<()> {
        let place = self.cache.part(name);
        let work = work.path();
        let complete = work.with_extension("complete");
        if complete.exists() {
            remove(&complete)?;
        }
        fs::create_dir(&complete).attempt(|| format!("making {}", complete.display()))?;
        for file in files {
            let (from, to) = (work.join(file), complete.join(file));
            fs::rename(&from, &to).attempt(|| format!("moving {}", from.display()))?;
        }
        if place.exists() {
            remove(&place)?;
        }
        fs::rename(&complete, &place).attempt(|| format!("making {}", place.display()))
    }
}

impl Work {
    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if remove_busy(&self.path).is_err() {
            say(&format!("{} is left; the next build removes it", self.path.display()));
        }
    }
}

impl RunFolder {
    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }
}

fn open_lock(path: &Path) -> Result<File> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    file.attempt(|| format!("opening {}", path.display()))
}

/// True when it is ours now, false when somebody else holds it.
fn try_lock(lock: &File) -> Result<bool> {
    match lock.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(source)) => {
            Err(LabError::Io { what: "taking a lock of the cache".into(), source })
        }
    }
}

/// Waits for it without holding up anything else.
async fn wait_lock(lock: File, why: &str) -> Result<File> {
    say(why);
    let waited = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await;
    let waited = waited.map_err(std::io::Error::other).flatten();
    waited.attempt(|| "waiting for a lock of the cache".into())
}

/// True when somebody holds it.
fn is_locked(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

/// Removes a folder in which programs of an interrupted build may still be dying.
fn remove_busy(path: &Path) -> Result<()> {
    for _ in 0..20 {
        if remove(path).is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    remove(path)
}

fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.attempt(|| format!("removing {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_killed_run_is_removed_and_that_of_a_live_one_is_not() {
        let top = tempfile::tempdir().unwrap();
        let cache = Cache::open(top.path()).unwrap();
        let live = cache.run_folder().unwrap();
        let dead = top.path().join("run/dead");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join("lock"), "").unwrap();

        Cache::open(top.path()).unwrap();

        assert!(live.path().is_dir());
        assert!(!dead.exists());
    }

    #[test]
    fn cleaning_keeps_what_it_is_told_and_refuses_while_a_lab_runs() {
        let top = tempfile::tempdir().unwrap();
        let cache = Cache::open(top.path()).unwrap();
        for name in ["root-1", "root-2", "kernel-1"] {
            fs::create_dir(top.path().join(name)).unwrap();
        }
        let run = cache.run_folder().unwrap();
        assert!(matches!(cache.clean(&[]), Err(LabError::InUse(_))));
        drop(run);

        cache.clean(&["root-2".into()]).unwrap();

        let left = |name: &str| top.path().join(name).exists();
        assert_eq!([left("root-1"), left("root-2"), left("kernel-1")], [false, true, false]);
    }

    #[tokio::test]
    async fn a_finished_part_takes_the_place_of_the_old_one_as_a_whole() {
        let top = tempfile::tempdir().unwrap();
        let cache = Cache::open(top.path()).unwrap();
        let building = cache.building().await.unwrap();
        for text in ["old", "new"] {
            let work = building.work("root").unwrap();
            fs::write(work.path().join("root.img"), text).unwrap();
            fs::write(work.path().join("rest"), "not wanted").unwrap();
            building.finish(&work, &["root.img"], "root-1").unwrap();
        }
        assert_eq!(fs::read_to_string(cache.part("root-1").join("root.img")).unwrap(), "new");
        assert!(!cache.part("root-1").join("rest").exists());
        assert_eq!(fs::read_dir(top.path().join("work")).unwrap().count(), 0);
    }
}
