//! The mount table of a fake host.
//!
//! Mounts exist in the table only: what a test writes below a target stays in that real folder.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use hawser_core::error::Result;
use hawser_core::port::host::{HostMount, MountEntry, MountSource};
use hawser_core::{Change, Error, Kind};

use super::device::absent;
use super::image::{self, Signature, Soundness};
use super::state::Block;

/// Device number, type and source of the file system below everything that is not mounted here.
pub(super) const ROOT: ((u32, u32), &str, &str) = ((259, 1), "ext4", "/dev/root");

/// Device number and type of the file system that device nodes lie in.
const NODES: ((u32, u32), &str) = ((0, 6), "devtmpfs");

/// What every mount of files says, asked for or not.
const ALWAYS: [&str; 2] = ["nosuid", "nodev"];

/// The id that stands for the root mount.
const ROOT_MOUNT: u64 = 1;

/// All mounts, in mount order, and the frozen file systems by device number.
pub(super) struct Mounts {
    entries: Vec<MountEntry>,
    next: u64,
    /// Mounts that every boot makes.
    boot: BTreeSet<u64>,
    frozen: BTreeSet<(u32, u32)>,
}

impl Mounts {
    pub(super) fn new() -> Self {
        Self {
            entries: Vec::new(),
            next: ROOT_MOUNT + 1,
            boot: BTreeSet::new(),
            frozen: BTreeSet::new(),
        }
    }

    pub(super) fn entries(&self) -> &[MountEntry] {
        &self.entries
    }

    /// What a reboot leaves.
    pub(super) fn clear(&mut self) {
        self.entries.retain(|entry| self.boot.contains(&entry.id));
        self.frozen.clear();
    }

    /// The topmost mount exactly there.
    pub(super) fn at(&self, target: &Path) -> Option<&MountEntry> {
        self.entries.iter().rev().find(|entry| entry.target == target)
    }

    /// The mount that a path lies in.
    pub(super) fn over(&self, path: &Path) -> Option<&MountEntry> {
        let depth = |entry: &&MountEntry| entry.target.components().count();
        // `max_by_key` answers the last of equals: the topmost.
        self.entries.iter().filter(|entry| path.starts_with(&entry.target)).max_by_key(depth)
    }

    pub(super) fn uses(&self, number: (u32, u32)) -> bool {
        self.frozen.contains(&number) || self.entries.iter().any(|entry| entry.device == number)
    }

    /// The devices of all mounts and of frozen file systems.
    pub(super) fn devices(&self) -> BTreeSet<(u32, u32)> {
        self.entries.iter().map(|entry| entry.device).chain(self.frozen.iter().copied()).collect()
    }

    /// True when a device is shown in the file there.
    pub(super) fn shows_node(&self, target: &Path) -> bool {
        self.at(target).is_some_and(|entry| entry.fs_type == NODES.1)
    }

    /// Refuses a device that is shown in a file.
    pub(super) fn not_shown(&self, node: &Path) -> Result<()> {
        let shown = |entry: &&MountEntry| entry.fs_type == NODES.1 && entry.root == node;
        match self.entries.iter().find(shown) {
            None => Ok(()),
            Some(entry) => {
                let why = format!("{} is shown in {}", node.display(), entry.target.display());
                Err(Error::new(Kind::Busy, why))
            }
        }
    }

    pub(super) fn frozen(&self) -> &BTreeSet<(u32, u32)> {
        &self.frozen
    }

    /// `block` is the device to mount, where it is one, and `node` its node, where that is shown.
    pub(super) fn mount(
        &mut self,
        block: Option<&Block>,
        node: Option<PathBuf>,
        ask: &HostMount,
    ) -> Result<Change<()>> {
        let target = &ask.target;
        if node.is_some() {
            plain_file(target)?
        } else {
            folder(target)?
        }
        let (device, root, fs_type, source) = match &ask.source {
            MountSource::Device { device, fs } => {
                let found = block.ok_or_else(|| absent(device))?;
                check_content(found, device, ask)?;
                (found.number, "/".into(), fs.as_str().to_owned(), device.display().to_string())
            }
            MountSource::Bind { path } => {
                folder(path)?;
                self.origin(path)
            }
            MountSource::Network { fs_type, source, .. } => {
                (self.anonymous(source), "/".into(), fs_type.clone(), source.clone())
            }
            MountSource::Raw { device } => {
                let node = node.ok_or_else(|| absent(device))?;
                (NODES.0, node, NODES.1.into(), NODES.1.into())
            }
        };
        if let Some(there) = self.at(target) {
            let same =
                there.device == device && there.root == root && there.read_only() == ask.read_only;
            if same {
                return Ok(Change::Already(()));
            }
            let why = format!(
                "{} is mounted on {} already ({})",
                there.source,
                target.display(),
                there.options.join(",")
            );
            return Err(Error::new(Kind::Precondition, why));
        }
        let parent = self.over(target).map_or(ROOT_MOUNT, |entry| entry.id);
        let access = if ask.read_only { "ro" } else { "rw" };
        let always: &[&str] = match &ask.source {
            MountSource::Device { .. } | MountSource::Bind { .. } | MountSource::Network { .. } => {
                &ALWAYS
            }
            MountSource::Raw { .. } => &[],
        };
        let flags = ask.flags.iter().map(String::as_str);
        let flags = flags.filter(|flag| !["ro", "rw"].contains(flag) && !always.contains(flag));
        let options = std::iter::once(access).chain(always.iter().copied()).chain(flags);
        self.entries.push(MountEntry {
            id: self.next,
            parent,
            device,
            root,
            target: target.clone(),
            options: options.map(str::to_owned).collect(),
            propagation: Vec::new(),
            fs_type,
            source,
            super_options: vec!["rw".into()],
        });
        self.next += 1;
        Ok(Change::Made(()))
    }

    /// A file system of another machine, mounted there; answers its device number.
    pub(super) fn add(
        &mut self,
        target: &Path,
        fs_type: String,
        source: String,
        super_options: Vec<String>,
        read_only: bool,
    ) -> (u32, u32) {
        let device = self.anonymous(&source);
        let parent = self.over(target).map_or(ROOT_MOUNT, |entry| entry.id);
        self.entries.push(MountEntry {
            id: self.next,
            parent,
            device,
            root: "/".into(),
            target: target.into(),
            options: vec![if read_only { "ro" } else { "rw" }.into()],
            propagation: Vec::new(),
            fs_type,
            source,
            super_options,
        });
        self.next += 1;
        device
    }

    /// The last mount is one that every boot makes.
    pub(super) fn keep_last(&mut self) {
        self.boot.extend(self.entries.last().map(|entry| entry.id));
    }

    /// The device number of a network file system: one for each source, of the kernel's anonymous
    /// ones.
    fn anonymous(&self, source: &str) -> (u32, u32) {
        let same = |entry: &&MountEntry| entry.device.0 == 0 && entry.source == source;
        self.entries.iter().find(same).map_or((0, self.next as u32), |entry| entry.device)
    }

    /// What a bind of this path shows: device number, folder in it, type and source.
    fn origin(&self, path: &Path) -> ((u32, u32), PathBuf, String, String) {
        match self.over(path) {
            Some(entry) => {
                let rest = path.strip_prefix(&entry.target).unwrap_or(Path::new(""));
                let root =
                    if rest == Path::new("") { entry.root.clone() } else { entry.root.join(rest) };
                (entry.device, root, entry.fs_type.clone(), entry.source.clone())
            }
            None => (ROOT.0, path.to_owned(), ROOT.1.into(), ROOT.2.into()),
        }
    }

    pub(super) fn unmount(&mut self, target: &Path) -> Result<Change<()>> {
        let Some(index) = self.entries.iter().rposition(|entry| entry.target == target) else {
            return Ok(Change::Already(()));
        };
        let id = self.entries[index].id;
        if let Some(above) = self.entries.iter().find(|entry| entry.parent == id) {
            let why = format!("{} is busy: {} is on it", target.display(), above.target.display());
            return Err(Error::new(Kind::Busy, why));
        }
        self.entries.remove(index);
        Ok(Change::Made(()))
    }

    /// Takes the topmost mount there out of the table, and all that is mounted on it.
    pub(super) fn abandon(&mut self, target: &Path) -> Change<()> {
        let Some(id) = self.at(target).map(|entry| entry.id) else { return Change::Already(()) };
        let mut gone = BTreeSet::from([id]);
        // Children come after their parents.
        self.entries.retain(|entry| {
            let goes = gone.contains(&entry.id) || gone.contains(&entry.parent);
            if goes {
                gone.insert(entry.id);
            }
            !goes
        });
        Change::Made(())
    }

    /// Freezes (`true`) or thaws the file system mounted there.
    pub(super) fn set_frozen(&mut self, mounted: &Path, frozen: bool) -> Result<Change<()>> {
        let number = self.at(mounted).ok_or_else(|| not_mounted(mounted))?.device;
        let changed = if frozen { self.frozen.insert(number) } else { self.frozen.remove(&number) };
        Ok(if changed { Change::Made(()) } else { Change::Already(()) })
    }
}

/// What mount(2) would refuse.
fn check_content(device: &Block, node: &Path, ask: &HostMount) -> Result<()> {
    let MountSource::Device { fs: wanted, .. } = &ask.source else { return Ok(()) };
    let refuse = |why: String| Err(Error::new(Kind::Precondition, why));
    match image::read(&device.file)? {
        Some(Signature::Filesystem { fs, sound, size, .. }) if fs == *wanted => {
            if sound == Soundness::Broken {
                return refuse(format!("the {fs} on {} is damaged", node.display()));
            }
            if size > device.size {
                return refuse(format!("the {fs} on {} is larger than it", node.display()));
            }
        }
        Some(found) => return refuse(format!("{} holds {found:?}, no {wanted}", node.display())),
        None => return refuse(format!("{} holds no {wanted}", node.display())),
    }
    if device.read_only && !ask.read_only {
        return refuse(format!("{} refuses writes: mount it read-only", node.display()));
    }
    Ok(())
}

/// A folder that is no symlink, named absolutely.
pub(super) fn folder(path: &Path) -> Result<()> {
    absolute(path)?;
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(meta) if meta.is_symlink() => Err(Error::new(
            Kind::Invalid,
            format!("{} is a symlink, which is never followed", path.display()),
        )),
        Ok(_) => Err(Error::new(Kind::Precondition, format!("{} is no folder", path.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Error::new(Kind::NotFound, format!("{} does not exist", path.display())))
        }
        Err(error) => Err(Error::new(Kind::Unavailable, format!("{}: {error}", path.display()))),
    }
}

/// A plain file that is no symlink, named absolutely.
fn plain_file(path: &Path) -> Result<()> {
    match folder(path) {
        Ok(()) => Err(Error::new(Kind::Precondition, format!("{} is a folder", path.display()))),
        Err(_) if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file()) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Absolute and without `..`.
pub(super) fn absolute(path: &Path) -> Result<()> {
    if path.is_absolute() && path.components().all(|part| part != Component::ParentDir) {
        return Ok(());
    }
    Err(Error::new(Kind::Invalid, format!("{} is no plain absolute path", path.display())))
}

/// Options that change what is mounted, not how, or give what is on it rights of this host.
const NO_OPTIONS: [&str; 7] = ["remount", "bind", "rbind", "move", "loop", "dev", "suid"];

/// Options of SELinux, whose values have commas.
const LABELS: [&str; 4] = ["context", "fscontext", "defcontext", "rootcontext"];

/// Refuses an option that is several, or none.
pub(super) fn check_flags(flags: &[String]) -> Result<()> {
    let is_wrong = |flag: &&String| {
        let key = flag.split('=').next().unwrap_or_default();
        let label = LABELS.contains(&key);
        let plain = |c: char| c.is_ascii_graphic() && (label || c != ',');
        flag.is_empty() || !flag.chars().all(plain) || NO_OPTIONS.contains(&key)
    };
    match flags.iter().find(is_wrong) {
        None => Ok(()),
        Some(flag) => Err(Error::new(Kind::Invalid, format!("{flag:?} is no mount option"))),
    }
}

pub(super) fn not_mounted(path: &Path) -> Error {
    Error::new(Kind::Precondition, format!("nothing is mounted on {}", path.display()))
}

/// Makes a folder to mount on.
pub(super) fn make_target(target: &Path) -> Result<Change<()>> {
    absolute(target)?;
    match fs::create_dir(target) {
        Ok(()) => Ok(Change::Made(())),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            folder(target).map(Change::Already)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let why = format!("making {}: its parent does not exist", target.display());
            Err(Error::new(Kind::NotFound, why))
        }
        Err(error) => {
            Err(Error::new(Kind::Unavailable, format!("making {}: {error}", target.display())))
        }
    }
}

/// Makes an empty file to show a device in.
pub(super) fn make_target_file(target: &Path) -> Result<Change<()>> {
    absolute(target)?;
    match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(target) {
        Ok(_) => Ok(Change::Made(())),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            plain_file(target).map(Change::Already)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let why = format!("making {}: its parent does not exist", target.display());
            Err(Error::new(Kind::NotFound, why))
        }
        Err(error) => {
            Err(Error::new(Kind::Unavailable, format!("making {}: {error}", target.display())))
        }
    }
}

/// Removes a folder or a plain file if it is empty.
pub(super) fn remove_target(target: &Path) -> Result<Change<()>> {
    absolute(target)?;
    let empty = |meta: fs::Metadata| meta.is_file() && meta.len() == 0;
    let removed = match fs::symlink_metadata(target).is_ok_and(empty) {
        true => fs::remove_file(target),
        false => fs::remove_dir(target),
    };
    let left_alone =
        [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory, io::ErrorKind::DirectoryNotEmpty];
    match removed {
        Ok(()) => Ok(Change::Made(())),
        Err(error) if left_alone.contains(&error.kind()) => Ok(Change::Already(())),
        Err(error) => {
            Err(Error::new(Kind::Unavailable, format!("removing {}: {error}", target.display())))
        }
    }
}
