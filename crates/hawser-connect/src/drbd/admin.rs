//! drbdadm and drbdsetup, and the note on what was done here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::host::{Tool, ToolOutput};
use hawser_core::secret::Secret;
use serde::{Deserialize, Serialize};

use super::config;
use super::data::Target;
use super::error::DrbdError;
use super::status::{self, Resource};
use crate::shared::error::AttachError;

/// How long a program may take; they wait for the kernel, not for peers.
const LIMIT: Duration = Duration::from_secs(30);

/// One resource on this host.
pub(super) struct Admin<'a> {
    pub(super) host: &'a dyn Host,
    pub(super) target: &'a Target,
}

/// How things were before the attach, so that the detach leaves them like that: a host that keeps
/// the data of a resource has it up all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    /// The resource was up.
    pub(super) was_up: bool,
    /// It was to be written to here.
    pub(super) was_primary: bool,
    /// How it was attached.
    pub(super) read_only: bool,
}

impl Admin<'_> {
    /// The resource, if it is up. Its device must be the one that was named, and no other's.
    pub(super) async fn look(&self) -> Result<Option<Resource>> {
        let (name, minor) = (&self.target.name, self.target.minor);
        let output = self.run(Tool::new("drbdsetup").args(["events2", "--now"])).await?;
        let output = output.ok().map_err(AttachError::tool("asking for resources of DRBD"))?;
        let mut all = status::parse(&output.stdout);
        let ours = all.remove(name);
        let device = || self.target.disk().node;
        if let Some((other, _)) = all.into_iter().find(|(_, other)| other.device(minor).is_some()) {
            return Err(
                DrbdError::OtherResource { device: device(), name: name.clone(), other }.into()
            );
        }
        match ours {
            // Without any device it is a resource that is just being made or taken away.
            Some(found) if !found.devices.is_empty() && found.device(minor).is_none() => {
                Err(DrbdError::OtherDevice { device: device(), name: name.clone() }.into())
            }
            found => Ok(found),
        }
    }

    /// Brings the resource up as its configuration says. The configuration stays, without the secret,
    /// until the resource is down: the kernel runs drbdadm when it begins to synchronise, and gives
    /// the peer up when that finds none.
    pub(super) async fn adjust(&self, secret: Option<&Secret>) -> Result<()> {
        let file = self.config_file();
        let config = config::fill(&self.target.config, secret)?;
        let stored = self.host.files().store(&file, config.as_bytes(), 0o600).await;
        let ran = match stored {
            Ok(()) => {
                let tool = Tool::new("drbdadm").arg("-c").arg(&file);
                self.run(tool.args(["adjust", &self.target.name])).await
            }
            Err(error) => Err(error.into()),
        };
        // A run that was cut off leaves the secret, for root alone; the next one replaces it.
        let bare = config::fill(&self.target.config, None)?;
        let blanked = self.host.files().store(&file, bare.as_bytes(), 0o600).await;
        let output = ran?;
        blanked?;
        if output.code == Some(0) {
            return Ok(());
        }
        let name = self.target.name.clone();
        let said = format!("{}\n{}", output.stdout, output.stderr);
        let has = |words: &str| said.contains(words);
        if has("No valid meta data") {
            return Err(DrbdError::NoMetadata { name }.into());
        }
        let wrong = ["Parse error", "not defined in your config", "not found on this host"];
        if wrong.iter().any(|words| has(words)) {
            let why = format!("config: {}", blank_out(&output.failed().stderr, secret));
            return Err(AttachError::Invalid { why }.into());
        }
        Err(self.failed("bringing up", &output, secret))
    }

    /// Lets this host write.
    pub(super) async fn promote(&self) -> Result<()> {
        let output = self.set_role("primary").await?;
        let name = self.target.name.clone();
        match output.code {
            Some(0) => Ok(()),
            _ if output.stderr.contains("(-1)") => Err(DrbdError::PeerPrimary { name }.into()),
            _ if output.stderr.contains("(-2)") => Err(DrbdError::NoData { name }.into()),
            Some(_) | None => Err(self.failed("promoting", &output, None)),
        }
    }

    /// Gives the right to write back; refused while the device is open.
    pub(super) async fn demote(&self) -> Result<()> {
        let output = self.set_role("secondary").await?;
        match output.code {
            Some(0) => Ok(()),
            _ if output.stderr.contains("(-12)") => {
                let (device, users) =
                    (self.target.disk().node, "a program that has it open".into());
                Err(AttachError::Busy { device, users }.into())
            }
            Some(_) | None => Err(self.failed("demoting", &output, None)),
        }
    }

    /// DRBD 8.4 has a role for each device, 9 for each resource.
    async fn set_role(&self, role: &str) -> Result<ToolOutput> {
        let about = self.host.files().read_text(Path::new("/proc/drbd"))?.unwrap_or_default();
        let whose = if about.starts_with("version: 8.") {
            self.target.minor.to_string()
        } else {
            self.target.name.clone()
        };
        self.run(Tool::new("drbdsetup").args([role, &whose])).await
    }

    /// Takes the resource down.
    pub(super) async fn down(&self) -> Result<()> {
        let output = self.run(Tool::new("drbdsetup").args(["down", &self.target.name])).await?;
        match output.code {
            Some(0) => Ok(()),
            Some(_) | None => Err(self.failed("taking down", &output, None)),
        }
    }

    /// Lets the resource grow into the disks below it; false while it synchronises, as it does after
    /// it grew: then DRBD refuses.
    pub(super) async fn resize(&self) -> Result<bool> {
        let minor = self.target.minor.to_string();
        let output = self.run(Tool::new("drbdsetup").args(["resize", &minor])).await?;
        match output.code {
            Some(0) => Ok(true),
            _ if output.stderr.contains("(130)") => Ok(false),
            Some(_) | None => Err(self.failed("resizing", &output, None)),
        }
    }

    async fn run(&self, tool: Tool) -> Result<ToolOutput> {
        self.host.run(&tool.limit(LIMIT)).await
    }

    fn failed(&self, what: &str, output: &ToolOutput, secret: Option<&Secret>) -> Error {
        let mut failed = output.failed();
        failed.stderr = blank_out(&failed.stderr, secret);
        let attempt = format!("{what} the resource {}", self.target.name);
        AttachError::tool(attempt)(failed).into()
    }

    fn config_file(&self) -> PathBuf {
        self.host.files().run_dir().join(format!("drbd-{}.res", self.target.name))
    }

    /// Where drbdadm notes which configuration a device has; a link to it.
    fn registration(&self) -> PathBuf {
        PathBuf::from(format!("/var/lib/drbd/drbd-minor-{}.conf", self.target.minor))
    }

    fn note_file(&self) -> PathBuf {
        self.host.files().run_dir().join(format!("drbd-{}.json", self.target.name))
    }

    /// What was noted. A note that cannot be read says that everything was there before: then the
    /// least is taken away.
    pub(super) fn note(&self) -> Result<Option<Note>> {
        let bytes = self.host.files().read(&self.note_file())?;
        let unreadable = Note { was_up: true, was_primary: false, read_only: false };
        Ok(bytes.map(|bytes| serde_json::from_slice(&bytes).unwrap_or(unreadable)))
    }

    /// Written before the act.
    pub(super) async fn write_note(&self, note: &Note) -> Result<()> {
        let bytes = serde_json::to_vec(note).unwrap_or_default();
        Ok(self.host.files().store(&self.note_file(), &bytes, 0o600).await?)
    }

    /// Removed after it, with the configuration, and with drbdadm's own note on that.
    pub(super) async fn remove_notes(&self) -> Result<()> {
        let (config, registration) = (self.config_file(), self.registration());
        if self.host.files().resolve(&registration)?.is_some_and(|leads_to| leads_to == config) {
            self.host.files().remove(&registration).await?;
        }
        for file in [self.config_file(), self.note_file()] {
            if self.host.files().read(&file)?.is_some() {
                self.host.files().remove(&file).await?;
            }
        }
        Ok(())
    }
}

/// Complaints of a parser repeat what it read.
fn blank_out(text: &str, secret: Option<&Secret>) -> String {
    match secret.map(Secret::expose) {
        Some(secret) if !secret.is_empty() => text.replace(secret, "***"),
        Some(_) | None => text.to_owned(),
    }
}
