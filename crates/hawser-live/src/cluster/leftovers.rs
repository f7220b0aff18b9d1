//! What a cluster may leave on the machine, read from the kernel's own files.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::program::{of_machine, run};

/// How long one command of the machine may take.
const LIMIT: Duration = Duration::from_secs(20);

/// A loop device, and what is behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Loop {
    /// `/dev/loopN`.
    pub(super) device: PathBuf,
    /// Its file, as the namespace that opened it spells it.
    pub(super) file: PathBuf,
}

/// Loop devices over files below a folder of the machine, which a namespace calls `place`. By the
/// file itself where it still has a name, because no name is left of a namespace that is gone.
pub(super) fn loops(folder: &Path, place: &Path) -> Vec<Loop> {
    let mut losetup = of_machine("losetup");
    losetup.args(["--list", "--json", "--output", "NAME,BACK-FILE,BACK-INO,BACK-MAJ:MIN"]);
    let said = run("losetup", &mut losetup, LIMIT).unwrap_or_default();
    let all = parse_loops(&said);
    if all.is_empty() {
        return Vec::new();
    }
    let mut known = BTreeSet::new();
    collect(folder, &mut known);
    let ours = all
        .into_iter()
        .filter(|(found, number)| found.file.starts_with(place) || known.contains(number));
    ours.map(|(found, _)| found).collect()
}

/// A file's number, and that of its file system.
type Number = (u64, String);

/// What `losetup` says; nothing at all where there are no loop devices.
fn parse_loops(said: &str) -> Vec<(Loop, Number)> {
    let said: Value = serde_json::from_str(said).unwrap_or_default();
    let entry = |entry: &Value| {
        let inode = &entry["back-ino"];
        let number = match inode.as_str() {
            Some(text) => text.trim().parse().ok()?,
            None => inode.as_u64()?,
        };
        let found = Loop {
            device: entry["name"].as_str()?.into(),
            file: entry["back-file"].as_str().unwrap_or_default().into(),
        };
        Some((found, (number, entry["back-maj:min"].as_str()?.trim().to_owned())))
    };
    said["loopdevices"].as_array().into_iter().flatten().filter_map(entry).collect()
}

/// The numbers of all files below a folder.
fn collect(folder: &Path, into: &mut BTreeSet<Number>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(data) = entry.metadata() else { continue };
        if data.is_dir() {
            collect(&entry.path(), into);
        } else if data.is_file() {
            let (major, minor) = (rustix::fs::major(data.dev()), rustix::fs::minor(data.dev()));
            into.insert((data.ino(), format!("{major}:{minor}")));
        }
    }
}

/// Detaches it; answers false when it stays, as one that is still mounted does.
pub(super) fn detach(device: &Path) -> bool {
    let mut losetup = of_machine("losetup");
    run("losetup", losetup.arg("--detach").arg(device), LIMIT).is_ok()
}

/// Routes of this machine into networks of pods, as lines.
pub(super) fn routes(networks: &[Ipv4Addr]) -> Vec<String> {
    routes_in(&fs::read_to_string("/proc/net/route").unwrap_or_default(), networks)
}

/// The same for a text; networks are of 24 bits.
fn routes_in(table: &str, networks: &[Ipv4Addr]) -> Vec<String> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let device = words.next()?;
        // In the order of the bytes in memory, whatever that is.
        let to = u32::from_str_radix(words.next()?, 16).ok()?;
        let to = Ipv4Addr::from(to.to_ne_bytes());
        let ours = networks.iter().any(|network| network.octets()[..3] == to.octets()[..3]);
        ours.then(|| format!("route to {to} by {device}"))
    };
    table.lines().skip(1).filter_map(line).collect()
}

/// Mounts of a table that are below a folder, without the folder's own, the innermost first.
pub(super) fn mounts_below(table: &str, folder: &Path) -> Vec<String> {
    let place = |line: &str| {
        let place = line.split(' ').nth(4)?;
        (Path::new(place) != folder && Path::new(place).starts_with(folder))
            .then(|| place.to_owned())
    };
    let mut found: Vec<String> = table.lines().filter_map(place).collect();
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loop_devices_are_read_with_the_number_of_their_file() {
        let said = r#"{"loopdevices": [
            {"name":"/dev/loop0","back-file":"/run/cluster0/a.img","back-ino":17,"back-maj:min":"254:0"},
            {"name":"/dev/loop1","back-file":"/b.img (deleted)","back-ino":"18","back-maj:min":"  8:1"}]}"#;
        let found = parse_loops(said);
        assert_eq!(found[0].1, (17, "254:0".to_owned()));
        assert_eq!(found[1].1, (18, "8:1".to_owned()));
        assert_eq!(found[1].0.device, Path::new("/dev/loop1"));
        assert!(parse_loops("").is_empty());
    }

    #[test]
    fn a_file_is_found_by_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a/b");
        fs::create_dir(file.parent().unwrap()).unwrap();
        fs::write(&file, "").unwrap();
        let mut known = BTreeSet::new();
        collect(folder.path(), &mut known);
        let number = fs::metadata(&file).unwrap().ino();
        assert_eq!(known.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [number]);
    }

    #[test]
    fn only_routes_into_our_networks_are_named() {
        let to = |address: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(address));
        let table = format!(
            "Iface Destination Gateway\nveth1 {} 0\neth0 {} 0\n",
            to([10, 244, 1, 5]),
            to([192, 0, 2, 0])
        );
        let found = routes_in(&table, &[Ipv4Addr::new(10, 244, 1, 0)]);
        assert_eq!(found, ["route to 10.244.1.5 by veth1"]);
    }

    #[test]
    fn mounts_below_a_folder_are_found_without_the_folder_itself() {
        let table = "1 0 0:1 / / rw - ext4 a rw\n2 1 0:2 / /run/c rw - ext4 a rw\n\
                     3 2 0:3 / /run/c/x rw - ext4 b rw\n4 1 0:4 / /run/cc rw - tmpfs t rw\n";
        assert_eq!(mounts_below(table, Path::new("/run/c")), ["/run/c/x"]);
    }
}
