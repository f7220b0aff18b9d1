//! What is fixed while the host runs: names, kernel, boot, privileges.

use hawser_core::port::host::HostFacts;
use hawser_core::{Classify, Kind};

use crate::errno::kind_of_io;

/// Where the kernel tells which boot this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const STATUS: &str = "/proc/self/status";
/// `CAP_SYS_ADMIN` in the kernel's `capability.h`.
const SYS_ADMIN: u32 = 21;

/// Why the facts could not be told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FactsError {
    #[error("reading {file}; is /proc mounted?")]
    Read { file: &'static str, source: std::io::Error },
    #[error("{STATUS} has no line CapEff with a hexadecimal number")]
    NoCapabilities,
}

impl Classify for FactsError {
    fn kind(&self) -> Kind {
        match self {
            Self::Read { source, .. } => kind_of_io(source),
            Self::NoCapabilities => Kind::Internal,
        }
    }
}

/// `CAP_SYS_RESOURCE`, without which ext4 does not grow while it is mounted.
const SYS_RESOURCE: u32 = 24;

/// True when this process may grow a mounted ext4; some containers and sandboxes may not.
pub(crate) fn may_resize_ext4() -> bool {
    let status = std::fs::read_to_string(STATUS).unwrap_or_default();
    effective_capabilities(&status).is_none_or(|own| own & (1 << SYS_RESOURCE) != 0)
}

/// Reads the facts from `/proc` and `uname`.
pub(crate) fn read() -> Result<HostFacts, FactsError> {
    let read =
        |file| std::fs::read_to_string(file).map_err(|source| FactsError::Read { file, source });
    let boot_id = read(BOOT_ID)?.trim().to_owned();
    let capabilities = effective_capabilities(&read(STATUS)?).ok_or(FactsError::NoCapabilities)?;
    let uname = rustix::system::uname();
    let privileged = rustix::process::geteuid().is_root() && capabilities & (1 << SYS_ADMIN) != 0;
    Ok(HostFacts {
        hostname: uname.nodename().to_string_lossy().into_owned(),
        boot_id,
        machine: uname.machine().to_string_lossy().into_owned(),
        kernel: uname.release().to_string_lossy().into_owned(),
        privileged,
    })
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn capabilities_are_read_from_the_status() {
        let status = "Name:\tx\nCapEff:\t0000000000200000\nCapBnd:\t0\n";

        assert_eq!(effective_capabilities(status), Some(1 << SYS_ADMIN));
        assert_eq!(effective_capabilities("Name: x"), None);
    }

    #[test]
    fn this_host_has_facts() {
        let facts = read().unwrap();

        assert_eq!(facts.boot_id.len(), 36);
        assert!(!facts.kernel.is_empty() && !facts.machine.is_empty());
    }

    proptest! {
        #[test]
        fn no_status_makes_it_panic(text in "(CapEff:)?\\PC*") {
            let _ = effective_capabilities(&text);
        }
    }

    hawser_testkit::fuzz_corpus!(corpus, "proc_status", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let _ = effective_capabilities(&text);
    });
}
