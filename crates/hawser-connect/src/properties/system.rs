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
            s390_uuid(&files.read_text(Path::new("/proc/sysinfo"))?.unwrap_or_default())
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

/// The UUID in `/proc/sysinfo`. Each level from the partition up has its own, and all guests of a
/// partition share those below them: the guest's own is that of `VM00`.
fn s390_uuid(sysinfo: &str) -> Option<String> {
    let of = |level: &str| {
        sysinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            let key = key.trim().strip_prefix(level)?;
            (key.trim() == "UUID").then(|| value.trim().to_owned())
        })
    };
    let is_guest = sysinfo.lines().any(|line| line.starts_with("VM00"));
    if is_guest { of("VM00") } else { of("LPAR") }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::s390_uuid;

    #[test]
    fn a_guest_does_not_take_the_uuid_of_its_partition() {
        let lpar = "LPAR Name:            LP12\nLPAR UUID:            aa\n";

        assert_eq!(s390_uuid(lpar).as_deref(), Some("aa"));
        assert_eq!(
            s390_uuid(&format!("{lpar}VM00 UUID: bb\nVM01 UUID: cc\n")).as_deref(),
            Some("bb")
        );
        assert_eq!(
            s390_uuid(&format!("{lpar}VM00 Name: x\n")),
            None,
            "none is better than another's"
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "\\PC{0,80}") {
            let _ = (s390_uuid(&text), s390_uuid(&format!("VM00{text}: x\nVM00 UUID{text}")));
        }
    }

    hawser_testkit::fuzz_corpus!(corpus, "proc_sysinfo", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let _ = s390_uuid(&text);
    });
}
