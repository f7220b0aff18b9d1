//! The tree of files, folders, links and device nodes that a fake kernel shows.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::behaviour::{Behaviours, Pattern};
use super::disk::{Flush, TreeDisk};
use super::errno::{EEXIST, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY};
use super::lun::Lun;
use super::maps::Map;
use super::multipathd::Multipathd;

/// What the kernel follows before it suspects a circle.
const MOST_LINKS: usize = 40;

/// What every host has.
const FOLDERS: [&str; 12] = [
    "/dev/disk/by-id",
    "/dev/mapper",
    "/etc",
    "/proc",
    "/run/hawser",
    "/run/lock",
    "/sys/block",
    "/sys/class/block",
    "/sys/dev/block",
    "/sys/devices/virtual/block",
    "/sys/module",
    "/var/lib/hawser",
];

/// What may differ without anybody having left something: modules stay loaded, numbers go on.
const VOLATILE: [&str; 3] = ["/sys/module/**", "/run/lock/**", "/sys/**/diskseq"];

/// Folders of Hawser's own.
const OURS: [&str; 2] = ["/run/hawser", "/var/lib/hawser"];

/// One thing in the tree.
#[derive(Clone, PartialEq, Eq)]
pub enum Node {
    /// A folder.
    Folder,
    /// A file, its content and its mode.
    File(Vec<u8>, u32),
    /// A link and where it leads, relative or absolute.
    Link(PathBuf),
    /// A block device, by major and minor number.
    Block(u32, u32),
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Folder => f.write_str("a folder"),
            Self::File(data, mode) => write!(f, "{:?} {mode:o}", String::from_utf8_lossy(data)),
            Self::Link(target) => write!(f, "-> {}", target.display()),
            Self::Block(major, minor) => write!(f, "device {major}:{minor}"),
        }
    }
}

/// Something that happens when a caller has waited so often.
pub(super) struct Later {
    waits: usize,
    act: Box<dyn FnOnce(&mut Tree) + Send>,
}

/// What a reboot brings back: the tree as it was when the test began.
struct Boot {
    nodes: BTreeMap<PathBuf, Node>,
    disks: BTreeMap<String, TreeDisk>,
    maps: BTreeMap<String, Map>,
    multipathd: Multipathd,
}

/// Everything that a fake kernel shows and knows. Behaviours change it; all paths are absolute and
/// links are followed as the kernel follows them.
pub struct Tree {
    nodes: BTreeMap<PathBuf, Node>,
    pub(super) disks: BTreeMap<String, TreeDisk>,
    pub(super) maps: BTreeMap<String, Map>,
    pub(super) multipathd: Multipathd,
    pub(super) behaviours: Behaviours,
    pub(super) failing_reads: BTreeMap<PathBuf, i32>,
    pub(super) file_flushes: BTreeMap<PathBuf, Flush>,
    /// Volumes with whose registrations this host had to do.
    pub(super) reserved: Vec<Lun>,
    pub(super) volatile: Vec<Pattern>,
    /// Devices that are mounted or otherwise held by somebody outside this tree.
    pub(in crate::fake_host) in_use: BTreeSet<(u32, u32)>,
    pub(super) initiator: String,
    pub(super) disk_sequence: u64,
    parts: BTreeMap<TypeId, Box<dyn Any + Send>>,
    later: Vec<Later>,
    events: u64,
    takes: Duration,
    boot: Option<Boot>,
}

impl Tree {
    pub(in crate::fake_host) fn new() -> Self {
        let mut tree = Self {
            nodes: BTreeMap::from([(PathBuf::from("/"), Node::Folder)]),
            disks: BTreeMap::new(),
            maps: BTreeMap::new(),
            multipathd: Multipathd::default(),
            behaviours: Behaviours::default(),
            failing_reads: BTreeMap::new(),
            file_flushes: BTreeMap::new(),
            reserved: Vec::new(),
            volatile: VOLATILE.map(Pattern::new).into(),
            in_use: BTreeSet::new(),
            initiator: "fake".into(),
            disk_sequence: 0,
            parts: BTreeMap::new(),
            later: Vec::new(),
            events: 0,
            takes: Duration::ZERO,
            boot: None,
        };
        for folder in FOLDERS {
            tree.folder(folder);
        }
        tree
    }

    /// Where a path leads; `None` when there is nothing.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        self.walk(path.as_ref(), true)
    }

    /// Follows links, the last one only when `last` says so.
    fn walk(&self, path: &Path, last: bool) -> Option<PathBuf> {
        let mut rest = parts(path);
        let mut at = PathBuf::from("/");
        let mut links = 0;
        while let Some(part) = rest.pop_front() {
            if part == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&part);
            match self.nodes.get(&next)? {
                Node::Link(target) if last || !rest.is_empty() => {
                    links += 1;
                    if links > MOST_LINKS {
                        return None;
                    }
                    if target.is_absolute() {
                        at = PathBuf::from("/");
                    }
                    for part in parts(target).into_iter().rev() {
                        rest.push_front(part);
                    }
                }
                Node::Folder | Node::File(..) | Node::Link(_) | Node::Block(..) => at = next,
            }
        }
        Some(at)
    }

    /// The place of a path whose folders may be missing; they are made.
    fn place(&mut self, path: &Path) -> PathBuf {
        assert!(path.is_absolute(), "{} is no absolute path", path.display());
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return PathBuf::from("/");
        };
        let parent = match self.resolve(parent) {
            Some(parent) => parent,
            None => {
                let parent = self.place(parent);
                self.nodes.entry(parent.clone()).or_insert(Node::Folder);
                parent
            }
        };
        let node = self.nodes.get(&parent);
        assert_eq!(node, Some(&Node::Folder), "{} is no folder", parent.display());
        parent.join(name)
    }

    /// What is at a path, links followed.
    pub fn node(&self, path: impl AsRef<Path>) -> Option<&Node> {
        self.nodes.get(&self.resolve(path)?)
    }

    /// True when there is something at a path, links followed.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.resolve(path).is_some()
    }

    /// Makes a folder and those above it; one that is there stays.
    pub fn folder(&mut self, path: impl AsRef<Path>) -> &mut Self {
        let place = self.place(path.as_ref());
        let node = self.nodes.entry(place).or_insert(Node::Folder);
        assert_ne!(std::mem::discriminant(node), std::mem::discriminant(&Node::Block(0, 0)));
        self
    }

    /// Writes a file whole, whatever was there, with mode 0644 or the one it had.
    pub fn file(&mut self, path: impl AsRef<Path>, data: impl AsRef<[u8]>) -> &mut Self {
        let path = path.as_ref();
        let mode = match self.node(path) {
            Some(Node::File(_, mode)) => *mode,
            Some(Node::Folder | Node::Link(_) | Node::Block(..)) | None => 0o644,
        };
        self.file_mode(path, data, mode)
    }

    /// Writes a file whole, whatever was there, with this mode.
    pub fn file_mode(
        &mut self,
        path: impl AsRef<Path>,
        data: impl AsRef<[u8]>,
        mode: u32,
    ) -> &mut Self {
        let place = self.resolve(path.as_ref()).unwrap_or_else(|| self.place(path.as_ref()));
        assert_ne!(self.nodes.get(&place), Some(&Node::Folder), "{} is a folder", place.display());
        self.nodes.insert(place, Node::File(data.as_ref().to_vec(), mode));
        self
    }

    /// A value as the kernel shows one: with a line end.
    pub fn value(&mut self, path: impl AsRef<Path>, value: impl std::fmt::Display) -> &mut Self {
        self.file(path, format!("{value}\n"))
    }

    /// Makes a link; one that is there is replaced.
    pub fn link(&mut self, path: impl AsRef<Path>, target: impl Into<PathBuf>) -> &mut Self {
        let place = self.place(path.as_ref());
        self.nodes.insert(place, Node::Link(target.into()));
        self
    }

    /// Makes a bare device node; [`Tree::add_disk`] makes one with a device behind it.
    pub fn block_node(&mut self, path: impl AsRef<Path>, number: (u32, u32)) -> &mut Self {
        let place = self.place(path.as_ref());
        self.nodes.insert(place, Node::Block(number.0, number.1));
        self
    }

    /// Removes what is at a path with all below it; a link goes, not what it leads to.
    pub fn remove(&mut self, path: impl AsRef<Path>) -> bool {
        let Some(place) = self.walk(path.as_ref(), false) else { return false };
        let gone: Vec<PathBuf> = self.below(&place).map(|(path, _)| path.clone()).collect();
        for path in gone {
            self.nodes.remove(&path);
        }
        self.nodes.remove(&place).is_some()
    }

    /// As `unlink` and `rmdir`: what is in use as a folder stays.
    pub(super) fn unlink(&mut self, path: &Path) -> Result<bool, i32> {
        let Some(place) = self.walk(path, false) else { return Ok(false) };
        if self.below(&place).next().is_some() {
            return Err(ENOTEMPTY);
        }
        self.nodes.remove(&place);
        Ok(true)
    }

    /// Makes a file that must not be there.
    pub(super) fn create(&mut self, path: &Path, data: &[u8], mode: u32) -> Result<(), i32> {
        if self.walk(path, false).is_some() {
            return Err(EEXIST);
        }
        self.file_mode(path, data, mode);
        Ok(())
    }

    /// Everything below a folder, links not followed.
    fn below<'a>(&'a self, folder: &'a Path) -> impl Iterator<Item = (&'a PathBuf, &'a Node)> {
        self.nodes
            .range(folder.to_owned()..)
            .take_while(move |(path, _)| path.starts_with(folder))
            .filter(move |(path, _)| *path != folder)
    }

    /// The names in a folder, sorted; `ENOTDIR` where there is something else.
    pub(super) fn names(&self, folder: &Path) -> Result<Vec<String>, i32> {
        let Some(place) = self.resolve(folder) else { return Ok(Vec::new()) };
        if self.nodes.get(&place) != Some(&Node::Folder) {
            return Err(ENOTDIR);
        }
        let depth = place.components().count() + 1;
        let name = |path: &PathBuf| Some(path.file_name()?.to_string_lossy().into_owned());
        Ok(self
            .below(&place)
            .filter(|(path, _)| path.components().count() == depth)
            .filter_map(|(path, _)| name(path))
            .collect())
    }

    /// The names in a folder, sorted; none when there is no such folder.
    pub fn list(&self, folder: impl AsRef<Path>) -> Vec<String> {
        self.names(folder.as_ref()).unwrap_or_default()
    }

    /// The content of a file.
    pub fn read(&self, path: impl AsRef<Path>) -> Option<&[u8]> {
        match self.node(path)? {
            Node::File(data, _) => Some(data),
            Node::Folder | Node::Link(_) | Node::Block(..) => None,
        }
    }

    /// The content of a file as text, without blanks around it; empty when there is none.
    pub fn text(&self, path: impl AsRef<Path>) -> String {
        let data = self.read(path).unwrap_or_default();
        String::from_utf8_lossy(data).trim_matches(|c: char| c.is_whitespace() || c == '\0').into()
    }

    /// What a write without a behaviour does: the file has the new content.
    pub(super) fn overwrite(&mut self, path: &Path, data: &[u8]) -> Result<(), i32> {
        match self.node(path) {
            Some(Node::File(..)) => {
                self.file(path, data);
                Ok(())
            }
            Some(Node::Folder | Node::Link(_) | Node::Block(..)) => Err(EISDIR),
            None => Err(ENOENT),
        }
    }

    /// Tells everybody who waits for device events that something may have changed.
    pub fn emit(&mut self) {
        self.events += 1;
    }

    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// Lets something happen, and tells of it, when a caller has waited for events `waits` times.
    pub fn later(&mut self, waits: usize, act: impl FnOnce(&mut Self) + Send + 'static) {
        self.later.push(Later { waits: waits.max(1), act: Box::new(act) });
    }

    /// One wait: what is due happens. False when nothing is pending.
    pub(super) fn wait_once(&mut self) -> bool {
        if self.later.is_empty() {
            return false;
        }
        let (due, pending) = std::mem::take(&mut self.later)
            .into_iter()
            .map(|later| Later { waits: later.waits - 1, ..later })
            .partition(|later: &Later| later.waits == 0);
        self.later = pending;
        let due: Vec<Later> = due;
        for later in due {
            (later.act)(self);
            self.emit();
        }
        true
    }

    /// Lets everything that is pending happen now, and what comes of it.
    pub fn settle(&mut self) {
        while self.wait_once() {}
    }

    /// The call that runs now takes so long; one with a shorter limit is answered as late.
    pub fn takes(&mut self, time: Duration) {
        self.takes = time;
    }

    pub(in crate::fake_host) fn take_time(&mut self) -> Duration {
        std::mem::take(&mut self.takes)
    }

    /// State that a simulation keeps here, by its type; made when it is asked for first. The tree
    /// is handed along, so that both can be changed together.
    pub fn with<T: Default + Send + 'static, R>(
        &mut self,
        act: impl FnOnce(&mut T, &mut Self) -> R,
    ) -> R {
        let id = TypeId::of::<T>();
        let part = self.parts.remove(&id).unwrap_or_else(|| Box::new(T::default()));
        let mut part = part.downcast::<T>().expect("a part is kept by its type");
        let answer = act(&mut part, self);
        let again = self.parts.insert(id, part);
        assert!(again.is_none(), "a part was asked for again while it was in use");
        answer
    }

    /// The name under which storage systems know this host; keeps reservations of hosts apart.
    pub fn initiator(&self) -> &str {
        &self.initiator
    }

    /// Remembers what a reboot brings back, once.
    pub(in crate::fake_host) fn begin(&mut self) {
        if self.boot.is_none() {
            self.boot = Some(Boot {
                nodes: self.nodes.clone(),
                disks: self.disks.clone(),
                maps: self.maps.clone(),
                multipathd: self.multipathd.clone(),
            });
        }
    }

    /// Power off and on: settings stay, everything else is as it was in the beginning.
    pub(in crate::fake_host) fn reboot(&mut self) {
        let Some(boot) = &self.boot else { return };
        let stays = |path: &Path| path.starts_with("/etc") || path.starts_with("/var");
        let mut nodes = std::mem::take(&mut self.nodes);
        nodes.retain(|path, _| stays(path));
        nodes.extend(
            boot.nodes.iter().filter(|(p, _)| !stays(p)).map(|(p, n)| (p.clone(), n.clone())),
        );
        self.nodes = nodes;
        self.disks = boot.disks.clone();
        self.maps = boot.maps.clone();
        self.multipathd = boot.multipathd.clone();
        self.later.clear();
        for hook in self.behaviours.reboots() {
            hook.run(self);
        }
        self.emit();
    }

    /// The keys under which this host is registered at any volume.
    pub(in crate::fake_host) fn registered(&self) -> Vec<u64> {
        let key = |lun: &Lun| lun.registrations(|all| all.key_of(&self.initiator));
        self.reserved.iter().filter_map(key).collect()
    }

    /// What is compared before and after: all but what is volatile.
    pub(in crate::fake_host) fn snapshot(&self) -> BTreeMap<PathBuf, Node> {
        let stays = |path: &Path| !self.volatile.iter().any(|pattern| pattern.fits(path));
        // Hawser's own folders may stay behind empty: what would be left are files in them.
        let ours = |path: &Path| OURS.iter().any(|folder| path.starts_with(folder));
        let counts = |(path, node): &(&PathBuf, &Node)| {
            stays(path) && !(ours(path) && **node == Node::Folder)
        };
        let copy = |(path, node): (&PathBuf, &Node)| (path.clone(), node.clone());
        self.nodes.iter().filter(counts).map(copy).collect()
    }
}

/// The components of a path, without the root and `.`.
fn parts(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}
