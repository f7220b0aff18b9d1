//! Sessions with targets: found, or made.

use hawser_core::Reason;
use hawser_core::error::{Error, Result};
use hawser_core::port::Host;

use super::admin::{self, Exit};
use super::data::{Credentials, Target, Volume};
use super::notes::{Claim, Key, Notes, Ours};
use super::record::{self, InPlace, Settings};
use super::session::Session;
use super::{discovery, kept, probe, recover};
use crate::shared::error::AttachError;
use crate::shared::wait::Deadline;

/// How often a login that may pass is tried.
const ATTEMPTS: usize = 3;

/// What one call made at one target; marked before it is made, so that what failed half-way is
/// taken back too.
#[derive(Clone, Debug, Default)]
pub(super) struct Made {
    pub(super) claim: bool,
    pub(super) login: bool,
}

/// Brings this host together with a target.
pub(super) struct Login<'a> {
    pub(super) host: &'a dyn Host,
    pub(super) volume: &'a Volume,
    pub(super) credentials: &'a Credentials,
    pub(super) deadline: Deadline,
}

impl Login<'_> {
    /// A session with the target that is up; the volume's claim on it is written first.
    pub(super) async fn session(&self, target: &Target, made: &mut Made) -> Result<Session> {
        let key = Key::of(target);
        let notes = Notes::of(self.host, &key);
        let _alone = Notes::lock(self.host, &key, self.deadline).await?;
        if notes.claim(&self.volume.key)?.is_none() {
            made.claim = true;
            let claim = Claim { target: target.clone(), wwid: None };
            notes.set_claim(&self.volume.key, &claim).await?;
        }
        // A record that a login which died had put aside.
        kept::restore(self.host, &notes).await?;
        let sessions = Session::of(self.host.files(), target)?;
        match sessions.iter().find(|session| session.is_up()) {
            Some(session) => Ok(session.clone()),
            None if sessions.is_empty() => self.login(target, &notes, made).await,
            None => self.recover(target).await,
        }
    }

    async fn recover(&self, target: &Target) -> Result<Session> {
        recover::session(self.host, &self.volume.iface, target, self.deadline).await
    }

    async fn probe(&self, target: &Target) -> Result<()> {
        probe::target(self.host, &self.volume.iface, target, self.deadline).await
    }

    async fn login(&self, target: &Target, notes: &Notes<'_>, made: &mut Made) -> Result<Session> {
        self.probe(target).await?;
        made.login = true;
        let logged_in = self.try_login(target, notes).await;
        // What was put aside comes back whatever happened.
        kept::restore(self.host, notes).await?;
        let session = logged_in?;
        notes.set_ours(&Ours { target: target.clone(), id: Some(session.id) }).await?;
        Ok(session)
    }

    async fn try_login(&self, target: &Target, notes: &Notes<'_>) -> Result<Session> {
        let (host, iface, deadline) = (self.host, self.volume.iface.as_str(), self.deadline);
        let mut place = self.place(target).await?;
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let settings = Settings { iface, chap: self.credentials.session.as_ref() };
            notes.set_ours(&Ours { target: target.clone(), id: None }).await?;
            record::put(host, notes, target, &settings, &place).await?;
            let output = admin::login(host, target, iface, deadline).await?;
            if let Some(session) = self.look(target, &output).await? {
                return Ok(session);
            }
            // It is known how it ended: nothing comes of it later.
            notes.drop_ours().await?;
            let exit = Exit::of(&output);
            let error = self.explain(target, &output).await;
            match exit {
                Exit::NothingFound if matches!(place, InPlace::Database(_)) => {
                    // The database is somewhere else after all.
                    record::remove(host, target, iface).await?;
                    admin::make_record(host, target, iface, deadline).await?;
                    place = InPlace::MadeByTool;
                }
                Exit::Done
                | Exit::SessionExists
                | Exit::Transport
                | Exit::TransportTimeout
                | Exit::Database
                | Exit::TryAgain => {}
                Exit::LoginFailed if error.reason() != Some(Reason::TargetNotFound) => {}
                Exit::SessionNotFound
                | Exit::LoginFailed
                | Exit::LoginFatal
                | Exit::PduTimeout
                | Exit::TransportMissing
                | Exit::Access
                | Exit::NoDaemon
                | Exit::NothingFound
                | Exit::AuthFailed
                | Exit::Other => return Err(error),
            }
            last = Some(error);
            if deadline.passed() {
                break;
            }
        }
        Err(last.unwrap_or_else(|| {
            let (attempt, limit) = (format!("logging in to {target}"), deadline.limit());
            AttachError::Deadline { attempt, limit }.into()
        }))
    }

    /// Where its record belongs; `iscsiadm` is asked where nobody else knows.
    async fn place(&self, target: &Target) -> Result<InPlace> {
        let (files, iface) = (self.host.files(), self.volume.iface.as_str());
        if let Some(database) = record::database(files)? {
            return Ok(InPlace::Database(database));
        }
        if let Some(record) = record::existing(files, target, iface)?.into_iter().next() {
            return Ok(InPlace::Database(record));
        }
        admin::make_record(self.host, target, iface, self.deadline).await?;
        Ok(InPlace::MadeByTool)
    }

    /// The session after a login that may have worked, whatever its exit code says: a database that
    /// others change meanwhile makes it fail after the fact.
    async fn look(
        &self,
        target: &Target,
        output: &hawser_core::port::host::ToolOutput,
    ) -> Result<Option<Session>> {
        let up = Session::of(self.host.files(), target)?.into_iter().find(Session::is_up);
        match (up, Exit::of(output)) {
            (Some(session), _) => Ok(Some(session)),
            (None, Exit::Done | Exit::SessionExists) => self.recover(target).await.map(Some),
            (None, _) => Ok(None),
        }
    }

    /// What a failed login means. iscsid does not tell an unknown target from any other refusal:
    /// the portal is asked.
    async fn explain(
        &self,
        target: &Target,
        output: &hawser_core::port::host::ToolOutput,
    ) -> Error {
        let chap = self.credentials.discovery.as_ref();
        let (host, iface) = (self.host, self.volume.iface.as_str());
        if Exit::of(output) == Exit::LoginFailed
            && discovery::is_unknown(host, target, iface, chap, self.deadline).await
        {
            let (portal, target) = (target.portal.to_string(), target.iqn.clone());
            return AttachError::TargetNotFound { portal, target }.into();
        }
        let proof = self.credentials.session.as_ref().is_some_and(|chap| chap.target.is_some());
        admin::login_error(target, output, proof)
    }
}
