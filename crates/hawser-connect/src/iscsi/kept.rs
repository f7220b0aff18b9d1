//! A record of somebody else, kept in the notes while ours is in its place.

use std::path::PathBuf;

use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::kernel::Files;

use super::notes::Notes;

/// The note of it.
const NOTE: &str = "record";

/// A record of somebody else.
#[derive(serde::Serialize, serde::Deserialize)]
pub(super) struct Kept {
    pub(super) path: PathBuf,
    pub(super) content: String,
}

impl Kept {
    /// The one that is put aside now, if one is.
    pub(super) fn read(files: &dyn Files, notes: &Notes<'_>) -> Result<Option<Self>> {
        let text = files.read(&notes.file(NOTE))?;
        Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    /// Puts it aside. Not while another is: what is in place of that one is ours.
    pub(super) async fn store(&self, files: &dyn Files, notes: &Notes<'_>) -> Result<()> {
        // Made of texts: it can always be written as JSON.
        let text = serde_json::to_vec(self).unwrap_or_default();
        Ok(files.store(&notes.file(NOTE), &text, 0o600).await?)
    }
}

/// Brings back a record of somebody else, where one was put aside.
pub(super) async fn restore(host: &dyn Host, notes: &Notes<'_>) -> Result<()> {
    let files = host.files();
    if files.read(&notes.file(NOTE))?.is_none() {
        return Ok(());
    }
    if let Some(kept) = Kept::read(files, notes)? {
        files.store(&kept.path, kept.content.as_bytes(), 0o600).await?;
    }
    files.remove(&notes.file(NOTE)).await?;
    Ok(())
}
