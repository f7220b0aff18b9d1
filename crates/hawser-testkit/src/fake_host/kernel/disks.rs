//! The `Disks` part: opening block devices, of the tree and those over files of the host.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use hawser_core::port::kernel::{
    Disk, Disks, KernelError, KernelResult, NamespaceFacts, Reservation, ReservationStep,
};

use super::Kernel;
use super::behaviour::Answer;
use super::disk::Flushed;
use super::errno::{EINVAL, EIO, ENODEV, ENOENT, ENOTBLK, ENOTTY, ENXIO};
use super::lun::Lun;
use super::tree::Node;
use crate::fake_host::state::State;

/// What the block layer reads in.
const SECTOR: u64 = 512;

/// A device by the name of its node: one of the tree, or one over a file.
enum Found {
    Tree(String),
    File(Arc<File>),
}

fn find(state: &mut State, node: &Path) -> Answer<Found> {
    if let Ok(device) = state.devices.get(node) {
        return Ok(Found::File(device.file.clone()));
    }
    let tree = state.tree();
    match tree.node(node) {
        None => Err(ENOENT),
        Some(Node::Block(major, minor)) => {
            tree.disk_by_number((*major, *minor)).map(Found::Tree).ok_or(ENXIO)
        }
        Some(Node::Folder | Node::File(..) | Node::Link(_)) => Err(ENOTBLK),
    }
}

#[async_trait]
impl Disks for Kernel {
    async fn open(&self, device: &Path) -> KernelResult<Box<dyn Disk>> {
        let detail = device.display().to_string();
        let opened = self
            .call("Disks::open", &detail, Duration::MAX, |state| {
                Ok(match find(state, device)? {
                    Found::File(file) => Open::File(file),
                    Found::Tree(name) => {
                        let disk = state.tree().disk_mut(&name);
                        disk.openers += 1;
                        let sequence = disk.sequence;
                        let kernel = self.clone();
                        let opening = Opening { kernel, name, sequence };
                        Open::Tree(opening, Mutex::new(disk.lost))
                    }
                })
            })
            .await?;
        Ok(Box::new(OpenDisk { kernel: self.clone(), node: device.into(), opened }))
    }

    async fn is_claimed(&self, device: &Path) -> KernelResult<bool> {
        self.call("Disks::is_claimed", &device.display().to_string(), Duration::MAX, |state| {
            Ok(match find(state, device)? {
                Found::File(_) => state.unused(device).is_err(),
                Found::Tree(name) => state.tree().is_claimed(&name),
            })
        })
        .await
    }

    async fn set_read_only(&self, device: &Path, read_only: bool) -> KernelResult<()> {
        let detail = format!("{} {read_only}", device.display());
        self.call("Disks::set_read_only", &detail, Duration::MAX, |state| {
            match find(state, device)? {
                Found::File(_) => {
                    let device = state.devices.get_mut(device).map_err(|_| ENXIO)?;
                    device.marked = read_only;
                }
                Found::Tree(name) => state.tree().set_read_only(&name, read_only),
            }
            Ok(())
        })
        .await
    }
}

/// One opening of a device of the tree; counts as an opener until it is dropped.
struct Opening {
    kernel: Kernel,
    name: String,
    sequence: u64,
}

impl Opening {
    /// The device, if it is still the one that was opened.
    fn name(&self, state: &mut State) -> Answer<String> {
        let same = state.tree().disks.get(&self.name).is_some_and(|d| d.sequence == self.sequence);
        if same { Ok(self.name.clone()) } else { Err(ENODEV) }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let mut state = self.kernel.state();
        if self.name(&mut state).is_ok() {
            let disk = state.tree().disk_mut(&self.name);
            disk.openers = disk.openers.saturating_sub(1);
        }
    }
}

enum Open {
    /// With the losses that this opener knows of.
    Tree(Opening, Mutex<u64>),
    File(Arc<File>),
}

struct OpenDisk {
    kernel: Kernel,
    node: PathBuf,
    opened: Open,
}

impl OpenDisk {
    fn detail(&self) -> String {
        self.node.display().to_string()
    }

    /// Asks the volume behind the device.
    async fn ask<T>(
        &self,
        method: &'static str,
        act: impl FnOnce(&mut State, &str, &Lun) -> Answer<T> + Send,
    ) -> KernelResult<T>
    where
        T: Send,
    {
        self.kernel
            .call(method, &self.detail(), Duration::MAX, |state| match &self.opened {
                Open::File(_) => Err(ENOTTY),
                Open::Tree(opening, _) => {
                    let name = opening.name(state)?;
                    let tree = state.tree();
                    if !tree.usable(&name) {
                        return Err(EIO);
                    }
                    let lun = tree.lun_of(&name).ok_or(EIO)?;
                    act(state, &name, &lun)
                }
            })
            .await
    }

    /// Repeats what cannot be done yet, after each change of the tree, until the limit.
    async fn wait_for<T>(
        &self,
        attempt: String,
        limit: Duration,
        act: impl Fn(&mut State) -> Option<Answer<T>>,
    ) -> KernelResult<T> {
        let end = tokio::time::Instant::now() + limit.min(Duration::from_secs(1 << 30));
        loop {
            let changed = self.kernel.changed();
            if let Some(answer) = act(&mut self.kernel.state()) {
                return answer.map_err(|errno| KernelError::refused(attempt, errno));
            }
            if tokio::time::timeout_at(end, changed).await.is_err() {
                return Err(KernelError::Late { attempt, limit });
            }
        }
    }
}

#[async_trait]
impl Disk for OpenDisk {
    async fn flush(&self, limit: Duration) -> KernelResult<()> {
        // The fault point first: a flush that hangs is no failure of the call.
        let begun = self.kernel.call("Disk::flush", &self.detail(), limit, |_| Ok(())).await;
        let flushed = self.wait_for(format!("flushing {}", self.node.display()), limit, |state| {
            let (opening, seen) = match &self.opened {
                Open::File(_) => return state.tree().flush_file(&self.node),
                Open::Tree(opening, seen) => (opening, seen),
            };
            let name = match opening.name(state) {
                Ok(name) => name,
                Err(errno) => return Some(Err(errno)),
            };
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            match state.tree().flush(&name, &mut seen) {
                Flushed::Done(result) => Some(result),
                Flushed::NotYet => None,
            }
        });
        match begun {
            Ok(()) => flushed.await,
            // Its answer is lost, and it goes on.
            Err(late @ KernelError::Late { .. }) => {
                let _ = flushed.await;
                Err(late)
            }
            Err(error) => Err(error),
        }
    }

    async fn read(&self, at: u64, length: usize, limit: Duration) -> KernelResult<Vec<u8>> {
        let detail = format!("{} {at} {length}", self.node.display());
        self.kernel.call("Disk::read", &detail, limit, |_| Ok(())).await?;
        let attempt = format!("reading {}", self.node.display());
        if !at.is_multiple_of(SECTOR) || !(length as u64).is_multiple_of(SECTOR) {
            return Err(KernelError::refused(attempt, EINVAL));
        }
        self.wait_for(attempt, limit, |state| match &self.opened {
            Open::File(file) => {
                let mut bytes = vec![0; length];
                Some(match file.read_at(&mut bytes, at) {
                    Ok(got) => {
                        bytes.truncate(got);
                        Ok(bytes)
                    }
                    Err(_) => Err(EIO),
                })
            }
            Open::Tree(opening, _) => {
                let name = match opening.name(state) {
                    Ok(name) => name,
                    Err(errno) => return Some(Err(errno)),
                };
                let tree = state.tree();
                if tree.queues(&name) && !tree.usable(&name) {
                    return None;
                }
                Some(tree.read_disk(&name, at, length))
            }
        })
        .await
    }

    async fn inquiry(&self, page: Option<u8>) -> KernelResult<Vec<u8>> {
        self.ask("Disk::inquiry", |_, _, lun| match lun.page(page) {
            Some(bytes) => Ok(bytes),
            // No SCSI device, or one without that page.
            None if lun.page(None).is_none() => Err(ENOTTY),
            None => Err(EIO),
        })
        .await
    }

    async fn identify_namespace(&self, what: NamespaceFacts) -> KernelResult<Vec<u8>> {
        self.ask("Disk::identify_namespace", |_, _, lun| match what {
            NamespaceFacts::Format => lun.identify().ok_or(ENOTTY),
            NamespaceFacts::Ids => lun.descriptors().ok_or(ENOTTY),
        })
        .await
    }

    async fn reservation(&self) -> KernelResult<Reservation> {
        self.ask("Disk::reservation", |_, _, lun| Ok(lun.registrations(|all| all.read()))).await
    }

    async fn reserve(&self, step: &ReservationStep) -> KernelResult<()> {
        self.ask("Disk::reserve", |state, _, lun| {
            let tree = state.tree();
            let host = tree.initiator().to_owned();
            if !tree.reserved.iter().any(|known| known.is(lun)) {
                tree.reserved.push(lun.clone());
            }
            lun.registrations(|all| all.step(&host, step))
        })
        .await
    }
}
