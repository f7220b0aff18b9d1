//! The kernel of a fake host: a tree of files, block devices, maps and events in memory.
//!
//! [`FakeHost::kernel`](super::FakeHost::kernel) hands it out. A test builds what the kernel shows
//! ([`Kernel::file`], [`Kernel::link`], [`Kernel::load`], [`Kernel::disk`]) and says what it does
//! when it is written to ([`Kernel::on_write`] and its siblings): behaviours change the [`Tree`],
//! tell of it ([`Tree::emit`]), let things happen after so many waits ([`Tree::later`]), or refuse
//! with an errno. The simulations in [`crate::sim`] are made of nothing else.

mod behaviour;
mod disk;
mod disks;
pub mod errno;
mod events;
mod files;
mod fixture;
mod iscsid;
mod locks;
mod lun;
mod map_port;
mod maps;
mod multipathd;
mod nbd;
mod reservation;
mod tree;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use hawser_core::error::{Error, Result};
use hawser_core::port::kernel::{KernelError, KernelResult};

pub use behaviour::{Answer, Pattern, Write};
pub use disk::{DiskSpec, Flush};
pub(in crate::fake_host) use locks::LockTable;
pub use lun::{Lun, Target};
pub use multipathd::FindMultipaths;
pub use nbd::NbdAsk;
pub use reservation::Registrations;
pub use tree::{Node, Tree};

use super::Shared;
use super::faults::{Faults, Struck};
use super::state::State;
use behaviour::Door;
use errno::EIO;

/// The kernel of a fake host. Clones are the same kernel.
#[derive(Clone)]
pub struct Kernel {
    shared: Arc<Shared>,
}

impl Kernel {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: shared.clone() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.shared.faults()
    }

    /// Ends when the tree may have changed after this was called.
    fn changed(&self) -> impl Future<Output = ()> + Send + '_ {
        self.shared.changed.notified()
    }

    /// Looks at the tree or changes it.
    pub fn edit<R>(&self, act: impl FnOnce(&mut Tree) -> R) -> R {
        let answer = act(self.state().tree());
        self.shared.changed.notify_waiters();
        answer
    }

    /// A file with this content.
    pub fn file(&self, path: impl AsRef<Path>, data: impl AsRef<[u8]>) -> &Self {
        self.edit(|tree| {
            tree.file(path, data);
        });
        self
    }

    /// A file with this value and a line end, as the kernel shows values.
    pub fn value(&self, path: impl AsRef<Path>, value: impl Display) -> &Self {
        self.edit(|tree| {
            tree.value(path, value);
        });
        self
    }

    /// A folder.
    pub fn folder(&self, path: impl AsRef<Path>) -> &Self {
        self.edit(|tree| {
            tree.folder(path);
        });
        self
    }

    /// A link.
    pub fn link(&self, path: impl AsRef<Path>, target: impl Into<PathBuf>) -> &Self {
        self.edit(|tree| {
            tree.link(path, target);
        });
        self
    }

    /// Takes something away, with all below it.
    pub fn remove_all(&self, path: impl AsRef<Path>) -> &Self {
        self.edit(|tree| {
            tree.remove(path);
        });
        self
    }

    /// What a fixture describes; its form stands at [`Tree::load`].
    pub fn load(&self, fixture: &str) -> &Self {
        self.edit(|tree| {
            tree.load(fixture);
        });
        self
    }

    /// A block device with a node and its files of sysfs.
    pub fn disk(&self, spec: DiskSpec) -> &Self {
        self.edit(|tree| tree.add_disk(spec));
        self
    }

    /// A kernel module that is loaded.
    pub fn module(&self, name: &str) -> &Self {
        self.folder(format!("/sys/module/{}", name.replace('-', "_")))
    }

    /// A daemon that runs.
    pub fn daemon(&self, name: &str, pid: u32) -> &Self {
        self.value(format!("/proc/{pid}/comm"), name)
    }

    /// multipathd runs.
    pub fn multipathd(&self, find: FindMultipaths) -> &Self {
        self.edit(|tree| tree.start_multipathd(find));
        self
    }

    /// The name under which storage systems know this host.
    pub fn set_initiator(&self, name: &str) -> &Self {
        self.edit(|tree| tree.initiator = name.into());
        self
    }

    /// Paths that may differ before and after without anybody having left something.
    pub fn volatile(&self, pattern: &str) -> &Self {
        self.edit(|tree| tree.volatile.push(Pattern::new(pattern)));
        self
    }

    /// Looking at this path fails from now on, with this number.
    pub fn fail_read(&self, path: impl Into<PathBuf>, errno: i32) -> &Self {
        self.edit(|tree| tree.failing_reads.insert(path.into(), errno));
        self
    }

    /// Looking works again everywhere.
    pub fn heal_reads(&self) -> &Self {
        self.edit(|tree| tree.failing_reads.clear());
        self
    }

    /// The next call of this method, such as `Files::write`, fails with this number and does
    /// nothing. Several queue up.
    pub fn fail_next(&self, method: &str, errno: i32) -> &Self {
        self.faults().fail_next_errno(method, errno);
        self
    }

    /// What a flush of this device does from now on.
    pub fn set_flush(&self, node: impl AsRef<Path>, flush: Flush) -> &Self {
        let node = node.as_ref();
        self.edit(|tree| match tree.disk_at(node) {
            Some(name) => tree.set_flush(&name, flush),
            None => tree.set_file_flush(node, flush),
        });
        self
    }

    /// Tells everybody who waits for device events that something may have changed.
    pub fn emit(&self) -> &Self {
        self.edit(Tree::emit);
        self
    }

    /// What happens when a file that fits is written to. The last one that was set decides.
    pub fn on_write(
        &self,
        pattern: &str,
        mut act: impl FnMut(&mut Tree, &Write<'_>) -> Answer<()> + Send + 'static,
    ) -> &Self {
        self.edit(|tree| {
            tree.behaviours.on_file(Door::Write, Pattern::new(pattern), move |tree, write| {
                act(tree, write).map(|()| Vec::new())
            });
        });
        self
    }

    /// What a file that fits answers to a write.
    pub fn on_exchange(
        &self,
        pattern: &str,
        act: impl FnMut(&mut Tree, &Write<'_>) -> Answer<Vec<u8>> + Send + 'static,
    ) -> &Self {
        self.edit(|tree| tree.behaviours.on_file(Door::Exchange, Pattern::new(pattern), act));
        self
    }

    /// What a control device that fits answers to an ioctl.
    pub fn on_control(
        &self,
        pattern: &str,
        act: impl FnMut(&mut Tree, &Write<'_>) -> Answer<Vec<u8>> + Send + 'static,
    ) -> &Self {
        self.edit(|tree| tree.behaviours.on_file(Door::Control, Pattern::new(pattern), act));
        self
    }

    /// What multipathd answers, before the model of it is asked; `None` leaves it to the model.
    pub fn on_multipathd(
        &self,
        act: impl FnMut(&mut Tree, &str) -> Option<Answer<String>> + Send + 'static,
    ) -> &Self {
        self.edit(|tree| tree.behaviours.on_command(act));
        self
    }

    /// What device mapper does with a map, by its name; the request is `remove` or `message TEXT`.
    /// `None` leaves it to the model.
    pub fn on_map(
        &self,
        act: impl FnMut(&mut Tree, &str, &str) -> Option<Answer<()>> + Send + 'static,
    ) -> &Self {
        self.edit(|tree| tree.behaviours.on_map(act));
        self
    }

    /// What is served behind a network block device; without it, a blank volume.
    pub fn on_nbd(
        &self,
        act: impl FnMut(&mut Tree, &NbdAsk) -> Answer<Lun> + Send + 'static,
    ) -> &Self {
        self.edit(|tree| tree.behaviours.on_nbd(act));
        self
    }

    /// What iscsid answers when it is asked to end a session; without it nobody listens there.
    pub fn on_logout(
        &self,
        act: impl FnMut(&mut Tree, u32) -> Answer<i32> + Send + 'static,
    ) -> &Self {
        self.edit(|tree| tree.behaviours.on_logout(act));
        self
    }

    /// What a simulation must forget at a reboot. The tree is back as it was in the beginning when
    /// this runs, but for `/etc` and `/var`.
    pub fn on_reboot(&self, act: impl FnMut(&mut Tree) + Send + 'static) -> &Self {
        self.edit(|tree| tree.behaviours.on_reboot(act));
        self
    }

    /// Writes a call down that cannot fail.
    fn note(&self, method: &'static str) {
        self.faults().note(method);
    }

    /// A fault point, then the act, then whatever time it takes.
    async fn call<T>(
        &self,
        method: &'static str,
        detail: &str,
        limit: Duration,
        act: impl FnOnce(&mut State) -> Answer<T>,
    ) -> KernelResult<T> {
        tokio::task::yield_now().await;
        let attempt = format!("{method} {detail}");
        let begun = self.faults().begin(method, detail.into());
        let lost = match begun {
            Ok(lost) => lost,
            Err(struck) => return Err(KernelError::refused(attempt, struck.errno())),
        };
        if self.faults().hangs(method) {
            std::future::pending::<()>().await;
        }
        let (answer, takes) = {
            let mut state = self.state();
            state.tree().begin();
            let answer = act(&mut state);
            (answer, state.tree().take_time())
        };
        self.shared.changed.notify_waiters();
        if !takes.is_zero() {
            tokio::time::sleep(takes.min(limit)).await;
        }
        tokio::task::yield_now().await;
        if lost || takes > limit {
            return Err(KernelError::Late { attempt, limit: takes.min(limit) });
        }
        answer.map_err(|errno| KernelError::refused(attempt, errno))
    }

    /// The fault point of a lock; `Some` when its answer gets lost.
    async fn begin_lock(&self, detail: String) -> Result<Option<Error>> {
        tokio::task::yield_now().await;
        let lost = self.faults().begin("Locks::lock", detail).map_err(Struck::into_error)?;
        if self.faults().hangs("Locks::lock") {
            std::future::pending::<()>().await;
        }
        Ok(lost.then(|| super::faults::lost("Locks::lock")))
    }
}

impl Struck {
    fn errno(&self) -> i32 {
        match self {
            Self::Errno(errno) => *errno,
            Self::Scripted(_) | Self::As(_) => EIO,
        }
    }
}
