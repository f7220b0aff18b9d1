//! Rules about looking at paths, and folders with a mode.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use hawser_core::port::host::SeenKind;
use hawser_core::{Change, Kind};

use super::{HostRig, bind};

const LIMIT: Duration = Duration::from_secs(10);

/// What is at a path is told, and a link there is not followed.
pub async fn looking_tells_what_is_there(rig: HostRig) {
    let file = rig.scratch.join("file");
    fs::write(&file, "12345").expect("write");
    let link = rig.scratch.join("link");
    symlink(&file, &link).expect("symlink");

    for (path, kind) in [
        (&file, Some(SeenKind::File)),
        (&rig.scratch, Some(SeenKind::Folder)),
        (&link, Some(SeenKind::Symlink)),
        (&rig.scratch.join("nothing"), None),
        (&file.join("below a file"), None),
    ] {
        let seen = rig.host.look(path, LIMIT).await.expect("look");
        assert_eq!(seen.map(|seen| seen.kind), kind, "{path:?}");
    }
    let seen = rig.host.look(&file, LIMIT).await.expect("look").expect("a file");
    assert_eq!(seen.length, 5);
    let error = rig.host.look(std::path::Path::new("relative"), LIMIT).await.expect_err("relative");
    assert_eq!(error.kind(), Kind::Invalid);
}

/// The device number tells on which mount a path lies: that of the mount table.
pub async fn looking_tells_on_which_mount_a_path_lies(rig: HostRig) {
    if rig.lacks_privileges().await {
        return;
    }
    let (source, target) = (rig.folder("source"), rig.folder("target"));
    rig.host.mount(&bind(&source, &target)).await.expect("bind");

    let seen = rig.host.look(&target, LIMIT).await.expect("look").expect("a folder");

    let entry = rig.mounted_at(&target).await.expect("a mount");
    assert_eq!(seen.device, entry.device);
    rig.host.unmount(&target).await.expect("unmount");
}

/// A folder is made once, with its mode, and only in a folder that is there.
pub async fn a_folder_is_made_once_with_its_mode(rig: HostRig) {
    let folder = rig.scratch.join("closed");

    assert_eq!(rig.host.make_folder(&folder, 0).await.expect("make"), Change::Made(()));
    assert_eq!(rig.host.make_folder(&folder, 0o755).await.expect("again"), Change::Already(()));

    let seen = rig.host.look(&folder, LIMIT).await.expect("look").expect("a folder");
    assert_eq!((seen.kind, seen.mode), (SeenKind::Folder, 0), "the first mode stays");
    let lost = rig.scratch.join("no/such");
    let error = rig.host.make_folder(&lost, 0o755).await.expect_err("no parent");
    assert_eq!(error.kind(), Kind::NotFound);
    rig.host.remove_target(&folder).await.expect("remove");
}
