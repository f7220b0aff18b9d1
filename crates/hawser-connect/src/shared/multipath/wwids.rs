//! `/etc/multipath/wwids`: the volumes of which multipathd makes a map even of one path.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::host::Tool;
use hawser_core::port::kernel::Files;

use crate::shared::digest;
use crate::shared::error::AttachError;

/// Where the volumes are remembered.
const FILE: &str = "/etc/multipath/wwids";

/// Where we note which of them are there because of us.
const NOTES: &str = "/var/lib/hawser/multipath";

/// How long `multipath` may wait for the lock of that file.
const LIMIT: Duration = Duration::from_secs(20);

/// True when the volume is remembered.
pub(super) fn is_remembered(files: &dyn Files, wwid: &str) -> Result<bool> {
    let text = files.read_text(Path::new(FILE))?.unwrap_or_default();
    Ok(text.lines().any(|line| line.trim() == format!("/{wwid}/")))
}

/// Our note that a volume is remembered because of us. It survives a reboot, as the file does.
fn note(wwid: &str) -> PathBuf {
    Path::new(NOTES).join(digest::short(wwid.as_bytes()))
}

/// Remembers a volume, and that it was us.
pub(super) async fn remember(host: &dyn Host, wwid: &str) -> Result<()> {
    let files = host.files();
    files.store(&note(wwid), wwid.as_bytes(), 0o600).await?;
    run(host, "-a", wwid, "remembering the volume for multipathd").await
}

/// Makes multipathd forget a volume that it remembers because of us, so that its file does not grow
/// for ever, and a later path alone is taken as it would have been before; true when it did.
pub(crate) async fn forget_wwid(host: &dyn Host, wwid: &str) -> Result<bool> {
    let files = host.files();
    let note = note(wwid);
    if files.read(&note)?.is_none() {
        return Ok(false);
    }
    if is_remembered(files, wwid)? {
        run(host, "-w", wwid, "making multipathd forget the volume").await?;
    }
    files.remove(&note).await?;
    Ok(true)
}

async fn run(host: &dyn Host, option: &str, wwid: &str, attempt: &str) -> Result<()> {
    let output = host.run(&Tool::new("multipath").args([option, wwid]).limit(LIMIT)).await?;
    output.ok().map_err(AttachError::tool(format!("{attempt} {wwid}")))?;
    Ok(())
}
