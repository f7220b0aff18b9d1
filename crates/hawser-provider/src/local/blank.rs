//! Volumes that hold nothing.
//!
//! Two witnesses must agree on an image: the file system has no blocks for it, and knows of no data in
//! it. Either alone has been wrong somewhere: blocks that are counted late, data that was written and
//! not yet allocated. A volume of which this cannot be found out is taken for one that holds something.

use std::sync::Arc;

use async_trait::async_trait;
use hawser_core::id::VolumeId;
use hawser_core::place::Place;
use hawser_core::port::provider::{Blank, Blanks};
use hawser_core::{Change, Result};
use rustix::fs::{FileType, SeekFrom};
use rustix::io::Errno;

use super::error::LocalError;
use super::folder::{allocated, file_type, is_dots};
use super::lock::IdLock;
use super::pool::Pool;
use super::shelf::{DATA, Shelf};
use super::{LocalPool, change};

#[async_trait]
impl Blanks for LocalPool {
    async fn blanks(&self, at: Option<&Place>) -> Result<Vec<Blank>> {
        if !self.is_at(at) {
            return Ok(Vec::new());
        }
        let ids = self.on_pool(|pool| blanks(pool)).await?;
        let place = self.node.as_ref().map(Place::node);
        Ok(ids.into_iter().map(|id| Blank { id, place: place.clone() }).collect())
    }

    async fn delete_blank(&self, blank: &Blank) -> Result<Change<()>> {
        self.check_place(blank.place.as_ref())?;
        let id = blank.id.to_string();
        let path = self.pool.volumes.path().join(self.pool.name_of(&id));
        let removed = async {
            // What a device or a mount still shows may be written there and not be here yet.
            self.check_unused(&path).await?;
            let lock = self.pool.locks.hold(&id).await;
            self.on_pool(move |pool| remove_blank(pool, &id, lock)).await
        };
        let attempt = || format!("removing volume {}, which held nothing", blank.id);
        removed.await.map_err(|error| error.context(attempt()))
    }
}

fn blanks(pool: &Pool) -> Result<Vec<VolumeId>, LocalError> {
    let mut blank = Vec::new();
    for name in pool.volumes.names()? {
        let Some(id) = pool.id_of(Shelf::Volumes, &name) else { continue };
        match is_blank(pool, id) {
            Ok(true) => blank.extend(id.parse().ok()),
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, name, "not known to hold nothing"),
        }
    }
    blank.sort_unstable();
    Ok(blank)
}

fn is_blank(pool: &Pool, id: &str) -> Result<bool, LocalError> {
    let name = pool.name_of(id);
    if pool.is_folder_pool() { is_blank_folder(pool, &name) } else { is_blank_image(pool, &name) }
}

fn is_blank_image(pool: &Pool, name: &str) -> Result<bool, LocalError> {
    let Some(stat) = pool.volumes.find(name)? else { return Ok(false) };
    if file_type(&stat) != FileType::RegularFile || allocated(&stat) != 0 {
        return Ok(false);
    }
    let Some(file) = pool.volumes.find_file(name, false)? else { return Ok(false) };
    match rustix::fs::seek(&file, SeekFrom::Data(0)) {
        Err(Errno::NXIO) => Ok(true),
        Ok(_) => Ok(false),
        Err(source) => {
            let path = pool.volumes.path().join(name);
            Err(LocalError::Io { verb: "looking for data in", path, source })
        }
    }
}

fn is_blank_folder(pool: &Pool, name: &str) -> Result<bool, LocalError> {
    let Some(folder) = pool.volumes.find_folder(name)? else { return Ok(false) };
    let Some(data) = folder.find_folder(DATA)? else { return Ok(false) };
    for entry in data.entries()? {
        let entry = entry.map_err(LocalError::io("listing", data.path()))?;
        if !is_dots(entry.file_name()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Looks once more, with the id locked, before it removes.
fn remove_blank(pool: &Arc<Pool>, id: &str, lock: IdLock) -> Result<Change<()>, LocalError> {
    let name = pool.name_of(id);
    if pool.volumes.find(&name)?.is_some() && !is_blank(pool, id)? {
        return Err(LocalError::NotBlank { path: pool.volumes.path().join(name) });
    }
    change::remove(pool, Shelf::Volumes, id, lock)
}
