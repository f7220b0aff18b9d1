use std::os::unix::fs::symlink;

use hawser_core::filesystem::FsKind;
use hawser_core::secret::Secret;
use hawser_core::{Classify, Kind};
use proptest::prelude::*;
use rustix::mount::{MountAttrFlags, MountFlags};

use super::*;

fn request(source: MountSource, flags: &[&str]) -> HostMount {
    let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    HostMount { source, target: "/mnt".into(), read_only: false, flags }
}

fn device(fs: FsKind) -> MountSource {
    MountSource::Device { device: "/dev/loop0".into(), fs }
}

#[test]
fn a_table_of_a_real_host_is_read() {
    let table = table::parse(include_bytes!("../../testdata/corpus/mountinfo/sample")).unwrap();

    let root = &table[0];
    assert_eq!((root.id, root.parent, root.device), (22, 1, (254, 0)));
    assert_eq!((root.fs_type.as_str(), root.source.as_str()), ("ext4", "/dev/vda"));
    assert!(root.propagation.is_empty() && !root.read_only());
    let spaced = &table[1];
    assert_eq!(spaced.target, Path::new("/mnt/with space\\and\ttab"));
    assert_eq!(spaced.propagation, ["shared:7", "master:3"]);
    assert!(spaced.read_only());
    let bound = &table[2];
    assert_eq!((bound.root.as_path(), bound.source.as_str()), (Path::new("/sub"), ""));
}

#[test]
fn a_malformed_line_is_named() {
    let error = table::parse(b"22 1 254:0 / / rw - ext4 /dev/vda rw\n23 x\n").unwrap_err();

    assert_eq!(error.to_string(), r#"the mount table has a malformed line 2: "23 x""#);
}

#[test]
fn the_table_of_this_process_has_a_root() {
    assert!(table::read().unwrap().iter().any(|entry| entry.target == Path::new("/")));
}

proptest! {
    #[test]
    fn no_table_makes_it_panic(text in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = table::parse(&text);
    }

    #[test]
    fn any_path_survives_the_table(name in prop::collection::vec(1_u8..=255, 1..40)) {
        use std::os::unix::ffi::OsStrExt;
        let escaped: Vec<u8> = name
            .iter()
            .flat_map(|byte| match byte {
                b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
                _ => vec![*byte],
            })
            .collect();
        let line = [&b"1 0 8:1 / /"[..], &escaped, b" rw - ext4 /dev/sda rw"].concat();

        let table = table::parse(&line).unwrap();

        prop_assert_eq!(&table[0].target.as_os_str().as_bytes()[1..], &name[..]);
    }

    #[test]
    fn no_option_makes_it_panic(option in "\\PC*") {
        let _ = Options::parse(&request(device(FsKind::Ext4), &[&option]));
    }
}

#[test]
fn options_are_sorted_by_whom_they_are_for() {
    let options =
        Options::parse(&request(device(FsKind::Xfs), &["nodev", "ro", "logbufs=4", "defaults"]))
            .unwrap();

    assert!(options.read_only);
    assert_eq!(
        options.attributes,
        MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_RDONLY
    );
    assert_eq!(options.flags, MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY);
    assert_eq!(options.joined(&[]).unwrap().as_c_str(), c"logbufs=4,nouuid");
}

#[test]
fn options_that_bring_another_device_are_refused() {
    for option in ["device=/dev/sda", "logdev=/dev/sda", "journal_path=/x", "source=/dev/sda"] {
        let error = Options::parse(&request(device(FsKind::Btrfs), &[option])).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{option}");
    }
    let mut read_only = request(device(FsKind::Ext4), &["rw"]);
    read_only.read_only = true;
    assert!(Options::parse(&read_only).is_err());
}

#[test]
fn programs_and_device_nodes_of_a_volume_have_no_rights_here() {
    let folder = MountSource::Bind { path: "/pool".into() };
    for source in [device(FsKind::Ext4), device(FsKind::Xfs), folder, share()] {
        let options = Options::parse(&request(source.clone(), &["defaults", "exec"])).unwrap();
        assert_eq!(options.flags, MountFlags::NOSUID | MountFlags::NODEV, "{source:?}");
        for option in ["suid", "dev", "suid=1"] {
            let error = Options::parse(&request(source.clone(), &[option])).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{source:?} {option}");
        }
    }
}

#[test]
fn options_that_would_do_something_else_or_break_out_are_refused() {
    let folder = MountSource::Bind { path: "/pool".into() };
    let raw = MountSource::Raw { device: "/dev/loop0".into() };
    for source in [device(FsKind::Ext4), folder, raw] {
        for option in [
            "bind",
            "rbind",
            "remount",
            "move",
            "loop",
            "loop=/etc/passwd",
            "shared",
            "rslave",
            "dev",
            "suid",
            "",
            "a b",
            "noatime,suid",
            "data=ordered\nsuid",
            "nul\0",
            "quota=\"x\"",
        ] {
            let error = Options::parse(&request(source.clone(), &[option])).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{source:?} {option:?}");
        }
    }
}

/// As kubelet writes them: in quotes, because of the commas.
#[test]
fn a_label_of_selinux_reaches_the_kernel_whole() {
    let label = "system_u:object_r:container_file_t:s0:c12,c257";
    for key in ["context", "fscontext", "defcontext", "rootcontext"] {
        for flag in [format!("{key}=\"{label}\""), format!("{key}={label}")] {
            let options = Options::parse(&request(device(FsKind::Ext4), &[&flag, "discard"]));

            let options = options.unwrap();
            let (own, value) = &options.filesystem[0];
            assert_eq!((own.as_str(), value.as_deref()), (key, Some(label)));
            // mount(2) takes one text, and the kernel the quotes off again.
            let joined = options.joined(&[]).unwrap().into_string().unwrap();
            assert_eq!(joined, format!("{key}=\"{label}\",discard"));
        }
    }
    for flag in ["context=\"a\"b\"", "context=a\nb", "context=a b", "context=\"a,suid"] {
        let error = Options::parse(&request(device(FsKind::Ext4), &[flag])).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{flag:?}");
    }
}

#[test]
fn a_label_in_the_table_is_one_option_and_quotes_of_others_hide_nothing() {
    let line = b"1 0 8:1 / /a rw - ext4 /dev/sda rw,context=\"u:r:t:s0:c1,c2\",ro\n\
        2 0 0:9 / /b rw - cifs //s/x rw,username=\"me,ro,end=\"\n";

    let table = table::parse(line).unwrap();

    assert_eq!(table[0].super_options, ["rw", "context=\"u:r:t:s0:c1,c2\"", "ro"]);
    assert!(table[0].read_only() && table[1].read_only());
}

#[test]
fn only_a_copy_of_xfs_shares_its_uuid_with_an_original_that_is_mounted() {
    let given = |fs, flags: &[&str]| {
        let options = Options::parse(&request(device(fs), flags)).unwrap();
        options.joined(&[]).unwrap().into_string().unwrap()
    };

    assert_eq!(given(FsKind::Xfs, &[]), "nouuid");
    assert_eq!(given(FsKind::Xfs, &["nouuid"]), "nouuid");
    assert_eq!(given(FsKind::Ext4, &[]), "");
    assert_eq!(given(FsKind::Btrfs, &[]), "");
}

#[test]
fn a_device_in_a_file_can_be_opened_and_has_no_options_of_a_file_system() {
    let raw = || MountSource::Raw { device: "/dev/loop0".into() };

    let options = Options::parse(&request(raw(), &["ro", "noexec"])).unwrap();

    assert_eq!(options.flags, MountFlags::RDONLY | MountFlags::NOEXEC);
    for option in ["nodev", "discard", "context=a", "nouuid"] {
        let error = Options::parse(&request(raw(), &[option])).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{option}");
    }
}

/// CVE-2017-1002101, CVE-2021-25741, for raw devices.
#[test]
fn a_target_file_is_never_made_through_a_link_of_others() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = tempfile::tempdir().unwrap();
    let open = scratch.path().join("open");
    std::fs::create_dir_all(open.join("real")).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o1777)).unwrap();
    symlink("real", open.join("link")).unwrap();
    symlink("nothing", open.join("real/dangling")).unwrap();

    for path in ["link/file", "real/dangling"] {
        let error = make_target_file(&open.join(path)).unwrap_err();
        assert!(matches!(error, MountError::Symlink { .. }), "{path}: {error:?}");
    }
    make_target_file(&open.join("real/file")).unwrap();

    let mode = std::fs::metadata(open.join("real/file")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    assert!(!open.join("real/nothing").exists());
}

#[test]
fn only_an_empty_plain_file_is_removed_as_a_target() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let claims = Claims::default();
    std::fs::write(path("full"), "x").unwrap();
    std::fs::write(path("empty"), "").unwrap();
    symlink("empty", path("link")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), FileType::Fifo, mode, 0).unwrap();

    for name in ["full", "link", "fifo", "absent", "full/below"] {
        assert!(!remove_target(&claims, &path(name)).unwrap().is_made(), "{name}");
    }
    assert!(remove_target(&claims, &path("empty")).unwrap().is_made());

    assert!(path("full").exists() && path("link").is_symlink() && path("fifo").exists());
    assert!(!path("empty").exists());
}

#[test]
fn a_link_in_a_folder_of_ours_is_followed_but_not_as_last_component() {
    let scratch = tempfile::tempdir_in("/var/lib").or_else(|_| tempfile::tempdir()).unwrap();
    let base = scratch.path().canonicalize().unwrap();
    std::fs::create_dir_all(base.join("real/inner")).unwrap();
    symlink("real", base.join("link")).unwrap();

    let last = target::open_folder(&base.join("link"));
    assert!(matches!(last, Err(MountError::Symlink { .. })));
    if base.starts_with("/var/lib") {
        let folder = target::open_folder(&base.join("link/inner")).unwrap();
        let path = target::real_path(&folder, &base).unwrap();
        assert_eq!(path, base.join("real/inner"));
    }
}

/// CVE-2017-1002101, CVE-2021-25741: a folder on the way to a target is swapped for a link.
#[test]
fn a_link_below_a_folder_that_others_may_write_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = tempfile::tempdir().unwrap();
    let open = scratch.path().join("open");
    std::fs::create_dir_all(open.join("real/inner")).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o1777)).unwrap();
    symlink("real", open.join("link")).unwrap();

    let error = target::open_folder(&open.join("link/inner")).unwrap_err();

    assert!(matches!(error, MountError::Symlink { .. }), "{error:?}");
    assert!(target::open_folder(&open.join("real/inner")).is_ok());
}

#[test]
fn a_target_that_is_worked_on_is_busy() {
    let claims = Claims::default();
    let claim = claims.claim(Path::new("/a")).unwrap();

    assert_eq!(claims.claim(Path::new("/a")).err().unwrap().kind(), Kind::Busy);
    drop(claim);
    assert!(claims.claim(Path::new("/a")).is_ok());
}

#[test]
fn who_has_a_path_open_is_told() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("file");
    let _file = std::fs::File::create(&path).unwrap();

    let me = format!("({})", std::process::id());
    assert!(openers(&path).iter().any(|who| who.ends_with(&me)));
    assert!(openers(&scratch.path().join("other")).is_empty());
}

fn share() -> MountSource {
    let secrets = vec![("password".into(), Secret::new("hunter2,x"))];
    MountSource::Network { fs_type: "cifs".into(), source: "//server/share".into(), secrets }
}

#[test]
fn options_of_a_network_file_system_go_to_it_as_they_are() {
    let flags = ["username=Jörg Müller", "unc=\\\\server\\share", "ip=192.0.2.9", "noatime", "ro"];

    let options = Options::parse(&request(share(), &flags)).unwrap();

    let given: Vec<_> =
        options.filesystem.iter().map(|(key, value)| (&**key, value.as_deref())).collect();
    assert_eq!(
        given,
        [
            ("username", Some("Jörg Müller")),
            ("unc", Some("\\\\server\\share")),
            ("ip", Some("192.0.2.9"))
        ]
    );
    assert!(options.read_only);
    assert_eq!(
        options.flags,
        MountFlags::NOATIME | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV
    );
    for option in ["user\nname=x", "username=a\0b", "username=a\nb", "us er=x", "source=//x/y"] {
        let error = Options::parse(&request(share(), &[option])).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{option:?}");
    }
}

#[test]
fn a_secret_among_the_options_is_refused_and_not_repeated() {
    for option in ["password=hunter2", "pass=hunter2"] {
        let error = Options::parse(&request(share(), &[option])).unwrap_err();

        assert_eq!(error.kind(), Kind::Invalid);
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[test]
fn for_the_old_call_secrets_are_options_and_a_comma_is_refused_by_its_name() {
    let options = Options::parse(&request(share(), &["username=u"])).unwrap();
    let plain = [("password".to_owned(), Secret::new("hunter2"))];
    let comma = [("password".to_owned(), Secret::new("hunter2,x"))];

    let joined = options.joined(&plain).unwrap();
    let refused = options.joined(&comma).unwrap_err().to_string();

    assert_eq!(joined.as_c_str(), c"username=u,password=hunter2");
    assert!(refused.contains("password") && !refused.contains("hunter2"), "{refused}");
}

hawser_testkit::fuzz_corpus!(corpus, "mountinfo", |bytes| {
    let _ = table::parse(bytes);
});
