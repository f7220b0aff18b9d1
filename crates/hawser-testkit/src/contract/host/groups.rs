//! Rules about giving folders to groups. The group is one that the process has: root is not needed.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use hawser_core::{Change, Kind};

use super::HostRig;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("stat").mode() & 0o7777
}

/// All that is below may be written by the group, and what is made in it later; the second time says
/// so.
pub async fn a_folder_is_given_to_a_group_once(rig: HostRig) {
    let given = rig.folder("given");
    let inner = given.join("inner");
    fs::create_dir(&inner).expect("make");
    for (file, bits) in [(given.join("file"), 0o600), (inner.join("program"), 0o700)] {
        fs::write(&file, "x").expect("write");
        set_mode(&file, bits);
    }
    set_mode(&inner, 0o700);
    set_mode(&given, 0o700);
    let group = fs::metadata(&given).expect("stat").gid();

    let first = rig.host.give_to_group(&given, group).await.expect("give");
    let second = rig.host.give_to_group(&given, group).await.expect("give again");

    assert_eq!((first, second), (Change::Made(()), Change::Already(())));
    for (path, expected) in [
        (given.clone(), 0o2770),
        (inner.clone(), 0o2770),
        (given.join("file"), 0o660),
        (inner.join("program"), 0o770),
    ] {
        assert_eq!(mode(&path), expected, "{path:?}");
        assert_eq!(fs::metadata(&path).expect("stat").gid(), group, "{path:?}");
    }
}

/// No link is followed, wherever it leads.
pub async fn what_a_link_leads_to_is_not_given(rig: HostRig) {
    let (given, outside) = (rig.folder("given"), rig.folder("outside"));
    fs::write(outside.join("file"), "x").expect("write");
    set_mode(&outside.join("file"), 0o600);
    set_mode(&outside, 0o700);
    symlink(&outside, given.join("folder")).expect("symlink");
    symlink(outside.join("file"), given.join("file")).expect("symlink");
    let group = fs::metadata(&given).expect("stat").gid();

    rig.host.give_to_group(&given, group).await.expect("give");

    assert_eq!((mode(&outside), mode(&outside.join("file"))), (0o700, 0o600));
    assert!(given.join("folder").is_symlink());
}

/// A link, a file, nothing and a number that means nobody are refused.
pub async fn what_is_no_folder_is_not_given(rig: HostRig) {
    let folder = rig.folder("folder");
    let link = rig.scratch.join("link");
    symlink(&folder, &link).expect("symlink");
    let file = rig.scratch.join("file");
    fs::write(&file, "x").expect("write");
    set_mode(&folder, 0o700);
    let group = fs::metadata(&folder).expect("stat").gid();

    for path in [&link, &file] {
        assert!(rig.host.give_to_group(path, group).await.is_err(), "{path:?}");
    }
    let absent = rig.host.give_to_group(&rig.scratch.join("absent"), group).await;
    let nobody = rig.host.give_to_group(&folder, u32::MAX).await;

    assert_eq!(absent.expect_err("absent").kind(), Kind::NotFound);
    assert_eq!(nobody.expect_err("nobody").kind(), Kind::Invalid);
    assert_eq!(mode(&folder), 0o700);
}
