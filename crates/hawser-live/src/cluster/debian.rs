//! What a cluster takes from Debian: unpacked into the cache, never installed.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::error::{Attempt, Result};
use super::place::Place;
use super::program::{Need, PATH, check, of_machine, run};
use super::say;
use crate::process;

/// What is used of the machine.
const NEEDS: &[Need] = &[("apt-get", "apt"), ("dpkg-deb", "dpkg")];

/// How long fetching may take.
const FETCH_LIMIT: Duration = Duration::from_secs(600);

/// The name of the folder: another one for other packages and for another Debian.
pub(super) fn name(place: &Place) -> Result<String> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let release = release.lines().find(|line| line.starts_with("VERSION_ID=")).unwrap_or_default();
    let mut hash = Sha256::new();
    hash.update(release);
    for package in packages(place)? {
        hash.update("\n");
        hash.update(package);
    }
    let digits: String = hash.finalize()[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("debian-{digits}"))
}

fn packages(place: &Place) -> Result<Vec<String>> {
    let text = place.recipe("packages.cluster")?;
    let bare = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    Ok(bare.filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

/// Fetches and unpacks them, by whoever holds the right to build.
pub(super) fn unpack(place: &Place, folder: &Path) -> Result<()> {
    check(NEEDS)?;
    let begun = Instant::now();
    let packages = packages(place)?;
    say(&format!("fetching {}", packages.join(" ")));
    let work = place.work("debian")?;
    let (debs, root, lists) = (work.join("debs"), work.join("root"), work.join("lists"));
    for path in [&debs, &root, &lists.join("partial")] {
        fs::create_dir_all(path).attempt(|| format!("making {}", path.display()))?;
    }
    // By the lists that the machine has, and by newer ones of our own where these are missing or
    // name packages that are gone.
    if download(&packages, &debs, None).is_err() {
        let mut update = apt(&debs, Some(&lists));
        update.args(["-q", "-o", "APT::Update::Error-Mode=any", "update"]);
        run("apt-get update", &mut update, FETCH_LIMIT)?;
        download(&packages, &debs, Some(&lists))?;
    }
    let listing = || format!("listing {}", debs.display());
    for deb in fs::read_dir(&debs).attempt(listing)?.flatten().map(|entry| entry.path()) {
        let mut dpkg = of_machine("dpkg-deb");
        dpkg.arg("-x").arg(&deb).arg(&root);
        run(&format!("unpacking {}", deb.display()), &mut dpkg, FETCH_LIMIT)?;
    }
    fs::rename(&root, folder).attempt(|| format!("making {}", folder.display()))?;
    super::place::remove(&work)?;
    say(&format!("the packages of Debian took {} s", begun.elapsed().as_secs()));
    Ok(())
}

fn download(packages: &[String], debs: &Path, lists: Option<&Path>) -> Result<()> {
    let mut command = apt(debs, lists);
    command.args(["-q", "download"]).args(packages);
    run("apt-get download", &mut command, FETCH_LIMIT).map(drop)
}

fn apt(debs: &Path, lists: Option<&Path>) -> std::process::Command {
    // With our environment, which may name a proxy.
    let mut command = process::command("apt-get");
    command.env("PATH", PATH).env("LC_ALL", "C.UTF-8");
    // As root: apt's own user cannot reach a folder of this cache.
    command.current_dir(debs).args(["-o", "APT::Sandbox::User=root"]);
    if let Some(lists) = lists {
        command.arg("-o").arg(format!("Dir::State::lists={}", lists.display()));
    }
    command
}
