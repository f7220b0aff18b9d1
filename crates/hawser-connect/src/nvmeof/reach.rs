//! Getting to a subsystem: which controllers there are, and making those that are missing.

use std::path::Path;
use std::time::Duration;

use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::kernel::Files;
use hawser_core::{Outcome, Reason};

use super::book::{Book, Made};
use super::data::Target;
use super::fabrics::{self, Begun};
use super::portal::{Portal, Transport, fc_address};
use super::release::{self, Unseen, Which};
use super::sysfs::{self, Controller, State};
use crate::shared::error::AttachError;
use crate::shared::nvme_host::NvmeHost;
use crate::shared::wait::{self, Deadline};

/// Controllers that reconnect get this much on top of the kernel's pause between two tries.
const RECONNECT_LIMIT: Duration = Duration::from_secs(10);

/// What one connect has made so far, to be taken back when it fails.
#[derive(Debug, Default)]
pub(super) struct Undo {
    /// The claim is from this call.
    pub(super) claimed: bool,
    /// Ways on which this call made a controller, or began to.
    pub(super) portals: Vec<Portal>,
    /// The kernel may still be making one of them.
    pub(super) late: bool,
}

impl Undo {
    /// What is known of controllers that cannot be seen.
    pub(super) fn unseen(&self) -> Unseen {
        if self.late { Unseen::Keep } else { Unseen::Forget }
    }
}

/// The ways to a target. Over Fibre Channel a way begins at a port of this host; where the caller
/// names none, at each that is online.
pub(super) fn ways(files: &dyn Files, target: &Target) -> Result<Vec<Portal>> {
    let mut ways = Vec::new();
    for portal in &target.portals {
        if portal.transport != Transport::Fc || portal.from.is_some() {
            ways.push(portal.clone());
            continue;
        }
        let ports = fc_ports(files)?;
        if ports.is_empty() {
            return Err(AttachError::NoHba { kind: "Fibre Channel" }.into());
        }
        ways.extend(ports.into_iter().map(|port| portal.leaving_from(port)));
    }
    Ok(ways)
}

fn fc_ports(files: &dyn Files) -> Result<Vec<String>> {
    let folder = Path::new("/sys/class/fc_host");
    let mut ports = Vec::new();
    for name in files.list(folder)? {
        let read = |file: &str| files.read_text(&folder.join(&name).join(file));
        let number = |text: Option<String>| {
            text.and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok())
        };
        if read("port_state")?.as_deref() != Some("Online") {
            continue;
        }
        if let (Some(node), Some(port)) = (number(read("node_name")?), number(read("port_name")?)) {
            ports.push(fc_address(node, port));
        }
    }
    Ok(ports)
}

/// True for a controller that is connected as this host. Others are another host to the target.
fn is_own(controller: &Controller, own: &NvmeHost) -> bool {
    let same_id = controller.host_id.as_ref().is_none_or(|id| id.eq_ignore_ascii_case(&own.id));
    controller.host_nqn.as_ref().is_none_or(|nqn| *nqn == own.nqn) && same_id
}

/// The state of the best controller on a way.
pub(super) fn state_of(controllers: &[Controller], portal: &Portal, own: &NvmeHost) -> State {
    let on_it = || controllers.iter().filter(|c| is_own(c, own) && c.is_on(portal));
    if on_it().any(|controller| controller.state == State::Live) {
        State::Live
    } else if on_it().any(|controller| controller.state == State::Connecting) {
        State::Connecting
    } else {
        State::Leaving
    }
}

/// A connect on its way to a subsystem.
pub(super) struct Reach<'a> {
    pub(super) host: &'a dyn Host,
    pub(super) target: &'a Target,
    pub(super) own: &'a NvmeHost,
    pub(super) ways: &'a [Portal],
    /// Every way, not only one that works.
    pub(super) all: bool,
    pub(super) deadline: Deadline,
}

impl Reach<'_> {
    /// Makes the controllers that are missing. Afterwards at least one works.
    pub(super) async fn ensure(&self, book: &mut Book<'_>, undo: &mut Undo) -> Result<()> {
        let controllers = sysfs::controllers(self.host.files(), &self.target.nqn)?;
        let state = |way: &&Portal| state_of(&controllers, way, self.own);
        let mut live = self.ways.iter().filter(|way| state(way) == State::Live).count();
        let connecting = self.ways.iter().any(|way| state(&way) == State::Connecting);
        let mut failures = Vec::new();
        for way in self.ways.iter().filter(|way| state(way) == State::Leaving) {
            if (live > 0 && !self.all) || self.deadline.passed() {
                break;
            }
            match self.make(book, way, undo).await {
                Ok(()) => live += 1,
                Err(error) => {
                    tracing::warn!(nqn = %self.target.nqn, error = %error.sentence(), "no way");
                    failures.push(error);
                }
            }
        }
        if live == 0 && connecting && self.wait_for_one(&controllers).await? {
            live = 1;
        }
        if live > 0 {
            return Ok(());
        }
        Err(self.verdict(failures))
    }

    /// Makes one controller. The book says so before.
    async fn make(&self, book: &mut Book<'_>, way: &Portal, undo: &mut Undo) -> Result<()> {
        let begun = book.made().iter().any(|m| m.portal == *way && m.controller.is_none());
        book.set_made(way, None);
        undo.portals.push(way.clone());
        book.save().await?;
        let begun_now = fabrics::create(self.host, self.target, way, self.own, self.deadline).await;
        let come_up = match begun_now {
            Ok(Begun::New(name)) => {
                book.set_made(way, Some(name.clone()));
                book.save().await?;
                let (host, target, own) = (self.host, self.target, self.own);
                fabrics::come_up(host, target, way, own, &name, self.deadline).await
            }
            // What a call began that did not live to see it.
            Ok(Begun::There) if begun => Ok(()),
            // Somebody else's after all.
            Ok(Begun::There) => {
                undo.portals.retain(|other| other != way);
                book.drop_made(way);
                book.save().await
            }
            Err(error) => Err(error),
        };
        match come_up {
            Ok(()) => Ok(()),
            Err(error) => {
                let late = error.is_unknown();
                undo.late |= late;
                let unseen = if late { Unseen::Keep } else { Unseen::Forget };
                let which = Which { nqn: &self.target.nqn, free: &[], unseen };
                let mine = |made: &Made| made.portal == *way;
                let cleaned = release::controllers(self.host, book, &which, mine, self.deadline);
                let cleaned = match cleaned.await {
                    Ok(_) => book.save().await,
                    Err(failed) => Err(failed),
                };
                if let Err(failed) = cleaned {
                    let attempt =
                        format!("and what was made could not be taken back: {}", failed.sentence());
                    return Err(error.context(attempt).with_outcome(Outcome::Unknown));
                }
                if !book.made().iter().any(mine) {
                    undo.portals.retain(|other| other != way);
                }
                Err(error)
            }
        }
    }

    /// Waits for a controller that reconnects.
    async fn wait_for_one(&self, controllers: &[Controller]) -> Result<bool> {
        let files = self.host.files();
        let mut pause = 0;
        for controller in controllers {
            pause = controller.reconnect_delay(files)?.max(pause);
        }
        let limit = (RECONNECT_LIMIT + Duration::from_secs(pause)).min(fabrics::CONNECT_LIMIT);
        let mut events = self.host.events().subscribe();
        let live = wait::until(&mut *events, self.deadline.within(limit), async || {
            let now = sysfs::controllers(files, &self.target.nqn)?;
            let live = self.ways.iter().any(|way| state_of(&now, way, self.own) == State::Live);
            Ok(live.then_some(()))
        })
        .await?;
        Ok(live.is_some())
    }

    /// One error for all ways: the most telling one, with the others beside it.
    fn verdict(&self, mut failures: Vec<Error>) -> Error {
        let rank = |error: &Error| match error.reason() {
            Some(Reason::AuthFailed) => 0,
            Some(Reason::TargetNotFound) => 1,
            _ => 2,
        };
        failures.sort_by_key(rank);
        let unknown = failures.iter().any(Error::is_unknown);
        let rest: Vec<String> = failures.iter().skip(1).map(Error::sentence).collect();
        let Some(first) = failures.into_iter().next() else {
            let (target, why) = (self.target.nqn.clone(), "its controllers do not come back");
            return AttachError::Unreachable { target, why: why.into() }.into();
        };
        let first = if unknown { first.with_outcome(Outcome::Unknown) } else { first };
        if rest.is_empty() {
            return first;
        }
        first.context(format!("no way to {} works ({})", self.target.nqn, rest.join("; ")))
    }
}
