//! Bringing a volume to this host: claim it, write the intent, connect, check who it is.

use hawser_core::attach::{Attach, AttachRecord, AttachState, Attached, Detach};
use hawser_core::error::ResultExt;
use hawser_core::port::connector::{ConnectorInfo, Platform};
use hawser_core::port::node::AttachWork;
use hawser_core::{Change, Error, Outcome, Result, Timestamp};

use super::NodeHalf;
use super::error::{NodeError, with_undo};
use super::locks::{volume_lock, within};
use super::record::{Unknown, check_identity, expected, remember_identity};
use super::same::{continued, with_wishes};
use super::share;
use crate::layers::Layered;
use crate::shared::wait::Deadline;

impl NodeHalf {
    pub(super) async fn attach_volume(&self, work: &AttachWork) -> Result<Change<Attached>> {
        let connector = self.connectors.get(&work.info.protocol)?;
        let mut work = with_wishes(work)?;
        let deadline = Deadline::after(work.attach.deadline);
        let (registry, publication) = (self.registry.as_ref(), &work.publication);
        let _alone = self.gates.enter_within(registry, publication, deadline).await?;
        let facts = self.host.facts().await?;
        check_platform(connector.0.info(), &facts.machine)?;
        let boot_id = facts.boot_id;
        let existing = self.current(&work.publication).await?;
        if let Some(record) = &existing {
            work = continued(connector.0, record, work, &boot_id)?;
            if let Some(attached) = self.still_attached(record).await? {
                return self.made_good(connector, &work, record, attached, deadline).await;
            }
        }
        let mut record = self.claim(&work, existing.as_ref(), boot_id, deadline).await?;
        let made = existing.is_none();
        let attach = Attach { deadline: deadline.rest(), ..work.attach.clone() };
        let change = match connector.connect(self.host.as_ref(), &work.info, &attach).await {
            Ok(change) => change,
            Err(error) => return Err(self.forget_intent(&record, made, error).await),
        };
        let found = change.get().identity();
        let right = check_identity(expected(&record), found, change.get().path(), Unknown::Allowed);
        if let Err(wrong) = right {
            let brought = change.is_made();
            return Err(self.let_go(connector, record, made, brought, change, wrong.into()).await);
        }
        // The device is there; the intent leads the retry to it.
        let unknown = |error: Error| error.with_outcome(Outcome::Unknown);
        // Nobody records the same device between the look and the record.
        let what = || "the look at who else has the device".to_owned();
        let devices = within(deadline, what, self.registry.lock("devices")).await;
        let devices = devices.map_err(unknown)?;
        let twin = self.twin(&record, change.get(), change.is_made()).await.map_err(unknown)?;
        if let Some(twin) = twin {
            // The device that goes is recorded nowhere.
            drop(devices);
            let (back, refusal) = (twin.takes_back, twin.refusal.into());
            return Err(self.let_go(connector, record, made, back, change, refusal).await);
        }
        record.attached = Some(change.get().clone());
        record.state = AttachState::Attached;
        remember_identity(&mut record);
        self.registry
            .put(&record)
            .await
            .map_err(unknown)
            .context(|| "recording what was attached".to_owned())?;
        tracing::info!(volume.id = %work.volume, publication.id = %work.publication,
            path = %change.get().path().display(), "attached");
        Ok(change)
    }

    /// What an earlier call attached, if it is still there as recorded. What is gone or elsewhere
    /// is attached again, unless it is mounted from where it was.
    async fn still_attached(&self, record: &AttachRecord) -> Result<Option<Attached>> {
        let (AttachState::Attached, Some(attached)) = (record.state, &record.attached) else {
            return Ok(None);
        };
        if let Some(found) = self.lookup(record).await? {
            check_identity(expected(record), found.identity(), found.path(), Unknown::Refused)?;
            if found.path() == attached.path() {
                return Ok(Some(found));
            }
        }
        let table = self.table().await?;
        let targets: Vec<_> =
            table.all_of(attached).iter().map(|entry| entry.target.clone()).collect();
        if targets.is_empty() { Ok(None) } else { Err(NodeError::StillMounted { targets }.into()) }
    }

    /// What is there may have stopped working: its session ended, a path went. Nobody is handed a
    /// device that does not work: the connector brings back what it can, below whoever uses it. It
    /// also sees to paths that were not asked for before.
    async fn made_good(
        &self,
        connector: Layered<'_>,
        work: &AttachWork,
        record: &AttachRecord,
        attached: Attached,
        deadline: Deadline,
    ) -> Result<Change<Attached>> {
        let host = self.host.as_ref();
        let multipath = work.attach.multipath;
        if multipath > record.attach.multipath {
            tracing::info!(volume.id = %work.volume, "it is attached, and more paths are asked for");
        } else {
            let problem = match connector.health(host, record).await {
                Ok(health) if health.healthy => return Ok(Change::Already(attached)),
                Ok(health) => health.message,
                Err(error) => error.sentence(),
            };
            tracing::warn!(volume.id = %work.volume, %problem, "it is attached and does not work");
        }
        let attach = Attach { deadline: deadline.rest(), ..work.attach.clone() };
        let change = connector.connect(host, &work.info, &attach).await?;
        let (found, path) = (change.get().identity(), change.get().path());
        check_identity(expected(record), found, path, Unknown::Refused)?;
        self.seal_again(record, path).await?;
        let attach = Attach { multipath, ..record.attach.clone() };
        let now = AttachRecord { attached: Some(change.get().clone()), attach, ..record.clone() };
        if now != *record {
            self.registry.put(&now).await?;
        }
        Ok(change)
    }

    /// Makes sure that no other writer is on this host, and writes the intent: from then on the
    /// record itself keeps others out.
    pub(super) async fn claim(
        &self,
        work: &AttachWork,
        existing: Option<&AttachRecord>,
        boot_id: String,
        deadline: Deadline,
    ) -> Result<AttachRecord> {
        let lock = volume_lock(&work.volume);
        let what = || format!("volume {}", work.volume);
        let _volume = within(deadline, what, self.registry.lock(&lock)).await?;
        let registered = self.registry.list().await?;
        if let Some((path, why)) = registered.unreadable.into_iter().next() {
            return Err(NodeError::JournalUnreadable { path, why }.into());
        }
        let connector = self.connectors.get(&work.info.protocol)?.0;
        for other in &registered.records {
            share::check(connector, other, work, &boot_id)?;
        }
        let mut record = AttachRecord {
            publication: work.publication.clone(),
            volume: work.volume.clone(),
            info: work.info.without_secrets(),
            attach: work.attach.clone(),
            state: AttachState::Intent,
            attached: None,
            mounts: Vec::new(),
            frozen: None,
            instance: self.instance.clone(),
            boot_id,
            created: existing.map_or_else(Timestamp::now, |record| record.created),
        };
        if let Some(existing) = existing {
            if record.info.identity.is_none() {
                record.info.identity = expected(existing).cloned();
            }
            for mount in existing.mounts.iter().filter(|mount| mount.made_target) {
                self.host.remove_target(&mount.target).await?;
            }
        }
        match self.registry.put(&record).await {
            Ok(()) => Ok(record),
            Err(error) => Err(self.forget_intent(&record, existing.is_none(), error).await),
        }
    }

    /// After a failed connect: the intent goes if this call made it and nothing can be behind it.
    async fn forget_intent(&self, record: &AttachRecord, made: bool, error: Error) -> Error {
        if !made || error.is_unknown() {
            return error;
        }
        match self.registry.remove(&record.publication).await {
            Ok(_) => error,
            Err(undo) => with_undo(error, &undo),
        }
    }

    /// After a connect that gave the wrong device: takes away again what this call brought.
    async fn let_go(
        &self,
        connector: Layered<'_>,
        mut record: AttachRecord,
        made: bool,
        brought: bool,
        change: Change<Attached>,
        error: Error,
    ) -> Error {
        if brought {
            record.attached = Some(change.into_inner());
            let detach = Detach { deadline: record.attach.deadline, ..Detach::default() };
            let gone = connector.disconnect(self.host.as_ref(), &record, &detach).await;
            if let Err(undo) = gone {
                return with_undo(error, &undo);
            }
        }
        let error = if brought { error.with_outcome(Outcome::RolledBack) } else { error };
        self.forget_intent(&record, made, error).await
    }
}

/// Refuses protocols that do not exist on this kind of machine.
fn check_platform(info: &ConnectorInfo, machine: &str) -> Result<(), NodeError> {
    let platform = Platform::of(machine);
    if info.platforms.contains(&Platform::All) || info.platforms.contains(&platform) {
        return Ok(());
    }
    let names: Vec<_> = info.platforms.iter().map(|platform| platform.as_str()).collect();
    Err(NodeError::NotOnPlatform {
        protocol: info.protocols.join(" and "),
        platform: platform.as_str(),
        others: names.join(", "),
    })
}
