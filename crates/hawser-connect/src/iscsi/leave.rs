//! A volume leaves a target: its devices, its claim, and the session when nobody else needs it.

use std::time::Duration;

use hawser_core::error::Result;
use hawser_core::port::Host;

use super::admin::{self, Exit};
use super::data::Target;
use super::notes::{Key, Notes};
use super::record;
use super::session::Session;
use crate::shared::error::AttachError;
use crate::shared::scsi::{self, Address};
use crate::shared::wait::{self, Deadline};

/// How long a session may take to go.
const LOGOUT_LIMIT: Duration = Duration::from_secs(30);

/// How long iscsid may take to end a session: it waits for the target, whose limit is 15 seconds.
const MESSAGE_LIMIT: Duration = Duration::from_secs(20);

/// One volume that leaves.
pub(super) struct Leave<'a> {
    pub(super) host: &'a dyn Host,
    pub(super) volume: &'a str,
    pub(super) iface: &'a str,
    pub(super) deadline: Deadline,
}

impl Leave<'_> {
    /// Takes everything of the volume away at one target; its devices are flushed and unused. What
    /// stands under its number and is not its own is `spared`. True when anything was there.
    pub(super) async fn target(&self, target: &Target, spared: &[Address]) -> Result<bool> {
        let files = self.host.files();
        let key = Key::of(target);
        let notes = Notes::of(self.host, &key);
        let _alone = Notes::lock(self.host, &key).await?;
        record::restore(self.host, &notes).await?;
        let needed = notes.is_claimed_by_others(self.volume)?;
        let mut left = false;
        let mut stays = needed;
        for session in Session::of(files, target)? {
            let here = session.devices(files)?;
            let (ours, others): (Vec<Address>, Vec<Address>) =
                here.into_iter().partition(|a| a.lun == target.lun && !spared.contains(a));
            let is_ours = notes.is_ours(&session)?;
            if is_ours && !needed && others.is_empty() {
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
