//! Our ports, and the ports of others that they see, as sysfs shows them.

use std::path::{Path, PathBuf};

use hawser_core::error::Result;
use hawser_core::port::kernel::Files;

use super::data::Wwn;
use super::zfcp::Zfcp;

const ADAPTERS: &str = "/sys/class/fc_host";
const REMOTE: &str = "/sys/class/fc_remote_ports";
const TARGETS: &str = "/sys/class/fc_transport";

/// A port of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Adapter {
    /// Its number in the SCSI layer.
    pub(super) number: u32,
    /// Its name. With NPIV that of the virtual port, which is what the storage system sees.
    pub(super) wwpn: Wwn,
    /// `Online`, `Linkdown` and so on.
    state: String,
    /// On s390x: what it takes to see a volume.
    pub(super) zfcp: Option<Zfcp>,
}

impl Adapter {
    /// Every port of this host, online or not.
    pub(super) fn list(files: &dyn Files) -> Result<Vec<Self>> {
        let mut adapters = Vec::new();
        for name in files.list(Path::new(ADAPTERS))? {
            adapters.extend(Self::of(files, &name)?);
        }
        adapters.sort_by_key(|adapter| adapter.number);
        Ok(adapters)
    }

    /// `None` for a port that is just going.
    fn of(files: &dyn Files, name: &str) -> Result<Option<Self>> {
        let Some(number) = name.strip_prefix("host").and_then(|number| number.parse().ok()) else {
            return Ok(None);
        };
        let folder = Path::new(ADAPTERS).join(name);
        let read = |name: &str| files.read_text(&folder.join(name));
        let Some(wwpn) = read("port_name")?.and_then(|text| text.parse().ok()) else {
            return Ok(None);
        };
        let state = read("port_state")?.unwrap_or_default();
        Ok(Some(Self { number, wwpn, state, zfcp: Zfcp::of(files, &folder)? }))
    }

    /// True when volumes can be reached through it. Some drivers do not tell.
    pub(super) fn is_online(&self) -> bool {
        matches!(self.state.as_str(), "Online" | "Unknown")
    }

    /// In the kernel's words.
    pub(super) fn state(&self) -> &str {
        &self.state
    }
}

/// A port of a storage system, as one of ours sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remote {
    pub(super) channel: u32,
    pub(super) target: u32,
    /// `Online`, `Blocked`, `Not Present` and so on.
    pub(super) state: String,
}

impl Remote {
    /// The port with this name behind one of ours; `None` when it is not seen, or is no target.
    pub(super) fn find(files: &dyn Files, adapter: u32, wwpn: Wwn) -> Result<Option<Self>> {
        let mut found: Option<Self> = None;
        for name in files.list(Path::new(REMOTE))? {
            let Some((its, channel)) = rport(&name).filter(|(its, _)| *its == adapter) else {
                continue;
            };
            debug_assert_eq!(its, adapter);
            let folder = Path::new(REMOTE).join(&name);
            if !has_name(files, &folder, wwpn)? {
                continue;
            }
            let read = |name: &str| files.read_text(&folder.join(name));
            let is_target = read("roles")?.is_some_and(|roles| roles.contains("FCP Target"));
            let number = read("scsi_target_id")?.and_then(|text| text.parse::<u32>().ok());
            if let (true, Some(target)) = (is_target, number) {
                let state = read("port_state")?.unwrap_or_default();
                let remote = Self { channel, target, state };
                // An old entry of a port that came back may still be there.
                if found.as_ref().is_none_or(|_| remote.is_online()) {
                    found = Some(remote);
                }
            }
        }
        match found {
            Some(found) => Ok(Some(found)),
            None => Self::by_target(files, adapter, wwpn),
        }
    }

    /// For drivers that tell only what the SCSI layer made of a port.
    fn by_target(files: &dyn Files, adapter: u32, wwpn: Wwn) -> Result<Option<Self>> {
        for name in files.list(Path::new(TARGETS))? {
            let Some((its, channel, target)) = target(&name) else { continue };
            if its == adapter && has_name(files, &Path::new(TARGETS).join(&name), wwpn)? {
                return Ok(Some(Self { channel, target, state: "Unknown".into() }));
            }
        }
        Ok(None)
    }

    /// True when it answers now.
    pub(super) fn is_online(&self) -> bool {
        matches!(self.state.as_str(), "Online" | "Marginal" | "Unknown")
    }

    /// True when it went a moment ago and may be back in another.
    pub(super) fn is_blocked(&self) -> bool {
        self.state == "Blocked"
    }
}

fn has_name(files: &dyn Files, folder: &Path, wwpn: Wwn) -> Result<bool> {
    let name = files.read_text(&PathBuf::from(folder).join("port_name"))?;
    Ok(name.and_then(|text| text.parse::<Wwn>().ok()) == Some(wwpn))
}

/// `rport-3:0-12`: host and channel.
fn rport(name: &str) -> Option<(u32, u32)> {
    let (place, _) = name.strip_prefix("rport-")?.rsplit_once('-')?;
    let (host, channel) = place.split_once(':')?;
    Some((host.parse().ok()?, channel.parse().ok()?))
}

/// `target3:0:12`: host, channel and target.
fn target(name: &str) -> Option<(u32, u32, u32)> {
    let mut words = name.strip_prefix("target")?.split(':');
    let mut number = || words.next()?.parse::<u32>().ok();
    let found = (number()?, number()?, number()?);
    words.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_ports_are_read() {
        assert_eq!(rport("rport-3:0-12"), Some((3, 0)));
        assert_eq!(rport("rport-3:0"), None);
        assert_eq!(target("target3:0:12"), Some((3, 0, 12)));
        assert_eq!(target("target3:0:12:1"), None);
        for text in ["0x500A0980000000A1", "50:0a:09:80:00:00:00:a1", " 500a0980000000a1 "] {
            assert_eq!(text.parse::<Wwn>().ok(), Some(Wwn(0x500a_0980_0000_00a1)), "{text}");
        }
        for text in ["", "0x", "500a0980000000a", "+00a0980000000a1", "5:00a0980000000a1", "zz"] {
            assert!(text.parse::<Wwn>().is_err(), "{text}");
        }
        assert!("0000000000000000".parse::<Wwn>().is_err());
    }

    proptest! {
        #[test]
        fn any_name_is_read_or_passed_over(text in "\\PC{0,24}", tail in "[0-9:-]{0,12}") {
            let _ = text.parse::<Wwn>().map(|wwn| wwn.to_string());
            let _ = (rport(&text), target(&text));
            let _ = (rport(&format!("rport-{tail}")), target(&format!("target{tail}")));
        }
    }

    hawser_testkit::fuzz_corpus!(corpus, "fc_rport", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let _ = (rport(&text), target(&text));
    });
}
