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
