//! What this host remembers of a subsystem: which volumes need it, and which of its controllers we
//! made.
//!
//! One small file per subsystem below the run folder, so it goes with a reboot as controllers do.
//! It is read and changed only under the lock of the subsystem, written before the act and cleared
//! after it. A controller that is not in it is somebody else's and is never taken away.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hawser_core::attach::Identity;
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::registry::LockGuard;
use serde::{Deserialize, Serialize};

use super::portal::Portal;
use super::sysfs::Controller;
use crate::shared::digest;
use crate::shared::locks;
use crate::shared::wait::Deadline;

/// What is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Page {
    nqn: String,
    made: Vec<Made>,
    claims: BTreeMap<String, Claim>,
}

/// A controller that we made, or are about to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Made {
    pub(super) portal: Portal,
    /// Its name once it is known.
    pub(super) controller: Option<String>,
}

impl Made {
    /// True for this very controller.
    pub(super) fn is(&self, controller: &Controller) -> bool {
        controller.is_on(&self.portal)
            && self.controller.as_ref().is_none_or(|name| *name == controller.name)
    }
}

/// A volume that needs the subsystem.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claim {
    /// What was found: a bare number means this from then on, and only this volume's detach takes
    /// the claim back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pinned: Option<Identity>,
    /// We made the device refuse writes.
    #[serde(default)]
    pub(super) read_only: bool,
}

impl Claim {
    /// False when it is another volume's: a number is given to one after the other, and somebody may
    /// call a volume by an id that it does not have.
    pub(super) fn is_of(&self, known: &[&Identity]) -> bool {
        known.is_empty() || self.pinned.as_ref().is_none_or(|pinned| known.contains(&pinned))
    }
}

/// The page of one subsystem, for as long as its lock is held.
pub(super) struct Book<'a> {
    host: &'a dyn Host,
    file: PathBuf,
    page: Page,
    written: Page,
    _lock: Box<dyn LockGuard>,
}

impl<'a> Book<'a> {
    /// Waits for the lock and reads the page.
    pub(super) async fn open(
        host: &'a dyn Host,
        nqn: &str,
        deadline: Deadline,
    ) -> Result<Book<'a>> {
        let name = format!("nvmeof-{}", digest::short(nqn.as_bytes()));
        let lock = locks::alone(host, &name, nqn, deadline).await?;
        let file = file(host, nqn);
        let written = read(host, nqn)?;
        Ok(Self { host, file, page: written.clone(), written, _lock: lock })
    }

    /// Writes the page, where it changed; an empty one goes.
    pub(super) async fn save(&mut self) -> Result<()> {
        if self.page == self.written {
            return Ok(());
        }
        let files = self.host.files();
        if self.page.made.is_empty() && self.page.claims.is_empty() {
            files.remove(&self.file).await?;
        } else {
            // A page is made of texts and lists: it can always be written as JSON.
            let text = serde_json::to_vec(&self.page).unwrap_or_default();
            files.store(&self.file, &text, 0o600).await?;
        }
        self.written = self.page.clone();
        Ok(())
    }

    /// The claim of a volume.
    pub(super) fn claim(&self, key: &str) -> Option<&Claim> {
        self.page.claims.get(key)
    }

    /// Makes or changes a claim; true when it is new.
    pub(super) fn set_claim(&mut self, key: &str, claim: Claim) -> bool {
        self.page.claims.insert(key.to_owned(), claim).is_none()
    }

    /// Remembers what was found for a claim, unless that was taken back meanwhile.
    pub(super) fn pin(&mut self, key: &str, found: Option<Identity>) {
        if let Some(claim) = self.page.claims.get_mut(key) {
            claim.pinned = found;
        }
    }

    /// Takes a claim back; true when there was one.
    pub(super) fn drop_claim(&mut self, key: &str) -> bool {
        self.page.claims.remove(key).is_some()
    }

    /// True when some volume needs the subsystem.
    pub(super) fn is_claimed(&self) -> bool {
        !self.page.claims.is_empty()
    }

    /// The controllers that we made.
    pub(super) fn made(&self) -> &[Made] {
        &self.page.made
    }

    /// Remembers that a controller is about to be made, or what it was called.
    pub(super) fn set_made(&mut self, portal: &Portal, controller: Option<String>) {
        self.drop_made(portal);
        self.page.made.push(Made { portal: portal.clone(), controller });
    }

    /// Forgets the controller on a way.
    pub(super) fn drop_made(&mut self, portal: &Portal) {
        self.page.made.retain(|made| made.portal != *portal);
    }
}

/// The claim of a volume, without the lock: to see whether anything is left to do.
pub(super) fn peek(host: &dyn Host, nqn: &str, key: &str) -> Result<Option<Claim>> {
    Ok(read(host, nqn)?.claims.remove(key))
}

fn read(host: &dyn Host, nqn: &str) -> Result<Page> {
    let empty = Page { nqn: nqn.to_owned(), ..Page::default() };
    let Some(text) = host.files().read(&file(host, nqn))? else { return Ok(empty) };
    match serde_json::from_slice::<Page>(&text) {
        Ok(page) if page.nqn == nqn => Ok(page),
        // Whatever stands there, an empty page is safe: without it no controller counts as ours.
        Ok(_) | Err(_) => {
            tracing::warn!(%nqn, "the note about an NVMe subsystem is not readable and not used");
            Ok(empty)
        }
    }
}

fn file(host: &dyn Host, nqn: &str) -> PathBuf {
    host.files().run_dir().join(format!("nvmeof-{}.json", digest::short(nqn.as_bytes())))
}
