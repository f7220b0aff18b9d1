//! [`LinuxHost`]: the host port on the machine that we run on.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hawser_core::filesystem::FsKind;
use hawser_core::port::Host;
use hawser_core::port::host::{
    Content, Copied, FsUsage, HostFacts, HostMount, LoopAttach, LoopDevice, MountEntry, Seen, Tool,
    ToolOutput,
};
use hawser_core::port::kernel::{Disks, Events, Files, Iscsid, Locks, Maps, Nbd};
use hawser_core::port::progress::{Progress, Silent};
use hawser_core::{ByteSize, Change, Error, Result};
use uuid::Uuid;

use crate::block::{BlockError, fsck, grow, loop_device, mkfs, probe, size, unmounted};
use crate::exec::Exec;
use crate::files::usage::Questions;
use crate::files::{copy, freeze, group, look, tree, with_progress};
use crate::kernel::{
    FileLocks, LinuxDisks, LinuxEvents, LinuxFiles, LinuxIscsid, LinuxMaps, LinuxNbd,
};
use crate::mount::{self, Claims};
use crate::workers::Workers;
use crate::{facts, files};

/// How patient a [`LinuxHost`] is, how much it does at once, and where it keeps its notes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSettings {
    /// How long a system call that may hang (mount, statfs, freeze) is waited for.
    pub call_limit: Duration,
    /// How long a copy may make no progress; includes writing it out at the end.
    pub stall_limit: Duration,
    /// How many system calls may be under way or hang at once.
    pub workers: usize,
    /// How many copies run at once; more wait for their turn.
    pub copies: usize,
    /// Where notes are kept that go with a reboot.
    pub run_dir: PathBuf,
    /// Where the locks between the processes of this host are. All processes that share devices
    /// must use the same folder.
    pub lock_dir: PathBuf,
}

impl Default for HostSettings {
    fn default() -> Self {
        Self {
            call_limit: Duration::from_secs(60),
            stall_limit: Duration::from_secs(600),
            workers: 64,
            copies: 16,
            run_dir: "/run/hawser".into(),
            lock_dir: "/run/lock/hawser".into(),
        }
    }
}

/// This machine.
#[derive(Debug)]
pub struct LinuxHost {
    settings: HostSettings,
    exec: Arc<Exec>,
    workers: Workers,
    copies: Workers,
    claims: Arc<Claims>,
    questions: Arc<Questions>,
    files: LinuxFiles,
    events: LinuxEvents,
    disks: LinuxDisks,
    maps: LinuxMaps,
    nbd: LinuxNbd,
    iscsid: LinuxIscsid,
    locks: FileLocks,
}

impl LinuxHost {
    /// A host that has started nothing yet. Several in one process are possible, but each knows
    /// only its own workers and claims; a process needs one.
    pub fn new(settings: HostSettings) -> Self {
        let workers = Workers::new(settings.workers);
        let (limit, each) = (settings.call_limit, || workers.clone());
        Self {
            exec: Arc::default(),
            copies: Workers::new(settings.copies),
            claims: Arc::default(),
            questions: Arc::default(),
            files: LinuxFiles::new(each(), limit, settings.run_dir.clone()),
            events: LinuxEvents,
            disks: LinuxDisks::new(each(), limit),
            maps: LinuxMaps::new(each(), limit),
            nbd: LinuxNbd::new(each(), limit),
            iscsid: LinuxIscsid::new(each()),
            locks: FileLocks::new(&settings.lock_dir),
            workers,
            settings,
        }
    }

    /// Runs a blocking call on a worker and answers what it answers.
    async fn call<T: Send + 'static, E: Into<Error> + Send + 'static>(
        &self,
        what: &'static str,
        call: impl FnOnce() -> std::result::Result<T, E> + Send + 'static,
    ) -> Result<T> {
        self.workers.run(what, self.settings.call_limit, call).await?.map_err(Into::into)
    }

    async fn tool(&self, tool: &Tool) -> std::result::Result<ToolOutput, BlockError> {
        Ok(self.exec.run(tool).await?)
    }
}

#[async_trait]
impl Host for LinuxHost {
    async fn facts(&self) -> Result<HostFacts> {
        self.call("reading the facts of this host", facts::read).await
    }

    async fn run(&self, tool: &Tool) -> Result<ToolOutput> {
        Ok(self.exec.run(tool).await?)
    }

    async fn mounts(&self) -> Result<Vec<MountEntry>> {
        self.call("reading the mount table", mount::table::read).await
    }

    async fn mount(&self, request: &HostMount) -> Result<Change<()>> {
        let (claims, request) = (Arc::clone(&self.claims), request.clone());
        self.call("a mount", move || mount::mount(&claims, &request)).await
    }

    async fn unmount(&self, target: &Path) -> Result<Change<()>> {
        let (claims, target) = (Arc::clone(&self.claims), target.to_owned());
        self.call("an unmount", move || mount::unmount(&claims, &target)).await
    }

    async fn abandon_mount(&self, target: &Path) -> Result<Change<()>> {
        Ok(mount::abandon(&self.workers, self.settings.call_limit, target).await?)
    }

    async fn make_target(&self, target: &Path) -> Result<Change<()>> {
        let target = target.to_owned();
        self.call("making a folder", move || mount::make_target(&target)).await
    }

    async fn make_target_file(&self, target: &Path) -> Result<Change<()>> {
        let target = target.to_owned();
        self.call("making a file", move || mount::make_target_file(&target)).await
    }

    async fn remove_target(&self, target: &Path) -> Result<Change<()>> {
        let (claims, target) = (Arc::clone(&self.claims), target.to_owned());
        self.call("removing a mount target", move || mount::remove_target(&claims, &target)).await
    }

    async fn make_folder(&self, folder: &Path, mode: u32) -> Result<Change<()>> {
        let folder = folder.to_owned();
        self.call("making a folder", move || mount::make_folder(&folder, mode)).await
    }

    async fn look(&self, path: &Path, limit: Duration) -> Result<Option<Seen>> {
        let path = path.to_owned();
        let look = move || look::look(&path);
        Ok(self.workers.run("looking at a file", limit, look).await??)
    }

    async fn loop_devices(&self) -> Result<Vec<LoopDevice>> {
        self.call("listing loop devices", loop_device::list).await
    }

    async fn attach_loop(&self, request: &LoopAttach) -> Result<Change<LoopDevice>> {
        let request = request.clone();
        self.call("attaching a loop device", move || loop_device::attach(&request)).await
    }

    async fn detach_loop(&self, device: &LoopDevice, force: bool) -> Result<Change<()>> {
        let device = device.clone();
        self.call("detaching a loop device", move || loop_device::detach(&device, force)).await
    }

    async fn resize_loop(&self, device: &LoopDevice) -> Result<ByteSize> {
        let device = device.clone();
        self.call("resizing a loop device", move || loop_device::resize(&device)).await
    }

    async fn device_size(&self, device: &Path) -> Result<ByteSize> {
        let device = device.to_owned();
        self.call("asking for a device's size", move || size::of_path(&device)).await
    }

    async fn probe(&self, device: &Path) -> Result<Content> {
        let path = device.to_owned();
        self.call("opening a device", move || probe::forget_cache(&path)).await?;
        let output = self.tool(&probe::command(device)).await?;
        match probe::signature(device, &output)? {
            probe::Signature::Found(content) => Ok(content),
            probe::Signature::Nothing => {
                let path = device.to_owned();
                let zero = self.call("reading a device", move || probe::is_zero(&path)).await?;
                Ok(if zero { Content::Blank } else { Content::Data })
            }
        }
    }

    async fn make_filesystem(&self, device: &Path, fs: FsKind, uuid: Uuid) -> Result<()> {
        let output = self.tool(&mkfs::command(device, fs, uuid)).await?;
        output.ok().map_err(|source| BlockError::Make { fs, device: device.to_owned(), source })?;
        let path = device.to_owned();
        self.call("writing out a device", move || mkfs::sync(&path)).await
    }

    async fn check_filesystem(&self, device: &Path, fs: FsKind) -> Result<Change<()>> {
        let Some(tool) = fsck::command(device, fs) else { return Ok(Change::Already(())) };
        let path = device.to_owned();
        self.call("reading the mount table", move || fsck::refuse_mounted(&path, fs)).await?;
        let output = self.tool(&tool).await?;
        Ok(fsck::verdict(device, fs, &output)?)
    }

    async fn grow_filesystem(
        &self,
        device: &Path,
        fs: FsKind,
        mounted: &Path,
    ) -> Result<Change<()>> {
        let (path, target) = (device.to_owned(), mounted.to_owned());
        let begin = move || grow::begin(&path, fs, &target);
        let before = match self.call("growing a file system", begin).await? {
            grow::Step::Done(change) => return Ok(change),
            grow::Step::Tool { blocks } => blocks,
            grow::Step::Unmounted(request) => {
                let parts = unmounted::Parts {
                    exec: Arc::clone(&self.exec),
                    workers: self.workers.clone(),
                    claims: Arc::clone(&self.claims),
                    limit: self.settings.call_limit,
                };
                return Ok(unmounted::grow_ext4(parts, device, request).await?);
            }
        };
        let output = self.tool(&grow::command(device, fs, mounted)).await?;
        output.ok().map_err(|source| BlockError::Grow { fs, device: device.to_owned(), source })?;
        let target = mounted.to_owned();
        self.call("asking for a size", move || grow::after_tool(&target, before)).await
    }

    async fn freeze(&self, mounted: &Path) -> Result<Change<()>> {
        Ok(freeze::freeze(&self.workers, self.settings.call_limit, mounted).await?)
    }

    async fn thaw(&self, mounted: &Path) -> Result<Change<()>> {
        let mounted = mounted.to_owned();
        self.call("thawing a file system", move || freeze::thaw(&mounted)).await
    }

    async fn sync_filesystem(&self, path: &Path) -> Result<()> {
        let path = path.to_owned();
        let sync = move || freeze::sync(&path);
        let limit = self.settings.stall_limit;
        Ok(self.workers.run("writing out a file system", limit, sync).await??)
    }

    async fn give_to_group(&self, folder: &Path, group: u32) -> Result<Change<()>> {
        let folder = folder.to_owned();
        let work = move |meter: &files::Meter| group::give(&folder, group, meter);
        let stall = self.settings.stall_limit;
        Ok(with_progress(&self.copies, "giving a folder to a group", stall, &Silent, work).await?)
    }

    async fn usage(&self, path: &Path) -> Result<FsUsage> {
        Ok(self.questions.ask(&self.workers, self.settings.call_limit, path).await?)
    }

    async fn copy_file(&self, from: &Path, to: &Path, progress: &dyn Progress) -> Result<Copied> {
        let (source, target) = (from.to_owned(), to.to_owned());
        let work = move |meter: &files::Meter| copy::copy(&source, &target, meter);
        let stall = self.settings.stall_limit;
        progress.step("copying a file");
        Ok(with_progress(&self.copies, "copying a file", stall, progress, work).await?)
    }

    async fn copy_tree(&self, from: &Path, to: &Path, progress: &dyn Progress) -> Result<Copied> {
        let (source, target) = (from.to_owned(), to.to_owned());
        let work = move |meter: &files::Meter| tree::copy(&source, &target, meter);
        let stall = self.settings.stall_limit;
        progress.step("copying a folder");
        Ok(with_progress(&self.copies, "copying a folder", stall, progress, work).await?)
    }

    fn files(&self) -> &dyn Files {
        &self.files
    }

    fn events(&self) -> &dyn Events {
        &self.events
    }

    fn disks(&self) -> &dyn Disks {
        &self.disks
    }

    fn maps(&self) -> &dyn Maps {
        &self.maps
    }

    fn nbd(&self) -> &dyn Nbd {
        &self.nbd
    }

    fn iscsid(&self) -> &dyn Iscsid {
        &self.iscsid
    }

    fn locks(&self) -> &dyn Locks {
        &self.locks
    }
}
