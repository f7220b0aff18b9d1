//! Builds the parts of a guest from Debian packages.

use std::fs;
use std::path::Path;
use std::time::Instant;

use super::apt::{self, Source, option};
use super::cache::Building;
use super::error::{Attempt, LabError, Result};
use super::program::{bound, enclosed, run};
use super::recipe::Recipe;
use super::say;
use crate::lab::suites::Image;

/// What the initrd loads to reach the root: the disk's driver and the file system.
const TO_BOOT: [&str; 2] = ["virtio_blk", "ext4"];

/// The Python of the guest's Debian.
const GUEST_PYTHON: &str = "3.11";

/// The root file system with all packages.
pub(super) async fn root(
    recipe: &Recipe,
    building: &Building<'_>,
    image: Image,
    name: &str,
) -> Result<()> {
    let (begun, packages) = (Instant::now(), recipe.packages(image));
    say(&format!("building the root of {image:?} with {} packages", packages.len()));
    let folder = building.work("root")?;
    let work = folder.path();
    let source = apt::source(work).await?;
    let mut command = enclosed("sh");
    command
        .arg(recipe.folder.join("root"))
        .env("WORK", work)
        .env("MIRROR", &source.mirror)
        .env("ACQUIRE", &source.acquire)
        .env("PACKAGES", packages.join(","))
        .env("TMPDIR", work);
    run("making the root file system", command).await?;
    building.finish(&folder, &["root.img"], name)?;
    say(&format!("the root of {image:?} took {} s", begun.elapsed().as_secs()));
    Ok(())
}

/// The kernel, its modules as a disk, and those that the initrd needs.
pub(super) async fn kernel(recipe: &Recipe, building: &Building<'_>, name: &str) -> Result<()> {
    let begun = Instant::now();
    say(&format!("fetching a kernel of the series {}", recipe.series));
    let folder = building.work("kernel")?;
    let work = folder.path();
    let source = apt::source(work).await?;
    let package = fetch(recipe, &source, work).await?;
    let release = package.trim_start_matches("linux-image-").to_owned();

    let tree = work.join("tree");
    let deb = only_entry(&work.join("deb"))?;
    let mut unpack = enclosed("dpkg-deb");
    unpack.arg("-x").arg(&deb).arg(&tree);
    run("unpacking the kernel", unpack).await?;
    let modules = tree.join("lib/modules").join(&release);
    for folder in &recipe.without {
        let folder = modules.join(folder);
        if folder.exists() {
            fs::remove_dir_all(&folder).attempt(|| format!("removing {}", folder.display()))?;
        }
    }
    // Unpacking them once here is cheaper than at every boot under emulation.
    let mut unxz = enclosed("find");
    unxz.arg(&modules).args(["-name", "*.ko.xz", "-exec", "xz", "-d", "{}", "+"]);
    run("unpacking the modules", unxz).await?;
    let mut depmod = bound("depmod");
    depmod.arg("-b").arg(&tree).arg(&release);
    run("indexing the modules", depmod).await?;

    boot_modules(work, &tree, &release).await?;
    let mut mkfs = bound("mkfs.ext4");
    mkfs.args(["-q", "-F", "-O", "^has_journal,^metadata_csum", "-E", "nodiscard", "-d"]);
    mkfs.arg(tree.join("lib/modules")).arg(work.join("modules.img")).arg("1G");
    run("making the disk of modules", mkfs).await?;
    let vmlinuz = tree.join("boot").join(format!("vmlinuz-{release}"));
    fs::rename(&vmlinuz, work.join("vmlinuz"))
        .attempt(|| format!("moving {}", vmlinuz.display()))?;
    let text = work.join("release");
    fs::write(&text, &release).attempt(|| format!("writing {}", text.display()))?;
    building.finish(&folder, &["vmlinuz", "modules.img", "boot", "release"], name)?;
    say(&format!("kernel {release} took {} s", begun.elapsed().as_secs()));
    Ok(())
}

/// Packages for the Python of the guest, from the index that pip of this machine is set up with.
/// Nothing is compiled and no script of a package runs: only finished wheels are taken.
pub(super) async fn python(building: &Building<'_>, packages: &[String], name: &str) -> Result<()> {
    let begun = Instant::now();
    say(&format!("fetching {} packages for Python", packages.len()));
    let folder = building.work("python")?;
    let mut pip = bound("pip3");
    pip.args(["install", "--quiet", "--no-deps", "--no-compile", "--no-cache-dir"]);
    pip.args(["--only-binary", ":all:", "--implementation", "cp"]);
    pip.args(["--python-version", GUEST_PYTHON]);
    for abi in [format!("cp{}", GUEST_PYTHON.replace('.', "")).as_str(), "abi3", "none"] {
        pip.args(["--abi", abi]);
    }
    for platform in ["manylinux2014_x86_64", "manylinux_2_28_x86_64"] {
        pip.args(["--platform", platform]);
    }
    pip.arg("--target").arg(folder.path().join("packages")).args(packages);
    run("fetching packages for Python", pip).await?;
    building.finish(&folder, &["packages"], name)?;
    say(&format!("the packages for Python took {} s", begun.elapsed().as_secs()));
    Ok(())
}

/// Fetches the newest package of the series into `deb/`; answers its name.
async fn fetch(recipe: &Recipe, source: &Source, work: &Path) -> Result<String> {
    let deb = work.join("deb");
    for folder in [work.join("state/partial"), work.join("archives/partial"), deb.clone()] {
        fs::create_dir_all(&folder).attempt(|| format!("making {}", folder.display()))?;
    }
    let list = work.join("kernel.list");
    let line = format!("deb {} {} main\n", source.mirror, recipe.suite);
    fs::write(&list, line).attempt(|| format!("writing {}", list.display()))?;
    let apt = |program: &str, words: &[&str]| {
        let mut command = bound(program);
        command.current_dir(&deb).args(words);
        for (name, value) in [
            ("Dir::Etc::sourcelist", list.as_path()),
            ("Dir::Etc::sourceparts", Path::new("/dev/null")),
            ("Dir::State::lists", &work.join("state")),
            ("Dir::Cache::archives", &work.join("archives")),
            // As root: apt's own user cannot reach a folder of this cache.
            ("APT::Sandbox::User", Path::new("root")),
        ] {
            command.arg("-o").arg(option(name, value));
        }
        command
    };
    // By itself apt is content with lists that it could not fetch.
    let update = ["-q", "-o", "APT::Update::Error-Mode=any", "update"];
    run("fetching the kernel's package list", apt("apt-get", &update)).await?;
    let prefix = format!("linux-image-{}.", recipe.series);
    let known = run("listing kernels", apt("apt-cache", &["pkgnames", &prefix])).await?;
    let package = newest(&known, &prefix).ok_or_else(|| LabError::NoKernel {
        series: recipe.series.clone(),
        suite: recipe.suite.clone(),
    })?;
    run("fetching the kernel", apt("apt-get", &["-q", "download", &package])).await?;
    Ok(package)
}

/// The newest plain kernel among package names: not the cloud, real-time or debug ones.
fn newest(names: &str, prefix: &str) -> Option<String> {
    let plain = names.lines().filter_map(|name| {
        let rest = name.strip_prefix(prefix)?.strip_suffix("-amd64")?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let flavoured = rest.contains("-cloud") || rest.contains("-rt");
        (!flavoured).then_some((digits.parse::<u32>().ok()?, rest, name))
    });
    plain.max().map(|(_, _, name)| name.to_owned())
}

/// Copies what the initrd loads to `boot/`, with the order in `boot/order`.
async fn boot_modules(work: &Path, tree: &Path, release: &str) -> Result<()> {
    let mut command = bound("modprobe");
    command.arg("-d").arg(tree).args(["-S", release, "-D", "-a"]).args(TO_BOOT);
    let answer = run("finding the modules that boot", command).await?;
    let folder = work.join("boot");
    fs::create_dir(&folder).attempt(|| format!("making {}", folder.display()))?;
    let mut order = String::new();
    for path in answer.lines().filter_map(|line| line.strip_prefix("insmod ")) {
        let path = Path::new(path.trim());
        let name = path.file_name().unwrap_or_default();
        fs::copy(path, folder.join(name)).attempt(|| format!("copying {}", path.display()))?;
        order.push_str(&format!("{}\n", name.display()));
    }
    fs::write(folder.join("order"), order).attempt(|| format!("writing {}", folder.display()))
}

fn only_entry(folder: &Path) -> Result<std::path::PathBuf> {
    let what = || format!("looking into {}", folder.display());
    let mut entries = fs::read_dir(folder).attempt(what)?;
    let missing = || std::io::Error::other("apt left no package there");
    let entry = entries.next().ok_or_else(missing).flatten().attempt(what)?;
    Ok(entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_plain_kernel_of_the_series_is_taken() {
        let names = "linux-image-6.12.9+deb12-amd64\nlinux-image-6.12.38+deb12-rt-amd64\n\
                     linux-image-6.12.38+deb12-cloud-amd64\nlinux-image-6.12.32+deb12-amd64\n\
                     linux-image-6.12.38+deb12-amd64-unsigned\nlinux-image-6.12.32+deb12-amd64-dbg\n";
        let newest = newest(names, "linux-image-6.12.");
        assert_eq!(newest.as_deref(), Some("linux-image-6.12.32+deb12-amd64"));
    }
}
