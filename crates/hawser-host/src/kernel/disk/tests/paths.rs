use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use crate::kernel::disk::paths::{list, parse_number};

/// A sysfs with the map 253:0 above `paths` of name, number and state.
fn sysfs(uuid: &str, paths: &[(&str, &str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let map = root.path().join("dev/block/253:0");
    fs::create_dir_all(map.join("dm")).unwrap();
    fs::create_dir_all(map.join("slaves")).unwrap();
    fs::write(map.join("dm/uuid"), format!("{uuid}\n")).unwrap();
    for (name, number, state) in paths {
        let block = root.path().join("block").join(name);
        fs::create_dir_all(block.join("device")).unwrap();
        fs::write(block.join("dev"), format!("{number}\n")).unwrap();
        fs::write(block.join("device/state"), format!("{state}\n")).unwrap();
        symlink(block, map.join("slaves").join(name)).unwrap();
    }
    root
}

fn nodes(sys: &Path) -> Option<Vec<PathBuf>> {
    let paths = list(sys, (253, 0)).unwrap()?;
    Some(paths.into_iter().map(|path| path.node).collect())
}

#[test]
fn paths_of_a_map_are_found_with_those_that_run_first() {
    let sys = sysfs(
        "mpath-36001405",
        &[("sda", "8:0", "offline"), ("sdb", "8:16", "running"), ("cciss!c0d0", "104:0", "")],
    );

    let expected = ["/dev/sdb", "/dev/cciss/c0d0", "/dev/sda"].map(PathBuf::from);
    assert_eq!(nodes(sys.path()), Some(expected.to_vec()));
    assert_eq!(list(sys.path(), (253, 0)).unwrap().unwrap()[0].number, (8, 16));
}

#[test]
fn a_map_of_another_kind_and_a_plain_device_have_no_paths() {
    let crypt = sysfs("CRYPT-LUKS2-x", &[("sda", "8:0", "running")]);

    assert_eq!(nodes(crypt.path()), None);
    assert_eq!(list(crypt.path(), (8, 0)).unwrap(), None);
}

#[test]
fn a_map_whose_paths_are_gone_has_none() {
    let sys = sysfs("mpath-36001405", &[]);
    symlink("/nowhere", sys.path().join("dev/block/253:0/slaves/sdz")).unwrap();

    assert_eq!(nodes(sys.path()), Some(Vec::new()));
}

#[test]
fn namespaces_are_known_by_their_name() {
    let sys = sysfs("mpath-uuid.x", &[("nvme0n1", "259:0", "live"), ("sda", "8:0", "running")]);

    let paths = list(sys.path(), (253, 0)).unwrap().unwrap();

    let nvme: Vec<_> = paths.iter().map(|path| path.is_nvme()).collect();
    assert_eq!(nvme, [true, false]);
}

proptest! {
    #[test]
    fn no_text_makes_a_number_panic(text in "\\PC*") {
        let _ = parse_number(&text);
    }
}

hawser_testkit::fuzz_corpus!(corpus, "device_number", |bytes| {
    let text = String::from_utf8_lossy(bytes);
    let _ = parse_number(text.trim());
});
