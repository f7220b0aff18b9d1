//! What stands between a connector's device and its user: a reservation that keeps other hosts from
//! writing, and encryption. Both are the same for every block protocol, so no connector knows them.
//!
//! From below: the device, the reservation on it, the clear side of its encryption. They are taken
//! away in the other order.

mod crypt;
mod error;
mod reserve;

use hawser_core::attach::{Attach, AttachRecord, Attached, Detach, Health};
use hawser_core::connection::ConnectionInfo;
use hawser_core::error::{Error, Result};
use hawser_core::port::{Connector, Host};
use hawser_core::{ByteSize, Change, Outcome};

use self::crypt::Clear;
use self::error::LayerError;
use crate::shared::wait::Deadline;

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
        let clear = Clear::of(info, plain);
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

    /// Closes, gives back and disconnects.
    pub(crate) async fn disconnect(
        &self,
        host: &dyn Host,
        record: &AttachRecord,
        detach: &Detach,
    ) -> Result<Change<()>> {
        let clear = Clear::of_info(&record.info);
        let there = clear.is_there(host)?;
        if record.attach.encryption.is_none() && record.attach.reservation.is_none() && !there {
            return self.0.disconnect(host, record, detach).await;
        }
        let deadline = Deadline::after(detach.deadline);
        let mut closed = false;
        if there {
            clear.close(host, detach, deadline).await?;
            closed = true;
        }
        let plain = match self.0.lookup(host, &record.info).await {
            Ok(plain) => plain,
            Err(_) if detach.force => None,
            Err(error) => return Err(error),
        };
        if let (Some(writer), Some(Attached::Block { device, .. })) =
            (&record.attach.reservation, &plain)
        {
            match reserve::give_back(host, device, writer.key).await {
                Ok(_) => {}
                Err(error) if detach.force => {
                    tracing::warn!(error = %error.sentence(), "the reservation stays at the device");
                }
                Err(error) => return Err(error),
            }
        }
        let below = AttachRecord { attached: plain, ..record.clone() };
        let change = self.0.disconnect(host, &below, detach).await?;
        Ok(if closed { Change::Made(()) } else { change })
    }

    /// Makes every layer see the new size, and answers the size of the top one.
    pub(crate) async fn extend(&self, host: &dyn Host, record: &AttachRecord) -> Result<ByteSize> {
        let clear = Clear::of_info(&record.info);
        if !clear.is_there(host)? {
            return self.0.extend(host, record).await;
        }
        let plain = self.0.lookup(host, &record.info).await?;
        let below = AttachRecord { attached: plain, ..record.clone() };
        self.0.extend(host, &below).await?;
        clear.extend(host).await
    }

    /// What is attached now: the clear side where the device is open.
    pub(crate) async fn lookup(
        &self,
        host: &dyn Host,
        info: &ConnectionInfo,
    ) -> Result<Option<Attached>> {
        let Some(plain) = self.0.lookup(host, info).await? else { return Ok(None) };
        let clear = Clear::of(info, &plain);
        if !clear.is_there(host)? {
            return Ok(Some(plain));
        }
        clear.describe(host).await.map(Some)
    }

    /// Whether every layer works.
    pub(crate) async fn health(&self, host: &dyn Host, record: &AttachRecord) -> Result<Health> {
        let clear = Clear::of_info(&record.info);
        let open = clear.is_there(host)?;
        if record.attach.encryption.is_some() && !open {
            return Ok(Health::bad("the encrypted device is not open"));
        }
        let plain = self.0.lookup(host, &record.info).await?;
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

/// An error with what came of taking things back.
fn with_undo(error: Error, undone: Result<()>) -> Error {
    match undone {
        Ok(()) => error.with_outcome(Outcome::RolledBack),
        Err(undo) => LayerError::Undo { undo: undo.sentence(), source: error }.into(),
    }
}

#[cfg(test)]
mod tests;
