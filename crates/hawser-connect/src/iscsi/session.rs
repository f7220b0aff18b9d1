//! Sessions as sysfs shows them: no program is asked.

use std::path::{Path, PathBuf};

use hawser_core::error::Result;
use hawser_core::port::kernel::Files;

use super::data::{Target, Transport};
use super::portal::Portal;
use crate::shared::scsi::{Address, Place, Route};

/// Where the kernel lists sessions.
const CLASS: &str = "/sys/class/iscsi_session";

/// One session of this host with a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) id: u32,
    pub(super) iqn: String,
    /// Where it was told to go; a target may have sent it elsewhere since.
    pub(super) portal: Portal,
    pub(super) transport: Transport,
    /// The number of its SCSI host.
    pub(super) host: u32,
    /// Its device in sysfs.
    folder: PathBuf,
    state: String,
}

impl Session {
    /// The sessions with the targets of these names. No other one is looked into further: a host
    /// may have hundreds, and several attaches look at the same time.
    pub(super) fn named(files: &dyn Files, wanted: impl Fn(&str) -> bool) -> Result<Vec<Self>> {
        let mut sessions = Vec::new();
        for name in files.list(Path::new(CLASS))? {
            sessions.extend(Self::read(files, &name, &wanted)?);
        }
        Ok(sessions)
    }

    /// The sessions with the target of a way; there may be several.
    pub(super) fn of(files: &dyn Files, target: &Target) -> Result<Vec<Self>> {
        let mut sessions = Self::named(files, |iqn| iqn == target.iqn)?;
        sessions.retain(|session| session.leads_to(target));
        Ok(sessions)
    }

    /// `None` when it is not wanted, not complete yet, or goes while it is looked at.
    fn read(files: &dyn Files, name: &str, wanted: impl Fn(&str) -> bool) -> Result<Option<Self>> {
        let Some(id) = name.strip_prefix("session").and_then(|id| id.parse::<u32>().ok()) else {
            return Ok(None);
        };
        let class = Path::new(CLASS).join(name);
        let iqn = files.read_text(&class.join("targetname"))?.filter(|iqn| wanted(iqn));
        let Some(iqn) = iqn else { return Ok(None) };
        let Some(folder) = files.resolve(&class.join("device"))? else { return Ok(None) };
        let Some(host) = host_of(&folder) else { return Ok(None) };
        let connection = PathBuf::from(format!("/sys/class/iscsi_connection/connection{id}:0"));
        let address = files.read_text(&connection.join("persistent_address"))?;
        let port = files.read_text(&connection.join("persistent_port"))?;
        let portal = address.zip(port).and_then(|(a, p)| Portal::of_parts(&a, &p));
        let Some(portal) = portal else { return Ok(None) };
        let driver = format!("/sys/class/scsi_host/host{host}/proc_name");
        let driver = files.read_text(Path::new(&driver))?.unwrap_or_default();
        let transport = if driver.contains("iser") { Transport::Iser } else { Transport::Tcp };
        let state = files.read_text(&class.join("state"))?.unwrap_or_default();
        Ok(Some(Self { id, iqn, portal, transport, host, folder, state }))
    }

    /// True when it is a session with the target of a way.
    pub(super) fn leads_to(&self, target: &Target) -> bool {
        self.iqn == target.iqn && self.portal == target.portal && self.transport == target.transport
    }

    /// True when it was up when it was read.
    pub(super) fn is_up(&self) -> bool {
        self.state == "LOGGED_IN"
    }

    /// In the kernel's words.
    pub(super) fn state(&self) -> &str {
        &self.state
    }

    /// True when it is there now, up or not.
    pub(super) fn is_there(&self, files: &dyn Files) -> Result<bool> {
        let now = files.read_text(&self.class().join("targetname"))?;
        Ok(now.as_ref() == Some(&self.iqn))
    }

    fn class(&self) -> PathBuf {
        Path::new(CLASS).join(format!("session{}", self.id))
    }

    /// The targets that the SCSI layer made of it: one, once something was scanned.
    fn targets(&self, files: &dyn Files) -> Result<Vec<String>> {
        let mut names = files.list(&self.folder)?;
        names.retain(|name| name.starts_with("target"));
        Ok(names)
    }

    /// Every device that was found through it.
    pub(super) fn devices(&self, files: &dyn Files) -> Result<Vec<Address>> {
        let mut devices = Vec::new();
        for target in self.targets(files)? {
            let names = files.list(&self.folder.join(target))?;
            devices.extend(names.iter().filter_map(|name| name.parse::<Address>().ok()));
        }
        Ok(devices)
    }

    /// True when none of its devices waits for it: the kernel lets them go on one by one.
    pub(super) fn goes_on(&self, files: &dyn Files) -> Result<bool> {
        for address in self.devices(files)? {
            let state = format!("/sys/class/scsi_device/{address}/device/state");
            let state = files.read_text(Path::new(&state))?;
            if matches!(state.as_deref(), Some("blocked" | "transport-offline")) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The way to one of its volumes.
    pub(super) fn route(&self, lun: u64) -> SessionRoute<'_> {
        SessionRoute { session: self, lun }
    }
}

/// The number of the SCSI host above a session's folder.
fn host_of(folder: &Path) -> Option<u32> {
    folder.parent()?.file_name()?.to_str()?.strip_prefix("host")?.parse().ok()
}

/// The way to a volume through a session.
pub(super) struct SessionRoute<'a> {
    session: &'a Session,
    lun: u64,
}

impl Route for SessionRoute<'_> {
    fn place(&self, files: &dyn Files) -> Result<Option<Place>> {
        if !self.session.is_there(files)? {
            return Ok(None);
        }
        let known = self.session.targets(files)?.into_iter().find_map(|name| {
            let mut words = name.strip_prefix("target")?.split(':').skip(1);
            Some((words.next()?.parse::<u32>().ok()?, words.next()?.parse::<u32>().ok()?))
        });
        let told = || -> Result<Option<(u32, u32)>> {
            let number = files.read_text(&self.session.class().join("target_id"))?;
            // The SCSI layer has sessions on channel 0; before the first scan the number is -1 or
            // as large as it can be.
            let number = number.and_then(|text| text.parse::<u32>().ok()).filter(|n| *n < 1 << 16);
            Ok(number.map(|number| (0, number)))
        };
        let (channel, target) = match known {
            Some(known) => Some(known),
            None => told()?,
        }
        .unzip();
        Ok(Some(Place { host: self.session.host, channel, target, lun: self.lun }))
    }

    fn address(&self, files: &dyn Files) -> Result<Option<Address>> {
        let devices = self.session.devices(files)?;
        Ok(devices.into_iter().find(|device| device.lun == self.lun))
    }
}
