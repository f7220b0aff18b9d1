//! Where packages come from: the Debian source that the machine's own apt is set up with.
//!
//! The machine's package lists and settings are read, never changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::{Attempt, LabError, Result};
use super::program::{bound, run};

/// What apt is asked to print for every list of packages that it is set up with.
const FORMAT: &str = "$(SITE) $(COMPONENT) $(ORIGIN) $(LABEL)";

/// How the machine reaches its source; a guest's packages take the same way.
const KEPT: &[&str] = &[
    "Acquire::http",
    "Acquire::https",
    "Acquire::Check-Valid-Until",
    "Acquire::Retries",
    "Acquire::ForceIPv4",
];

/// A Debian source, and how to reach it.
#[derive(Debug)]
pub(super) struct Source {
    /// Its address.
    pub(super) mirror: String,
    /// A file of apt options.
    pub(super) acquire: PathBuf,
}

/// Asks apt; files of its own go into the folder.
pub(super) async fn source(folder: &Path) -> Result<Source> {
    let mut mirror = find_mirror(&run("apt-get indextargets", targets(None)).await?);
    if mirror.is_none() {
        // The lists were never fetched here, or were removed to save room.
        let lists = folder.join("lists");
        fs::create_dir_all(lists.join("partial"))
            .attempt(|| format!("making {}", lists.display()))?;
        let mut update = bound("apt-get");
        update.args(["-q", "update"]).arg("-o").arg(option("Dir::State::lists", &lists));
        // One broken source of several does not matter.
        let _ = run("apt-get update", update).await;
        mirror = find_mirror(&run("apt-get indextargets", targets(Some(&lists))).await?);
    }
    let mirror = mirror.ok_or(LabError::NoMirror)?;
    let mut dump = bound("apt-config");
    dump.arg("dump");
    let settings = kept(&run("apt-config dump", dump).await?);
    let acquire = folder.join("acquire.conf");
    fs::write(&acquire, settings).attempt(|| format!("writing {}", acquire.display()))?;
    Ok(Source { mirror, acquire })
}

fn targets(lists: Option<&Path>) -> Command {
    let mut command = bound("apt-get");
    if let Some(lists) = lists {
        command.arg("-o").arg(option("Dir::State::lists", lists));
    }
    command.args(["indextargets", "--format", FORMAT, "Created-By: Packages"]);
    command
}

/// `NAME=VALUE` as one argument.
pub(super) fn option(name: &str, value: &Path) -> String {
    format!("{name}={}", value.display())
}

/// The first source of Debian proper: not of its security updates, not of anybody else.
fn find_mirror(targets: &str) -> Option<String> {
    targets.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let site = words.next()?;
        (words.collect::<Vec<_>>() == ["main", "Debian", "Debian"]).then(|| site.to_owned())
    })
}

/// The settings that say how to reach a source.
fn kept(dump: &str) -> String {
    let wanted = |line: &&str| KEPT.iter().any(|name| line.starts_with(name));
    dump.lines().filter(wanted).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_is_debian_itself() {
        let targets = "http://a.example/docker stable Docker Docker\n\
                       http://b.example/debian-security main Debian Debian-Security\n\
                       http://c.example/debian main Debian Debian\n";
        assert_eq!(find_mirror(targets).as_deref(), Some("http://c.example/debian"));
        assert_eq!(find_mirror(""), None);
    }

    #[test]
    fn only_settings_of_the_way_to_the_source_are_kept() {
        let dump = "APT::Architecture \"amd64\";\nAcquire::Languages \"none\";\n\
                    Acquire::http::Proxy \"http://p.example:3128\";\n";
        assert_eq!(kept(dump), "Acquire::http::Proxy \"http://p.example:3128\";\n");
    }
}
