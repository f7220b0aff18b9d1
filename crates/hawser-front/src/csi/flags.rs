//! Mount options from outside: whoever may write a PersistentVolume chooses them, so only options
//! that change how a file system works are passed on, never what is mounted or what it may do to the
//! host. That nothing on a volume gets rights of the host is the host's own rule.

use hawser_core::filesystem::FsKind;
use hawser_core::volume::Access;

use super::error::{CsiError, cut};

/// Options, sorted by whom they are for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    /// For connectors that mount: the options of a network file system.
    pub(super) attach: Vec<String>,
    /// For the mount itself.
    pub(super) mount: Vec<String>,
}

/// Options of the mount itself, whatever the file system.
const ANY: [&str; 19] = [
    "ro",
    "rw",
    "defaults",
    "atime",
    "noatime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "nodiratime",
    "nodev",
    "nosuid",
    "noexec",
    "nosymfollow",
    "sync",
    "dirsync",
    "async",
];
/// Those of them that a bind of a folder can have; the others go to whoever mounts the folder.
const BIND: [&str; 11] = [
    "ro",
    "rw",
    "defaults",
    "noatime",
    "relatime",
    "strictatime",
    "nodiratime",
    "nodev",
    "nosuid",
    "noexec",
    "nosymfollow",
];
/// Labels of SELinux, which the kubelet sends in one option, commas and all.
const LABELS: [&str; 4] = ["context", "fscontext", "defcontext", "rootcontext"];
const EXT4: [&str; 22] = [
    "acl",
    "noacl",
    "auto_da_alloc",
    "noauto_da_alloc",
    "barrier",
    "nobarrier",
    "commit",
    "data",
    "delalloc",
    "nodelalloc",
    "discard",
    "nodiscard",
    "errors",
    "inode_readahead_blks",
    "journal_checksum",
    "max_batch_time",
    "min_batch_time",
    "norecovery",
    "prjquota",
    "stripe",
    "user_xattr",
    "usrquota",
];
const XFS: [&str; 22] = [
    "allocsize",
    "discard",
    "nodiscard",
    "filestreams",
    "gquota",
    "pquota",
    "uquota",
    "noquota",
    "grpquota",
    "prjquota",
    "usrquota",
    "inode32",
    "inode64",
    "largeio",
    "nolargeio",
    "logbsize",
    "logbufs",
    "noalign",
    "norecovery",
    "nouuid",
    "swalloc",
    "wsync",
];
const BTRFS: [&str; 18] = [
    "autodefrag",
    "noautodefrag",
    "commit",
    "compress",
    "compress-force",
    "datacow",
    "nodatacow",
    "datasum",
    "nodatasum",
    "discard",
    "nodiscard",
    "max_inline",
    "space_cache",
    "ssd",
    "nossd",
    "ssd_spread",
    "thread_pool",
    "treelog",
];
/// Words that make another mount of it, or give it more rights than a volume has.
const NEVER: [&str; 24] = [
    "bind",
    "rbind",
    "move",
    "remount",
    "loop",
    "offset",
    "sizelimit",
    "source",
    "subvol",
    "subvolid",
    "device",
    "dev",
    "suid",
    "exec",
    "user",
    "users",
    "owner",
    "group",
    "shared",
    "rshared",
    "private",
    "rprivate",
    "slave",
    "unbindable",
];
/// Options whose values are secret: they come as secrets, or not at all.
const SECRET: [&str; 5] = ["password", "password2", "pass", "passwd", "credentials"];

impl Flags {
    /// Sorts and checks the options of a request. `Kind::Invalid` for options that are not passed on.
    pub(super) fn of(access: Access, given: &[String]) -> Result<Self, CsiError> {
        let mut flags = Self::default();
        for flag in given {
            let name = name_of(flag)?;
            let own: &[&str] = match access {
                Access::Block => return Err(refused(flag, "a device is not mounted")),
                Access::Folder => {
                    let bind = BIND.contains(&name);
                    push(if bind { &mut flags.mount } else { &mut flags.attach }, flag);
                    continue;
                }
                Access::Filesystem(FsKind::Ext4) => &EXT4,
                Access::Filesystem(FsKind::Xfs) => &XFS,
                Access::Filesystem(FsKind::Btrfs) => &BTRFS,
            };
            if flag == "errors=panic" {
                return Err(refused(flag, "a bad volume must not stop the host"));
            }
            if ![&ANY[..], &LABELS[..], own].iter().any(|list| list.contains(&name)) {
                return Err(refused(flag, "it is none of those that are passed on"));
            }
            push(&mut flags.mount, flag);
        }
        Ok(flags)
    }
}

fn push(flags: &mut Vec<String>, flag: &str) {
    if !flags.iter().any(|there| there == flag) {
        flags.push(flag.to_owned());
    }
}

fn refused(flag: &str, why: &'static str) -> CsiError {
    // What stands behind the name may be a secret.
    let name = flag.split('=').next().unwrap_or_default();
    CsiError::Flag { flag: cut(name), why }
}

/// The name of an option that is well-formed and not refused whatever the file system.
fn name_of(flag: &str) -> Result<&str, CsiError> {
    let name = flag.split('=').next().unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
        return Err(refused(flag, "it is not one option"));
    }
    let value = &flag[name.len()..];
    let label = LABELS.contains(&name);
    if value.chars().any(|c| c.is_control() || c.is_whitespace() || (c == ',' && !label)) {
        return Err(refused(flag, "it is not one option"));
    }
    if NEVER.contains(&name) || name.starts_with("x-") {
        return Err(refused(flag, "it changes what is mounted, or what it may do to the host"));
    }
    if SECRET.contains(&name) {
        return Err(refused(flag, "secrets come as secrets"));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EXT4_VOLUME: Access = Access::Filesystem(FsKind::Ext4);

    fn of(access: Access, given: &[&str]) -> Result<Flags, CsiError> {
        let given: Vec<_> = given.iter().map(|flag| (*flag).to_owned()).collect();
        Flags::of(access, &given)
    }

    #[test]
    fn options_of_the_file_system_are_passed_on_once() {
        let flags = of(EXT4_VOLUME, &["noatime", "data=ordered", "noatime"]).unwrap();
        assert_eq!(flags.mount, ["noatime", "data=ordered"]);
        assert!(flags.attach.is_empty());

        assert!(of(Access::Filesystem(FsKind::Xfs), &["nouuid", "logbufs=8"]).is_ok());
        assert!(of(Access::Filesystem(FsKind::Xfs), &["data=ordered"]).is_err());
        assert!(of(Access::Block, &["noatime"]).is_err());
    }

    #[test]
    fn a_label_of_selinux_is_left_as_it_is() {
        let label = "context=\"system_u:object_r:container_file_t:s0:c1,c2\"";

        assert_eq!(of(EXT4_VOLUME, &[label]).unwrap().mount[0], label);
    }

    #[test]
    fn options_of_a_network_file_system_go_to_whoever_mounts_it() {
        let flags = of(Access::Folder, &["nfsvers=4.1", "noatime", "hard"]).unwrap();

        assert_eq!(flags.attach, ["nfsvers=4.1", "hard"]);
        assert_eq!(flags.mount, ["noatime"]);
    }

    #[test]
    fn options_that_would_mount_something_else_are_refused() {
        for access in [EXT4_VOLUME, Access::Folder] {
            for bad in [
                "",
                "=",
                "bind",
                "remount",
                "loop",
                "suid",
                "dev",
                "exec",
                "noatime,suid",
                "noatime suid",
                "noatime\n",
                "commit=5,bind",
                "x-systemd.automount",
                "subvol=/",
                "password=hunter2",
                "a\0",
            ] {
                let error = of(access, &[bad]).expect_err(bad);
                assert!(!error.to_string().contains("hunter2"), "{error}");
            }
        }
        assert!(of(EXT4_VOLUME, &["errors=panic"]).is_err());
        assert!(of(EXT4_VOLUME, &["errors=remount-ro"]).is_ok());
    }

    proptest! {
        #[test]
        fn what_is_passed_on_is_one_option(flag in "\\PC{0,40}") {
            if let Ok(flags) = of(EXT4_VOLUME, &[&flag]) {
                let label = LABELS.iter().any(|label| flag.starts_with(label));
                prop_assert!(flags.mount.iter().all(|flag| label || !flag.contains([',', ' '])));
            }
        }
    }
}
