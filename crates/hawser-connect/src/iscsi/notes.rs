//! What this host remembers of a target: whether its session is ours, and which volumes need it.
//!
//! One folder per target and portal below the run folder, so it goes with a reboot as sessions do.
//! A claim is written before a volume is looked for and removed after it went; a session with a
//! claim of anybody is kept, also while the device of that volume is not there. It is all changed
//! under the lock of the target.

use std::path::PathBuf;

use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::kernel::Files;
use hawser_core::port::registry::LockGuard;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::data::{Target, Transport};
use super::portal::Portal;
use super::session::Session;
use crate::shared::wait::Deadline;
use crate::shared::{digest, locks};

/// Which target a folder is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    iqn: String,
    portal: Portal,
    transport: Transport,
}

impl Key {
    /// The key of the target of a way.
    pub(super) fn of(target: &Target) -> Self {
        let Target { portal, iqn, transport, .. } = target.clone();
        Self { iqn, portal, transport }
    }

    fn digest(&self) -> String {
        let Self { iqn, portal, transport } = self;
        digest::short(format!("{transport:?} {iqn} {portal}").as_bytes())
    }
}

/// A volume that needs the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claim {
    /// The way to the volume.
    pub(super) target: Target,
    /// What was found to be there, once something was.
    pub(super) wwid: Option<String>,
}

/// A session that we made, or are about to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ours {
    pub(super) target: Target,
    /// Its number, once it is known: sessions of others have other numbers. Without one a login was
    /// begun, and nobody knows yet how it ended.
    pub(super) id: Option<u32>,
}

/// The folder of one target.
pub(super) struct Notes<'a> {
    host: &'a dyn Host,
    folder: PathBuf,
}

const SESSION: &str = "session.json";
const CLAIM: &str = "volume-";

/// How the folders are called.
const FOLDER: &str = "iscsi-";

fn read<T: DeserializeOwned>(files: &dyn Files, file: &std::path::Path) -> Result<Option<T>> {
    let Some(text) = files.read(file)? else { return Ok(None) };
    match serde_json::from_slice(&text) {
        Ok(note) => Ok(Some(note)),
        // Without a note a session counts as somebody else's, which is safe.
        Err(error) => {
            tracing::warn!(file = %file.display(), %error, "a note is not readable and not used");
            Ok(None)
        }
    }
}

impl<'a> Notes<'a> {
    /// The notes about the target of a way.
    pub(super) fn of(host: &'a dyn Host, key: &Key) -> Self {
        Self { host, folder: host.files().run_dir().join(format!("{FOLDER}{}", key.digest())) }
    }

    /// Waits to be alone with a target: nobody else logs in or out meanwhile.
    pub(super) async fn lock(
        host: &dyn Host,
        key: &Key,
        deadline: Deadline,
    ) -> Result<Box<dyn LockGuard>> {
        let name = format!("iscsi-target-{}", key.digest());
        locks::alone(host, &name, &format!("{} at {}", key.iqn, key.portal), deadline).await
    }

    /// Waits to be alone with a volume.
    pub(super) async fn lock_volume(
        host: &dyn Host,
        key: &str,
        deadline: Deadline,
    ) -> Result<Box<dyn LockGuard>> {
        locks::alone(host, &format!("iscsi-volume-{key}"), "the volume", deadline).await
    }

    /// The claims of one volume at all targets.
    pub(super) fn claims(host: &dyn Host, volume: &str) -> Result<Vec<Claim>> {
        let files = host.files();
        let run_dir = files.run_dir();
        let mut claims = Vec::new();
        for name in files.list(&run_dir)?.iter().filter(|name| name.starts_with(FOLDER)) {
            let file = run_dir.join(name).join(claim_name(volume));
            claims.extend(read::<Claim>(files, &file)?);
        }
        Ok(claims)
    }

    /// True when anything is remembered.
    pub(super) fn are_there(&self) -> Result<bool> {
        Ok(self.host.files().resolve(&self.folder)?.is_some())
    }

    /// The claim of a volume.
    pub(super) fn claim(&self, volume: &str) -> Result<Option<Claim>> {
        read(self.host.files(), &self.folder.join(claim_name(volume)))
    }

    /// Writes a claim, where it is not there as it should be; true when there was none.
    pub(super) async fn set_claim(&self, volume: &str, claim: &Claim) -> Result<bool> {
        let before = self.claim(volume)?;
        if before.as_ref() != Some(claim) {
            self.store(&claim_name(volume), claim).await?;
        }
        Ok(before.is_none())
    }

    /// Removes a claim; true when there was one.
    pub(super) async fn drop_claim(&self, volume: &str) -> Result<bool> {
        Ok(self.host.files().remove(&self.folder.join(claim_name(volume))).await?)
    }

    /// True when a volume other than this one needs the session.
    pub(super) fn is_claimed_by_others(&self, volume: &str) -> Result<bool> {
        let names = self.host.files().list(&self.folder)?;
        let ours = claim_name(volume);
        Ok(names.iter().any(|name| name.starts_with(CLAIM) && *name != ours))
    }

    /// True when another volume of ours is, or is looked for, at this very way. Where it is known what
    /// is there now, a claim of something else is of a volume that was there before.
    pub(super) fn is_way_of_others(
        &self,
        way: &Target,
        volume: &str,
        there: Option<&str>,
    ) -> Result<bool> {
        let files = self.host.files();
        let ours = claim_name(volume);
        let is_there = |claim: &Claim| match (claim.wwid.as_deref(), there) {
            (Some(claimed), Some(there)) => claimed == there,
            (None, _) | (_, None) => true,
        };
        for name in files.list(&self.folder)? {
            if name.starts_with(CLAIM)
                && name != ours
                && read::<Claim>(files, &self.folder.join(name))?
                    .is_some_and(|claim| claim.target == *way && is_there(&claim))
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The session that we made.
    pub(super) fn ours(&self) -> Result<Option<Ours>> {
        read(self.host.files(), &self.folder.join(SESSION))
    }

    /// True when we made this session. One whose number we never learned is ours if it is there:
    /// whoever wrote the note died while it was made.
    pub(super) fn is_ours(&self, session: &Session) -> Result<bool> {
        Ok(self.ours()?.is_some_and(|ours| ours.id.is_none_or(|id| id == session.id)))
    }

    /// Remembers a session.
    pub(super) async fn set_ours(&self, ours: &Ours) -> Result<()> {
        self.store(SESSION, ours).await
    }

    /// Forgets the session.
    pub(super) async fn drop_ours(&self) -> Result<bool> {
        Ok(self.host.files().remove(&self.folder.join(SESSION)).await?)
    }

    /// Removes the folder when nothing is in it any more.
    pub(super) async fn sweep(&self) -> Result<()> {
        let files = self.host.files();
        if files.resolve(&self.folder)?.is_some() && files.list(&self.folder)?.is_empty() {
            files.remove(&self.folder).await?;
        }
        Ok(())
    }

    /// A file of the notes for bytes of somebody else.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    async fn store(&self, name: &str, note: &impl Serialize) -> Result<()> {
        // Notes are made of texts and numbers: they can always be written as JSON.
        let text = serde_json::to_vec(note).unwrap_or_default();
        Ok(self.host.files().store(&self.folder.join(name), &text, 0o600).await?)
    }
}

fn claim_name(volume: &str) -> String {
    format!("{CLAIM}{volume}.json")
}
