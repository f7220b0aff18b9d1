//! What a connector needs, and what of it this host has.

use std::path::Path;

use hawser_core::error::Result;
use hawser_core::port::Host;
use hawser_core::port::connector::{
    Abilities, ConnectorInfo, Maturity, Need, Packages, PathsBy, Platform, Proof, Proofs,
};
use hawser_core::port::library::{ConnectorStatus, Missing, ProofWords};

use super::daemon;
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
    let platform = Platform::of(&host.facts().await?.machine);
    let everywhere = info.platforms.contains(&Platform::All);
    let mut all = Vec::new();
    for protocol in info.protocols {
        let mut missing = Vec::new();
        if !everywhere && !info.platforms.contains(&platform) {
            let others: Vec<_> = info.platforms.iter().map(|p| p.as_str()).collect();
            missing.push(Missing {
                what: format!("support for {}", platform.as_str()),
                advice: format!("this protocol exists on {} only", others.join(", ")),
            });
        }
        for need in info.needs {
            missing.extend(check(host, protocol, need).await?);
        }
        let (note, proofs) = info.told(protocol);
        all.push(ConnectorStatus {
            protocol: (*protocol).to_owned(),
            maturity: in_words(info.maturity).into(),
            proof: proofs.connect.to_string(),
            proofs: proof_words(&info.abilities, &proofs),
            note: note.into(),
            ready: missing.is_empty(),
            missing,
            platforms: info.platforms.iter().map(|p| p.as_str().to_owned()).collect(),
            extend: info.abilities.extend,
            multipath: info.abilities.multipath.map(|by| paths_by(by).to_owned()),
            encryption: info.abilities.encryption,
            reservation: info.abilities.reservation,
        });
    }
    Ok(all)
}

/// What proves what it can do.
fn proof_words(can: &Abilities, proofs: &Proofs) -> ProofWords {
    let word = |can: bool, proof: Proof| can.then(|| proof.to_string());
    ProofWords {
        connect: word(true, proofs.connect),
        extend: word(can.extend, proofs.extend),
        multipath: word(can.multipath.is_some(), proofs.multipath),
        encryption: word(can.encryption, proofs.encryption),
        reservation: word(can.reservation, proofs.reservation),
    }
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

async fn check(host: &dyn Host, protocol: &str, need: &Need) -> Result<Option<Missing>> {
    let lacks = |what: String, advice: String| Ok(Some(Missing { what, advice }));
    match need {
        Need::Root if host.facts().await?.privileged => Ok(None),
        Need::Root => lacks(
            "the right to change devices and mounts".into(),
            "run it as root, or give it the capability CAP_SYS_ADMIN".into(),
        ),
        Need::ModuleOf { protocol: other, .. } if *other != protocol => Ok(None),
        Need::Module(module) | Need::ModuleOf { module, .. } => {
            if modules::is_there(host, module).await? || is_loadable(host, module).await? {
                return Ok(None);
            }
            lacks(format!("the kernel module {module}"), obtain_module(host, module).await?)
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
        Need::Daemon { name, socket, from } => {
            let there = match socket {
                Some(socket) => daemon::answers(host.files(), socket)?,
                None => daemon::runs(host.files(), name)?,
            };
            if there {
                return Ok(None);
            }
            lacks(format!("the daemon {name}"), format!("start it; it comes from {from}"))
        }
    }
}

/// True when modprobe would find the module.
async fn is_loadable(host: &dyn Host, module: &str) -> Result<bool> {
    let kernel = host.facts().await?.kernel;
    let list = format!("/lib/modules/{kernel}/modules.dep");
    Ok(host.files().read_text(Path::new(&list))?.is_some_and(|text| modules::lists(&text, module)))
}

/// How to get a kernel module that is neither loaded nor built in nor to be found.
async fn obtain_module(host: &dyn Host, module: &str) -> Result<String> {
    let facts = host.facts().await?;
    let kernel = &facts.kernel;
    let text = host.files().read_text(Path::new("/etc/os-release"))?.unwrap_or_default();
    if host.files().resolve(Path::new(&format!("/lib/modules/{kernel}")))?.is_none() {
        return Ok(format!(
            "there are no modules of the running kernel {kernel} here: in a container, run `modprobe {module}` on its host and show /lib/modules to the container; elsewhere, boot a kernel of the distribution ({})",
            kernel_package(&text, kernel, &facts.machine)
        ));
    }
    Ok(format!("{}, then `modprobe {module}`", kernel_package(&text, kernel, &facts.machine)))
}

/// What has the drivers that small kernels leave out.
fn kernel_package(os_release: &str, kernel: &str, machine: &str) -> String {
    let boot = "and boot that kernel";
    match world(os_release) {
        Some(World::Apt) if names_of(os_release).any(|name| name == "ubuntu") => {
            format!("apt-get install linux-modules-extra-{kernel}")
        }
        Some(World::Apt) => {
            let flavour = match machine {
                "x86_64" => "amd64",
                "aarch64" => "arm64",
                "ppc64le" => "powerpc64le",
                other => other,
            };
            format!("apt-get install linux-image-{flavour} {boot}: the cloud kernel lacks drivers")
        }
        Some(World::Dnf) => {
            format!("dnf install kernel-modules-{kernel} kernel-modules-extra-{kernel}")
        }
        Some(World::Zypper) => {
            format!("zypper install kernel-default {boot}: kernel-default-base lacks drivers")
        }
        Some(World::Apk) => format!("apk add linux-lts {boot}: linux-virt lacks drivers"),
        None => format!("install the kernel package that has all drivers {boot}"),
    }
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
    names_of(os_release).find_map(|word| match word {
        "debian" | "ubuntu" => Some(World::Apt),
        "fedora" | "rhel" | "centos" => Some(World::Dnf),
        "suse" | "opensuse" | "sles" => Some(World::Zypper),
        "alpine" => Some(World::Apk),
        _ => None,
    })
}

/// What a distribution calls itself, and its relatives.
fn names_of(os_release: &str) -> impl Iterator<Item = &str> {
    let value = |key: &str| {
        let line = os_release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_default().trim_matches('"')
    };
    [value("ID"), value("ID_LIKE")].into_iter().flat_map(str::split_whitespace)
}

#[cfg(test)]
mod tests {
    use hawser_core::connection::Protocol;
    use hawser_testkit::fake_host::FakeHost;

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

    /// The words for a bare host of each world: nothing is installed, nobody is root.
    #[tokio::test]
    async fn a_bare_host_is_told_for_every_connector_what_to_get_and_how() {
        for (name, install) in [
            ("debian", "apt-get install"),
            ("rocky", "dnf install"),
            ("leap", "zypper install"),
            ("alpine", "apk add"),
        ] {
            let host = FakeHost::new();
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/corpus/os_release/");
            let text = std::fs::read_to_string(format!("{folder}{name}")).unwrap();
            host.kernel().file("/etc/os-release", text);
            let mut told = Vec::new();
            for connector in crate::CONNECTORS {
                for one in status(&host, connector.info()).await.unwrap() {
                    assert_eq!(one.ready, one.missing.is_empty(), "{one:?}");
                    told.extend(one.missing);
                }
            }
            for one in &told {
                assert!(one.what.len() > 5 && one.advice.len() > 10, "{one:?}");
                let foreign = ["apt-get install", "dnf install", "zypper install", "apk add"];
                let foreign = foreign.iter().filter(|command| **command != install);
                assert_eq!(foreign.filter(|f| one.advice.contains(**f)).count(), 0, "{one:?}");
            }
            let packaged = told.iter().filter(|one| one.advice.contains(install)).count();
            assert!(packaged > 5, "{name}: {told:#?}");
        }
    }

    #[tokio::test]
    async fn each_protocol_of_a_connector_is_told_its_own_module() {
        let host = FakeHost::new();
        host.kernel().module("iscsi_tcp");
        let info = crate::find(&Protocol::new("iser")).unwrap().info();
        let all = status(&host, info).await.unwrap();
        let lacks = |protocol: &str, module: &str| {
            let one = all.iter().find(|one| one.protocol == protocol).unwrap();
            one.missing.iter().any(|missing| missing.what.contains(module))
        };
        assert!(!lacks("ISCSI", "iscsi_tcp") && !lacks("ISCSI", "ib_iser"), "{all:#?}");
        assert!(lacks("ISER", "ib_iser") && !lacks("ISER", "iscsi_tcp"), "{all:#?}");
    }

    #[tokio::test]
    async fn a_host_where_nobody_answers_for_iscsid_is_not_ready() {
        let host = FakeHost::new();
        hawser_testkit::sim::iscsi::install(&host);
        let told = async |protocol: &str| {
            let info = crate::find(&Protocol::new(protocol)).unwrap().info();
            let all = status(&host, info).await.unwrap();
            let one = all.into_iter().find(|one| one.protocol == protocol).unwrap();
            one.missing.into_iter().map(|missing| missing.what).collect::<Vec<_>>()
        };
        let daemon = "the daemon iscsid".to_owned();

        assert!(!told("ISCSI").await.contains(&daemon));
        hawser_testkit::sim::iscsi::set_daemon(host.kernel(), false);
        assert!(told("ISCSI").await.contains(&daemon));
        assert!(told("ISER").await.contains(&daemon));
    }

    #[test]
    fn the_package_of_drivers_is_named_as_the_distribution_names_it() {
        let package = |os: &str| kernel_package(os, "6.8.0-1-x", "x86_64");
        assert!(package("ID=ubuntu\nID_LIKE=debian").contains("linux-modules-extra-6.8.0-1-x"));
        assert!(package("ID=debian").contains("linux-image-amd64"));
        assert!(package("ID=fedora").contains("kernel-modules-extra-6.8.0-1-x"));
        assert!(package("ID=sles").contains("kernel-default"));
        assert!(package("ID=alpine").contains("linux-lts"));
        assert!(package("").contains("kernel package"));
    }

    #[test]
    fn modules_are_found_in_both_spellings_and_packed_or_not() {
        let text = include_str!("../../testdata/corpus/modules_dep/6.12");
        for module in ["nbd", "nvme_tcp", "nvme-tcp", "iscsi_tcp"] {
            assert!(modules::lists(text, module), "{module}");
        }
        assert!(!modules::lists(text, "libiscsi"), "it is only needed by another");
    }

    hawser_testkit::fuzz_corpus!(os_release, "os_release", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let _ = world(&text);
    });

    hawser_testkit::fuzz_corpus!(modules_dep, "modules_dep", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let found = modules::lists(&text, "nvme-tcp");
        assert!(!found || text.contains(".ko"), "a module was made up");
    });
}
