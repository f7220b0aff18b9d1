//! The ports of a local pool.

use std::path::Path;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use hawser_core::attach::{Health, Identity};
use hawser_core::class::{Ability, Capacity};
use hawser_core::connection::{ConnectionInfo, Protocol};
use hawser_core::doctor::Finding;
use hawser_core::id::{SnapshotId, VolumeId};
use hawser_core::node::NodeRecord;
use hawser_core::port::Progress;
use hawser_core::port::host::MountEntry;
use hawser_core::port::provider::{
    Blanks, Expand, Groups, HasCapacity, Held, Inventory, Placement, Provider, ProviderInfo,
    Provision, ProvisionSource, Provisioned, SnapshotAtProvider, Snapshots, VolumeAtProvider,
    filesystem_of,
};
use hawser_core::volume::Access;
use hawser_core::{ByteSize, Change, Error, Outcome, Result};
use rustix::fs::{Access as Rights, AtFlags};
use serde_json::{Map, Value, json};

use super::change;
use super::error::LocalError;
use super::make::{self, Job, Order, Plan};
use super::settings::PoolKind;
use super::shelf::{Item, Shelf};
use super::{INFO, LocalPool, UNIT, can, survey};

/// What is to be made.
struct Wish {
    shelf: Shelf,
    id: String,
    /// As large as its source when `None`.
    size: Option<ByteSize>,
}

#[async_trait]
impl Provider for LocalPool {
    fn info(&self) -> &'static ProviderInfo {
        &INFO
    }

    fn handle(&self, id: &VolumeId) -> String {
        super::handle(id)
    }

    fn default_access(&self) -> Access {
        super::default_access(self.pool.settings.kind)
    }

    async fn check(&self, wanted: &Provision) -> Result<ByteSize> {
        if let Some(name) = wanted.parameters.keys().next() {
            let name = name.chars().take(64).collect();
            return Err(LocalError::UnknownParameter { name }.into());
        }
        self.check_access(wanted.access)?;
        self.check_place(wanted.place.as_ref())?;
        let size = rounded(wanted.size)?;
        if let Some(fs) = filesystem_of(wanted.access) {
            let smallest = ByteSize::mib(fs.smallest_mib());
            if size < smallest {
                return Err(LocalError::TooSmall { size, fs: fs.as_str(), smallest }.into());
            }
        }
        let (origin, needed) = match &wanted.source {
            None => return Ok(size),
            Some(ProvisionSource::Snapshot(snapshot)) => {
                self.check_snapshot(snapshot)?;
                (snapshot.id.to_string(), snapshot.size)
            }
            Some(ProvisionSource::Volume(volume)) => {
                self.check_volume(volume)?;
                (volume.id.to_string(), volume.size)
            }
        };
        if size < needed {
            return Err(LocalError::SmallerThanSource { size, origin, needed }.into());
        }
        Ok(size)
    }

    async fn create(
        &self,
        wanted: &Provision,
        progress: &dyn Progress,
    ) -> Result<Change<Provisioned>> {
        let size = self.check(wanted).await?;
        let source = wanted.source.as_ref().map(|source| match source {
            ProvisionSource::Snapshot(snapshot) => (Shelf::Snapshots, snapshot.id.to_string()),
            ProvisionSource::Volume(volume) => (Shelf::Volumes, volume.id.to_string()),
        });
        let in_use = match &wanted.source {
            Some(ProvisionSource::Volume(volume)) => volume.in_use,
            Some(ProvisionSource::Snapshot(_)) | None => false,
        };
        let wish = Wish { shelf: Shelf::Volumes, id: wanted.id.to_string(), size: Some(size) };
        let made = self
            .make(wish, source, in_use, progress)
            .await
            .map_err(|error| error.context(format!("creating volume {}", wanted.id)))?;
        Ok(made.map(|item| Provisioned {
            handle: self.handle(&wanted.id),
            size: item.size,
            identity: self.identity(&wanted.id),
        }))
    }

    async fn delete(&self, volume: &VolumeAtProvider) -> Result<Change<()>> {
        self.check_volume(volume)?;
        self.remove(Shelf::Volumes, volume.id.to_string())
            .await
            .map_err(|error| error.context(format!("deleting volume {}", volume.id)))
    }

    async fn publish(
        &self,
        volume: &VolumeAtProvider,
        node: &NodeRecord,
        _read_only: bool,
    ) -> Result<ConnectionInfo> {
        self.check_volume(volume)?;
        self.check_user(&node.id)?;
        let id = volume.id.to_string();
        self.on_pool(move |pool| pool.get_item(Shelf::Volumes, &id).map(drop))
            .await
            .map_err(|error| error.context(format!("publishing volume {}", volume.id)))?;
        let mut data = Map::new();
        let path = self.pool.content_path(Shelf::Volumes, volume.id.as_str());
        // The pool's path is UTF-8, or it would not have been opened.
        data.insert("path".into(), Value::String(path.to_string_lossy().into_owned()));
        data.insert("volume_id".into(), json!(volume.id));
        match self.pool.settings.kind {
            PoolKind::Image => {
                data.insert("kind".into(), json!("file"));
                data.insert("sector_size".into(), json!(self.pool.settings.sector_size.get()));
            }
            PoolKind::Folder => {
                data.insert("kind".into(), json!("directory"));
            }
        }
        Ok(ConnectionInfo::new(Protocol::new("LOCAL"), data, self.identity(&volume.id)))
    }

    /// There is nothing to take back: a pool is a folder of one machine and has no list of who may
    /// reach it, so the only way to a volume is the attachment of that machine's node half, which
    /// is gone before this is called. One writer is enforced by the engine and by the node's
    /// attachment journal.
    async fn unpublish(&self, volume: &VolumeAtProvider, _node: &NodeRecord) -> Result<Change<()>> {
        self.check_volume(volume)?;
        Ok(Change::Already(()))
    }

    async fn health(&self, volume: &VolumeAtProvider) -> Result<Health> {
        self.check_volume(volume)?;
        let usage = self.host.usage(self.pool.root.path()).await?;
        if usage.available == ByteSize::ZERO {
            return Ok(Health::bad(format!(
                "the file system of pool {} is full: writes to parts of the volume that were never \
                 written will fail",
                self.pool.root.path().display()
            )));
        }
        let (id, size) = (volume.id.to_string(), volume.size);
        self.on_pool(move |pool| {
            let found = match pool.find_item(Shelf::Volumes, &id) {
                Ok(Some(item)) => item.size,
                Ok(None) => return Ok(Health::bad(format!("{id} is not in the pool any more"))),
                Err(error) => return Ok(Health::bad(Error::from(error).sentence())),
            };
            if found < size {
                return Ok(Health::bad(format!("{id} has {found}, and its record says {size}")));
            }
            match rustix::fs::accessat(&pool.volumes, ".", Rights::WRITE_OK, AtFlags::EACCESS) {
                Ok(()) => Ok(Health::good()),
                Err(errno) => Ok(Health::bad(format!("the pool cannot be written: {errno}"))),
            }
        })
        .await
    }

    fn snapshots(&self) -> Option<&dyn Snapshots> {
        can(Ability::Snapshots).then_some(self)
    }

    fn clones(&self) -> bool {
        can(Ability::Clones)
    }

    fn expand(&self) -> Option<&dyn Expand> {
        can(Ability::Expand).then_some(self)
    }

    fn capacity(&self) -> Option<&dyn HasCapacity> {
        can(Ability::Capacity).then_some(self)
    }

    fn inventory(&self) -> Option<&dyn Inventory> {
        can(Ability::Inventory).then_some(self)
    }

    fn placement(&self) -> Option<&dyn Placement> {
        self.node.is_some().then_some(self)
    }

    fn groups(&self) -> Option<&dyn Groups> {
        can(Ability::Groups).then_some(self)
    }

    fn blanks(&self) -> Option<&dyn Blanks> {
        can(Ability::Blanks).then_some(self)
    }
}

#[async_trait]
impl Snapshots for LocalPool {
    fn snapshot_handle(&self, id: &SnapshotId) -> String {
        super::snapshot_handle(id)
    }

    async fn snapshot(
        &self,
        volume: &VolumeAtProvider,
        id: &SnapshotId,
        progress: &dyn Progress,
    ) -> Result<Change<SnapshotAtProvider>> {
        self.check_volume(volume)?;
        let source = Some((Shelf::Volumes, volume.id.to_string()));
        let wish = Wish { shelf: Shelf::Snapshots, id: id.to_string(), size: None };
        let made = self.make(wish, source, volume.in_use, progress).await.map_err(|error| {
            error.context(format!("taking snapshot {id} of volume {}", volume.id))
        })?;
        Ok(made.map(|item| SnapshotAtProvider {
            id: id.clone(),
            handle: self.snapshot_handle(id),
            size: item.size,
            place: volume.place.clone(),
        }))
    }

    async fn delete_snapshot(&self, snapshot: &SnapshotAtProvider) -> Result<Change<()>> {
        self.check_snapshot(snapshot)?;
        self.remove(Shelf::Snapshots, snapshot.id.to_string())
            .await
            .map_err(|error| error.context(format!("deleting snapshot {}", snapshot.id)))
    }
}

#[async_trait]
impl Expand for LocalPool {
    async fn expand(&self, volume: &VolumeAtProvider, size: ByteSize) -> Result<Change<ByteSize>> {
        self.check_volume(volume)?;
        let size = rounded(size)?;
        let usage = self.host.usage(self.pool.root.path()).await?;
        let id = volume.id.to_string();
        let lock = self.pool.locks.hold(&id).await;
        self.on_pool(move |pool| change::grow(pool, &id, size, &usage, lock))
            .await
            .map_err(|error| error.context(format!("expanding volume {} to {size}", volume.id)))
    }
}

#[async_trait]
impl HasCapacity for LocalPool {
    async fn capacity(&self) -> Result<Capacity> {
        self.on_pool(|pool| pool.refresh()).await?;
        let usage = self.host.usage(self.pool.root.path()).await?;
        Ok(self.pool.ledger.capacity(&usage))
    }
}

#[async_trait]
impl Inventory for LocalPool {
    async fn list(&self) -> Result<Held> {
        self.on_pool(|pool| survey::list(pool)).await
    }

    async fn survey(&self, fix: bool) -> Result<Vec<Finding>> {
        self.on_pool(move |pool| survey::survey(pool, fix)).await
    }
}

impl LocalPool {
    /// The image's identity is its volume's id, which the node writes into the loop device's label.
    fn identity(&self, id: &VolumeId) -> Option<Identity> {
        match self.pool.settings.kind {
            PoolKind::Image => Some(Identity::new("image", id.as_str())),
            PoolKind::Folder => None,
        }
    }

    fn check_access(&self, access: Access) -> Result<(), LocalError> {
        let kind = self.pool.settings.kind;
        let possible = match (kind, access) {
            (PoolKind::Image, Access::Block | Access::Filesystem(_))
            | (PoolKind::Folder, Access::Folder) => return Ok(()),
            (PoolKind::Image, Access::Folder) => "raw block devices, ext4, xfs and btrfs",
            (PoolKind::Folder, Access::Block | Access::Filesystem(_)) => "folders",
        };
        Err(LocalError::Access { kind: kind.as_str(), access: access.to_string(), possible })
    }

    fn check_volume(&self, volume: &VolumeAtProvider) -> Result<(), LocalError> {
        self.check_place(volume.place.as_ref())?;
        same_handle(&volume.handle, volume.id.as_str(), self.handle(&volume.id))
    }

    fn check_snapshot(&self, snapshot: &SnapshotAtProvider) -> Result<(), LocalError> {
        self.check_place(snapshot.place.as_ref())?;
        same_handle(&snapshot.handle, snapshot.id.as_str(), self.snapshot_handle(&snapshot.id))
    }

    /// Makes a volume or snapshot, empty or as a copy.
    async fn make(
        &self,
        wish: Wish,
        source: Option<(Shelf, String)>,
        in_use: bool,
        progress: &dyn Progress,
    ) -> Result<Change<Item>> {
        let Wish { shelf, id, size } = wish;
        let usage = self.host.usage(self.pool.root.path()).await?;
        let lock = self.pool.locks.hold(&id).await;
        let copies = source.is_some();
        let order = Order { shelf, id, size, source, usage };
        if !copies {
            return self
                .on_pool(move |pool| match make::plan(pool, order, lock)? {
                    Plan::Done(item) => Ok(Change::Already(item)),
                    Plan::Work(job) => job.finish(pool),
                })
                .await;
        }
        match self.on_pool(move |pool| make::plan(pool, order, lock)).await? {
            Plan::Done(item) => Ok(Change::Already(item)),
            Plan::Work(job) => self.copy(job, in_use, progress).await,
        }
    }

    /// Copies what the job says, and completes it.
    async fn copy(
        &self,
        job: Box<Job>,
        in_use: bool,
        progress: &dyn Progress,
    ) -> Result<Change<Item>> {
        if let Some((from, to)) = &job.copy_paths {
            progress.step("copying");
            if let Err(error) = self.copy_content(from, to, in_use, progress).await {
                let failure = error.sentence();
                // Whatever the copy did, it did in the attempt's folder, which is gone after this.
                return Err(match self.on_pool(move |_| job.abandon()).await {
                    Ok(()) => error.with_outcome(Outcome::RolledBack),
                    Err(left) => left
                        .with_outcome(Outcome::Unknown)
                        .context(format!("taking back a copy that failed ({failure})")),
                });
            }
        }
        progress.step("finishing");
        self.on_pool(move |pool| job.finish(pool)).await
    }

    /// Copies the content. Of what is being written, only blocks that are shared in one call are of
    /// one instant: a copy of data, or of file after file, would be torn.
    async fn copy_content(
        &self,
        from: &Path,
        to: &Path,
        in_use: bool,
        progress: &dyn Progress,
    ) -> Result<()> {
        let torn = || LocalError::Torn { path: self.pool.root.path().to_owned() };
        let copied = match self.pool.settings.kind {
            PoolKind::Folder if in_use => return Err(LocalError::TornFolder.into()),
            PoolKind::Folder => self.host.copy_tree(from, to, progress).await?,
            PoolKind::Image if in_use && !self.pool.shares_blocks.load(Ordering::Relaxed) => {
                return Err(torn().into());
            }
            PoolKind::Image => self.host.copy_file(from, to, progress).await?,
        };
        // Others may have changed the file so that this one cannot be shared.
        if in_use && !copied.shared { Err(torn().into()) } else { Ok(()) }
    }

    /// Removes a volume or snapshot that nothing on this host uses.
    async fn remove(&self, shelf: Shelf, id: String) -> Result<Change<()>> {
        let path = self.pool.shelf(shelf).path().join(self.pool.name_of(&id));
        self.check_unused(&path).await?;
        let lock = self.pool.locks.hold(&id).await;
        self.on_pool(move |pool| change::remove(pool, shelf, &id, lock)).await
    }

    /// The engine removes nothing that is published; this is the second line, against a device or
    /// mount that it has lost track of.
    pub(super) async fn check_unused(&self, path: &Path) -> Result<()> {
        let user = match self.pool.settings.kind {
            PoolKind::Image => {
                let devices = self.host.loop_devices().await?;
                let user = devices.into_iter().find(|device| device.backing_file == path);
                user.map(|device| device.device.display().to_string())
            }
            PoolKind::Folder => {
                let mounts = self.host.mounts().await?;
                let user = find_mount_of(&mounts, path);
                user.map(|mount| format!("the mount on {}", mount.target.display()))
            }
        };
        match user {
            None => Ok(()),
            Some(user) => Err(LocalError::StillUsed { path: path.to_owned(), user }.into()),
        }
    }
}

/// A mount that shows a folder or something in it elsewhere, or covers something in it.
fn find_mount_of<'m>(mounts: &'m [MountEntry], folder: &Path) -> Option<&'m MountEntry> {
    if let Some(inside) = mounts.iter().find(|mount| mount.target.starts_with(folder)) {
        return Some(inside);
    }
    // The deepest mount above the folder is the one it lies on; of several on one place the last.
    let ground = mounts
        .iter()
        .filter(|mount| folder.starts_with(&mount.target))
        .max_by_key(|mount| mount.target.components().count())?;
    let place = ground.root.join(folder.strip_prefix(&ground.target).ok()?);
    mounts.iter().find(|mount| mount.device == ground.device && mount.root.starts_with(&place))
}

/// The size that a volume really gets.
pub(super) fn rounded(size: ByteSize) -> Result<ByteSize, LocalError> {
    if size == ByteSize::ZERO {
        return Err(LocalError::Zero);
    }
    // off_t is signed, and the largest multiple of the unit below its end is the largest file.
    let largest = i64::MAX as u64 / UNIT * UNIT;
    size.round_up(UNIT)
        .filter(|size| size.get() <= largest)
        .ok_or(LocalError::TooLarge { size: size.get(), largest })
}

/// A handle is a function of the id; another one belongs to another pool or another provider.
fn same_handle(handle: &str, id: &str, expected: String) -> Result<(), LocalError> {
    if handle == expected {
        return Ok(());
    }
    let handle = handle.chars().take(64).collect();
    Err(LocalError::OtherHandle { handle, id: id.to_owned(), expected })
}
