//! Waiting for the fabric: a port that was just plugged in, zoned or rebooted takes a while until
//! ours see it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use hawser_core::attach::Multipath;
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::registry::LockGuard;
use tokio::time::Instant;

use super::data::Volume;
use super::look::Way;
use crate::shared::error::AttachError;
use crate::shared::locks;
use crate::shared::scsi::{self, Address, Place, Route, ScsiDisk};
use crate::shared::users;
use crate::shared::wait::{self, Deadline};

/// How long the fabric may take to show the first port.
pub(super) const FABRIC_LIMIT: Duration = Duration::from_secs(15);

/// How long the others may take after the first.
const OTHERS_LIMIT: Duration = Duration::from_secs(5);

/// How long ports that nobody knows are waited for, before the number is looked for everywhere.
const WILDCARD_AFTER: Duration = Duration::from_secs(1);

/// Held by all who scan: those who scan for one place share it, who scans for all is alone, because
/// he takes away what he brought in of others.
const SCAN_LOCK: &str = "fibre-channel-scan";

/// Waits to scan beside others who scan for one place each.
pub(super) async fn scan_lock(host: &dyn Host, deadline: Deadline) -> Result<Box<dyn LockGuard>> {
    locks::beside(host, SCAN_LOCK, "the fabric", deadline).await
}

/// The ways to a volume that are to be tried.
pub(super) struct Reach<'a> {
    pub(super) host: &'a dyn Host,
    pub(super) volume: &'a Volume,
    pub(super) multipath: Multipath,
    pub(super) deadline: Deadline,
}

impl Reach<'_> {
    /// Waits until ports of the storage system can be used: all that are expected, or the first
    /// where one is enough. Answers those ways; at least one.
    pub(super) async fn ways(&self, all: &[Way]) -> Result<Vec<Way>> {
        let files = self.host.files();
        let ways: Vec<Way> = all.iter().filter(|way| way.adapter.is_online()).cloned().collect();
        if ways.is_empty() {
            return Err(self.nothing_online(all));
        }
        let mut events = self.host.events().subscribe();
        self.ask_for_ports(&ways).await?;
        let mut limit = self.deadline.within(FABRIC_LIMIT);
        let (begun, mut widely, mut some) = (Instant::now(), self.volume.wildcard, false);
        loop {
            let mut up = Vec::new();
            for way in &ways {
                if way.is_up(files)? {
                    up.push(way.clone());
                }
            }
            let enough = match self.multipath {
                Multipath::Off => !up.is_empty(),
                Multipath::Wanted | Multipath::Enforced => self.is_all(&ways, &up)?,
            };
            if enough {
                return Ok(up);
            }
            if up.is_empty() && widely && begun.elapsed() >= WILDCARD_AFTER {
                widely = false;
                if !self.is_any_known(&ways)? {
                    self.scan_widely(&ways).await?;
                }
            }
            if !up.is_empty() && !some {
                some = true;
                limit = limit.within(OTHERS_LIMIT);
            }
            if !wait::again(&mut *events, limit).await {
                return if up.is_empty() { Err(self.unseen(&ways)?) } else { Ok(up) };
            }
        }
    }

    /// On s390x the driver asks the fabric only when it is told to, or at times of its own.
    async fn ask_for_ports(&self, ways: &[Way]) -> Result<()> {
        for way in ways {
            if let Some(zfcp) = &way.adapter.zfcp {
                zfcp.find_port(self.host, way.port.wwpn, self.deadline).await?;
            }
        }
        Ok(())
    }

    /// True when no more is to be expected. Where the storage system told which ports go together,
    /// each pair is; otherwise each of its ports is, behind whichever of ours. A port that went a
    /// moment ago is expected back.
    fn is_all(&self, ways: &[Way], up: &[Way]) -> Result<bool> {
        if up.is_empty() {
            return Ok(false);
        }
        for way in ways.iter().filter(|way| !up.contains(way)) {
            let remote = way.remote(self.host.files())?;
            let seen = up.iter().any(|other| other.port.wwpn == way.port.wwpn);
            let expected = match remote {
                Some(remote) => remote.is_blocked(),
                None => self.volume.zones.is_some() || !seen,
            };
            if expected {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_any_known(&self, ways: &[Way]) -> Result<bool> {
        for way in ways {
            if way.remote(self.host.files())?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Looks for the number of the volume at every port of the fabric, which is all that is left
    /// with drivers that do not tell of ports. What appears and is not at a port of the volume is
    /// somebody else's, and is taken away.
    async fn scan_widely(&self, ways: &[Way]) -> Result<()> {
        let host = self.host;
        let _alone = locks::alone(host, SCAN_LOCK, "the fabric", self.deadline).await?;
        let before = self.devices()?;
        let places: BTreeSet<(u32, u64)> =
            ways.iter().map(|way| (way.adapter.number, way.port.lun.kernel())).collect();
        for (number, lun) in &places {
            let place = Place { host: *number, channel: None, target: None, lun: *lun };
            tracing::info!(host = number, lun, "no port of the volume is known; scanning for all");
            place.scan(host, self.deadline).await?;
        }
        let mut ours = Vec::new();
        for way in ways {
            ours.extend(way.address(host.files())?);
        }
        for address in self.devices()? {
            let new = !before.contains(&address) && places.contains(&(address.host, address.lun));
            if new && !ours.contains(&address) {
                self.drop_stranger(address).await?;
            }
        }
        Ok(())
    }

    fn devices(&self) -> Result<BTreeSet<Address>> {
        let names = self.host.files().list(Path::new("/sys/class/scsi_device"))?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    async fn drop_stranger(&self, address: Address) -> Result<()> {
        if let Some(disk) = ScsiDisk::find(self.host.files(), address)?
            && let Err(error) =
                users::refuse_users(self.host, &disk.disk, &[], false, self.deadline).await
        {
            tracing::warn!(error = %error.sentence(), "a volume of somebody else stays");
            return Ok(());
        }
        scsi::delete_at(self.host, address, self.deadline).await
    }

    /// No port of ours can be used.
    fn nothing_online(&self, all: &[Way]) -> hawser_core::Error {
        match (all, &self.volume.zones) {
            ([], Some(zones)) => {
                let zoned: Vec<String> = zones.keys().map(ToString::to_string).collect();
                AttachError::Unreachable {
                    target: self.volume.ports[0].wwpn.to_string(),
                    why: format!(
                        "the storage system shows it to {}, and this host has no such port",
                        zoned.join(", ")
                    ),
                }
            }
            _ => AttachError::NoHba { kind: "Fibre Channel" },
        }
        .into()
    }

    /// No port of theirs can be used.
    fn unseen(&self, ways: &[Way]) -> Result<hawser_core::Error> {
        let files = self.host.files();
        for way in ways {
            if way.remote(files)?.is_some() {
                let (target, why) = (way.port.wwpn.to_string(), way.why_down(files)?);
                return Ok(AttachError::Unreachable { target, why }.into());
            }
        }
        let theirs: BTreeSet<_> = ways.iter().map(|way| way.port.wwpn.to_string()).collect();
        let target = theirs.into_iter().collect::<Vec<_>>().join(", ");
        let portal = "the fabric that this host sees".to_owned();
        Ok(AttachError::TargetNotFound { portal, target }.into())
    }
}
