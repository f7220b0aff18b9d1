//! The client of this host: its control device, and its disks.

use std::path::Path;
use std::time::Duration;

use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::kernel::{Files, KernelError};
use uuid::Uuid;

use crate::shared::error::AttachError;
use crate::shared::users::Whole;
use crate::shared::vendor::kernel_name;

/// The client's control device.
pub(super) const DEVICE: &str = "/dev/scini";

const LINKS: &str = "/dev/disk/by-id";

/// Asks for the GUID: 8 bytes of status and 16 of GUID, all zero when asked.
const QUERY_GUID: u32 = 0x610e;
/// Asks to look for new volumes and sizes.
const RESCAN: u32 = 0x610a;

/// How long the driver may take to answer.
const LIMIT: Duration = Duration::from_secs(30);

const ENOENT: i32 = 2;

/// By what the gateway knows this host.
pub(super) async fn guid(host: &dyn Host) -> Result<String> {
    let attempt = "asking the ScaleIO client for its GUID";
    let answer = control(host, QUERY_GUID, vec![0; 24], attempt).await?;
    Ok(read_guid(&answer).ok_or_else(|| {
        let why = "the GUID is missing".to_owned();
        let source = KernelError::Nonsense { attempt: "reading its answer".into(), why };
        AttachError::Kernel { attempt: attempt.into(), source }
    })?)
}

/// The GUID in the driver's answer. What its status means is not documented; a client that was
/// never set up has no GUID.
pub(super) fn read_guid(answer: &[u8]) -> Option<String> {
    let guid = Uuid::from_slice(answer.get(8..24)?).ok()?;
    (!guid.is_nil()).then(|| guid.to_string())
}

/// Makes the client look for new sizes.
pub(super) async fn rescan(host: &dyn Host) -> Result<()> {
    let attempt = "asking the ScaleIO client to look for new sizes";
    control(host, RESCAN, vec![0; 8], attempt).await.map(drop)
}

async fn control(host: &dyn Host, request: u32, data: Vec<u8>, attempt: &str) -> Result<Vec<u8>> {
    let answer = host.files().control(DEVICE.as_ref(), request, data, LIMIT).await;
    answer.map_err(|source| {
        if source.errno() == Some(ENOENT) {
            let advice = "install the vendor's SDC and load its module scini".to_owned();
            return AttachError::Missing { what: format!("the ScaleIO client ({DEVICE})"), advice }
                .into();
        }
        AttachError::kernel(attempt)(source).into()
    })
}

/// The disk of a volume. Links are only a hint: one that leads to anything but a disk of the
/// client, or to a disk that has the link of another volume too, is not believed.
pub(super) fn find(files: &dyn Files, id: &str) -> Result<Option<Whole>> {
    let mut found = None;
    let mut others = Vec::new();
    for link in files.list(LINKS.as_ref())? {
        let Some(volume) = volume_of(&link) else { continue };
        let Some(name) = kernel_name(files, &Path::new(LINKS).join(&link))? else { continue };
        if !volume.eq_ignore_ascii_case(id) {
            others.push(name);
        } else if name.starts_with("scini") {
            found = Some(name);
        }
    }
    let Some(name) = found.filter(|name| !others.contains(name)) else { return Ok(None) };
    let disk = Whole::new(name);
    Ok(disk.has_node(files)?.then_some(disk))
}

/// True while a link of the volume is there, wherever it leads.
pub(super) fn has_link(files: &dyn Files, id: &str) -> Result<bool> {
    let links = files.list(LINKS.as_ref())?;
    Ok(links.iter().filter_map(|link| volume_of(link)).any(|v| v.eq_ignore_ascii_case(id)))
}

/// The volume in `emc-vol-MDM-VOLUME`; links of partitions go on behind it and are none.
pub(super) fn volume_of(link: &str) -> Option<&str> {
    let (mdm, volume) = link.strip_prefix("emc-vol-")?.split_once('-')?;
    (!mdm.is_empty() && super::data::is_id(volume)).then_some(volume)
}

#[cfg(test)]
hawser_testkit::fuzz_corpus!(guids, "scini_guid", |bytes| {
    let _ = read_guid(bytes);
});

#[cfg(test)]
hawser_testkit::fuzz_corpus!(links, "emc_vol_link", |bytes| {
    let text = String::from_utf8_lossy(bytes);
    if let Some(volume) = volume_of(&text) {
        assert!(text.ends_with(volume), "{text:?}");
    }
});
