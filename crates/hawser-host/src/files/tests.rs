use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};

use hawser_core::{Classify, Kind};
use rustix::fs::XattrFlags;

use super::meter::Meter;
use super::*;

fn names(folder: &std::path::Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn holes_stay_holes() {
    let scratch = tempfile::tempdir().unwrap();
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    let file = fs::File::create(&from).unwrap();
    file.set_len(1 << 30).unwrap();
    file.write_all_at(&[9; 4096], 700 << 20).unwrap();

    let copied = copy::copy(&from, &to, &Meter::unheard()).unwrap();

    let meta = fs::metadata(&to).unwrap();
    assert_eq!(meta.len(), 1 << 30);
    assert!(meta.blocks() * 512 <= 1 << 20, "{} blocks", meta.blocks());
    assert!(copied.bytes.get() <= 1 << 20);
    let mut read = [0; 4096];
    fs::File::open(&to).unwrap().read_exact_at(&mut read, 700 << 20).unwrap();
    assert_eq!(read, [9; 4096]);
}

#[test]
fn a_cancelled_copy_leaves_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("file"), vec![1; 1 << 20]).unwrap();
    let meter = Meter::unheard();
    meter.cancel();

    let file = copy::copy(&from.join("file"), &to, &meter).unwrap_err();
    let tree = tree::copy(&from, &to, &meter).unwrap_err();

    assert_eq!((file.kind(), tree.kind()), (Kind::Unavailable, Kind::Unavailable));
    assert_eq!(names(scratch.path()), ["from"]);
}

#[test]
fn a_symlink_or_folder_is_not_copied_as_a_file() {
    let scratch = tempfile::tempdir().unwrap();
    let link = scratch.path().join("link");
    fs::write(scratch.path().join("real"), "x").unwrap();
    symlink("real", &link).unwrap();
    let to = scratch.path().join("to");

    assert!(copy::copy(&link, &to, &Meter::unheard()).is_err());
    assert!(copy::copy(scratch.path(), &to, &Meter::unheard()).is_err());
    assert!(tree::copy(&scratch.path().join("real"), &to, &Meter::unheard()).is_err());
    assert_eq!(names(scratch.path()), ["link", "real"]);
}

#[test]
fn a_copied_folder_keeps_times_modes_attributes_and_special_files() {
    let scratch = tempfile::tempdir().unwrap();
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("file"), "x").unwrap();
    fs::set_permissions(from.join("file"), fs::Permissions::from_mode(0o4711)).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o640);
    rustix::fs::mknodat(rustix::fs::CWD, from.join("fifo"), rustix::fs::FileType::Fifo, mode, 0)
        .unwrap();
    let attribute =
        rustix::fs::setxattr(from.join("file"), "user.color", b"red", XattrFlags::empty());
    let _ = rustix::fs::setxattr(&from, "user.color", b"blue", XattrFlags::empty());
    fs::set_permissions(&from, fs::Permissions::from_mode(0o1755)).unwrap();
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    fs::File::open(from.join("file")).unwrap().set_modified(old).unwrap();
    fs::File::open(&from).unwrap().set_modified(old).unwrap();

    tree::copy(&from, &to, &Meter::unheard()).unwrap();

    let meta = fs::metadata(to.join("file")).unwrap();
    assert_eq!(meta.mode() & 0o7777, 0o4711);
    assert_eq!(meta.modified().unwrap(), old);
    let folder = fs::metadata(&to).unwrap();
    assert_eq!((folder.mode() & 0o7777, folder.modified().unwrap()), (0o1755, old));
    assert_eq!(fs::metadata(to.join("fifo")).unwrap().mode(), 0o010640);
    if attribute.is_ok() {
        let mut value = [0; 8];
        let length = rustix::fs::getxattr(to.join("file"), "user.color", &mut value[..]).unwrap();
        assert_eq!(&value[..length], b"red");
        let length = rustix::fs::getxattr(&to, "user.color", &mut value[..]).unwrap();
        assert_eq!(&value[..length], b"blue");
    }
}

#[test]
fn a_link_that_leads_out_is_copied_as_a_link() {
    let scratch = tempfile::tempdir().unwrap();
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir(&from).unwrap();
    symlink("/etc", from.join("out")).unwrap();

    tree::copy(&from, &to, &Meter::unheard()).unwrap();

    assert_eq!(fs::read_link(to.join("out")).unwrap(), std::path::Path::new("/etc"));
}

#[test]
fn folders_deeper_than_the_limit_are_refused_and_leave_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    let deep: std::path::PathBuf = std::iter::repeat_n("d", 310).collect();
    fs::create_dir_all(from.join(deep)).unwrap();

    let error = tree::copy(&from, &to, &Meter::unheard()).unwrap_err();

    assert_eq!(error.kind(), Kind::OutOfRange);
    assert_eq!(names(scratch.path()), ["from"]);
}

/// A folder with one of each kind in it, and one that only a link leads to.
fn grown(base: &std::path::Path) -> (std::path::PathBuf, std::path::PathBuf) {
    let (given, outside) = (base.join("given"), base.join("outside"));
    fs::create_dir_all(given.join("inner/deep")).unwrap();
    fs::create_dir(&outside).unwrap();
    for (name, mode) in [("file", 0o600), ("inner/program", 0o700), ("inner/deep/open", 0o666)] {
        fs::write(given.join(name), "x").unwrap();
        fs::set_permissions(given.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    for name in ["", "inner", "inner/deep"] {
        fs::set_permissions(given.join(name), fs::Permissions::from_mode(0o700)).unwrap();
    }
    fs::write(outside.join("secret"), "x").unwrap();
    fs::set_permissions(outside.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o700)).unwrap();
    symlink(&outside, given.join("out")).unwrap();
    symlink(outside.join("secret"), given.join("inner/file")).unwrap();
    (given, outside)
}

fn mode(path: &std::path::Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn everything_below_a_folder_is_given_to_a_group_and_nothing_else() {
    let scratch = tempfile::tempdir().unwrap();
    let (given, outside) = grown(scratch.path());
    // Root can give to anybody.
    let own = fs::metadata(&given).unwrap().gid();
    let group = if rustix::process::geteuid().is_root() { 54_321 } else { own };

    let first = group::give(&given, group, &Meter::unheard()).unwrap();
    let second = group::give(&given, group, &Meter::unheard()).unwrap();

    assert!(first.is_made() && !second.is_made());
    for (name, expected) in [
        ("", 0o2770),
        ("inner", 0o2770),
        ("inner/deep", 0o2770),
        ("file", 0o660),
        ("inner/program", 0o770),
        ("inner/deep/open", 0o666),
    ] {
        let path = given.join(name);
        assert_eq!((mode(&path), fs::metadata(&path).unwrap().gid()), (expected, group), "{name}");
    }
    let link = fs::symlink_metadata(given.join("out")).unwrap();
    assert_eq!(link.gid(), group);
    for (path, expected) in [(outside.clone(), 0o700), (outside.join("secret"), 0o600)] {
        assert_eq!((mode(&path), fs::metadata(&path).unwrap().gid()), (expected, own), "{path:?}");
    }
}

#[test]
fn a_walk_that_was_cut_off_is_made_again() {
    let scratch = tempfile::tempdir().unwrap();
    let (given, _) = grown(scratch.path());
    let group = fs::metadata(&given).unwrap().gid();
    let meter = Meter::unheard();
    meter.cancel();

    let error = group::give(&given, group, &meter).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert_eq!(mode(&given), 0o700, "the folder itself comes last");
    // As after a crash in the middle: most is done, the folder is not.
    fs::set_permissions(given.join("file"), fs::Permissions::from_mode(0o660)).unwrap();
    assert!(group::give(&given, group, &Meter::unheard()).unwrap().is_made());

    assert_eq!((mode(&given), mode(&given.join("inner/program"))), (0o2770, 0o770));
}

#[test]
fn rights_of_an_owner_do_not_pass_to_another_group() {
    let scratch = tempfile::tempdir().unwrap();
    if !rustix::process::geteuid().is_root() {
        hawser_testkit::skip("needs root");
        return;
    }
    let file = scratch.path().join("file");
    fs::write(&file, "x").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o6755)).unwrap();

    group::give(scratch.path(), 54_321, &Meter::unheard()).unwrap();

    assert_eq!(mode(&file), 0o775);
}

#[test]
fn a_link_or_a_file_is_no_folder_to_give_and_no_number_means_nobody() {
    let scratch = tempfile::tempdir().unwrap();
    let (given, _) = grown(scratch.path());
    let meter = Meter::unheard();

    for path in [given.join("out"), given.join("file"), scratch.path().join("absent")] {
        assert!(group::give(&path, 1, &meter).is_err(), "{path:?}");
    }
    let error = group::give(&given, u32::MAX, &meter).unwrap_err();

    assert_eq!(error.kind(), Kind::Invalid);
    assert_eq!(mode(&given), 0o700);
}
