//! What this host remembers of a volume that it asked the gateway for.
//!
//! One small file below the run folder, for root alone, written before the gateway is asked and
//! removed after the volume was given back. It goes with a reboot.

use std::path::PathBuf;

use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::secret::Secret;
use serde::{Deserialize, Serialize};

use super::data::{Access, Volume, Way, is_id};
use crate::shared::error::AttachError;

/// What is written. It has no `Debug`: the password is in it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) name: String,
    pub(super) id: String,
    /// We made the disk refuse writes.
    pub(super) read_only: bool,
    /// The volume was mapped by us, or is about to be.
    pub(super) ours: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    password: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

impl Note {
    /// What is to be remembered of a volume.
    pub(super) fn of(volume: &Volume, id: &str, read_only: bool, ours: bool) -> Self {
        let secret = |secret: &Option<Secret>| secret.as_ref().map(|s| s.expose().to_owned());
        let (password, token) = match &volume.way {
            Way::Mapped(_) => (None, None),
            Way::Gateway(access) => (secret(&access.password), secret(&access.token)),
        };
        let (name, id) = (volume.name.clone(), id.to_owned());
        Self { name, id, read_only, ours, password, token }
    }

    /// Gives the secrets back to whoever has only the record, which has none.
    pub(super) fn complete(&self, access: &Access) -> Access {
        let or = |own: &Option<Secret>, noted: &Option<String>| {
            own.clone().or_else(|| noted.as_ref().map(Secret::new))
        };
        let password = or(&access.password, &self.password);
        let token = or(&access.token, &self.token);
        Access { password, token, ..access.clone() }
    }

    /// Writes it durably.
    pub(super) async fn store(&self, host: &dyn Host, volume: &Volume) -> Result<()> {
        // Texts and flags can always be written as JSON.
        let text = serde_json::to_vec(self).unwrap_or_default();
        let stored = host.files().store(&file(host, volume), &text, 0o600).await;
        Ok(stored.map_err(AttachError::kernel("noting what the ScaleIO gateway is asked for"))?)
    }
}

/// What is remembered of a volume. A note that cannot be read is none.
pub(super) fn read(host: &dyn Host, volume: &Volume) -> Result<Option<Note>> {
    let Some(text) = host.files().read(&file(host, volume))? else { return Ok(None) };
    let note: Option<Note> = serde_json::from_slice(&text).ok();
    Ok(note.filter(|note| note.name == volume.name && is_id(&note.id)))
}

/// Forgets a volume.
pub(super) async fn remove(host: &dyn Host, volume: &Volume) -> Result<()> {
    let removed = host.files().remove(&file(host, volume)).await;
    removed.map_err(AttachError::kernel("removing the note about a ScaleIO volume"))?;
    Ok(())
}

fn file(host: &dyn Host, volume: &Volume) -> PathBuf {
    host.files().run_dir().join("scaleio").join(format!("{}.json", volume.key()))
}
