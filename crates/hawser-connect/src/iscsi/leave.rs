//! A volume leaves a target: its devices, its claim, and the session when nobody else needs it.

use std::time::Duration;

use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::{Outcome, Reason};

use super::admin::{self, Exit};
use super::data::{Target, Transport};
use super::notes::{Key, Notes};
use super::session::Session;
use super::{kept, probe, record};
use crate::shared::error::AttachError;
use crate::shared::scsi::{self, Address, ScsiDisk};
use crate::shared::wait::{self, Deadline};

/// How long a session may take to go.
const LOGOUT_LIMIT: Duration = Duration::from_secs(30);

/// How long iscsid may take to end a session: it waits for the target, whose limit is 15 seconds.
const MESSAGE_LIMIT: Duration = Duration::from_secs(20);

/// How long a session that is there may take to come up: iscsid's own limit, and some.
const LOGIN_LIMIT: Duration = Duration::from_secs(20);

/// What came of a login that somebody else had begun.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Finished {
    /// There will be no session.
    Failed,
    /// There will be one, or iscsid is at it until its limit.
    Open,
}

/// One volume that leaves.
pub(super) struct Leave<'a> {
    pub(super) host: &'a dyn Host,
    pub(super) volume: &'a str,
    pub(super) iface: &'a str,
    pub(super) deadline: Deadline,
}

impl Leave<'_> {
    /// Takes everything of the volume away at one target; its devices are flushed and unused. What
    /// stands under its number and is not its own is `spared`: so is what another volume of ours has
    /// there. What of that is only `tried` keeps no session of ours. True when anything was there.
    pub(super) async fn target(
        &self,
        target: &Target,
        spared: &[Address],
        tried: &[Address],
    ) -> Result<bool> {
        let files = self.host.files();
        let key = Key::of(target);
        let notes = Notes::of(self.host, &key);
        // The map above may be gone already: the volume is not as it was.
        let alone = Notes::lock(self.host, &key, self.deadline).await;
        let _alone = alone.map_err(|error| error.with_outcome(Outcome::Unknown))?;
        kept::restore(self.host, &notes).await?;
        let needed = notes.is_claimed_by_others(self.volume)?;
        let mut left = false;
        let mut stays = needed;
        for session in self.sessions(target, &notes).await? {
            let (mut ours, mut others) = (Vec::new(), Vec::new());
            for address in session.devices(files)? {
                let is_own = address.lun == target.lun && !spared.contains(&address);
                match is_own && !self.is_anothers(&notes, target, address)? {
                    true => ours.push(address),
                    false => others.push(address),
                }
            }
            let is_ours = notes.is_ours(&session)?;
            if is_ours && !needed && others.iter().all(|address| tried.contains(address)) {
                self.logout(&session).await?;
                left = true;
                continue;
            }
            stays |= is_ours;
            for address in ours {
                left = true;
                scsi::delete_at(self.host, address, self.deadline).await?;
            }
        }
        if !stays {
            left |= record::remove(self.host, target, self.iface).await?;
            left |= notes.drop_ours().await?;
        }
        left |= notes.drop_claim(self.volume).await?;
        notes.sweep().await?;
        Ok(left)
    }

    /// True when another volume of ours has the disk at this way, or is about to find it there.
    pub(super) fn is_anothers(
        &self,
        notes: &Notes<'_>,
        target: &Target,
        address: Address,
    ) -> Result<bool> {
        let files = self.host.files();
        let disk = ScsiDisk::find(files, address)?;
        let names = disk.map(|disk| disk.remembered(files)).transpose()?.flatten();
        let wwid = names.map(|names| names.wwid());
        notes.is_way_of_others(target, self.volume, wwid.as_deref())
    }

    /// The sessions with a target, also the one that a login is about to make whose caller died:
    /// iscsid goes on with it alone. It is finished, so that it can be ended.
    async fn sessions(&self, target: &Target, notes: &Notes<'_>) -> Result<Vec<Session>> {
        let (host, files) = (self.host, self.host.files());
        let mut events = host.events().subscribe();
        let sessions = Session::of(files, target)?;
        if sessions.iter().any(Session::is_up) || !self.login_may_run(target, notes)? {
            return Ok(sessions);
        }
        let seen = !sessions.is_empty();
        if !seen && self.finish_login(target).await? == Finished::Failed {
            return Session::of(files, target);
        }
        let settled = async || {
            let now = Session::of(files, target)?;
            let failed = seen && now.is_empty();
            Ok((failed || now.iter().any(Session::is_up)).then_some(now))
        };
        match wait::until(&mut *events, self.deadline.within(LOGIN_LIMIT), settled).await? {
            Some(now) => Ok(now),
            None => Session::of(files, target),
        }
    }

    /// True when a login was begun of which nobody knows how it ended.
    fn login_may_run(&self, target: &Target, notes: &Notes<'_>) -> Result<bool> {
        let begun = notes.ours()?.is_some_and(|ours| ours.id.is_none());
        Ok(begun && !record::existing(self.host.files(), target, self.iface)?.is_empty())
    }

    /// Logs in once more: iscsid has one login per target, this one or the one that it is at
    /// already.
    async fn finish_login(&self, target: &Target) -> Result<Finished> {
        let can_ask = target.transport == Transport::Tcp && self.iface == "default";
        if can_ask && let Err(error) = probe::portal(&target.portal, self.deadline).await {
            // Where nobody listens, no login ends well. A silent portal may speak again while
            // iscsid is still at it.
            return Ok(match error.reason() == Some(Reason::PortalRefused) {
                true => Finished::Failed,
                false => Finished::Open,
            });
        }
        let output = admin::login(self.host, target, self.iface, self.deadline).await?;
        Ok(match matches!(Exit::of(&output), Exit::Done | Exit::SessionExists) {
            true => Finished::Open,
            false => Finished::Failed,
        })
    }

    /// Ends a session; its devices go with it.
    async fn logout(&self, session: &Session) -> Result<()> {
        let (host, files) = (self.host, self.host.files());
        let limit = self.deadline.within(LOGOUT_LIMIT);
        let mut events = host.events().subscribe();
        if !self.logout_by_message(session, limit).await? {
            self.logout_by_tool(session, limit).await?;
        }
        let gone = async || Ok((!session.is_there(files)?).then_some(()));
        match wait::until(&mut *events, limit, gone).await? {
            Some(()) => Ok(()),
            None => {
                let what = format!("the session with {} at {}", session.iqn, session.portal);
                Err(AttachError::NotRemoved { what, limit: limit.limit() }.into())
            }
        }
    }

    /// Asks iscsid itself, which saves a program; false when that does not work with this one.
    async fn logout_by_message(&self, session: &Session, limit: Deadline) -> Result<bool> {
        let asked = self.host.iscsid().logout(session.id, limit.within(MESSAGE_LIMIT).left()).await;
        match asked {
            Ok(0) => Ok(true),
            Ok(code) => {
                tracing::debug!(session = session.id, code, "iscsid does not end the session");
                Ok(!session.is_there(self.host.files())?)
            }
            Err(error) => {
                tracing::debug!(session = session.id, %error, "iscsid does not take the message");
                Ok(!session.is_there(self.host.files())?)
            }
        }
    }

    async fn logout_by_tool(&self, session: &Session, limit: Deadline) -> Result<()> {
        let output = admin::logout(self.host, session.id, limit).await?;
        // Whatever it says of a session that is gone.
        if Exit::of(&output) == Exit::Done || !session.is_there(self.host.files())? {
            return Ok(());
        }
        let attempt = format!("logging out of {} at {}", session.iqn, session.portal);
        Err(AttachError::Tool { attempt, source: output.failed() }.into())
    }
}
