//! From a transport to a disk: scanning, and disks whose number was given to another volume.

use std::fmt;
use std::time::Duration;

use hawser_core::attach::Identity;
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::kernel::{DeviceEvents, Files};

use super::address::Address;
use super::disk::{ScsiDisk, gone};
use super::identity::check;
use super::names::Names;
use crate::shared::error::AttachError;
use crate::shared::multipath::{self, Map};
use crate::shared::users;
use crate::shared::wait::{self, Deadline};

/// When a volume that is not there is looked for again, after the scan before.
const AGAIN: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

/// How long a volume may take to appear.
const APPEAR_LIMIT: Duration = Duration::from_secs(30);

/// How long one scan may take: a path that fails meanwhile holds it up.
const SCAN_LIMIT: Duration = Duration::from_secs(30);

/// What is scanned: one number, at one target or at all targets of a host. Never everything: that
/// brings in volumes of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) host: u32,
    pub(crate) channel: Option<u32>,
    pub(crate) target: Option<u32>,
    pub(crate) lun: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for number in [self.channel, self.target] {
            match number {
                Some(number) => write!(f, "{number} ")?,
                None => f.write_str("- ")?,
            }
        }
        write!(f, "{}", self.lun)
    }
}

impl Place {
    /// Looks for the volume. The SCSI device is there when this answers, its disk a moment later.
    pub(crate) async fn scan(&self, host: &dyn Host, deadline: Deadline) -> Result<()> {
        let file = format!("/sys/class/scsi_host/host{}/scan", self.host);
        let limit = deadline.within(SCAN_LIMIT).left();
        host.files()
            .write(file.as_ref(), self.to_string().as_bytes(), limit)
            .await
            .map_err(AttachError::kernel(format!("scanning host{} for {self}", self.host)))?;
        Ok(())
    }
}

/// How a transport leads to one volume over one path.
pub(crate) trait Route: Send + Sync {
    /// What to scan; `None` while the transport is not there.
    fn place(&self, files: &dyn Files) -> Result<Option<Place>>;

    /// Where the volume is, once it was scanned.
    fn address(&self, files: &dyn Files) -> Result<Option<Address>>;

    /// The disk, once it is there.
    fn disk(&self, files: &dyn Files) -> Result<Option<ScsiDisk>> {
        match self.address(files)? {
            Some(address) => ScsiDisk::find(files, address),
            None => Ok(None),
        }
    }
}

/// Scans until the disk is there: at once, and again after 1, 3, 7 and 15 seconds; `None` when it
/// is not there after 30.
pub(crate) async fn appear(
    host: &dyn Host,
    route: &dyn Route,
    deadline: Deadline,
) -> Result<Option<ScsiDisk>> {
    let deadline = deadline.within(APPEAR_LIMIT);
    let mut events = host.events().subscribe();
    for pause in AGAIN.into_iter().map(Some).chain([None]) {
        if let Some(disk) = route.disk(host.files())? {
            return Ok(Some(disk));
        }
        if let Some(place) = route.place(host.files())? {
            place.scan(host, deadline).await?;
        }
        let until = pause.map_or(deadline, |pause| deadline.within(pause));
        if let Some(disk) = taken(host, route, &mut *events, until).await? {
            return Ok(Some(disk));
        }
        if deadline.passed() {
            break;
        }
    }
    Ok(None)
}

/// Waits for the disk of a device.
async fn taken(
    host: &dyn Host,
    route: &dyn Route,
    events: &mut dyn DeviceEvents,
    until: Deadline,
) -> Result<Option<ScsiDisk>> {
    wait::until(events, until, async || route.disk(host.files())).await
}

/// Makes sure that the kernel means the volume that the storage system shows now under the number
/// of this disk, and that it is the expected one; answers the disk and its names.
///
/// A disk that the kernel remembers under other names than it tells now belonged to a volume that
/// is gone: where nobody uses it, it is taken away and looked for again.
pub(crate) async fn fresh(
    host: &dyn Host,
    route: &dyn Route,
    disk: ScsiDisk,
    expected: &[Identity],
    deadline: Deadline,
) -> Result<(ScsiDisk, Names)> {
    let names = disk.names(host).await?;
    let stale = match disk.remembered(host.files())? {
        Some(old) => (!old.same(&names)).then_some(old),
        None => None,
    };
    let Some(old) = stale else {
        check(&disk, &names, expected)?;
        return Ok((disk, names));
    };
    tracing::warn!(device = %disk.disk.node.display(), was = %old.wwid(), is = %names.wwid(),
        "the number of this disk belongs to another volume now");
    // Whoever uses it believes that it is the old volume: nothing of it is touched.
    check(&disk, &names, expected)?;
    if let Some(map) = Map::above(host.files(), &disk.disk)? {
        multipath::refuse_used(host, &map, false, deadline).await?;
        multipath::remove(host, &map, deadline).await?;
    }
    users::refuse_users(host, &disk.disk, &[], false, deadline).await?;
    disk.delete(host, deadline).await?;
    gone(host, std::slice::from_ref(&disk), deadline).await?;
    let Some(disk) = appear(host, route, deadline).await? else {
        let (target, volume) = (disk.address.to_string(), "such volume any more".to_owned());
        return Err(AttachError::VolumeNotFound { target, volume, limit: APPEAR_LIMIT }.into());
    };
    let names = disk.names(host).await?;
    let settled = disk.remembered(host.files())?.is_none_or(|old| old.same(&names));
    if !settled {
        return Err(AttachError::WrongIdentity {
            device: disk.disk.node.clone(),
            expected: Identity::new("wwid", old.wwid()),
            found: format!("wwid:{}", names.wwid()),
        }
        .into());
    }
    check(&disk, &names, expected)?;
    Ok((disk, names))
}
