//! [`FakeHost`]: a host whose devices, mounts and frozen file systems live in memory.
//!
//! Files and folders are real, below [`FakeHost::dir`]; so are copies. A loop device is a link to
//! its backing file in `dir/dev`, which tests may open; what is "on" a device is a signature in that
//! file, so it survives detach, renames, copies and reboots. Nothing here needs root.
//!
//! Any call can be made to fail: the next of a method ([`FakeHost::fail_next`]), all of a method
//! ([`FakeHost::fail_always`]), or the n-th of any method, before or after it acted
//! ([`FakeHost::fail_call`]).

mod copy;
mod device;
mod faults;
mod group;
mod image;
pub mod kernel;
mod mount;
mod network;
mod port;
mod state;
mod tool;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hawser_core::error::Result;
use hawser_core::port::host::{Content, FsUsage, LoopDevice, MountEntry, Tool, ToolOutput};
use hawser_core::{ByteSize, Error};
use tempfile::TempDir;
use tokio::sync::Notify;
use uuid::Uuid;

pub use faults::{Call, KERNEL_METHODS, METHODS, When};
pub use image::Soundness;
pub use kernel::{Kernel, Node, Tree};
pub use network::{Ended, Remote, Server};
pub use tool::{Ran, ToolCall};

use faults::Faults;
use image::Signature;
use state::{Script, State};

/// A host in memory, with real files.
pub struct FakeHost {
    dir: PathBuf,
    dev: PathBuf,
    shared: Arc<Shared>,
    kernel: Kernel,
    /// Removed with the host, where the host made it.
    _owned: Option<TempDir>,
}

/// What the host and its kernel share.
struct Shared {
    state: Mutex<State>,
    faults: Mutex<Faults>,
    changed: Notify,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a host holds, to compare before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostState {
    /// Loop devices.
    pub loops: Vec<LoopDevice>,
    /// Mounts.
    pub mounts: Vec<MountEntry>,
    /// Frozen file systems, by device number.
    pub frozen: BTreeSet<(u32, u32)>,
    /// Files below the host's folder and their lengths; folders have none.
    pub files: BTreeMap<PathBuf, Option<u64>>,
    /// What the kernel shows, and settings: all but what is volatile.
    pub tree: BTreeMap<PathBuf, Node>,
    /// Locks that are held.
    pub locks: Vec<String>,
    /// Keys under which this host is registered at a volume.
    pub registered: Vec<u64>,
    /// Devices over files that have the read-only mark of the block layer, or had it when they went.
    pub marked: Vec<PathBuf>,
}

impl HostState {
    /// What is in one and not in the other, or differs, line by line; empty when nothing does.
    pub fn difference(&self, other: &Self) -> String {
        let mut lines = Vec::new();
        let mut compare = |what: &str, before: String, after: String| {
            if before != after {
                lines.push(format!("{what}: {before} became {after}"));
            }
        };
        compare("loop devices", format!("{:?}", self.loops), format!("{:?}", other.loops));
        compare("mounts", format!("{:?}", self.mounts), format!("{:?}", other.mounts));
        compare("frozen", format!("{:?}", self.frozen), format!("{:?}", other.frozen));
        compare("locks", format!("{:?}", self.locks), format!("{:?}", other.locks));
        compare("keys", format!("{:?}", self.registered), format!("{:?}", other.registered));
        compare("read-only marks", format!("{:?}", self.marked), format!("{:?}", other.marked));
        lines.extend(differing(&self.files, &other.files));
        lines.extend(differing(&self.tree, &other.tree));
        lines.join("\n")
    }
}

fn differing<T: PartialEq + std::fmt::Debug>(
    before: &BTreeMap<PathBuf, T>,
    after: &BTreeMap<PathBuf, T>,
) -> Vec<String> {
    let paths: BTreeSet<&PathBuf> = before.keys().chain(after.keys()).collect();
    let differs = |path: &&&PathBuf| before.get(**path) != after.get(**path);
    let line = |path: &PathBuf| match (before.get(path), after.get(path)) {
        (None, Some(now)) => format!("new: {} {now:?}", path.display()),
        (Some(was), None) => format!("gone: {} {was:?}", path.display()),
        (was, now) => format!("changed: {} {was:?} became {now:?}", path.display()),
    };
    paths.iter().filter(differs).map(|path| line(path)).collect()
}

impl FakeHost {
    /// A host with a folder of its own, which goes with it.
    pub fn new() -> Self {
        let owned = tempfile::tempdir().expect("a temporary folder can be made");
        let mut host = Self::at(owned.path());
        host._owned = Some(owned);
        host
    }

    /// A host with this folder, which stays. A second host at the same folder plays the same
    /// machine after a reboot.
    pub fn at(dir: &Path) -> Self {
        let dir = fs::canonicalize(dir).expect("the host's folder exists");
        let dev = dir.join("dev");
        fs::create_dir_all(&dev).expect("the host's folder can be written");
        for entry in fs::read_dir(&dev).expect("the host's folder can be read").flatten() {
            // Nodes of a host that was here before: their devices are gone with it.
            let _ = fs::remove_file(entry.path());
        }
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new()),
            faults: Mutex::default(),
            changed: Notify::new(),
        });
        let kernel = Kernel::new(&shared);
        Self { dir, dev, shared, kernel, _owned: None }
    }

    /// The folder that holds the host's files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The kernel's files, devices, maps and events.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    fn dev(&self) -> &Path {
        &self.dev
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.shared.faults()
    }

    /// Wakes who waits for a change of the kernel.
    fn changed(&self) {
        self.shared.changed.notify_waiters();
    }

    /// The next call of this method fails with this error and does nothing. Several queue up.
    pub fn fail_next(&self, method: &str, error: Error) {
        self.faults().fail_next(method, error);
    }

    /// Every call of this method fails, as `Kind::Unavailable`, and does nothing.
    pub fn fail_always(&self, method: &str) {
        self.faults().fail_always(method);
    }

    /// Every call of this method that begins from now on never ends, and does nothing.
    pub fn hang_always(&self, method: &str) {
        self.faults().hang_always(method);
    }

    /// The n-th call from now on (0 is the next), whatever its method, fails.
    pub fn fail_call(&self, nth: usize, when: When) {
        self.faults().fail_call(nth, when);
    }

    /// The n-th call from now on and every later one fail.
    pub fn fail_from(&self, first: usize, when: When) {
        self.faults().fail_from(first, when);
    }

    /// Takes all failures back; calls that hang go on hanging.
    pub fn heal(&self) {
        self.faults().heal();
    }

    /// How many calls failed by a switch since the last one by number was set.
    pub fn struck(&self) -> usize {
        self.faults().struck()
    }

    /// Every call so far, in order.
    pub fn calls(&self) -> Vec<Call> {
        self.faults().calls()
    }

    /// Calls so far that may change the host.
    pub fn changes(&self) -> Vec<Call> {
        self.calls().into_iter().filter(Call::changes).collect()
    }

    /// Empties the log of calls.
    pub fn forget_calls(&self) {
        self.faults().forget_calls();
    }

    /// What the host holds, when everything that is pending in the kernel has happened.
    pub fn snapshot(&self) -> HostState {
        let mut state = self.state();
        state.tree().settle();
        let mut files = BTreeMap::new();
        list(&self.dir, &mut files).expect("the host's folder can be read");
        HostState {
            loops: state.devices.loops().expect("fake devices can be listed"),
            mounts: state.mounts.entries().to_vec(),
            frozen: state.mounts.frozen().clone(),
            files,
            tree: state.tree().snapshot(),
            locks: state.locks.held(),
            registered: state.tree().registered(),
            marked: state.devices.marked(),
        }
    }

    /// Power off and on: loop devices, mounts and freezes are gone, files and what is on them stay.
    pub fn reboot(&self) {
        let mut state = self.state();
        state.mounts.clear();
        state.devices.remove_loops();
        state.busy.clear();
        state.tree().reboot();
        state.facts.boot_id = Uuid::new_v4().to_string();
    }

    /// Plays an ordinary user's process (`false`): no mounts and no loop devices.
    pub fn set_privileged(&self, privileged: bool) {
        self.state().facts.privileged = privileged;
    }

    /// Plays another machine, as `uname -m` names it: `s390x`, `ppc64le`.
    pub fn set_machine(&self, machine: &str) {
        self.state().facts.machine = machine.into();
    }

    /// Somebody opens (`true`) or closes a mount target or a device.
    pub fn set_busy(&self, path: &Path, busy: bool) {
        let mut state = self.state();
        if busy {
            state.busy.insert(path.into());
        } else {
            state.busy.remove(path);
        }
    }

    /// How full everything is that is no mounted fake file system.
    pub fn set_usage(&self, usage: FsUsage) {
        self.state().usage = usage;
    }

    /// Whether copies claim to share their blocks with the original.
    pub fn set_shares_blocks(&self, shares: bool) {
        self.state().shares_blocks = shares;
    }

    /// What [`hawser_core::port::Host::run`] answers for this program, from now on.
    pub fn on_tool(
        &self,
        program: &str,
        mut script: impl FnMut(&Tool) -> Result<ToolOutput> + Send + 'static,
    ) {
        self.tool_script(program, Box::new(move |_, tool| script(tool)));
    }

    /// What a program does to the kernel, and answers, from now on.
    pub fn tool(
        &self,
        program: &str,
        mut act: impl FnMut(&mut Tree, &ToolCall) -> Ran + Send + 'static,
    ) {
        let name = program.to_owned();
        let script = move |tree: &mut Tree, tool: &Tool| {
            let ran = act(tree, &ToolCall::of(tool));
            Ok(ran.into_output(&name))
        };
        self.tool_script(program, Box::new(script));
    }

    fn tool_script(&self, program: &str, script: Script) {
        self.state().tools.push_front((program.into(), script));
    }

    /// These calls only look, such as a program that prints its state; without this, every run of a
    /// program, and every write, exchange and ioctl, counts as a change.
    pub fn only_looks(&self, looks: impl Fn(&Call) -> bool + Send + 'static) {
        self.faults().add_looks(looks);
    }

    /// Every argument of every program that was run, the hidden ones too.
    pub fn arguments(&self) -> Vec<String> {
        self.state().arguments.clone()
    }

    /// True when a device or the storage system behind it takes no writes.
    pub fn refuses_writes(&self, device: &Path) -> bool {
        let state = self.state();
        let mounted = state.mounts.over(device).is_some_and(MountEntry::read_only);
        mounted || state.block(device).is_ok_and(|block| block.read_only)
    }

    /// A blank disk of this size; answers its node.
    pub fn add_disk(&self, name: &str, size: ByteSize) -> PathBuf {
        self.state().devices.add_disk(&self.dev, name, size).expect("the disk's name is free")
    }

    /// A loop device that somebody else made over a file; answers its node.
    pub fn add_foreign_loop(&self, file: &Path, mark: Option<&str>) -> LoopDevice {
        let mut state = self.state();
        state.devices.add_loop(&self.dev, file, mark, false, 512).expect("the file can be opened")
    }

    /// A sparse file of this size below the host's folder, as image for a loop device.
    pub fn add_image(&self, name: &str, size: ByteSize) -> PathBuf {
        let path = self.dir.join(name);
        let file = fs::File::create_new(&path).expect("the image's name is free");
        file.set_len(size.get()).expect("the image can be sized");
        path
    }

    /// The file behind a device, or an image that has none.
    fn open(&self, path: &Path) -> fs::File {
        match self.state().block(path) {
            Ok(device) => device.file.try_clone().expect("an open file"),
            Err(_) => {
                OpenOptions::new().read(true).write(true).open(path).expect("a writable file")
            }
        }
    }

    /// Puts something on an image or a device.
    pub fn set_content(&self, path: &Path, content: &Content) {
        let file = self.open(path);
        let size = file.metadata().expect("its length").len();
        let written = match content {
            Content::Blank => {
                file.set_len(0).and_then(|()| file.set_len(size)).map_err(|e| e.to_string())
            }
            Content::Data => file.write_all_at(b"data", 0).map_err(|e| e.to_string()),
            Content::Filesystem { fs, uuid } => {
                let (fs, uuid) = (*fs, uuid.unwrap_or_else(Uuid::new_v4));
                let sound = Soundness::Clean;
                image::write(&file, &Signature::Filesystem { fs, uuid, size, sound })
                    .map_err(|e| e.to_string())
            }
            Content::Other(kind) => {
                image::write(&file, &Signature::Other(kind.clone())).map_err(|e| e.to_string())
            }
        };
        written.expect("content can be written");
    }

    /// Harms or heals the file system on an image or a device.
    pub fn set_soundness(&self, path: &Path, sound: Soundness) {
        let file = self.open(path);
        let Some(Signature::Filesystem { fs, uuid, size, .. }) =
            image::read(&file).expect("a readable file")
        else {
            panic!("{} holds no fake file system", path.display());
        };
        image::write(&file, &Signature::Filesystem { fs, uuid, size, sound })
            .expect("a writable file");
    }
}

impl Default for FakeHost {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for FakeHost {
    fn drop(&mut self) {
        // Nodes are links into this process; they must not outlive it.
        self.state().devices.remove_loops();
    }
}

fn list(folder: &Path, into: &mut BTreeMap<PathBuf, Option<u64>>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let meta = fs::symlink_metadata(&path)?;
        into.insert(path.clone(), meta.is_file().then_some(meta.len()));
        if meta.is_dir() {
            list(&path, into)?;
        }
    }
    Ok(())
}
