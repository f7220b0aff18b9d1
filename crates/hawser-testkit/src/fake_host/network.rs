//! File systems of other machines, as a fake host mounts them.
//!
//! What is "in" one is a real folder that the test names; [`Host::look`] answers from there for paths
//! below its mount. Without [`FakeHost::on_network_mount`] every network mount succeeds and is empty.
//!
//! [`Host::look`]: hawser_core::port::Host::look

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use hawser_core::error::Result;
use hawser_core::port::host::{HostMount, MountSource, Seen, SeenKind, Tool, ToolOutput};
use hawser_core::port::kernel::KernelError;
use hawser_core::{Change, Error, Kind, Outcome};

use super::FakeHost;
use super::kernel::Tree;
use super::mount::ROOT;
use super::state::State;
use super::tool::{Ran, ToolCall};

/// A file system of another machine, as the mount table shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Its type.
    pub fs_type: String,
    /// Its source.
    pub source: String,
    /// Options of the file system.
    pub super_options: Vec<String>,
    /// The real folder that plays what is in it.
    pub folder: PathBuf,
}

/// How a program ended, and what it mounted where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its output.
    pub output: ToolOutput,
    /// The mount, and whether it refuses writes.
    pub mounted: Option<(PathBuf, Remote, bool)>,
}

/// What a server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// It answers.
    Answers,
    /// It is silent: calls hang until their limit.
    Silent,
    /// Its mounts are dead, and the kernel says so with this number.
    Gone(i32),
}

type OnMount = Box<dyn FnMut(&HostMount) -> std::result::Result<Remote, i32> + Send>;
type OnProgram = Box<dyn FnMut(&mut Tree, &Tool) -> Result<Ended> + Send>;

/// Everything beyond this host.
#[derive(Default)]
pub(super) struct Network {
    on_mount: Option<OnMount>,
    programs: Vec<(String, OnProgram)>,
    /// What is in each file system, by device number.
    content: BTreeMap<(u32, u32), PathBuf>,
    servers: BTreeMap<String, Server>,
    /// Modes of folders that were made with one. They are not set on the real folders: a test that
    /// runs without root could not look into them.
    modes: BTreeMap<PathBuf, u32>,
}

impl FakeHost {
    /// Who answers the mounts of network file systems: what is mounted, or the kernel's number for
    /// its refusal.
    pub fn on_network_mount(
        &self,
        script: impl FnMut(&HostMount) -> std::result::Result<Remote, i32> + Send + 'static,
    ) {
        self.state().network.on_mount = Some(Box::new(script));
    }

    /// What a program does that mounts, such as `mount.glusterfs`.
    pub fn on_mounting_tool(
        &self,
        program: &str,
        mut script: impl FnMut(&Tool) -> Result<Ended> + Send + 'static,
    ) {
        let script: OnProgram = Box::new(move |_, tool| script(tool));
        self.state().network.programs.insert(0, (program.into(), script));
    }

    /// The same for a program that also looks at files: how it ends, and what it mounts where; true
    /// for a mount that refuses writes.
    pub fn mounting_tool(
        &self,
        program: &str,
        mut act: impl FnMut(&mut Tree, &ToolCall) -> (Ran, Option<(PathBuf, Remote, bool)>)
        + Send
        + 'static,
    ) {
        let name = program.to_owned();
        let script: OnProgram = Box::new(move |tree, tool| {
            let (ran, mounted) = act(tree, &ToolCall::of(tool));
            Ok(Ended { output: ran.into_output(&name), mounted })
        });
        self.state().network.programs.insert(0, (program.into(), script));
    }

    /// Somebody else mounts a file system of another machine.
    pub fn add_remote_mount(&self, target: &Path, remote: Remote) {
        self.state().place(target, remote, false);
    }

    /// A file system of another machine that every boot of the host mounts.
    pub fn add_boot_mount(&self, target: &Path, remote: Remote) {
        let mut state = self.state();
        state.place(target, remote, false);
        state.mounts.keep_last();
    }

    /// What the server behind this source does from now on.
    pub fn set_server(&self, source: &str, server: Server) {
        self.state().network.servers.insert(source.into(), server);
    }
}

impl State {
    fn place(&mut self, target: &Path, remote: Remote, read_only: bool) {
        let Remote { fs_type, source, super_options, folder } = remote;
        // A dead mount stays dead; a new one is not.
        self.network.servers.retain(|name, server| {
            *name != source || matches!(server, Server::Answers | Server::Silent)
        });
        let device = self.mounts.add(target, fs_type, source, super_options, read_only);
        self.network.content.insert(device, folder);
    }

    pub(super) fn mount(&mut self, request: &HostMount) -> Result<Change<()>> {
        let network = matches!(request.source, MountSource::Network { .. });
        let free = self.mounts.at(&request.target).is_none();
        let Some(script) = self.network.on_mount.as_mut().filter(|_| network && free) else {
            return self.mount_here(request);
        };
        super::mount::folder(&request.target)?;
        let attempt = format!("mounting on {}", request.target.display());
        let remote = script(request).map_err(|errno| KernelError::refused(attempt, errno))?;
        self.place(&request.target, remote, request.read_only);
        Ok(Change::Made(()))
    }

    pub(super) fn make_folder(&mut self, folder: &Path, mode: u32) -> Result<Change<()>> {
        let made = super::mount::make_target(folder)?;
        if made.is_made() {
            self.network.modes.insert(folder.into(), mode);
        }
        Ok(made)
    }

    /// Runs a program that may mount; `None` when there is none of this name.
    pub(super) fn run_mounting(&mut self, tool: &Tool) -> Option<Result<ToolOutput>> {
        let at = self.network.programs.iter().position(|(name, _)| *name == tool.program)?;
        let (name, mut script) = self.network.programs.remove(at);
        let ended = script(self.tree(), tool);
        self.network.programs.insert(at, (name, script));
        Some(ended.map(|ended| {
            if let Some((target, remote, read_only)) = ended.mounted {
                self.place(&target, remote, read_only);
            }
            ended.output
        }))
    }

    /// What the server of the file system over a path does.
    fn server(&self, path: &Path) -> Server {
        let source = self.mounts.over(path).map(|entry| entry.source.as_str());
        source
            .and_then(|source| self.network.servers.get(source))
            .copied()
            .unwrap_or(Server::Answers)
    }

    /// Refuses a call to a dead server as the kernel does.
    pub(super) fn answers(&self, attempt: &str, path: &Path) -> Result<()> {
        match self.server(path) {
            Server::Answers => Ok(()),
            Server::Silent => {
                let why = format!("{attempt} {} did not answer", path.display());
                Err(Error::new(Kind::Timeout, why).with_outcome(Outcome::Unknown))
            }
            Server::Gone(errno) => {
                let attempt = format!("{attempt} {}", path.display());
                Err(KernelError::refused(attempt, errno).into())
            }
        }
    }

    /// An unmount hangs with its server, and works when the mount is known to be dead.
    pub(super) fn may_unmount(&self, target: &Path) -> Result<()> {
        match self.server(target) {
            Server::Answers | Server::Gone(_) => Ok(()),
            Server::Silent => self.answers("unmounting", target),
        }
    }

    pub(super) fn look(&self, path: &Path) -> Result<Option<Seen>> {
        super::mount::absolute(path)?;
        self.answers("looking at", path)?;
        if let Some(entry) = self.mounts.at(path).filter(|_| self.mounts.shows_node(path)) {
            let (kind, device) = (SeenKind::BlockDevice, entry.device);
            return Ok(Some(Seen { kind, mode: 0o660, length: 0, device }));
        }
        let entry = self.mounts.over(path);
        let device = entry.map_or(ROOT.0, |entry| entry.device);
        let real = match entry.and_then(|entry| {
            Some((self.network.content.get(&entry.device)?, path.strip_prefix(&entry.target).ok()?))
        }) {
            Some((folder, rest)) if rest == Path::new("") => folder.clone(),
            Some((folder, rest)) => folder.join(rest),
            None => path.to_owned(),
        };
        let meta = match fs::symlink_metadata(&real) {
            Ok(meta) => meta,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(None),
            Err(error) => return Err(Error::new(Kind::Unavailable, error.to_string())),
        };
        let kind = match meta.file_type() {
            kind if kind.is_file() => SeenKind::File,
            kind if kind.is_dir() => SeenKind::Folder,
            kind if kind.is_symlink() => SeenKind::Symlink,
            kind if kind.is_block_device() => SeenKind::BlockDevice,
            _ => SeenKind::Other,
        };
        let mode = self.network.modes.get(&real).copied();
        let mode = mode.unwrap_or_else(|| meta.permissions().mode() & 0o7777);
        Ok(Some(Seen { kind, mode, length: meta.len(), device }))
    }
}
