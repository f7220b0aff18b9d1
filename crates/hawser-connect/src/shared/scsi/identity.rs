//! Who a SCSI disk is: asked of the disk itself, and compared with what the kernel remembers.

use std::time::Duration;

use hawser_core::attach::Identity;
use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::kernel::{Disk, Files, KernelError, KernelResult};

use super::address::Address;
use super::disk::{ScsiDisk, folder};
use super::names::Names;
use crate::shared::error::AttachError;
use crate::shared::wait::Deadline;

const ENOENT: i32 = 2;
const ENXIO: i32 = 6;

/// How long a new disk may take until it can be opened.
const OPEN_LIMIT: Duration = Duration::from_secs(5);

impl ScsiDisk {
    /// The names that the disk tells now, by INQUIRY. What sysfs shows is a copy: after a storage
    /// system gave the number to another volume, reads already come from that one while the copy
    /// still names the old one.
    pub(crate) async fn names(&self, host: &dyn Host) -> Result<Names> {
        let attempt = || format!("asking {} who it is", self.disk.node.display());
        let kernel = |source| AttachError::Kernel { attempt: attempt(), source };
        let open = self.open(host).await?.map_err(kernel)?;
        let names = self.ask(host.files(), &*open).await.map_err(kernel)?;
        // The node may have become another disk's between looking and opening.
        if !self.is_there(host.files())? {
            let (what, why) = (attempt(), "the disk went meanwhile".to_owned());
            return Err(AttachError::Unreachable { target: what, why }.into());
        }
        Ok(names)
    }

    /// Opens the disk. Its node is there a moment before the kernel lets anybody open it.
    async fn open(&self, host: &dyn Host) -> Result<KernelResult<Box<dyn Disk>>> {
        let mut events = host.events().subscribe();
        let deadline = Deadline::after(OPEN_LIMIT);
        loop {
            let opened = host.disks().open(&self.disk.node).await;
            let refused = opened.as_ref().err().and_then(KernelError::errno);
            let early = [Some(ENOENT), Some(ENXIO)].contains(&refused)
                && self.is_there(host.files())?
                && self.state(host.files())? == "running";
            if !early || deadline.passed() {
                return Ok(opened);
            }
            events.changed(deadline.left()).await;
        }
    }

    async fn ask(&self, files: &dyn Files, open: &dyn Disk) -> Result<Names, KernelError> {
        let page = open.inquiry(Some(0x83)).await;
        if let Some(names) = page.as_ref().ok().and_then(|page| Names::parse(page)) {
            return Ok(names);
        }
        // Old and odd devices have a serial number at most.
        if let Ok(serial) = open.inquiry(Some(0x80)).await {
            let text = |name: &str| files.read_text(&self.folder().join(name)).ok().flatten();
            let (vendor, model) = (text("vendor"), text("model"));
            let names = Names::of_serial(
                vendor.as_deref().unwrap_or_default(),
                model.as_deref().unwrap_or_default(),
                &serial,
            );
            if let Some(names) = names {
                return Ok(names);
            }
        }
        Err(match page {
            Err(error) => error,
            Ok(_) => KernelError::Nonsense {
                attempt: format!("INQUIRY of {}", self.disk.node.display()),
                why: "neither page 0x83 nor page 0x80 names a logical unit".into(),
            },
        })
    }

    /// The names that the kernel remembers from when it found the disk.
    pub(crate) fn remembered(&self, files: &dyn Files) -> Result<Option<Names>> {
        remembered_at(files, self.address)
    }
}

/// The names that the kernel remembers of a device, also of one that is no disk yet.
pub(crate) fn remembered_at(files: &dyn Files, address: Address) -> Result<Option<Names>> {
    let folder = folder(address);
    let page = files.read(&folder.join("vpd_pg83"))?;
    if let Some(names) = page.and_then(|page| Names::parse(&page)) {
        return Ok(Some(names));
    }
    let wwid = files.read_text(&folder.join("wwid"))?;
    Ok(wwid.and_then(|wwid| Names::of_wwid(&wwid)))
}

/// True when the names fit an identity of this scheme.
fn fits(names: &Names, identity: &Identity) -> bool {
    let value = &identity.value;
    match identity.scheme.as_str() {
        "wwid" | "wwn" | "serial" => names.has(value),
        kind @ ("naa" | "eui" | "t10") => {
            let bare = value.strip_prefix(&format!("{kind}.")).unwrap_or(value);
            let bare = bare.strip_prefix("0x").unwrap_or(bare);
            names.has(&format!("{kind}.{bare}"))
        }
        // Nobody can check it, so it is not it.
        _ => false,
    }
}

/// True when the names fit every one of these identities.
pub(crate) fn fits_all(names: &Names, expected: &[Identity]) -> bool {
    expected.iter().all(|identity| fits(names, identity))
}

/// Refuses names that are not the expected ones.
pub(crate) fn check(
    disk: &ScsiDisk,
    names: &Names,
    expected: &[Identity],
) -> Result<(), AttachError> {
    match expected.iter().find(|identity| !fits(names, identity)) {
        None => Ok(()),
        Some(wrong) => Err(AttachError::WrongIdentity {
            device: disk.disk.node.clone(),
            expected: wrong.clone(),
            found: format!("wwid:{}", names.wwid()),
        }),
    }
}

/// The identity to answer: as the caller spelled it where he gave one and it fits, so that he finds
/// his own words again; udev's wwid otherwise.
pub(crate) fn told(names: &Names, given: Option<&Identity>) -> Identity {
    match given {
        Some(identity) if fits(names, identity) => identity.clone(),
        Some(_) | None => Identity::new("wwid", names.wwid()),
    }
}
