//! Attaching a target, and finding it attached.

use std::path::Path;
use std::time::Duration;

use hawser_core::attach::Attached;
use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::registry::LockGuard;
use hawser_core::{Change, Outcome};
use tokio::time::Instant;

use super::data::Target;
use super::driver::{ANSWER, Driver, FOLDER, Note};
use super::error::AoeError;
use super::interfaces;
use crate::shared::locks;
use crate::shared::modules;
use crate::shared::users;
use crate::shared::wait::{self, Deadline};

/// How long a target may take to be found.
const DISCOVERY: Duration = Duration::from_secs(10);
/// When it is asked for, counted from the beginning: packets get lost, and nobody repeats them.
const CALLS: [Duration; 4] =
    [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(7)];
/// How long taking back may take, whatever the deadline says.
const UNDO: Duration = Duration::from_secs(10);

/// One attach.
pub(super) struct Connect<'a> {
    pub(super) driver: Driver<'a>,
    pub(super) read_only: bool,
    pub(super) deadline: Deadline,
}

/// Waits for the target's lock, and for what a call of this process that was given up is still telling
/// the driver: that of Linux 6.12 may stop for ever when a device is used that it is about to forget.
pub(super) async fn lock(
    host: &dyn Host,
    target: &Target,
    deadline: Deadline,
) -> Result<Box<dyn LockGuard>> {
    let name = format!("target-aoe-{}", target.name());
    let alone = locks::alone(host, &name, &target.name(), deadline).await?;
    host.files().settled(Path::new(FOLDER)).await?;
    Ok(alone)
}

/// What a failed attach has to take back.
struct Before {
    there: bool,
    read_only: bool,
}

impl Connect<'_> {
    /// Attaches the target, or finds it attached and working.
    pub(super) async fn run(&self) -> Result<Change<Attached>> {
        let (host, target) = (self.driver.host, self.driver.target);
        modules::need(host, "aoe").await?;
        let _lock = lock(host, target, self.deadline).await?;
        let there = self.driver.is_there()?;
        match self.driver.note()? {
            Some(note) if there => {
                if note.read_only != self.read_only {
                    let (device, read_only) = (target.disk().node, self.read_only);
                    return Err(AoeError::OtherMode { device, read_only }.into());
                }
                self.bring_up().await.map(Change::Already)
            }
            // A note without a device is from an attach that was cut off, or whose target went.
            Some(_) | None => self.make(there).await.map(Change::Made),
        }
    }

    async fn make(&self, there: bool) -> Result<Attached> {
        let before = Before { there, read_only: there && self.driver.is_read_only()? };
        interfaces::allow(self.driver.host, self.driver.target).await?;
        let note = Note { read_only: self.read_only, identity: None };
        let made = match self.driver.write_note(&note).await {
            Ok(()) => self.bring_up().await,
            Err(error) => Err(error),
        };
        match made {
            Ok(attached) => match self.keep_identity(note, &attached).await {
                Ok(()) => Ok(attached),
                Err(error) => Err(self.undo(&before, error).await),
            },
            Err(error) => Err(self.undo(&before, error).await),
        }
    }

    /// Who it is, for a detach when the target does not answer any more.
    async fn keep_identity(&self, note: Note, attached: &Attached) -> Result<()> {
        let identity = attached.identity().cloned();
        self.driver.write_note(&Note { identity, ..note }).await
    }

    /// Waits for the device, and makes sure that it is the one, in the mode that was asked for.
    async fn bring_up(&self) -> Result<Attached> {
        if !self.driver.is_up()? {
            self.find().await?;
        }
        self.driver.revalidate(self.deadline.left()).await?;
        let node = self.driver.target.disk().node;
        // The target answers in order: behind this answer is the one about its identity.
        let answer = self.driver.read_block(self.deadline.within(ANSWER).left()).await;
        answer.map_err(|source| AoeError::Dead { device: node.clone(), source })?;
        let identity = self.driver.identity().await?;
        self.driver.check(&identity)?;
        if self.driver.is_read_only()? != self.read_only {
            self.driver.host.disks().set_read_only(&node, self.read_only).await?;
        }
        self.driver.describe(identity)
    }

    /// Asks for the target until it is there.
    async fn find(&self) -> Result<()> {
        let mut events = self.driver.host.events().subscribe();
        let deadline = self.deadline.within(DISCOVERY);
        let begun = Instant::now();
        let mut calls = CALLS.iter().peekable();
        loop {
            if calls.next_if(|at| begun.elapsed() >= **at).is_some() {
                self.driver.discover().await?;
            }
            if self.driver.is_up()? {
                return Ok(());
            }
            if !wait::again(&mut *events, deadline).await {
                let name = self.driver.target.name();
                return Err(AoeError::NoAnswer { name, limit: deadline.limit() }.into());
            }
        }
    }

    /// Takes back what a failed attach did, and answers its error with what is known now.
    async fn undo(&self, before: &Before, error: Error) -> Error {
        let device = self.driver.target.disk().node;
        match self.take_back(before, error.is_unknown()).await {
            Ok(true) => error.with_outcome(Outcome::RolledBack),
            Ok(false) => error,
            Err(undo) => AoeError::Undo { device, undo: undo.sentence(), source: error }.into(),
        }
    }

    async fn take_back(&self, before: &Before, unsure: bool) -> Result<bool> {
        let (host, disk) = (self.driver.host, self.driver.target.disk());
        let deadline = Deadline::after(UNDO);
        let mut changed = false;
        // A question whose end nobody saw may have been asked.
        let there = self.driver.is_there()? || (unsure && self.driver.turns_up().await?);
        if there {
            if !before.there {
                users::refuse_used(host, &disk, false, deadline).await?;
                self.driver.forget(deadline).await?;
                changed = true;
            } else if self.driver.is_read_only()? != before.read_only {
                host.disks().set_read_only(&disk.node, before.read_only).await?;
                changed = true;
            }
        }
        self.driver.remove_note().await?;
        Ok(changed)
    }
}
