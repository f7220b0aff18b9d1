//! Over which network interfaces the driver speaks.

use std::path::Path;
use std::time::Duration;

use hawser_core::error::Result;
use hawser_core::port::Host;

use super::data::Target;
use super::error::AoeError;
use crate::shared::error::AttachError;

const LIST: &str = "/sys/module/aoe/parameters/aoe_iflist";
const SET: &str = "/dev/etherd/interfaces";
const LIMIT: Duration = Duration::from_secs(10);

/// `IFF_UP`.
const UP: u32 = 1;

/// Makes sure that the driver may use the interfaces of this target. An empty list of the driver
/// means all; a list is only ever made longer, because others may use what is on it. It stays
/// longer, like a module that was loaded.
pub(super) async fn allow(host: &dyn Host, target: &Target) -> Result<()> {
    for interface in &target.interfaces {
        let folder = Path::new("/sys/class/net").join(interface);
        let Some(flags) = host.files().read_text(&folder.join("flags"))? else {
            let (what, advice) = (format!("the network interface {interface}"), "make it".into());
            return Err(AttachError::Missing { what, advice }.into());
        };
        if parse_flags(&flags) & UP == 0 {
            return Err(AoeError::InterfaceDown { interface: interface.clone() }.into());
        }
    }
    let list = host.files().read_text(Path::new(LIST))?.unwrap_or_default();
    let Some(longer) = longer(&list, &target.interfaces) else { return Ok(()) };
    Ok(host.files().write(Path::new(SET), longer.as_bytes(), LIMIT).await?)
}

/// `0x1003` as a number; 0 when it makes no sense.
fn parse_flags(text: &str) -> u32 {
    text.strip_prefix("0x").and_then(|hex| u32::from_str_radix(hex, 16).ok()).unwrap_or(0)
}

/// The list with what it lacks; `None` when it lacks nothing.
fn longer(list: &str, wanted: &[String]) -> Option<String> {
    let mut names: Vec<&str> =
        list.split([' ', ',', '\t', '\n']).filter(|n| !n.is_empty()).collect();
    let before = names.len();
    if before == 0 {
        return None;
    }
    for name in wanted {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    (names.len() > before).then(|| names.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_gets_longer_and_never_shorter() {
        let wanted = ["eth1".to_owned()];

        assert_eq!(longer("", &wanted), None, "all are allowed");
        assert_eq!(longer("eth0 eth1", &wanted), None);
        assert_eq!(longer("eth0,eth2", &wanted).as_deref(), Some("eth0 eth2 eth1"));
        assert_eq!(longer("eth0", &[]), None);
    }

    #[test]
    fn flags_that_make_no_sense_are_none() {
        assert_eq!(parse_flags("0x1003"), 0x1003);
        assert_eq!(parse_flags("up"), 0);
    }

    hawser_testkit::fuzz_corpus!(corpus, "aoe_iflist", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let _ = parse_flags(text.trim());
        if let Some(longer) = longer(&text, &["eth9".to_owned()]) {
            let names: Vec<&str> = longer.split(' ').collect();
            let mut before = text.split([' ', ',', '\t', '\n']).filter(|name| !name.is_empty());
            assert!(before.all(|name| names.contains(&name)), "an interface was taken away");
            assert_eq!(names.last(), Some(&"eth9"));
        }
    });
}
