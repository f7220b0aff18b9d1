//! Notes about mounts, below the host's folder for such: which mounts are ours, and who uses them.
//!
//! They go with a reboot, as the mounts do. All are read and written under the lock of the mount.

use std::path::{Path, PathBuf};

use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::host::MountEntry;
use serde::{Deserialize, Serialize};

use super::data::Volume;

/// A mount that we made, or are about to make.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MadeMount {
    /// Where.
    pub(crate) target: PathBuf,
    /// Folders that we made for it, outermost first; they go with it.
    #[serde(default)]
    pub(crate) folders: Vec<PathBuf>,
    /// Settings of programs that we made for it; they go with it.
    #[serde(default)]
    pub(crate) files: Vec<PathBuf>,
    /// How the mount table showed it; none until it was seen.
    #[serde(default)]
    pub(crate) shown: Option<Shown>,
}

/// A line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shown {
    id: u64,
    fs_type: String,
    source: String,
}

impl From<&MountEntry> for Shown {
    fn from(entry: &MountEntry) -> Self {
        let MountEntry { id, fs_type, source, .. } = entry;
        Self { id: *id, fs_type: fs_type.clone(), source: source.clone() }
    }
}

impl MadeMount {
    /// True when this line of the mount table is the very mount that was seen.
    pub(crate) fn is(&self, entry: &MountEntry) -> bool {
        self.shown.as_ref() == Some(&entry.into())
    }

    /// True when this line of the mount table, which is of the export, may be the mount: also when
    /// nobody has seen ours yet.
    pub(crate) fn may_be(&self, entry: &MountEntry) -> bool {
        self.shown.is_none() || self.is(entry)
    }
}

/// Who uses a mount: only for people who read the folder.
#[derive(Serialize)]
struct Use<'a> {
    target: &'a Path,
    export: &'a str,
    name: Option<&'a str>,
    volume_id: Option<&'a str>,
}

/// The notes about one mount and one use of it.
pub(crate) struct Notes<'a> {
    host: &'a dyn Host,
    volume: &'a Volume,
    mount_key: String,
}

impl<'a> Notes<'a> {
    /// The notes about the mount of a volume.
    pub(crate) fn of(host: &'a dyn Host, volume: &'a Volume) -> Self {
        Self { host, volume, mount_key: volume.mount_key() }
    }

    fn folder(&self) -> PathBuf {
        self.host.files().run_dir().join("mounts")
    }

    /// Folders above the target that were made for other mounts: the last mount takes them away,
    /// whichever that is.
    pub(crate) fn shared_folders(&self) -> Result<Vec<PathBuf>> {
        let mut shared = Vec::new();
        for name in self.host.files().list(&self.folder())? {
            if !name.ends_with(".mount") {
                continue;
            }
            let Some(bytes) = self.host.files().read(&self.folder().join(name))? else { continue };
            let Ok(made) = serde_json::from_slice::<MadeMount>(&bytes) else { continue };
            let above = |folder: &PathBuf| self.volume.target.starts_with(folder);
            shared.extend(made.folders.into_iter().filter(above));
        }
        shared.sort();
        shared.dedup();
        Ok(shared)
    }

    fn mount_file(&self) -> PathBuf {
        self.folder().join(format!("{}.mount", self.mount_key))
    }

    fn use_file(&self) -> PathBuf {
        self.folder().join(format!("{}.{}.use", self.mount_key, self.volume.key()))
    }

    /// The mount that we made there. A note that cannot be read is that of a mount of ours all the
    /// same: nobody else writes there.
    pub(crate) fn made(&self) -> Result<Option<MadeMount>> {
        let Some(bytes) = self.host.files().read(&self.mount_file())? else { return Ok(None) };
        let unread = || MadeMount { target: self.volume.target.clone(), ..MadeMount::default() };
        Ok(Some(serde_json::from_slice(&bytes).unwrap_or_else(|_| unread())))
    }

    /// Writes down what we are about to make, or have seen.
    pub(crate) async fn store_made(&self, made: &MadeMount) -> Result<()> {
        let bytes = serde_json::to_vec(made).unwrap_or_default();
        Ok(self.host.files().store(&self.mount_file(), &bytes, 0o600).await?)
    }

    /// Forgets the mount.
    pub(crate) async fn remove_made(&self) -> Result<bool> {
        Ok(self.host.files().remove(&self.mount_file()).await?)
    }

    /// True when this volume uses the mount.
    pub(crate) fn in_use(&self) -> Result<bool> {
        Ok(self.host.files().read(&self.use_file())?.is_some())
    }

    /// Writes down that this volume uses the mount.
    pub(crate) async fn store_use(&self) -> Result<()> {
        let Volume { target, export, name, id, .. } = self.volume;
        let note = Use { target, export, name: name.as_deref(), volume_id: id.as_deref() };
        let bytes = serde_json::to_vec(&note).unwrap_or_default();
        Ok(self.host.files().store(&self.use_file(), &bytes, 0o600).await?)
    }

    /// Forgets that this volume uses the mount.
    pub(crate) async fn remove_use(&self) -> Result<bool> {
        Ok(self.host.files().remove(&self.use_file()).await?)
    }

    /// True when another volume uses the mount.
    pub(crate) fn used_by_others(&self) -> Result<bool> {
        let own = self.use_file();
        let own = own.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let prefix = format!("{}.", self.mount_key);
        let other = |name: &String| {
            name.starts_with(&prefix) && name.ends_with(".use") && name.as_str() != own
        };
        Ok(self.host.files().list(&self.folder())?.iter().any(other))
    }
}
