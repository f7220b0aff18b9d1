//! Notes of the volumes that were activated here, so that only those are deactivated again.

use std::path::PathBuf;

use hawser_core::error::Result;
use hawser_core::port::Host;
use serde::{Deserialize, Serialize};

use super::Name;
use crate::shared::digest;

/// A volume that we activated, or were about to. Goes with a reboot, as the activation does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) vg: String,
    pub(super) lv: String,
    /// What the kernel says of its device.
    pub(super) map_uuid: String,
    /// It is to refuse writes.
    pub(super) read_only: bool,
}

fn file(host: &dyn Host, name: &Name) -> PathBuf {
    let digest = digest::short(name.to_string().as_bytes());
    host.files().run_dir().join(format!("lvm-{digest}.json"))
}

/// The note of a volume; one that cannot be read says nothing.
pub(super) fn read(host: &dyn Host, name: &Name) -> Result<Option<Note>> {
    let bytes = host.files().read(&file(host, name))?.unwrap_or_default();
    let note: Option<Note> = serde_json::from_slice(&bytes).ok();
    Ok(note.filter(|note| note.vg == name.vg && note.lv == name.lv))
}

pub(super) async fn write(
    host: &dyn Host,
    name: &Name,
    map_uuid: &str,
    read_only: bool,
) -> Result<()> {
    let (vg, lv) = (name.vg.clone(), name.lv.clone());
    let note = Note { vg, lv, map_uuid: map_uuid.to_owned(), read_only };
    let text = serde_json::to_vec(&note).unwrap_or_default();
    Ok(host.files().store(&file(host, name), &text, 0o600).await?)
}

pub(super) async fn remove(host: &dyn Host, name: &Name) -> Result<()> {
    host.files().remove(&file(host, name)).await?;
    Ok(())
}
