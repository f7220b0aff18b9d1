//! What stands between a connector's device and its user: a reservation that keeps other hosts from
//! writing, and encryption. Both are the same for every block protocol, so no connector knows them.
//!
//! From below: the device, the reservation on it, the clear side of its encryption. They are taken
//! away in the other order.

mod crypt;
mod error;
mod reserve;

use std::path::Path;

use hawser_core::attach::{Attach, AttachRecord, Attached, Detach, Health, SingleWriter};
use hawser_core::connection::ConnectionInfo;
use hawser_core::error::{Error, Result};
use hawser_core::port::{Connector, Host};
use hawser_core::{ByteSize, Change, Outcome};

use self::crypt::Clear;
use self::error::LayerError;
use crate::shared::flush::{self, Top};
use crate::shared::multipath::Map;
use crate::shared::release::Failures;
use crate::shared::wait::Deadline;

/// What failed, where several things did.
const DETACH: &str = "detaching the volume";

/// A connector with both layers on top.
#[derive(Clone, Copy)]
pub(crate) struct Layered<'a>(pub(crate) &'a dyn Connector);

impl Layered<'_> {
    /// Connects, reserves and opens, as `attach` says. What it made it takes back on failure.
    pub(crate) async fn connect(
        &self,
        host: &dyn Host,
        info: &ConnectionInfo,
        attach: &Attach,
    ) -> Result<Change<Attached>> {
        let deadline = Deadline::after(attach.deadline);
        let plain = self.0.connect(host, info, attach).await?;
        if attach.reservation.is_none() && attach.encryption.is_none() {
            return Ok(plain);
        }
        let built = self.build(host, info, attach, plain.get(), deadline).await;
        match built {
            Ok(top) => {
                let made = plain.is_made() || top.is_made();
                let top = top.into_inner();
                Ok(if made { Change::Made(top) } else { Change::Already(top) })
            }
            Err(error) if plain.is_made() => Err(self.undo(host, info, attach, plain, error).await),
            Err(error) => Err(error),
        }
    }

    async fn build(
        &self,
        host: &dyn Host,
        info: &ConnectionInfo,
        attach: &Attach,
        plain: &Attached,
        deadline: Deadline,
    ) -> Result<Change<Attached>> {
        let Attached::Block { device, .. } = plain else {
            return Err(LayerError::NoBlock { path: plain.path().to_owned() }.into());
        };
        let mut made = false;
        if let Some(writer) = &attach.reservation {
            made |= reserve::take(host, device, *writer).await?.is_made();
        }
        let Some(encryption) = &attach.encryption else {
            let top = plain.clone();
            return Ok(if made { Change::Made(top) } else { Change::Already(top) });
        };
        let clear = Clear::of(info, Some(plain));
        let opened = clear.open(host, info, encryption, attach.read_only, deadline).await;
        match opened {
            Ok(change) => Ok(if made { Change::Made(change.into_inner()) } else { change }),
            Err(error) => match &attach.reservation {
                Some(writer) if made => Err(with_undo(
                    error,
                    reserve::give_back(host, device, writer.key).await.map(|_| ()),
                )),
                Some(_) | None => Err(error),
            },
        }
    }

    /// Takes the device of a failed connect away again.
    async fn undo(
        &self,
        host: &dyn Host,
        info: &ConnectionInfo,
        attach: &Attach,
        plain: Change<Attached>,
        error: Error,
    ) -> Error {
        let record = crypt::record_of(info, attach, plain.into_inner());
        let detach = Detach { deadline: attach.deadline, ..Detach::default() };
        let undone = self.0.disconnect(host, &record, &detach).await;
        with_undo(error, undone.map(|_| ()))
    }

    /// Closes, gives back and disconnects. By force it goes on past what fails, down to the last
    /// path, and tells it at the end.
    pub(crate) async fn disconnect(
        &self,
        host: &dyn Host,
        record: &AttachRecord,
        detach: &Detach,
    ) -> Result<Change<()>> {
        let there = Clear::of(&record.info, None).is_there(host)?;
        if record.attach.encryption.is_none() && record.attach.reservation.is_none() && !there {
            return self.0.disconnect(host, record, detach).await;
        }
        let deadline = Deadline::after(detach.deadline);
        let mut failures = Failures::new(detach);
        let plain = match self.0.lookup(host, &record.info).await {
            Ok(plain) => plain,
            Err(_) if detach.force => None,
            Err(error) => return Err(error),
        };
        let clear = Clear::of(&record.info, plain.as_ref());
        if let Err(error) = clear.close(host, detach.force, &mut failures, deadline).await {
            return Err(failures.end(DETACH, error));
        }
        let reserved = match (&record.attach.reservation, &plain) {
            (Some(writer), Some(Attached::Block { device, .. })) => Some((writer.key, device)),
            _ => None,
        };
        if let Some((key, device)) = reserved {
            give_back(host, device, key, detach, &mut failures, deadline).await?;
        }
        let below = AttachRecord { attached: plain.clone(), ..record.clone() };
        match self.0.disconnect(host, &below, detach).await {
            Ok(_) if there || !failures.is_empty() => failures.answer(DETACH),
            Ok(change) => Ok(change),
            Err(error) => {
                if let Some((key, device)) = reserved
                    && !detach.force
                {
                    take_again(host, device, key).await;
                }
                Err(failures.end(DETACH, error))
            }
        }
    }

    /// Makes every layer see the new size, and answers the size of the top one.
    pub(crate) async fn extend(&self, host: &dyn Host, record: &AttachRecord) -> Result<ByteSize> {
        if !Clear::of(&record.info, None).is_there(host)? {
            if record.attach.encryption.is_some() {
                return Err(LayerError::NotOpen.into());
            }
            return self.0.extend(host, record).await;
        }
        let plain = self.0.lookup(host, &record.info).await?;
        let clear = Clear::of(&record.info, plain.as_ref());
        clear.check(host)?;
        let below = AttachRecord { attached: plain, ..record.clone() };
        self.0.extend(host, &below).await?;
        clear.extend(host).await
    }

    /// What is attached now: the clear side where the device is open. The raw device of a volume
    /// that was attached as an encrypted one is never answered: whoever gets it writes plain text.
    pub(crate) async fn lookup(
        &self,
        host: &dyn Host,
        info: &ConnectionInfo,
        attach: Option<&Attach>,
    ) -> Result<Option<Attached>> {
        let Some(plain) = self.0.lookup(host, info).await? else { return Ok(None) };
        let clear = Clear::of(info, Some(&plain));
        if !clear.is_there(host)? {
            let encrypted = attach.is_some_and(|attach| attach.encryption.is_some());
            return Ok((!encrypted).then_some(plain));
        }
        clear.check(host)?;
        clear.describe(host).await.map(Some)
    }

    /// Whether every layer works.
    pub(crate) async fn health(&self, host: &dyn Host, record: &AttachRecord) -> Result<Health> {
        let open = Clear::of(&record.info, None).is_there(host)?;
        if record.attach.encryption.is_some() && !open {
            return Ok(Health::bad(LayerError::NotOpen.to_string()));
        }
        let plain = self.0.lookup(host, &record.info).await?;
        Clear::of(&record.info, plain.as_ref()).check(host)?;
        if let (Some(writer), Some(Attached::Block { device, .. })) =
            (&record.attach.reservation, &plain)
            && let Some(problem) = reserve::problem(host, device, writer.key).await?
        {
            return Ok(Health::bad(problem));
        }
        let below = AttachRecord { attached: plain, ..record.clone() };
        let health = if open || record.attach.reservation.is_some() { &below } else { record };
        self.0.health(host, health).await
    }
}

/// Writes out what is cached for a device while this host may write to it, and gives the right back.
async fn give_back(
    host: &dyn Host,
    device: &Path,
    key: u64,
    detach: &Detach,
    failures: &mut Failures<'_>,
    deadline: Deadline,
) -> Result<()> {
    match Map::of_node(host.files(), device)? {
        Some(map) => {
            flush::flush(host, Top::Map(&map), detach.force, failures, deadline).await?;
        }
        None => failures.flush(host, device, deadline).await?,
    }
    match reserve::give_back(host, device, key).await {
        Ok(_) => Ok(()),
        Err(error) if detach.force => {
            tracing::warn!(error = %error.sentence(), "the reservation stays at the device");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// The device stays, for example because somebody has it open: then nobody else may write to it.
async fn take_again(host: &dyn Host, device: &Path, key: u64) {
    let writer = SingleWriter { key, preempt: false };
    if let Err(error) = reserve::take(host, device, writer).await {
        tracing::warn!(error = %error.sentence(), "the device stays without its reservation");
    }
}

/// An error with what came of taking things back.
fn with_undo(error: Error, undone: Result<()>) -> Error {
    match undone {
        Ok(()) => error.with_outcome(Outcome::RolledBack),
        Err(undo) => LayerError::Undo { undo: undo.sentence(), source: error }.into(),
    }
}

#[cfg(test)]
mod tests;
