//! DRBD: a resource that is mirrored between hosts, brought up here and used here.
//!
//! Data: `{"name": …, "device": "/dev/drbd100", "config": …, "provider_auth": …}`. `config` is the text of
//! one resource as in drbd.conf(5), with `%(shared-secret)s` where the secret goes. `allow_degraded`
//! (false) lets it be used although no peer answers.
//!
//! Needs the kernel module `drbd` (8.4 of any kernel, or 9 from LINBIT) and drbd-utils: drbdadm reads
//! the configuration, drbdsetup tells the states (`events2 --now`). Follows os-brick's `drbd.py` of its
//! last release before Stein; proven with DRBD 8.4.11 and drbd-utils 9.22.
//!
//! # What attach and detach do
//!
//! Attach brings the resource up (`adjust`), waits until its peers have found each other and makes it
//! Primary. Detach writes out, makes it Secondary and takes it down, but leaves it up where it was up
//! before: a host that keeps the data of a resource must go on mirroring it. How it was is kept in a
//! note below the run folder. A resource that is up without a note is not attached, and left alone.
//!
//! # What is never done
//!
//! Nothing here discards data: no `primary --force`, no `--discard-my-data`, no `create-md`, no
//! `invalidate`. A resource that stands alone after a split brain is told by name; so is one whose
//! peers do not answer, because using it could cause one. (What a resource's own `after-sb-…` settings
//! allow DRBD to do is the storage system's decision.)
//!
//! # The configuration
//!
//! It comes from outside, so `handlers` and `include`, by which drbdadm would run programs or read
//! files of this host, are refused. It is written for root alone, with the secret for as long as
//! drbdadm runs, and stays without it while the resource is up: the kernel calls drbdadm before it
//! synchronises. A resource that is up already is used as it is, and its configuration not asked.
//! drbdadm hands the secret to drbdsetup as an argument, which other users of this host can see for
//! that moment; there is no other way with these programs.
//!
//! # Identity
//!
//! A resource is known by its name (scheme `drbd`); its device must belong to it, or is refused.

mod admin;
mod config;
mod connect;
mod data;
mod error;
mod status;

use std::time::Duration;

use async_trait::async_trait;
use hawser_core::attach::{Attach, AttachRecord, Attached, Detach, Health};
use hawser_core::connection::ConnectionInfo;
use hawser_core::error::{Error, Result};
use hawser_core::port::connector::{
    Abilities, ConnectorInfo, Maturity, Need, Packages, Platform, Proof, Proofs,
};
use hawser_core::port::{Connector, Host};
use hawser_core::{ByteSize, Change, Outcome};

use admin::Admin;
use connect::Connect;
use data::NoTarget;
use error::DrbdError;

use crate::shared::error::AttachError;
use crate::shared::fields::invalid;
use crate::shared::release::Failures;
use crate::shared::users;
use crate::shared::wait::{self, Deadline};

/// DRBD resources; keeps nothing but notes on what is attached.
pub(crate) struct Drbd;

const UTILS: Packages =
    Packages { apt: "drbd-utils", dnf: "drbd-utils", zypper: "drbd-utils", apk: "drbd-utils" };

static INFO: ConnectorInfo = ConnectorInfo {
    protocols: &["DRBD"],
    maturity: Maturity::Stable,
    note: "proven with DRBD 8.4; what DRBD 9 tells of itself is read from samples; drbdadm hands the \
           secret to drbdsetup as an argument; os-brick had it on x86 only and removed it, nothing in \
           DRBD is bound to a platform",
    platforms: &[Platform::All],
    abilities: Abilities { extend: true, multipath: None, encryption: true, reservation: false },
    proofs: Proofs::of(Proof::Kernel("vm_drbd")).encryption(Proof::Kernel("vm_drbd")),
    own: &[],
    needs: &[
        Need::Root,
        Need::Module("drbd"),
        Need::Program { name: "drbdadm", packages: UTILS },
        Need::Program { name: "drbdsetup", packages: UTILS },
    ],
};

/// How long growing may take.
const RESIZE: Duration = Duration::from_secs(30);
/// How long the block layer may take to hear of a size that DRBD knows.
const SETTLE: Duration = Duration::from_secs(3);

impl From<NoTarget> for hawser_core::Error {
    fn from(error: NoTarget) -> Self {
        match error {
            NoTarget::Bad(error) | NoTarget::Other(error) => error.into(),
        }
    }
}

#[async_trait]
impl Connector for Drbd {
    fn info(&self) -> &'static ConnectorInfo {
        &INFO
    }

    async fn connect(
        &self,
        host: &dyn Host,
        info: &ConnectionInfo,
        attach: &Attach,
    ) -> Result<Change<Attached>> {
        let target = data::read(info)?;
        let secret = info.secrets.get("provider_auth");
        if secret.is_none() && config::has_gap(&target.config) {
            return Err(invalid("provider_auth", "is missing").into());
        }
        let admin = Admin { host, target: &target };
        let read_only = attach.read_only || target.read_only;
        let deadline = Deadline::after(attach.deadline);
        Connect { admin, secret, read_only, deadline }.run().await
    }

    async fn disconnect(
        &self,
        host: &dyn Host,
        record: &AttachRecord,
        detach: &Detach,
    ) -> Result<Change<()>> {
        let target = match data::read(&record.info) {
            Ok(target) => target,
            // Connect refused it by name, so nothing of this record is attached.
            Err(NoTarget::Other(_)) => return Ok(Change::Already(())),
            Err(error) => return Err(error.into()),
        };
        let admin = Admin { host, target: &target };
        let deadline = Deadline::after(detach.deadline);
        let _lock = connect::lock(host, &target, deadline).await?;
        let Some(note) = admin.note()? else { return Ok(Change::Already(())) };
        let Some(found) = admin.look().await? else {
            admin.remove_notes().await?;
            return Ok(Change::Already(()));
        };
        let disk = target.disk();
        users::refuse_used(host, &disk, detach.force, deadline).await?;
        let mut failures = Failures::new(detach);
        if found.primary {
            failures.flush(host, &disk.node, deadline).await?;
        }
        // Past a failure the notes stay: what is still there is found by them.
        let given = match connect::give_back(&admin, note, deadline).await {
            Ok(_) => admin.remove_notes().await,
            Err(error) => Err(error),
        };
        if let Err(error) = given {
            failures.take(error)?;
        }
        failures.answer(&format!("detaching the resource {}", target.name))
    }

    async fn extend(&self, host: &dyn Host, record: &AttachRecord) -> Result<ByteSize> {
        let target = data::read(&record.info)?;
        let admin = Admin { host, target: &target };
        let _lock = connect::lock(host, &target, Deadline::after(RESIZE)).await?;
        if admin.note()?.is_none() || admin.look().await?.is_none() {
            return Err(AttachError::NotAttached { what: target.name.clone() }.into());
        }
        let disk = target.disk();
        let before = disk.size(host.files())?;
        let mut events = host.events().subscribe();
        let deadline = Deadline::after(RESIZE);
        while !admin.resize().await? {
            if !wait::again(&mut *events, deadline).await {
                let attempt = format!("waiting until the resource {} is in sync", target.name);
                let late = AttachError::Deadline { attempt, limit: RESIZE };
                return Err(Error::from(late).with_outcome(Outcome::Nothing));
            }
        }
        let grown = wait::until(&mut *events, Deadline::after(SETTLE), async || {
            let now = disk.size(host.files())?;
            Ok((now != before).then_some(now))
        });
        Ok(ByteSize::bytes(grown.await?.unwrap_or(before)))
    }

    async fn lookup(&self, host: &dyn Host, info: &ConnectionInfo) -> Result<Option<Attached>> {
        let target = data::read(info)?;
        let admin = Admin { host, target: &target };
        if admin.note()?.is_none() {
            return Ok(None);
        }
        match admin.look().await? {
            Some(found) if found.primary => connect::describe(host, &target).map(Some),
            Some(_) | None => Ok(None),
        }
    }

    async fn health(&self, host: &dyn Host, record: &AttachRecord) -> Result<Health> {
        let target = match data::read(&record.info) {
            Ok(target) => target,
            Err(NoTarget::Other(error)) => return Ok(Health::bad(error.to_string())),
            Err(error) => return Err(error.into()),
        };
        let admin = Admin { host, target: &target };
        let name = &target.name;
        if admin.note()?.is_none() {
            return Ok(Health::bad(format!("the resource {name} is not attached")));
        }
        let Some(found) = admin.look().await? else {
            return Ok(Health::bad(format!("the resource {name} is not up")));
        };
        if found.stands_alone() {
            let error = DrbdError::StandAlone { name: name.clone() };
            return Ok(Health::bad(error.to_string()));
        }
        if !found.primary {
            return Ok(Health::bad(format!("the resource {name} is not Primary here")));
        }
        if let Some(way) = found.connections.iter().find(|way| way.state != "Connected") {
            let why = format!("{name}: the peer {} is {}", way.peer, way.state);
            return Ok(Health::bad(why));
        }
        if let Some(behind) = &found.behind {
            return Ok(Health::bad(format!("{name}: the data of a peer is {behind}")));
        }
        let disk = found.device(target.minor).map(|device| device.disk.as_str());
        if disk != Some("UpToDate") {
            let disk = disk.unwrap_or("missing");
            return Ok(Health::bad(format!("{name}: the disk of this host is {disk}")));
        }
        Ok(match connect::read_block(host, &target, connect::ANSWER).await {
            Ok(()) => Health::good(),
            Err(error) => Health::bad(format!("{name} does not answer ({})", error.sentence())),
        })
    }
}

#[cfg(test)]
mod tests;
