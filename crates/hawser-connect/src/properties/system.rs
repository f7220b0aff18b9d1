//! The machine's own id, by platform, and the id of its root file system.

use std::path::Path;

use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::connector::Platform;
use hawser_core::port::kernel::Files;

/// The machine's UUID in lower case; `None` where the firmware tells none.
pub(super) fn uuid(files: &dyn Files, platform: Platform) -> Result<Option<String>> {
    let found = match platform {
        Platform::S390 => {
            let info = files.read_text(Path::new("/proc/sysinfo"))?.unwrap_or_default();
            let line = |line: &str| {
                let (key, value) = line.split_once(':')?;
                key.trim_end().ends_with("UUID").then(|| value.trim().to_owned())
            };
            info.lines().find_map(line)
        }
        Platform::Ppc64 => {
            let mut found = None;
            for name in ["vm,uuid", "system-id"] {
                let file = Path::new("/sys/firmware/devicetree/base").join(name);
                found = found.or(files.read_text(&file)?);
            }
            found
        }
        Platform::X86 | Platform::All => {
            // Only root may read it.
            files.read_text(Path::new("/sys/class/dmi/id/product_uuid")).unwrap_or_default()
        }
    };
    Ok(found.filter(|text| !text.is_empty()).map(|text| text.to_ascii_lowercase()))
}

/// The UUID of the root file system, by the link that udev made for its device; `None` where the
/// root is no device, as in a container.
pub(super) async fn root_filesystem_uuid(host: &dyn Host) -> Result<Option<String>> {
    let mounts = host.mounts().await?;
    let Some(root) = mounts.iter().rev().find(|entry| entry.target == Path::new("/")) else {
        return Ok(None);
    };
    let files = host.files();
    let folder = Path::new("/dev/disk/by-uuid");
    for name in files.list(folder)? {
        let number = files.device_number(&folder.join(&name))?;
        // Btrfs has device numbers of its own; its source is a node.
        let same_source = || files.device_number(Path::new(&root.source));
        if number.is_some() && (number == Some(root.device) || number == same_source()?) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}
