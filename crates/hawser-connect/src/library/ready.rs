//! What a connector needs, and what of it this host has.

use std::path::Path;

use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::connector::{ConnectorInfo, Maturity, Need, Packages, PathsBy, Platform};
use hawser_core::port::library::{ConnectorStatus, Missing};

use crate::shared::modules;

/// Where programs are looked for, as `exec` does.
const FOLDERS: [&str; 7] = [
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/local/bin/sds",
];

/// How this host gets its packages.
#[derive(Clone, Copy)]
enum World {
    Apt,
    Dnf,
    Zypper,
    Apk,
}

/// The status of each protocol of a connector.
pub(crate) async fn status(host: &dyn Host, info: &ConnectorInfo) -> Result<Vec<ConnectorStatus>> {
    let mut missing = Vec::new();
    let platform = Platform::of(&host.facts().await?.machine);
    let everywhere = info.platforms.contains(&Platform::All);
    if !everywhere && !info.platforms.contains(&platform) {
        missing.push(Missing {
            what: format!("support for {}", platform.as_str()),
            advice: "this protocol does not exist on this platform".into(),
        });
    }
    for need in info.needs {
        missing.extend(check(host, need).await?);
    }
    let one = |protocol: &&str| ConnectorStatus {
        protocol: (*protocol).to_owned(),
        maturity: in_words(info.maturity).into(),
        proof: info.proof.as_str().into(),
        note: info.note.into(),
        ready: missing.is_empty(),
        missing: missing.clone(),
        platforms: info.platforms.iter().map(|p| p.as_str().to_owned()).collect(),
        extend: info.abilities.extend,
        multipath: info.abilities.multipath.map(|by| paths_by(by).to_owned()),
        encryption: info.abilities.encryption,
        reservation: info.abilities.reservation,
    };
    Ok(info.protocols.iter().map(one).collect())
}

fn in_words(maturity: Maturity) -> &'static str {
    match maturity {
        Maturity::Stable => "stable",
        Maturity::Preview => "preview",
        Maturity::Legacy => "legacy",
    }
}

fn paths_by(by: PathsBy) -> &'static str {
    match by {
        PathsBy::DeviceMapper => "device mapper",
        PathsBy::NativeOrDeviceMapper => "native or device mapper",
        PathsBy::Connections => "several connections",
        PathsBy::Driver => "by the driver",
    }
}

async fn check(host: &dyn Host, need: &Need) -> Result<Option<Missing>> {
    let lacks = |what: String, advice: String| Ok(Some(Missing { what, advice }));
    match need {
        Need::Root if host.facts().await?.privileged => Ok(None),
        Need::Root => lacks("the right to change devices and mounts".into(), "run as root".into()),
        Need::Module(module) => {
            if modules::is_there(host, module).await? || is_loadable(host, module).await? {
                return Ok(None);
            }
            let advice = format!(
                "use a kernel that has it, or install its package of extra modules ({module})"
            );
            lacks(format!("the kernel module {module}"), advice)
        }
        Need::Program { name, packages } => {
            for folder in FOLDERS {
                if host.files().resolve(&Path::new(folder).join(name))?.is_some() {
                    return Ok(None);
                }
            }
            lacks(format!("the program {name}"), install(host, packages)?)
        }
        Need::File { path, .. } if host.files().resolve(Path::new(path))?.is_some() => Ok(None),
        Need::File { path, from } => {
            lacks(format!("the file {path}"), format!("it comes from {from}"))
        }
        Need::Daemon { name, packages } => {
            if is_running(host, name)? {
                return Ok(None);
            }
            let advice =
                format!("start {name}; if it is not installed, {}", install(host, packages)?);
            lacks(format!("the daemon {name}"), advice)
        }
    }
}

/// True when modprobe would find the module.
async fn is_loadable(host: &dyn Host, module: &str) -> Result<bool> {
    let kernel = host.facts().await?.kernel;
    let list = format!("/lib/modules/{kernel}/modules.dep");
    Ok(host.files().read_text(Path::new(&list))?.is_some_and(|text| lists(&text, module)))
}

/// True when a `modules.dep` has the module; `-` and `_` are the same in names of modules.
fn lists(text: &str, module: &str) -> bool {
    let wanted = module.replace('-', "_");
    text.lines().any(|line| {
        let file = line.split(':').next().unwrap_or_default();
        let name = file.rsplit('/').next().unwrap_or_default();
        name.split(".ko").next().unwrap_or_default().replace('-', "_") == wanted
    })
}

/// True when a process of this name is there.
pub(crate) fn is_running(host: &dyn Host, name: &str) -> Result<bool> {
    let files = host.files();
    for pid in files.list(Path::new("/proc"))? {
        if !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let comm = Path::new("/proc").join(&pid).join("comm");
        if files.read_text(&comm)?.as_deref() == Some(name) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// How to install a package here.
fn install(host: &dyn Host, packages: &Packages) -> Result<String> {
    let text = host.files().read_text(Path::new("/etc/os-release"))?.unwrap_or_default();
    let (command, package) = match world(&text) {
        Some(World::Apt) => ("apt-get install", packages.apt),
        Some(World::Dnf) => ("dnf install", packages.dnf),
        Some(World::Zypper) => ("zypper install", packages.zypper),
        Some(World::Apk) => ("apk add", packages.apk),
        None => ("install the package", packages.apt),
    };
    Ok(match package {
        "" => "this distribution has no package for it; get it from its vendor".to_owned(),
        package => format!("{command} {package}"),
    })
}

/// By `ID` and `ID_LIKE` of os-release.
fn world(os_release: &str) -> Option<World> {
    let value = |key: &str| {
        let line = os_release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_default().trim_matches('"').to_owned()
    };
    let words = format!("{} {}", value("ID"), value("ID_LIKE"));
    words.split_whitespace().find_map(|word| match word {
        "debian" | "ubuntu" => Some(World::Apt),
        "fedora" | "rhel" | "centos" => Some(World::Dnf),
        "suse" | "opensuse" | "sles" => Some(World::Zypper),
        "alpine" => Some(World::Apk),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_world_is_found_by_the_relatives_too() {
        assert!(matches!(world("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"), Some(World::Apt)));
        assert!(matches!(world("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\""), Some(World::Dnf)));
        assert!(matches!(
            world("ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\""),
            Some(World::Zypper)
        ));
        assert!(matches!(world("ID=alpine"), Some(World::Apk)));
        assert!(world("").is_none());
    }

    #[test]
    fn modules_are_found_in_both_spellings_and_packed_or_not() {
        let text = include_str!("../../testdata/corpus/modules_dep/6.12");
        for module in ["nbd", "nvme_tcp", "nvme-tcp", "iscsi_tcp"] {
            assert!(lists(text, module), "{module}");
        }
        assert!(!lists(text, "libiscsi"), "it is only needed by another");
    }

    hawser_testkit::fuzz_corpus!(os_release, "os_release", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let _ = world(&text);
    });

    hawser_testkit::fuzz_corpus!(modules_dep, "modules_dep", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let _ = lists(&text, "nvme-tcp");
    });
}
