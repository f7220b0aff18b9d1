//! Removing what somebody else filled.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use hawser_core::{Classify, Kind};
use rustix::fs::{AtFlags, Mode, OFlags};
use tempfile::TempDir;

use super::super::folder::Folder;
use super::super::remove::remove_folder;

fn folder() -> (TempDir, Folder) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let folder = Folder::open(dir.path()).expect("it can be opened");
    std::fs::create_dir(dir.path().join("doomed")).expect("it can be written");
    (dir, folder)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A chain of folders deeper than any path can name, a file in each.
fn dig(top: &Path, depth: usize) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut at = rustix::fs::open(top, flags, Mode::empty()).unwrap();
    for _ in 0..depth {
        rustix::fs::mkdirat(&at, "d", Mode::from_raw_mode(0o700)).unwrap();
        let create = OFlags::CREATE | OFlags::WRONLY;
        rustix::fs::openat(&at, "f", create, Mode::from_raw_mode(0o600)).unwrap();
        at = rustix::fs::openat(&at, "d", flags, Mode::empty()).unwrap();
    }
}

#[test]
fn a_tree_deeper_than_any_path_is_removed() {
    let (dir, folder) = folder();
    dig(&dir.path().join("doomed"), 5000);

    assert!(remove_folder(&folder, "doomed").expect("remove").is_made());

    assert!(folder.names().unwrap().is_empty());
    assert!(!remove_folder(&folder, "doomed").expect("remove again").is_made());
}

#[test]
fn a_wide_tree_is_removed_and_its_space_is_counted() {
    let (dir, folder) = folder();
    for n in 0..600 {
        let sub = dir.path().join(format!("doomed/{}", n % 20));
        std::fs::create_dir_all(&sub).unwrap();
        std::fs::write(sub.join(n.to_string()), vec![7; 4096]).unwrap();
    }

    let freed = remove_folder(&folder, "doomed").expect("remove").into_inner();

    assert!(freed >= 600 * 4096, "{freed}");
    assert!(folder.names().unwrap().is_empty());
}

#[test]
fn links_are_removed_and_not_followed() {
    let (dir, folder) = folder();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("precious"), b"x").unwrap();
    symlink(outside.path(), dir.path().join("doomed/link")).unwrap();
    std::fs::create_dir(dir.path().join("doomed/sub")).unwrap();
    symlink(outside.path(), dir.path().join("doomed/sub/link")).unwrap();
    symlink("/nowhere", dir.path().join("doomed/dangling")).unwrap();

    remove_folder(&folder, "doomed").expect("remove");

    assert!(outside.path().join("precious").exists());
    assert!(folder.names().unwrap().is_empty());
}

#[test]
fn a_link_in_place_of_the_folder_is_refused() {
    let (dir, folder) = folder();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("precious"), b"x").unwrap();
    symlink(outside.path(), dir.path().join("link")).unwrap();

    assert!(remove_folder(&folder, "link").is_err());

    assert!(outside.path().join("precious").exists());
}

#[test]
fn sockets_pipes_and_open_files_are_removed() {
    let (dir, folder) = folder();
    let doomed = dir.path().join("doomed");
    let _listener = std::os::unix::net::UnixListener::bind(doomed.join("socket")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        doomed.join("pipe"),
        rustix::fs::FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let _open = std::fs::File::create(doomed.join("open")).unwrap();

    remove_folder(&folder, "doomed").expect("remove");

    assert!(folder.names().unwrap().is_empty());
}

#[test]
fn an_ordinary_user_removes_folders_without_rights() {
    // The kernel keeps user ids per thread, so this thread alone becomes an ordinary user.
    let (dir, _) = folder();
    let doomed = dir.path().join("doomed");
    for sub in ["doomed/a/b/c", "doomed/x"] {
        std::fs::create_dir_all(dir.path().join(sub)).unwrap();
        std::fs::write(dir.path().join(sub).join("file"), b"x").unwrap();
    }
    if is_root() {
        for path in ["", "doomed", "doomed/a", "doomed/a/b", "doomed/a/b/c", "doomed/x"] {
            std::os::unix::fs::chown(dir.path().join(path), Some(65534), Some(65534)).unwrap();
        }
    }
    for (path, mode) in [("a/b/c", 0o000), ("a/b", 0o500), ("a", 0o000), ("x", 0o300)] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(doomed.join(path), mode).unwrap();
    }

    let path = dir.path().to_owned();
    let removed = std::thread::spawn(move || {
        if is_root() {
            let user = rustix::fs::Uid::from_raw(65534);
            rustix::thread::set_thread_res_uid(user, user, user).expect("root may become anybody");
        }
        let folder = Folder::open(&path).expect("its own folder");
        remove_folder(&folder, "doomed").map(|change| change.is_made())
    });

    assert!(removed.join().expect("no panic").expect("remove"));
    assert!(!doomed.exists());
}

#[test]
fn an_immutable_file_is_told_by_name() {
    let (dir, folder) = folder();
    let path = dir.path().join("doomed/kept");
    let file = std::fs::File::create(&path).unwrap();
    let flags = rustix::fs::IFlags::IMMUTABLE;
    if !is_root() || rustix::fs::ioctl_setflags(&file, flags).is_err() {
        return hawser_testkit::skip("needs root and a file system with immutable files");
    }

    let error = remove_folder(&folder, "doomed").expect_err("it is immutable");
    rustix::fs::ioctl_setflags(&file, rustix::fs::IFlags::empty()).unwrap();

    assert_eq!(error.kind(), Kind::Denied);
    assert!(
        error.to_string().contains("kept") && error.to_string().contains("immutable"),
        "{error}"
    );
    assert!(remove_folder(&folder, "doomed").expect("now").is_made(), "the next call goes on");
}

#[test]
fn what_is_mounted_inside_is_never_entered() {
    let (dir, folder) = folder();
    let (outside, inside) = (tempfile::tempdir().unwrap(), dir.path().join("doomed/a/b"));
    std::fs::write(outside.path().join("precious"), b"x").unwrap();
    std::fs::create_dir_all(&inside).unwrap();
    if !is_root() || rustix::mount::mount_bind(outside.path(), &inside).is_err() {
        return hawser_testkit::skip("needs the right to mount");
    }

    let error = remove_folder(&folder, "doomed").expect_err("something is mounted inside");
    rustix::mount::unmount(&inside, rustix::mount::UnmountFlags::empty()).unwrap();

    assert_eq!(error.kind(), Kind::Busy, "{error}");
    assert!(outside.path().join("precious").exists());
    assert!(remove_folder(&folder, "doomed").expect("after the unmount").is_made());
    assert!(rustix::fs::statat(&folder, "doomed", AtFlags::empty()).is_err());
}
