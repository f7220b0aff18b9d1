//! The state of a fake host, and what its file systems do.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hawser_core::error::Result;
use hawser_core::filesystem::FsKind;
use hawser_core::port::host::{
    Arg, FsUsage, HostFacts, HostMount, LoopDevice, MountSource, Tool, ToolOutput,
};
use hawser_core::{ByteSize, Change, Error, Kind, Outcome, Reason};
use uuid::Uuid;

use super::device::Devices;
use super::image::{self, Signature, Soundness};
use super::kernel::{LockTable, Node, Tree};
use super::mount::{Mounts, not_mounted};
use super::network::Network;

/// Answers a program's run.
pub(super) type Script = Box<dyn FnMut(&mut Tree, &Tool) -> Result<ToolOutput> + Send>;

/// A block device of this host, whatever is behind it.
pub(super) struct Block {
    pub(super) file: Arc<File>,
    pub(super) size: u64,
    pub(super) number: (u32, u32),
    pub(super) read_only: bool,
}

/// Everything a reboot or a call can change.
pub(super) struct State {
    pub(super) facts: HostFacts,
    pub(super) devices: Devices,
    pub(super) mounts: Mounts,
    pub(super) network: Network,
    /// Targets and devices that somebody has open.
    pub(super) busy: BTreeSet<PathBuf>,
    pub(super) tools: VecDeque<(String, Script)>,
    /// Every argument of every program so far, the hidden ones too.
    pub(super) arguments: Vec<String>,
    /// What the kernel shows; asked for through [`State::tree`].
    tree: Tree,
    pub(super) locks: LockTable,
    pub(super) usage: FsUsage,
    pub(super) shares_blocks: bool,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            facts: HostFacts {
                hostname: "fake".into(),
                boot_id: Uuid::new_v4().to_string(),
                machine: "x86_64".into(),
                kernel: "6.1.0-fake".into(),
                privileged: true,
            },
            devices: Devices::default(),
            mounts: Mounts::new(),
            network: Network::default(),
            busy: BTreeSet::new(),
            tools: VecDeque::new(),
            arguments: Vec::new(),
            tree: Tree::new(),
            locks: LockTable::default(),
            usage: FsUsage {
                total: ByteSize::gib(1024),
                available: ByteSize::gib(1024),
                used: ByteSize::ZERO,
                files: 1 << 26,
                files_free: 1 << 26,
            },
            shares_blocks: false,
        }
    }

    /// What the kernel shows, and who uses it at this moment.
    pub(super) fn tree(&mut self) -> &mut Tree {
        let mut in_use = self.mounts.devices();
        for path in &self.busy {
            if let Some(Node::Block(major, minor)) = self.tree.node(path) {
                in_use.insert((*major, *minor));
            }
        }
        self.tree.in_use = in_use;
        &mut self.tree
    }

    /// A block device of either kind.
    pub(super) fn block(&self, node: &Path) -> Result<Block> {
        if let Some(name) = self.tree.disk_at(node) {
            let number = self.tree.number_of(&name);
            let failed = || Error::new(Kind::Unavailable, format!("{}: I/O error", node.display()));
            let lun = self.tree.working_lun(&name).ok_or_else(failed)?;
            let read_only = self.tree.is_read_only(&name) || lun.is_read_only();
            let size = self.tree.size_of(&name);
            return Ok(Block { file: lun.backing(), size, number, read_only });
        }
        let device = self.devices.get(node)?;
        Ok(Block {
            file: device.file.clone(),
            size: device.size,
            number: device.number,
            read_only: device.read_only || device.marked,
        })
    }

    /// Mounts what is on this host.
    pub(super) fn mount_here(&mut self, request: &HostMount) -> Result<Change<()>> {
        let block = match &request.source {
            MountSource::Device { device, .. } | MountSource::Raw { device } => {
                Some(self.block(device)?)
            }
            MountSource::Bind { .. } | MountSource::Network { .. } => None,
        };
        let node = match &request.source {
            MountSource::Raw { device } => self.tree.resolve(device).or(Some(device.clone())),
            MountSource::Device { .. } | MountSource::Bind { .. } | MountSource::Network { .. } => {
                None
            }
        };
        self.mounts.mount(block.as_ref(), node, request)
    }

    pub(super) fn privileged(&self, attempt: &str) -> Result<()> {
        if self.facts.privileged {
            return Ok(());
        }
        Err(Error::new(Kind::Denied, format!("{attempt} needs root")))
    }

    pub(super) fn idle(&self, path: &Path) -> Result<()> {
        if self.busy.contains(path) {
            return Err(Error::new(Kind::Busy, format!("{} is open", path.display())));
        }
        Ok(())
    }

    /// Refuses a device that is open, mounted or frozen.
    pub(super) fn unused(&self, node: &Path) -> Result<()> {
        self.idle(node)?;
        if self.mounts.uses(self.block(node)?.number) {
            return Err(Error::new(Kind::Busy, format!("{} is mounted", node.display())));
        }
        Ok(())
    }

    pub(super) fn detach_loop(&mut self, device: &LoopDevice, force: bool) -> Result<Change<()>> {
        if !self.devices.is_still(device)? {
            return Ok(Change::Already(()));
        }
        let node = &device.device;
        let unused = self.unused(node).and_then(|()| self.mounts.not_shown(node));
        unused.map_err(|error| error.with_reason(Some(Reason::DeviceBusy)))?;
        let flushed = self.tree().flush_file(node);
        let failed = |kind, why| Error::new(kind, format!("{}: {why}", node.display()));
        let lost = match (flushed, force) {
            (Some(Ok(())), _) => None,
            (Some(Err(_)), false) => {
                let error = failed(Kind::Unavailable, "not written out, nothing was detached");
                return Err(error.with_reason(Some(Reason::FlushFailed)));
            }
            (Some(Err(_)), true) => {
                let error = failed(Kind::Precondition, "not written out, and detached by force");
                Some(error.with_reason(Some(Reason::DataLost)).with_outcome(Outcome::Unknown))
            }
            // The call is given up, and nobody knows how it ends.
            (None, _) => {
                let error = failed(Kind::Timeout, "writing out does not end");
                return Err(error.with_outcome(Outcome::Unknown));
            }
        };
        self.devices.remove(node);
        self.tree().forget_file_flush(node);
        lost.map_or(Ok(Change::Made(())), Err)
    }

    pub(super) fn resize_loop(&mut self, device: &LoopDevice) -> Result<ByteSize> {
        if !self.devices.is_still(device)? {
            let why = format!("{} is another device by now", device.device.display());
            return Err(Error::new(Kind::NotFound, why));
        }
        self.devices.resize(&device.device)
    }

    pub(super) fn make_filesystem(&self, node: &Path, fs: FsKind, uuid: Uuid) -> Result<()> {
        self.unused(node)?;
        let device = self.block(node)?;
        if device.read_only {
            let why = format!("making {fs} on {}: it refuses writes", node.display());
            return Err(Error::new(Kind::Precondition, why));
        }
        if device.size < fs.smallest_mib() << 20 {
            let why = format!("making {fs} on {}: it is too small", node.display());
            return Err(Error::new(Kind::Precondition, why));
        }
        let sound = Soundness::Clean;
        let signature = Signature::Filesystem { fs, uuid, size: device.size, sound };
        image::write(&device.file, &signature)
    }

    pub(super) fn check_filesystem(&self, node: &Path, wanted: FsKind) -> Result<Change<()>> {
        self.unused(node)?;
        let file = &self.block(node)?.file;
        let refuse = |why: &str| {
            let why = format!("checking {wanted} on {}: {why}", node.display());
            Err(Error::new(Kind::Precondition, why))
        };
        match image::read(file)? {
            Some(Signature::Filesystem { fs, uuid, size, sound }) if fs == wanted => match sound {
                Soundness::Clean => Ok(Change::Already(())),
                Soundness::Dirty => {
                    let sound = Soundness::Clean;
                    image::write(file, &Signature::Filesystem { fs, uuid, size, sound })?;
                    Ok(Change::Made(()))
                }
                Soundness::Broken => refuse("damage that needs a person"),
            },
            Some(_) | None => refuse("there is none"),
        }
    }

    pub(super) fn grow_filesystem(
        &self,
        node: &Path,
        wanted: FsKind,
        mounted: &Path,
    ) -> Result<Change<()>> {
        let device = self.block(node)?;
        let entry = self.mounts.at(mounted).ok_or_else(|| not_mounted(mounted))?;
        if entry.device != device.number || entry.read_only() {
            let why = format!("{} is not mounted on {}", node.display(), mounted.display());
            return Err(Error::new(Kind::Precondition, why));
        }
        match image::read(&device.file)? {
            Some(Signature::Filesystem { fs, uuid, size, sound }) if fs == wanted => {
                if size >= device.size {
                    return Ok(Change::Already(()));
                }
                let size = device.size;
                image::write(&device.file, &Signature::Filesystem { fs, uuid, size, sound })?;
                Ok(Change::Made(()))
            }
            Some(_) | None => Err(Error::new(
                Kind::Precondition,
                format!("{} holds no {wanted} to grow", node.display()),
            )),
        }
    }

    /// A mounted fake file system is as large as its signature says; all else is one file system.
    pub(super) fn usage(&self, path: &Path) -> Result<FsUsage> {
        self.answers("asking how full it is at", path)?;
        if !path.exists() {
            return Err(Error::new(Kind::NotFound, format!("{} is not there", path.display())));
        }
        let Some(entry) = self.mounts.over(path) else { return Ok(self.usage) };
        let Ok(device) = self.block(Path::new(&entry.source)) else { return Ok(self.usage) };
        Ok(match image::read(&device.file)? {
            Some(Signature::Filesystem { size, .. }) => {
                let total = ByteSize::bytes(size);
                // One file for each 16 KiB, as mkfs.ext4 does.
                let files = size >> 14;
                FsUsage { total, available: total, used: ByteSize::ZERO, files, files_free: files }
            }
            Some(Signature::Other(_)) | None => self.usage,
        })
    }

    pub(super) fn run(&mut self, tool: &Tool) -> Result<ToolOutput> {
        if tool.program.contains('/') {
            let why = format!("{:?} is a path, not the bare name of a program", tool.program);
            return Err(Error::new(Kind::Invalid, why));
        }
        self.arguments.extend(tool.args.iter().map(|arg| match arg {
            Arg::Plain(text) => text.to_string_lossy().into_owned(),
            Arg::Hidden(secret) => secret.expose().to_owned(),
        }));
        // Who uses what, for a program that looks at it.
        self.tree();
        match self.tools.iter_mut().find(|(program, _)| *program == tool.program) {
            Some((_, script)) => script(&mut self.tree, tool),
            None => self.run_mounting(tool).unwrap_or_else(|| {
                Err(Error::new(
                    Kind::Unsupported,
                    format!("{} is not installed on this host", tool.program),
                ))
            }),
        }
    }
}
