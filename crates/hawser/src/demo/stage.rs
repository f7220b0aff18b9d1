//! The stage: each act is a call of the engine, timed and told in one line.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use hawser_core::error::{Error, Kind, Result};
use hawser_core::name::{Alias, Labels, NodeId};
use hawser_core::page::PageRequest;
use hawser_core::port::control::{Reply, VolumeFilter};
use hawser_core::publication::{MountRequest, PublishRequest};
use hawser_core::size::ByteSize;
use hawser_core::snapshot::{SnapshotRef, SnapshotRequest};
use hawser_core::volume::{SourceRef, VolumeRef, VolumeRequest};

use super::{Control, blocking, checksum_of};

/// Long enough for the slowest disk that a demo is fun on.
const WAIT: Duration = Duration::from_secs(120);

/// Where the demo plays.
pub(super) struct Stage {
    control: Control,
    node: NodeId,
    dir: PathBuf,
    privileged: bool,
    number: Mutex<u32>,
}

impl Stage {
    pub(super) fn new(control: Control, node: NodeId, dir: &Path, privileged: bool) -> Self {
        Self { control, node, dir: dir.to_owned(), privileged, number: Mutex::new(0) }
    }

    /// Tells one line with its time.
    async fn tell<T>(&self, what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        let number = {
            let mut number = self.number.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *number += 1;
            *number
        };
        print!("{number:>3}  {what:<52}");
        // A closed terminal is no reason to stop half-way.
        let _ = std::io::stdout().flush();
        let began = Instant::now();
        let result = work.await;
        let took = began.elapsed().as_secs_f64() * 1000.0;
        match &result {
            Ok(_) => println!(" {took:>7.0} ms"),
            Err(_) => println!(" failed after {took:.0} ms"),
        }
        result
    }

    /// File work of the demo itself.
    pub(super) async fn step<T: Send + 'static, F>(
        &self,
        what: &str,
        work: impl FnOnce() -> F,
    ) -> Result<T>
    where
        F: FnOnce() -> std::io::Result<T> + Send + 'static,
    {
        self.tell(what, blocking(work())).await
    }

    pub(super) async fn create(&self, name: &str, size: ByteSize) -> Result<()> {
        let request = VolumeRequest::new(alias(name)?, size);
        let what = format!("create volume {name}, {size}");
        self.tell(&what, async { done(self.control.create_volume(request, WAIT).await?) })
            .await
            .map(drop)
    }

    /// Mounts a volume (which formats a new one), or attaches it where mounting is not allowed, and
    /// answers the folder.
    pub(super) async fn open(&self, name: &str) -> Result<PathBuf> {
        let volume = volume(name)?;
        if !self.privileged {
            let request = PublishRequest::new(self.node.clone(), false);
            let what = format!("attach {name}");
            let attached = self
                .tell(&what, async { done(self.control.attach(&volume, request, WAIT).await?) })
                .await?;
            return Ok(attached.path().to_owned());
        }
        let target = self.dir.join(name);
        let request = MountRequest {
            node: self.node.clone(),
            target: target.clone(),
            read_only: false,
            flags: Vec::new(),
        };
        let what = format!("mount {name} (formatted if it is new)");
        self.tell(&what, async { done(self.control.mount(&volume, request, WAIT).await?) }).await?;
        Ok(target)
    }

    pub(super) async fn close(&self, name: &str) -> Result<()> {
        let volume = volume(name)?;
        if self.privileged {
            let unmounted = self.control.unmount(&volume, &self.node, None, WAIT);
            return self.tell(&format!("unmount {name}"), async { done(unmounted.await?) }).await;
        }
        let detached = self.control.detach(&volume, &self.node, WAIT);
        self.tell(&format!("detach {name}"), async { done(detached.await?) }).await
    }

    pub(super) async fn snapshot(&self, name: &str, of: &str) -> Result<()> {
        let request =
            SnapshotRequest { alias: alias(name)?, volume: volume(of)?, labels: Labels::default() };
        let what = format!("snapshot {of} as {name}{}", self.while_in_use());
        self.hold_still(of).await?;
        self.tell(&what, async { done(self.control.create_snapshot(request, WAIT).await?) })
            .await?;
        self.go_on(of).await
    }

    /// A folder that is in use cannot be copied at one instant: it is taken out of use meanwhile.
    async fn hold_still(&self, name: &str) -> Result<()> {
        if self.privileged { Ok(()) } else { self.close(name).await }
    }

    async fn go_on(&self, name: &str) -> Result<()> {
        if self.privileged { Ok(()) } else { self.open(name).await.map(drop) }
    }

    fn while_in_use(&self) -> &'static str {
        if self.privileged { ", while in use" } else { "" }
    }

    pub(super) async fn restore(&self, name: &str, from: &str) -> Result<()> {
        let source = SourceRef::Snapshot(SnapshotRef::Alias(alias(from)?));
        self.copy(name, source, &format!("create {name} from snapshot {from}")).await
    }

    pub(super) async fn clone_volume(&self, name: &str, of: &str) -> Result<()> {
        let source = SourceRef::Volume(volume(of)?);
        self.hold_still(of).await?;
        self.copy(name, source, &format!("clone {of} as {name}{}", self.while_in_use())).await?;
        self.go_on(of).await
    }

    async fn copy(&self, name: &str, source: SourceRef, what: &str) -> Result<()> {
        let mut request = VolumeRequest::new(alias(name)?, ByteSize::ZERO);
        request.size = None;
        request.source = Some(source);
        self.tell(what, async { done(self.control.create_volume(request, WAIT).await?) })
            .await
            .map(drop)
    }

    pub(super) async fn expand(&self, name: &str, size: ByteSize) -> Result<()> {
        let volume = volume(name)?;
        let expanded = self.control.expand_volume(&volume, size, WAIT);
        let what = format!("grow {name} to {size}, while in use");
        self.tell(&what, async { done(expanded.await?) }).await.map(drop)
    }

    pub(super) async fn delete_snapshot(&self, name: &str) -> Result<()> {
        let snapshot = SnapshotRef::Alias(alias(name)?);
        let deleted = self.control.delete_snapshot(&snapshot, WAIT);
        self.tell(&format!("delete snapshot {name}"), async { done(deleted.await?) }).await
    }

    pub(super) async fn delete(&self, name: &str) -> Result<()> {
        let volume = volume(name)?;
        let deleted = self.control.delete_volume(&volume, WAIT);
        self.tell(&format!("delete volume {name}"), async { done(deleted.await?) }).await
    }

    /// Compares what is in a folder with what must be.
    pub(super) async fn verify(&self, what: &str, dir: &Path, expected: &str) -> Result<()> {
        self.tell(what, async {
            let found = checksum_of(dir).await?;
            if found == expected {
                return Ok(());
            }
            let message = format!("checksum of {} is {found}, expected {expected}", dir.display());
            Err(Error::new(Kind::Internal, message))
        })
        .await
    }

    /// Compares the size of the mounted file system with what it must be, at least nine tenths: the
    /// rest is its own.
    pub(super) async fn verify_size(&self, dir: &Path, size: ByteSize) -> Result<()> {
        if !self.privileged {
            return Ok(());
        }
        let dir = dir.to_owned();
        self.tell("the mounted file system is larger", async {
            let total = blocking(move || {
                let found = rustix::fs::statvfs(&dir)?;
                Ok(found.f_blocks * found.f_frsize)
            })
            .await?;
            if total >= size.get() / 10 * 9 {
                return Ok(());
            }
            let message = format!("the file system has {total} bytes after growing to {size}");
            Err(Error::new(Kind::Internal, message))
        })
        .await
    }

    pub(super) async fn doctor(&self) -> Result<()> {
        self.tell("hawser doctor finds nothing", async {
            match self.control.doctor(false).await?.first() {
                None => Ok(()),
                Some(found) => {
                    let message = format!("{}: {}", found.subject, found.explanation);
                    Err(Error::new(Kind::Internal, message))
                }
            }
        })
        .await
    }

    /// Takes away whatever is still there, after a failure.
    pub(super) async fn clean_up(&self) -> Result<()> {
        let everything = PageRequest::largest();
        let volumes = self.control.list_volumes(&VolumeFilter::default(), &everything).await?;
        for volume in volumes.items {
            let id = VolumeRef::Id(volume.id);
            done(self.control.unmount(&id, &self.node, None, WAIT).await?)?;
            done(self.control.detach(&id, &self.node, WAIT).await?)?;
            done(self.control.delete_volume(&id, WAIT).await?)?;
        }
        for snapshot in self.control.list_snapshots(None, &everything).await?.items {
            done(self.control.delete_snapshot(&SnapshotRef::Id(snapshot.id), WAIT).await?)?;
        }
        Ok(())
    }
}

fn alias(name: &str) -> Result<Alias> {
    Ok(Alias::native(name)?)
}

fn volume(name: &str) -> Result<VolumeRef> {
    Ok(VolumeRef::Alias(alias(name)?))
}

fn done<T>(reply: Reply<T>) -> Result<T> {
    match reply {
        Reply::Done(change) => Ok(change.into_inner()),
        Reply::Pending(operation) => {
            let message = format!("{} is not done after {WAIT:?}", operation.kind);
            Err(Error::new(Kind::Timeout, message))
        }
    }
}
