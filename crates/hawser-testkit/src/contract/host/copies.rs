//! Rules about copies.

use std::fs;
use std::future::Future;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use hawser_core::port::progress::Silent;
use hawser_core::{ByteSize, Kind};

use super::HostRig;

/// A copy has the same bytes and length, and the temporary name is gone.
pub async fn a_copy_has_the_same_bytes(rig: HostRig) {
    use std::os::unix::fs::FileExt;
    let from = rig.image("from", ByteSize::mib(16));
    let file = fs::OpenOptions::new().write(true).open(&from).expect("open");
    file.write_all_at(b"first", 0).expect("write");
    file.write_all_at(b"last", ByteSize::mib(9).get() + 7).expect("write");
    let to = rig.scratch.join("to");

    rig.host.copy_file(&from, &to, &Silent).await.expect("copy");

    assert!(fs::read(&from).expect("read") == fs::read(&to).expect("read"), "bytes differ");
    assert!(fs::metadata(&to).expect("stat").blocks() * 512 < ByteSize::mib(8).get(), "no holes");
    assert_eq!(rig.names(&rig.scratch), ["from", "to"]);
}

/// A name that is taken keeps what it has.
pub async fn a_copy_never_replaces(rig: HostRig) {
    let (from, to) = (rig.scratch.join("from"), rig.scratch.join("to"));
    fs::write(&from, "new").expect("write");
    fs::write(&to, "old").expect("write");
    let tree = rig.folder("tree");

    let file = rig.host.copy_file(&from, &to, &Silent).await.expect_err("taken");
    let folder = rig.host.copy_tree(&tree, &to, &Silent).await.expect_err("taken");

    assert_eq!((file.kind(), folder.kind()), (Kind::Exists, Kind::Exists));
    assert_eq!(fs::read_to_string(&to).expect("read"), "old");
    assert_eq!(rig.names(&rig.scratch), ["from", "to", "tree"]);
}

/// A copy of nothing says so and makes nothing.
pub async fn a_failed_copy_leaves_nothing(rig: HostRig) {
    let (from, to) = (rig.scratch.join("from"), rig.scratch.join("to"));

    let file = rig.host.copy_file(&from, &to, &Silent).await.expect_err("absent");
    let folder = rig.host.copy_tree(&from, &to, &Silent).await.expect_err("absent");

    assert_eq!((file.kind(), folder.kind()), (Kind::NotFound, Kind::NotFound));
    assert!(rig.names(&rig.scratch).is_empty());
}

/// A copied folder has the same files, modes and symlinks, and shares nothing by hard link.
pub async fn a_copied_folder_is_the_same(rig: HostRig) {
    let from = rig.folder("from");
    fs::create_dir(from.join("inner")).expect("mkdir");
    fs::write(from.join("inner/file"), "data").expect("write");
    fs::set_permissions(from.join("inner/file"), fs::Permissions::from_mode(0o640)).expect("chmod");
    fs::hard_link(from.join("inner/file"), from.join("second")).expect("link");
    symlink("/nowhere", from.join("link")).expect("symlink");
    let to = rig.scratch.join("to");

    rig.host.copy_tree(&from, &to, &Silent).await.expect("copy");

    let copied = fs::metadata(to.join("inner/file")).expect("stat");
    assert_eq!(fs::read_to_string(to.join("inner/file")).expect("read"), "data");
    assert_eq!(copied.mode() & 0o7777, 0o640);
    assert_eq!(fs::metadata(to.join("second")).expect("stat").ino(), copied.ino());
    assert_ne!(fs::metadata(from.join("second")).expect("stat").ino(), copied.ino());
    assert_eq!(fs::read_link(to.join("link")).expect("readlink"), Path::new("/nowhere"));
    assert_eq!(rig.names(&rig.scratch), ["from", "to"]);
}

/// A copy whose caller went away is finished or gone, never half there.
pub async fn a_dropped_copy_leaves_nothing_half_made(rig: HostRig) {
    let from = rig.scratch.join("from");
    fs::write(&from, vec![7_u8; 24 << 20]).expect("write");
    let to = rig.scratch.join("to");
    {
        let mut copy = pin!(rig.host.copy_file(&from, &to, &Silent));
        let _ = copy.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }

    for _ in 0..200 {
        let names = rig.names(&rig.scratch);
        let whole = || fs::metadata(&to).is_ok_and(|meta| meta.len() == 24 << 20);
        if names == ["from"] || (names == ["from", "to"] && whole()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("left behind: {:?}", rig.names(&rig.scratch));
}
