//! Adapters of s390x: a volume is seen when it was named to the driver, unless the driver looks by
//! itself, which it does only for virtual ports (NPIV) and where `zfcp.allow_lun_scan` is on.
//!
//! Below the device of the adapter each remote port is a folder, and each volume that was named
//! there is a folder in it, a unit. `unit_remove` knows only those.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::kernel::Files;

use super::data::{Port, Wwn};
use crate::shared::error::AttachError;
use crate::shared::wait::Deadline;

const DRIVER: &str = "/sys/bus/ccw/drivers/zfcp";
const ALLOW_SCAN: &str = "/sys/module/zfcp/parameters/allow_lun_scan";

/// How long the driver may take to open a volume, or to ask the fabric for its ports.
const LIMIT: Duration = Duration::from_secs(30);

const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;

/// An adapter of this kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Zfcp {
    /// Its device on the channel, such as `0.0.1940`.
    bus_id: String,
    /// It finds volumes by itself and when it is scanned.
    finds: bool,
}

impl Zfcp {
    /// What is behind a port of this host; `None` where that is another kind of adapter.
    pub(super) fn of(files: &dyn Files, port: &Path) -> Result<Option<Self>> {
        let Some(device) = files.resolve(&port.join("device"))? else { return Ok(None) };
        // …/0.0.1940/host3
        let above = device.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        let Some(bus_id) = above else { return Ok(None) };
        if files.resolve(&Path::new(DRIVER).join(bus_id))?.is_none() {
            return Ok(None);
        }
        let npiv = files.read_text(&port.join("port_type"))?.as_deref() == Some("NPIV VPORT");
        let allowed = files.read_text(Path::new(ALLOW_SCAN))?;
        let allowed = matches!(allowed.as_deref(), Some("Y" | "1"));
        Ok(Some(Self { bus_id: bus_id.to_owned(), finds: npiv && allowed }))
    }

    /// True when a volume must be named before it is seen.
    pub(super) fn wants_units(&self) -> bool {
        !self.finds
    }

    fn folder(&self) -> PathBuf {
        Path::new(DRIVER).join(&self.bus_id)
    }

    fn port(&self, wwpn: Wwn) -> PathBuf {
        self.folder().join(format!("0x{wwpn}"))
    }

    /// Makes the driver ask the fabric for ports, where it does not know this one.
    pub(super) async fn find_port(
        &self,
        host: &dyn Host,
        wwpn: Wwn,
        deadline: Deadline,
    ) -> Result<()> {
        if host.files().resolve(&self.port(wwpn))?.is_some() {
            return Ok(());
        }
        let file = self.folder().join("port_rescan");
        let written = host.files().write(&file, b"1", deadline.within(LIMIT).left()).await;
        let attempt = || format!("looking for ports behind {}", self.bus_id);
        written.map_err(|source| AttachError::Kernel { attempt: attempt(), source })?;
        Ok(())
    }

    /// True when the volume was named at the port.
    pub(super) fn has_unit(&self, files: &dyn Files, port: Port) -> Result<bool> {
        Ok(files.resolve(&self.port(port.wwpn).join(port.lun.wire()))?.is_some())
    }

    /// Names the volume; false when it was.
    pub(super) async fn add_unit(
        &self,
        host: &dyn Host,
        port: Port,
        deadline: Deadline,
    ) -> Result<bool> {
        if self.has_unit(host.files(), port)? {
            return Ok(false);
        }
        match self.write(host, port, "unit_add", deadline).await {
            Ok(()) => Ok(true),
            Err(error) if error.errno() == Some(EEXIST) => Ok(false),
            // Older drivers say the same of whatever is wrong.
            Err(error) if error.errno() == Some(EINVAL) && self.has_unit(host.files(), port)? => {
                Ok(false)
            }
            Err(source) => {
                let attempt = format!("naming volume {} to {}", port.lun.wire(), self.bus_id);
                Err(AttachError::Kernel { attempt, source }.into())
            }
        }
    }

    /// Takes the name back, and with it the device, whoever uses it: the caller has made sure that
    /// nobody does. False when the volume was not named.
    pub(super) async fn remove_unit(
        &self,
        host: &dyn Host,
        port: Port,
        deadline: Deadline,
    ) -> Result<bool> {
        if !self.has_unit(host.files(), port)? {
            return Ok(false);
        }
        match self.write(host, port, "unit_remove", deadline).await {
            Ok(()) => Ok(true),
            Err(error)
                if [Some(ENOENT), Some(ENODEV), Some(EINVAL)].contains(&error.errno())
                    && !self.has_unit(host.files(), port)? =>
            {
                Ok(true)
            }
            Err(source) => {
                let attempt = format!("taking volume {} from {}", port.lun.wire(), self.bus_id);
                Err(AttachError::Kernel { attempt, source }.into())
            }
        }
    }

    async fn write(
        &self,
        host: &dyn Host,
        port: Port,
        file: &str,
        deadline: Deadline,
    ) -> hawser_core::port::kernel::KernelResult<()> {
        let file = self.port(port.wwpn).join(file);
        let limit = deadline.within(LIMIT).left();
        host.files().write(&file, port.lun.wire().as_bytes(), limit).await
    }
}
