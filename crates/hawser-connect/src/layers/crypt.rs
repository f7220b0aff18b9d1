//! LUKS between device and user, through cryptsetup; the key goes to its standard input alone.
//!
//! A header is made only where the caller asks for it, the device was read and everything on it that
//! must be blank is. An unreadable device is an error, never a blank one. The mapping has a name of
//! ours, made from what the volume is connected with, and is used only while its dm uuid says LUKS
//! and exactly the right device is below it. No link of udev is ever changed.
//!
//! The key is not put into the kernel's keyring (`--disable-keyring`): growing the mapping then needs
//! no key, which nobody has at that time. Root can read it from the map's table, as with LUKS 1.
//!
//! Needs cryptsetup 2 and the module dm_crypt.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hawser_core::attach::{
    Attach, AttachRecord, AttachState, Attached, Encryption, EncryptionFormat, Identity,
};
use hawser_core::connection::ConnectionInfo;
use hawser_core::error::{Error, Result};
use hawser_core::id::{InstanceId, PublicationId, VolumeId};
use hawser_core::port::Host;
use hawser_core::port::host::{Content, Tool, ToolOutput};
use hawser_core::secret::Secret;
use hawser_core::{ByteSize, Change, Kind, Timestamp};
use serde_json::json;

use super::error::LayerError;
use crate::shared::digest;
use crate::shared::flush::{self, Top};
use crate::shared::multipath::Map;
use crate::shared::release::Failures;
use crate::shared::wait::Deadline;

/// The field of the secrets that has the key.
const KEY_FIELD: &str = "encryption_key";

/// Argon2 takes as long as the header's maker wanted; slow machines take several times that.
const OPEN_LIMIT: Duration = Duration::from_secs(120);

/// cryptsetup's exit codes, from its manual.
const NO_PERMISSION: i32 = 2;
const NO_DEVICE: i32 = 4;
const BUSY: i32 = 5;

/// The clear side of one volume.
pub(super) struct Clear {
    name: String,
    /// The device that has to be below, where there is one.
    plain: Option<PathBuf>,
    identity: Option<Identity>,
}

impl Clear {
    /// The clear side of a volume, by what it is connected with and the device that is there for it
    /// now. The identity, which may be learnt later, is no part of the name.
    pub(super) fn of(info: &ConnectionInfo, plain: Option<&Attached>) -> Self {
        let what = json!([info.protocol.as_str(), info.data]);
        Self {
            name: format!("hawser-crypt-{}", digest::short(what.to_string().as_bytes())),
            plain: plain.map(|plain| plain.path().to_owned()),
            identity: plain.and_then(Attached::identity).cloned(),
        }
    }

    fn node(&self) -> PathBuf {
        Path::new("/dev/mapper").join(&self.name)
    }

    /// The folder of the map in sysfs: found by its name, whatever nodes udev has made.
    fn folder(&self, host: &dyn Host) -> Result<Option<PathBuf>> {
        let blocks = Path::new("/sys/block");
        for block in host.files().list(blocks)? {
            if !block.starts_with("dm-") {
                continue;
            }
            let folder = blocks.join(block);
            let name = host.files().read_text(&folder.join("dm/name"))?;
            if name.as_deref() == Some(&self.name) {
                return Ok(Some(folder));
            }
        }
        Ok(None)
    }

    /// True when the device is open.
    pub(super) fn is_there(&self, host: &dyn Host) -> Result<bool> {
        Ok(self.folder(host)?.is_some())
    }

    /// Refuses a map that is not LUKS over exactly our device. Where the device is gone nothing can
    /// be compared with it, and the map must be LUKS all the same.
    pub(super) fn check(&self, host: &dyn Host) -> Result<()> {
        let Some(folder) = self.folder(host)? else { return Ok(()) };
        self.check_kind(host, &folder)?;
        let Some(plain) = &self.plain else { return Ok(()) };
        let files = host.files();
        let slaves = files.list(&folder.join("slaves"))?;
        let wanted = files.device_number(plain)?;
        let mut right = slaves.len() == 1 && wanted.is_some();
        for slave in &slaves {
            let text = files.read_text(&folder.join("slaves").join(slave).join("dev"))?;
            right &= text == wanted.map(|(major, minor)| format!("{major}:{minor}"));
        }
        if right {
            return Ok(());
        }
        let found = if slaves.is_empty() { "nothing".into() } else { slaves.join(", ") };
        let (name, device) = (self.name.clone(), plain.clone());
        Err(LayerError::OtherDevice { name, device, found }.into())
    }

    /// Refuses a map of our name that is not LUKS.
    fn check_kind(&self, host: &dyn Host, folder: &Path) -> Result<()> {
        let uuid = host.files().read_text(&folder.join("dm/uuid"))?.unwrap_or_default();
        if uuid.starts_with("CRYPT-LUKS") {
            return Ok(());
        }
        Err(LayerError::NotLuks { name: self.name.clone() }.into())
    }

    /// The map of several paths that the clear side stands on, where it is one.
    fn map_below(&self, host: &dyn Host, folder: &Path) -> Result<Option<Map>> {
        let slaves = host.files().list(&folder.join("slaves"))?;
        match slaves.as_slice() {
            [below] => Map::of_disk(host.files(), below),
            _ => Ok(None),
        }
    }

    /// Opens the device, or finds it open; makes a header where that was asked for and may be done.
    pub(super) async fn open(
        &self,
        host: &dyn Host,
        info: &ConnectionInfo,
        encryption: &Encryption,
        read_only: bool,
        deadline: Deadline,
    ) -> Result<Change<Attached>> {
        let Some(plain) = self.plain.clone() else { return Err(LayerError::NoKey.into()) };
        if self.is_there(host)? {
            self.check(host)?;
            return Ok(Change::Already(self.describe(host).await?));
        }
        let key = info.secrets.get(KEY_FIELD).ok_or(LayerError::NoKey)?;
        let word = word(encryption.format);
        match host.probe(&plain).await? {
            Content::Other(kind) if kind == "crypto_LUKS" => {}
            Content::Blank if encryption.format_if_blank && !read_only => {
                self.format(host, &plain, encryption, key, deadline).await?;
            }
            Content::Blank => return Err(LayerError::Blank { device: plain, format: word }.into()),
            found @ (Content::Other(_) | Content::Filesystem { .. } | Content::Data) => {
                let found = in_words(&found);
                return Err(LayerError::NotEncrypted { device: plain, format: word, found }.into());
            }
        }
        let mut tool = cryptsetup(deadline).args([
            "open",
            "--type",
            "luks",
            "--key-file=-",
            "--disable-keyring",
        ]);
        if read_only {
            tool = tool.arg("--readonly");
        }
        if encryption.discards {
            tool = tool.arg("--allow-discards");
        }
        let tool = with_key(tool.arg(&plain).arg(&self.name), key);
        let output = run(host, &tool).await?;
        if output.code == Some(NO_PERMISSION) {
            return Err(LayerError::WrongKey { device: plain }.into());
        }
        done(output, || format!("opening the encrypted {}", plain.display()))?;
        self.check(host)?;
        Ok(Change::Made(self.describe(host).await?))
    }

    async fn format(
        &self,
        host: &dyn Host,
        plain: &Path,
        encryption: &Encryption,
        key: &Secret,
        deadline: Deadline,
    ) -> Result<()> {
        let mut tool = cryptsetup(deadline).args([
            "luksFormat",
            "--batch-mode",
            "--type",
            word(encryption.format),
            "--key-file=-",
        ]);
        if let Some(cipher) = &encryption.cipher {
            tool = tool.arg("--cipher").arg(cipher);
        }
        if let Some(size) = encryption.key_size {
            tool = tool.arg("--key-size").arg(size.to_string());
        }
        let output = run(host, &with_key(tool.arg(plain), key)).await?;
        done(output, || format!("making an encryption header on {}", plain.display()))
    }

    /// Writes out what is cached for the clear side and closes it. By force also one that stands on
    /// another device than the volume is now, as it does after the device went and came back: it
    /// could never be closed otherwise.
    pub(super) async fn close(
        &self,
        host: &dyn Host,
        force: bool,
        failures: &mut Failures<'_>,
        deadline: Deadline,
    ) -> Result<()> {
        let Some(folder) = self.folder(host)? else { return Ok(()) };
        if force {
            self.check_kind(host, &folder)?;
        } else {
            self.check(host)?;
        }
        let node = self.node();
        match self.map_below(host, &folder)? {
            // Its paths decide whether a flush ends, and by force it must not wait for one: what
            // waits keeps the clear side open.
            Some(map) => {
                flush::flush(host, Top::Above(&node, &map), force, failures, deadline).await?;
            }
            None => failures.flush(host, &node, deadline).await?,
        }
        let output = run(host, &cryptsetup(deadline).arg("close").arg(&self.name)).await?;
        match output.code {
            Some(0 | NO_DEVICE) => Ok(()),
            Some(BUSY) => Err(LayerError::Busy { device: node }.into()),
            Some(_) | None => done(output, || format!("closing {}", self.name)),
        }
    }

    /// Makes the clear side as large as the device below.
    pub(super) async fn extend(&self, host: &dyn Host) -> Result<ByteSize> {
        self.check(host)?;
        let deadline = Deadline::after(OPEN_LIMIT);
        let output = run(host, &cryptsetup(deadline).arg("resize").arg(&self.name)).await?;
        done(output, || format!("growing {}", self.name))?;
        host.device_size(&self.node()).await
    }

    /// What the user gets: the clear side, with the identity of the volume below.
    pub(super) async fn describe(&self, host: &dyn Host) -> Result<Attached> {
        let device = self.node();
        let size = host.device_size(&device).await?;
        Ok(Attached::Block { device, identity: self.identity.clone(), size })
    }
}

/// The record of something that was just connected, to take it away again.
pub(super) fn record_of(
    info: &ConnectionInfo,
    attach: &Attach,
    attached: Attached,
) -> AttachRecord {
    AttachRecord {
        publication: PublicationId::generate(),
        volume: VolumeId::generate(),
        info: info.without_secrets(),
        attach: attach.clone(),
        state: AttachState::Attached,
        attached: Some(attached),
        mounts: Vec::new(),
        frozen: None,
        instance: InstanceId::generate(),
        boot_id: String::new(),
        created: Timestamp::now(),
    }
}

fn word(format: EncryptionFormat) -> &'static str {
    match format {
        EncryptionFormat::Luks => "luks1",
        EncryptionFormat::Luks2 => "luks2",
    }
}

fn in_words(content: &Content) -> String {
    match content {
        Content::Blank => "blank".into(),
        Content::Filesystem { fs, .. } => format!("a file system {fs}"),
        Content::Other(kind) => kind.clone(),
        Content::Data => "data of an unknown kind".into(),
    }
}

fn cryptsetup(deadline: Deadline) -> Tool {
    Tool::new("cryptsetup").limit(OPEN_LIMIT.min(deadline.left().max(Duration::from_secs(1))))
}

fn with_key(mut tool: Tool, key: &Secret) -> Tool {
    tool.stdin = Some(key.clone());
    tool
}

async fn run(host: &dyn Host, tool: &Tool) -> Result<ToolOutput> {
    host.run(tool).await.map_err(|source| {
        if [Kind::NotFound, Kind::Unsupported].contains(&source.kind()) {
            return Error::from(LayerError::NoCryptsetup { source });
        }
        source
    })
}

fn done(output: ToolOutput, attempt: impl FnOnce() -> String) -> Result<()> {
    output.ok().map(|_| ()).map_err(|source| LayerError::Tool { attempt: attempt(), source }.into())
}
