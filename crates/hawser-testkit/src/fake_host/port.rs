//! The host port of [`FakeHost`]: every method yields, strikes a switch or acts, and yields again.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use hawser_core::error::Result;
use hawser_core::filesystem::FsKind;
use hawser_core::port::Progress;
use hawser_core::port::host::{
    Content, Copied, FsUsage, Host, HostFacts, HostMount, LoopAttach, LoopDevice, MountEntry, Seen,
    Tool, ToolOutput,
};
use hawser_core::port::kernel::{Disks, Events, Files, Iscsid, Locks, Maps, Nbd};
use hawser_core::{ByteSize, Change, Error, Kind};
use uuid::Uuid;

use super::faults::Struck;
use super::state::State;
use super::{FakeHost, copy, faults, image, mount};

impl FakeHost {
    /// Yields before and after the act, so that a caller who drops the future at any poll meets a
    /// call that did nothing and one that did everything but answer.
    async fn call<T>(
        &self,
        method: &'static str,
        detail: String,
        act: impl FnOnce(&mut State) -> Result<T>,
    ) -> Result<T> {
        self.call_within(Duration::MAX, method, detail, act).await
    }

    /// The same for a call with a limit; one that takes longer is answered as late.
    async fn call_within<T>(
        &self,
        limit: Duration,
        method: &'static str,
        detail: String,
        act: impl FnOnce(&mut State) -> Result<T>,
    ) -> Result<T> {
        tokio::task::yield_now().await;
        let lost = self.faults().begin(method, detail).map_err(Struck::into_error)?;
        if self.faults().hangs(method) {
            std::future::pending::<()>().await;
        }
        let (answer, takes) = {
            let mut state = self.state();
            state.tree().begin();
            let answer = act(&mut state);
            (answer, state.tree().take_time())
        };
        self.changed();
        if !takes.is_zero() {
            tokio::time::sleep(takes.min(limit)).await;
        }
        tokio::task::yield_now().await;
        if lost || takes > limit {
            return Err(faults::lost(method));
        }
        answer
    }
}

#[async_trait]
impl Host for FakeHost {
    async fn facts(&self) -> Result<HostFacts> {
        self.call("facts", String::new(), |state| Ok(state.facts.clone())).await
    }

    async fn run(&self, tool: &Tool) -> Result<ToolOutput> {
        let detail = format!("{tool:?}");
        self.call_within(tool.limit, "run", detail, |state| state.run(tool)).await
    }

    async fn mounts(&self) -> Result<Vec<MountEntry>> {
        self.call("mounts", String::new(), |state| Ok(state.mounts.entries().to_vec())).await
    }

    async fn mount(&self, request: &HostMount) -> Result<Change<()>> {
        self.call("mount", format!("{request:?}"), |state| {
            mount::absolute(&request.target)?;
            mount::check_flags(&request.flags)?;
            state.privileged("mounting")?;
            state.mount(request)
        })
        .await
    }

    async fn unmount(&self, target: &Path) -> Result<Change<()>> {
        self.call("unmount", target.display().to_string(), |state| {
            mount::absolute(target)?;
            if state.mounts.at(target).is_some() {
                state.privileged("unmounting")?;
                state.idle(target)?;
                state.may_unmount(target)?;
            }
            state.mounts.unmount(target)
        })
        .await
    }

    async fn abandon_mount(&self, target: &Path) -> Result<Change<()>> {
        self.call("abandon_mount", target.display().to_string(), |state| {
            mount::absolute(target)?;
            if state.mounts.at(target).is_some() {
                state.privileged("unmounting")?;
            }
            Ok(state.mounts.abandon(target))
        })
        .await
    }

    async fn make_target(&self, target: &Path) -> Result<Change<()>> {
        self.call("make_target", target.display().to_string(), |_| mount::make_target(target)).await
    }

    async fn make_target_file(&self, target: &Path) -> Result<Change<()>> {
        let detail = target.display().to_string();
        self.call("make_target_file", detail, |_| mount::make_target_file(target)).await
    }

    async fn remove_target(&self, target: &Path) -> Result<Change<()>> {
        self.call("remove_target", target.display().to_string(), |state| {
            if state.mounts.at(target).is_some() {
                return Ok(Change::Already(()));
            }
            mount::remove_target(target)
        })
        .await
    }

    async fn make_folder(&self, folder: &Path, mode: u32) -> Result<Change<()>> {
        let detail = format!("{} {mode:03o}", folder.display());
        self.call("make_folder", detail, |state| state.make_folder(folder, mode)).await
    }

    async fn look(&self, path: &Path, _limit: Duration) -> Result<Option<Seen>> {
        self.call("look", path.display().to_string(), |state| state.look(path)).await
    }

    async fn loop_devices(&self) -> Result<Vec<LoopDevice>> {
        self.call("loop_devices", String::new(), |state| state.devices.loops()).await
    }

    async fn attach_loop(&self, request: &LoopAttach) -> Result<Change<LoopDevice>> {
        self.call("attach_loop", format!("{request:?}"), |state| {
            mount::absolute(&request.file)?;
            let privileged = state.privileged("making a loop device");
            state.devices.check(request).and(privileged)?;
            state.devices.attach(self.dev(), request)
        })
        .await
    }

    async fn detach_loop(&self, device: &LoopDevice, force: bool) -> Result<Change<()>> {
        let detail = format!("{device:?} {force}");
        self.call("detach_loop", detail, |state| state.detach_loop(device, force)).await
    }

    async fn resize_loop(&self, device: &LoopDevice) -> Result<ByteSize> {
        self.call("resize_loop", format!("{device:?}"), |state| state.resize_loop(device)).await
    }

    async fn device_size(&self, device: &Path) -> Result<ByteSize> {
        self.call("device_size", device.display().to_string(), |state| {
            state.block(device).map(|found| ByteSize::bytes(found.size))
        })
        .await
    }

    async fn probe(&self, device: &Path) -> Result<Content> {
        self.call("probe", device.display().to_string(), |state| {
            image::probe(&state.block(device)?.file)
        })
        .await
    }

    async fn make_filesystem(&self, device: &Path, fs: FsKind, uuid: Uuid) -> Result<()> {
        let detail = format!("{} {fs} {uuid}", device.display());
        self.call("make_filesystem", detail, |state| state.make_filesystem(device, fs, uuid)).await
    }

    async fn check_filesystem(&self, device: &Path, fs: FsKind) -> Result<Change<()>> {
        let detail = format!("{} {fs}", device.display());
        self.call("check_filesystem", detail, |state| state.check_filesystem(device, fs)).await
    }

    async fn grow_filesystem(
        &self,
        device: &Path,
        fs: FsKind,
        mounted: &Path,
    ) -> Result<Change<()>> {
        let detail = format!("{} {fs} {}", device.display(), mounted.display());
        self.call("grow_filesystem", detail, |state| state.grow_filesystem(device, fs, mounted))
            .await
    }

    async fn freeze(&self, mounted: &Path) -> Result<Change<()>> {
        self.call("freeze", mounted.display().to_string(), |state| {
            state.mounts.set_frozen(mounted, true)
        })
        .await
    }

    async fn thaw(&self, mounted: &Path) -> Result<Change<()>> {
        self.call("thaw", mounted.display().to_string(), |state| {
            state.mounts.set_frozen(mounted, false)
        })
        .await
    }

    async fn sync_filesystem(&self, path: &Path) -> Result<()> {
        self.call("sync_filesystem", path.display().to_string(), |state| {
            state.answers("writing out", path)?;
            if path.exists() {
                return Ok(());
            }
            Err(Error::new(Kind::NotFound, format!("{} is not there", path.display())))
        })
        .await
    }

    async fn give_to_group(&self, folder: &Path, group: u32) -> Result<Change<()>> {
        let detail = format!("{} {group}", folder.display());
        self.call("give_to_group", detail, |state| state.give_to_group(folder, group)).await
    }

    async fn usage(&self, path: &Path) -> Result<FsUsage> {
        self.call("usage", path.display().to_string(), |state| state.usage(path)).await
    }

    async fn copy_file(&self, from: &Path, to: &Path, progress: &dyn Progress) -> Result<Copied> {
        let detail = format!("{} {}", from.display(), to.display());
        self.call("copy_file", detail, |state| {
            let bytes = copy::file(from, to, progress)?;
            Ok(Copied { shared: state.shares_blocks, bytes: ByteSize::bytes(bytes) })
        })
        .await
    }

    async fn copy_tree(&self, from: &Path, to: &Path, progress: &dyn Progress) -> Result<Copied> {
        let detail = format!("{} {}", from.display(), to.display());
        self.call("copy_tree", detail, |state| {
            let bytes = copy::tree(from, to, progress)?;
            Ok(Copied { shared: state.shares_blocks, bytes: ByteSize::bytes(bytes) })
        })
        .await
    }
    fn files(&self) -> &dyn Files {
        self.kernel()
    }

    fn events(&self) -> &dyn Events {
        self.kernel()
    }

    fn disks(&self) -> &dyn Disks {
        self.kernel()
    }

    fn maps(&self) -> &dyn Maps {
        self.kernel()
    }

    fn nbd(&self) -> &dyn Nbd {
        self.kernel()
    }

    fn iscsid(&self) -> &dyn Iscsid {
        self.kernel()
    }

    fn locks(&self) -> &dyn Locks {
        self.kernel()
    }
}
