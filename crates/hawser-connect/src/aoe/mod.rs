//! AOE: ATA over Ethernet, through the kernel's own driver.
//!
//! Data: `{"target_shelf": 7, "target_lun": 3}`, and `interfaces` (names of network interfaces; none
//! means all that the driver uses). The device is `/dev/etherd/e7.3`.
//!
//! Needs the kernel module `aoe` and an interface that is up, in the same Ethernet as the target; no
//! program. Everything is told to the driver through `/dev/etherd/discover`, `revalidate`, `flush` and
//! `interfaces`. Follows the driver of Linux 6.12 and the AoE specification of 2009 (AoEr11); proven
//! with vblade 25.
//!
//! # What is attached
//!
//! The driver makes a device of every target that it hears of, asked for or not, and does so again
//! within a minute of its removal while the target answers. So a note (`aoe-eS.L.json` below the
//! run folder) says what is attached; a device without one is merely there: `lookup` does not answer
//! it and `disconnect` leaves it alone. Discovery asks the whole network, because the driver knows
//! no narrower question; other targets may appear, and are left alone.
//!
//! # Identity
//!
//! A target tells a serial number in its answer to ATA IDENTIFY DEVICE; it is asked for anew at each
//! attach and told as an identity of the scheme `serial`. A target without one is known by its
//! address alone (scheme `aoe`, value `e7.3`), which is accepted as an expectation too.
//!
//! # Limits
//!
//! AoE has no authentication and no checksum beyond Ethernet's: trusted networks only. Take the
//! volume's mask away at the target before or after a detach, or the driver finds it again. When a
//! target falls silent, requests fail after `aoe_deadsecs` (180 s), a setting of the module.

mod connect;
mod data;
mod driver;
mod error;
mod ident;
mod interfaces;

use std::time::Duration;

use async_trait::async_trait;
use hawser_core::attach::{Attach, AttachRecord, Attached, Detach, Health};
use hawser_core::connection::ConnectionInfo;
use hawser_core::error::Result;
use hawser_core::port::connector::{
    Abilities, ConnectorInfo, Maturity, Need, PathsBy, Platform, Proof, Proofs,
};
use hawser_core::port::{Connector, Host};
use hawser_core::{ByteSize, Change};

use connect::Connect;
use driver::{ANSWER, Driver};
use error::AoeError;

use crate::shared::error::AttachError;
use crate::shared::release::Failures;
use crate::shared::users;
use crate::shared::wait::{self, Deadline};

/// ATA over Ethernet; keeps nothing but notes on what is attached.
pub(crate) struct Aoe;

static INFO: ConnectorInfo = ConnectorInfo {
    protocols: &["AOE"],
    maturity: Maturity::Stable,
    note: "trusted networks only: the protocol knows no authentication; os-brick had it on x86 \
           only and removed it, nothing in the driver is bound to a platform; several ways to one \
           target are the driver's own work, and the lab has one",
    platforms: &[Platform::All],
    abilities: Abilities {
        extend: true,
        multipath: Some(PathsBy::Driver),
        encryption: true,
        reservation: false,
    },
    proofs: Proofs {
        multipath: Proof::Nothing,
        ..Proofs::of(Proof::Kernel("vm_aoe")).encryption(Proof::Kernel("vm_aoe"))
    },
    own: &[],
    needs: &[Need::Root, Need::Module("aoe")],
};

/// How long growing may take.
const RESIZE: Duration = Duration::from_secs(30);
/// How long the block layer may take to hear of a size that the driver knows.
const SETTLE: Duration = Duration::from_secs(1);

/// Asks the target for its size, and answers it when the block layer has it too.
async fn grow(driver: &Driver<'_>) -> Result<ByteSize> {
    let disk = driver.target.disk();
    let size = || disk.size(driver.host.files());
    let before = size()?;
    let mut events = driver.host.events().subscribe();
    let deadline = Deadline::after(RESIZE);
    driver.revalidate(deadline.left()).await?;
    // The target answers in order: behind this answer is the one about its size. One that was started
    // anew for it is asked again by the driver only after seconds.
    let answer = driver.read_block(deadline.left()).await;
    answer.map_err(|source| AoeError::Dead { device: disk.node.clone(), source })?;
    driver.check(&driver.identity().await?)?;
    let changed = wait::until(&mut *events, Deadline::after(SETTLE), async || {
        let now = size()?;
        Ok((now != before).then_some(now))
    })
    .await?;
    match changed {
        Some(now) if now < before => {
            Err(AoeError::Shrunk { device: disk.node.clone(), before, now }.into())
        }
        Some(now) => Ok(ByteSize::bytes(now)),
        None => Ok(ByteSize::bytes(before)),
    }
}

/// Makes sure that the device is the one that was attached. A target that does not answer cannot
/// tell; then what was noted counts.
async fn verify(driver: &Driver<'_>) -> Result<()> {
    let noted = driver.note()?.and_then(|note| note.identity);
    match (driver.identity().await, noted) {
        (Ok(found), _) => Ok(driver.check(&found)?),
        (Err(_), Some(noted)) => Ok(driver.check(&noted)?),
        // Cut off before anybody knew who it is.
        (Err(_), None) => Ok(()),
    }
}

#[async_trait]
impl Connector for Aoe {
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
        let driver = Driver { host, target: &target };
        let read_only = attach.read_only || target.read_only;
        let deadline = Deadline::after(attach.deadline);
        Connect { driver, read_only, deadline }.run().await
    }

    async fn disconnect(
        &self,
        host: &dyn Host,
        record: &AttachRecord,
        detach: &Detach,
    ) -> Result<Change<()>> {
        let target = data::read(&record.info)?;
        let driver = Driver { host, target: &target };
        let deadline = Deadline::after(detach.deadline);
        let _lock = connect::lock(host, &target, deadline).await?;
        let Some(note) = driver.note()? else { return Ok(Change::Already(())) };
        let disk = target.disk();
        // An attach that was cut off may have asked for it a moment ago.
        let cut_off = note.identity.is_none();
        let there = driver.is_there()? || (cut_off && driver.turns_up().await?);
        if !there {
            driver.remove_note().await?;
            return Ok(Change::Already(()));
        }
        verify(&driver).await?;
        users::refuse_used(host, &disk, detach.force, deadline).await?;
        let mut failures = Failures::new(detach);
        failures.flush(host, &disk.node, deadline).await?;
        // Past a failure the note stays: what is still there is found by it.
        let forgotten = match driver.forget(deadline).await {
            Ok(()) => driver.remove_note().await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = forgotten {
            failures.take(error)?;
        }
        failures.answer(&format!("detaching {}", target.name()))
    }

    async fn extend(&self, host: &dyn Host, record: &AttachRecord) -> Result<ByteSize> {
        let target = data::read(&record.info)?;
        let driver = Driver { host, target: &target };
        let _lock = connect::lock(host, &target, Deadline::after(RESIZE)).await?;
        if driver.note()?.is_none() || !driver.is_there()? {
            return Err(AttachError::NotAttached { what: target.name() }.into());
        }
        grow(&driver).await
    }

    async fn lookup(&self, host: &dyn Host, info: &ConnectionInfo) -> Result<Option<Attached>> {
        let target = data::read(info)?;
        let driver = Driver { host, target: &target };
        if driver.note()?.is_none() || !driver.is_up()? {
            return Ok(None);
        }
        let identity = driver.identity().await?;
        driver.check(&identity)?;
        driver.describe(identity).map(Some)
    }

    async fn health(&self, host: &dyn Host, record: &AttachRecord) -> Result<Health> {
        let target = data::read(&record.info)?;
        let driver = Driver { host, target: &target };
        let node = target.disk().node;
        let shown = node.display();
        if driver.note()?.is_none() || !driver.is_there()? {
            return Ok(Health::bad(format!("{} is not attached", target.name())));
        }
        if !driver.is_up()? {
            return Ok(Health::bad(format!("{shown}: its target does not answer")));
        }
        if let Err(error) = driver.read_block(ANSWER).await {
            return Ok(Health::bad(format!("{shown} does not answer ({})", error.sentence())));
        }
        let identity = driver.identity().await?;
        Ok(match driver.check(&identity) {
            Ok(()) => Health::good(),
            Err(error) => Health::bad(error.to_string()),
        })
    }
}

#[cfg(test)]
mod tests;
