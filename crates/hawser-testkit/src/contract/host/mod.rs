//! The contract of the host port.
//!
//! A host's tests write `hawser_testkit::host_contract!(rig());`, where `rig()` gives a fresh
//! [`HostRig`]; every rule below becomes a test of its own. Rules that need privileges say
//! `skipped: needs root` where there are none.

mod copies;
mod groups;
mod kernel;
mod looks;
mod raw;

use std::any::Any;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hawser_core::filesystem::FsKind;
use hawser_core::port::host::{
    Content, Host, HostMount, LoopAttach, LoopDevice, MountEntry, MountSource, Tool,
};
use hawser_core::{ByteSize, Change, Kind, Reason};
use uuid::Uuid;

pub use copies::*;
pub use groups::*;
pub use kernel::*;
pub use looks::*;
pub use raw::*;

/// A host under test and a folder of its own to work in.
pub struct HostRig {
    /// The host.
    pub host: Arc<dyn Host>,
    /// An empty folder that no other test uses.
    pub scratch: PathBuf,
    /// Takes everything below `scratch` away when it is dropped, also after a panic.
    _cleanup: Box<dyn Any + Send>,
}

impl HostRig {
    /// A rig whose `cleanup` unmounts, detaches and removes what a rule left below `scratch`.
    pub fn new(host: Arc<dyn Host>, scratch: impl Into<PathBuf>, cleanup: impl Any + Send) -> Self {
        Self { host, scratch: scratch.into(), _cleanup: Box::new(cleanup) }
    }

    async fn lacks_privileges(&self) -> bool {
        let privileged = self.host.facts().await.expect("facts").privileged;
        if !privileged {
            println!("skipped: needs root");
        }
        !privileged
    }

    fn folder(&self, name: &str) -> PathBuf {
        let path = self.scratch.join(name);
        fs::create_dir(&path).expect("make a folder");
        path
    }

    fn image(&self, name: &str, size: ByteSize) -> PathBuf {
        let path = self.scratch.join(name);
        let file = fs::File::create_new(&path).expect("make an image");
        file.set_len(size.get()).expect("size the image");
        path
    }

    async fn attached(&self, name: &str, size: ByteSize) -> LoopDevice {
        let request = loop_request(&self.image(name, size), "contract");
        self.host.attach_loop(&request).await.expect("attach").into_inner()
    }

    async fn formatted(&self, name: &str, size: ByteSize) -> (LoopDevice, Uuid) {
        let device = self.attached(name, size).await;
        let uuid = Uuid::new_v4();
        self.host.make_filesystem(&device.device, FsKind::Ext4, uuid).await.expect("mkfs");
        (device, uuid)
    }

    async fn mounted_at(&self, target: &Path) -> Option<MountEntry> {
        let table = self.host.mounts().await.expect("mount table");
        table.into_iter().rev().find(|entry| entry.target == target)
    }

    fn names(&self, folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .expect("list")
            .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

fn loop_request(file: &Path, mark: &str) -> LoopAttach {
    LoopAttach { file: file.to_owned(), mark: mark.into(), read_only: false, sector_size: 512 }
}

fn bind(path: &Path, target: &Path) -> HostMount {
    HostMount {
        source: MountSource::Bind { path: path.to_owned() },
        target: target.to_owned(),
        read_only: false,
        flags: Vec::new(),
    }
}

fn ext4(device: &LoopDevice, target: &Path) -> HostMount {
    HostMount {
        source: MountSource::Device { device: device.device.clone(), fs: FsKind::Ext4 },
        target: target.to_owned(),
        read_only: false,
        flags: Vec::new(),
    }
}

/// The boot id is there and does not change while the host runs.
pub async fn facts_do_not_change(rig: HostRig) {
    let first = rig.host.facts().await.expect("facts");

    assert!(!first.boot_id.is_empty() && !first.hostname.is_empty());
    assert_eq!(rig.host.facts().await.expect("facts again"), first);
}

/// A program that is not there is unsupported, and the message names it.
pub async fn a_missing_program_is_unsupported_by_name(rig: HostRig) {
    let tool = Tool::new("hawser-no-such-program");

    let error = rig.host.run(&tool).await.expect_err("there is no such program");

    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(error.sentence().contains("hawser-no-such-program"), "{error:?}");
}

/// Programs are named, not located: nobody runs a file of his own choice.
pub async fn a_program_with_a_path_is_refused(rig: HostRig) {
    let error = rig.host.run(&Tool::new("/bin/true")).await.expect_err("a path");

    assert_eq!(error.kind(), Kind::Invalid, "{error:?}");
}

/// Making and removing a target twice says so the second time.
pub async fn targets_are_made_and_removed_once(rig: HostRig) {
    let target = rig.scratch.join("target");

    let made = rig.host.make_target(&target).await.expect("make");
    let again = rig.host.make_target(&target).await.expect("make again");
    assert_eq!((made, again), (Change::Made(()), Change::Already(())));
    assert!(target.is_dir());

    let removed = rig.host.remove_target(&target).await.expect("remove");
    let again = rig.host.remove_target(&target).await.expect("remove again");
    assert_eq!((removed, again), (Change::Made(()), Change::Already(())));
    assert!(!target.exists());
}

/// A folder with something in it is never removed, nor is a file.
pub async fn a_target_in_use_is_left_alone(rig: HostRig) {
    let target = rig.folder("target");
    fs::write(target.join("precious"), "data").expect("write");

    let change = rig.host.remove_target(&target).await.expect("remove");
    let file = rig.host.remove_target(&target.join("precious")).await.expect("remove a file");

    assert_eq!((change, file), (Change::Already(()), Change::Already(())));
    assert!(target.join("precious").exists());
}

/// A symlink as last component is never followed: CVE-2017-1002101, CVE-2021-25741.
pub async fn a_symlink_as_target_is_refused(rig: HostRig) {
    let real = rig.folder("real");
    let source = rig.folder("source");
    let link = rig.scratch.join("link");
    symlink(&real, &link).expect("symlink");

    let made = rig.host.make_target(&link).await.expect_err("a link");
    let mounted = rig.host.mount(&bind(&source, &link)).await.expect_err("a link");
    // Not because this process may not mount.
    assert_eq!((made.kind(), mounted.kind()), (Kind::Invalid, Kind::Invalid), "{mounted:?}");
    assert_eq!(rig.host.remove_target(&link).await.expect("left alone"), Change::Already(()));
    assert!(link.is_symlink() && real.is_dir());
    assert!(rig.mounted_at(&real).await.is_none());
}

/// Relative paths and paths with `..` are no targets.
pub async fn a_path_that_is_not_plain_is_refused(rig: HostRig) {
    for path in [PathBuf::from("relative"), rig.scratch.join("a/../b")] {
        let error = rig.host.make_target(&path).await.expect_err("not plain");
        assert_eq!(error.kind(), Kind::Invalid, "{path:?}: {error:?}");
    }
    assert!(rig.names(&rig.scratch).is_empty());
}

/// A bind is made once, is in the table, and goes once.
pub async fn binding_twice_answers_already(rig: HostRig) {
    if rig.lacks_privileges().await {
        return;
    }
    let (source, target) = (rig.folder("source"), rig.folder("target"));
    let request = bind(&source, &target);

    let first = rig.host.mount(&request).await.expect("bind");
    let second = rig.host.mount(&request).await.expect("bind again");
    assert_eq!((first, second), (Change::Made(()), Change::Already(())));
    assert!(rig.mounted_at(&target).await.is_some());
    assert_eq!(rig.host.remove_target(&target).await.expect("in use"), Change::Already(()));

    let first = rig.host.unmount(&target).await.expect("unmount");
    let second = rig.host.unmount(&target).await.expect("unmount again");
    assert_eq!((first, second), (Change::Made(()), Change::Already(())));
    assert!(rig.mounted_at(&target).await.is_none() && target.is_dir());
}

/// A read-only bind is read-only, and asking for the other access is refused.
pub async fn a_read_only_bind_is_read_only(rig: HostRig) {
    if rig.lacks_privileges().await {
        return;
    }
    let (source, target) = (rig.folder("source"), rig.folder("target"));
    let request = HostMount { read_only: true, ..bind(&source, &target) };

    rig.host.mount(&request).await.expect("bind");

    assert!(rig.mounted_at(&target).await.expect("in the table").read_only());
    assert_eq!(rig.host.mount(&request).await.expect("again"), Change::Already(()));
    let writable = rig.host.mount(&bind(&source, &target)).await.expect_err("other access");
    assert_eq!(writable.kind(), Kind::Precondition);
    rig.host.unmount(&target).await.expect("unmount");
}

/// What is mounted already is not covered by something else.
pub async fn a_taken_target_is_refused(rig: HostRig) {
    if rig.lacks_privileges().await {
        return;
    }
    let (source, other) = (rig.folder("source"), rig.folder("other"));
    let target = rig.folder("target");
    rig.host.mount(&bind(&source, &target)).await.expect("bind");

    let error = rig.host.mount(&bind(&other, &target)).await.expect_err("taken");

    assert_eq!(error.kind(), Kind::Precondition);
    rig.host.unmount(&target).await.expect("unmount");
    assert!(rig.mounted_at(&target).await.is_none(), "nothing was stacked");
}

/// An option cannot bring a second one along, nor name another device.
pub async fn a_dangerous_option_is_refused(rig: HostRig) {
    let (source, target) = (rig.folder("source"), rig.folder("target"));

    for option in [
        "noatime,suid",
        "",
        "a b",
        "nul\0",
        "new\nline",
        "x=a\nb",
        "remount",
        "bind",
        "move",
        "loop",
        "dev",
        "suid",
    ] {
        let request = HostMount { flags: vec![option.into()], ..bind(&source, &target) };
        let error = rig.host.mount(&request).await.expect_err("dangerous");
        assert_eq!(error.kind(), Kind::Invalid, "{option:?}: {error:?}");
    }
}

/// What is on a volume gets no rights of the host, asked for or not.
pub async fn mounts_give_no_rights_of_the_host(rig: HostRig) {
    if rig.lacks_privileges().await {
        return;
    }
    let (source, target) = (rig.folder("source"), rig.folder("target"));
    let (device, _) = rig.formatted("disk", ByteSize::mib(16)).await;
    let second = rig.folder("second");

    rig.host.mount(&bind(&source, &target)).await.expect("bind");
    rig.host.mount(&ext4(&device, &second)).await.expect("mount");

    for target in [&target, &second] {
        let entry = rig.mounted_at(target).await.expect("a mount");
        for option in ["nosuid", "nodev"] {
            let found = entry.options.iter().filter(|own| *own == option).count();
            assert_eq!(found, 1, "{option} in {entry:?}");
        }
        rig.host.unmount(target).await.expect("unmount");
    }
    rig.host.detach_loop(&device, false).await.expect("detach");
}

/// Mounting on or from something that is not there says so.
pub async fn a_missing_target_or_source_is_not_found(rig: HostRig) {
    if rig.lacks_privileges().await {
        return;
    }
    let here = rig.folder("here");
    let absent = rig.scratch.join("absent");

    for request in [bind(&here, &absent), bind(&absent, &here)] {
        let error = rig.host.mount(&request).await.expect_err("absent");
        assert_eq!(error.kind(), Kind::NotFound, "{error:?}");
    }
}

/// A file has one device for one mark, is listed with it, and loses it once.
pub async fn attaching_twice_answers_already(rig: HostRig) {
    if rig.lacks_privileges().await {
        return;
    }
    let request = loop_request(&rig.image("disk", ByteSize::mib(4)), "contract");

    let first = rig.host.attach_loop(&request).await.expect("attach");
    let second = rig.host.attach_loop(&request).await.expect("attach again");
    assert!(first.is_made());
    assert_eq!(second, Change::Already(first.get().clone()));
    let device = first.into_inner();
    assert_eq!(device.mark.as_deref(), Some("contract"));
    assert_eq!(rig.host.device_size(&device.device).await.expect("size"), ByteSize::mib(4));
    assert!(rig.host.loop_devices().await.expect("list").contains(&device));

    let first = rig.host.detach_loop(&device, false).await.expect("detach");
    let second = rig.host.detach_loop(&device, false).await.expect("detach again");
    assert_eq!((first, second), (Change::Made(()), Change::Already(())));
    let left = rig.host.loop_devices().await.expect("list");
    assert!(!left.iter().any(|other| other.backing_file == request.file));
}

/// Attaches of one file that race give one device.
pub async fn racing_attaches_give_one_device(rig: HostRig) {
    if rig.lacks_privileges().await {
        return;
    }
    let request = loop_request(&rig.image("disk", ByteSize::mib(4)), "contract");
    let racers: Vec<_> = (0..8)
        .map(|_| {
            let (host, request) = (Arc::clone(&rig.host), request.clone());
            tokio::spawn(async move { host.attach_loop(&request).await.expect("attach") })
        })
        .collect();

    let mut changes = Vec::new();
    for racer in racers {
        changes.push(racer.await.expect("joined"));
    }

    assert_eq!(changes.iter().filter(|change| change.is_made()).count(), 1, "{changes:?}");
    let device = changes[0].get().clone();
    assert!(changes.iter().all(|change| change.get() == &device), "{changes:?}");
    rig.host.detach_loop(&device, false).await.expect("detach");
}

/// A device that has another owner by now is not taken from it.
pub async fn a_device_of_another_mark_is_left_alone(rig: HostRig) {
    if rig.lacks_privileges().await {
        return;
    }
    let device = rig.attached("disk", ByteSize::mib(4)).await;
    let stale = LoopDevice { mark: Some("someone else".into()), ..device.clone() };

    assert_eq!(rig.host.detach_loop(&stale, false).await.expect("left alone"), Change::Already(()));

    assert!(rig.host.loop_devices().await.expect("list").contains(&device));
    rig.host.detach_loop(&device, false).await.expect("detach");
}

/// A missing file, a mark that does not fit and an odd sector size are refused.
pub async fn a_wrong_attach_is_refused(rig: HostRig) {
    let image = rig.image("disk", ByteSize::mib(4));
    let long = loop_request(&image, &"m".repeat(56));
    let odd = LoopAttach { sector_size: 1000, ..loop_request(&image, "contract") };
    let absent = loop_request(&rig.scratch.join("absent"), "contract");

    for (request, kind) in [(long, Kind::Invalid), (odd, Kind::Invalid), (absent, Kind::NotFound)] {
        let error = rig.host.attach_loop(&request).await.expect_err("wrong");
        assert_eq!(error.kind(), kind, "{request:?}: {error:?}");
    }
}

/// A device follows its file when that has grown.
pub async fn a_device_grows_with_its_file(rig: HostRig) {
    if rig.lacks_privileges().await {
        return;
    }
    let device = rig.attached("disk", ByteSize::mib(4)).await;
    let file = fs::OpenOptions::new().write(true).open(&device.backing_file).expect("open");
    file.set_len(ByteSize::mib(8).get()).expect("grow");

    let size = rig.host.resize_loop(&device).await.expect("resize");

    assert_eq!(size, ByteSize::mib(8));
    assert_eq!(rig.host.device_size(&device.device).await.expect("size"), size);
    rig.host.detach_loop(&device, false).await.expect("detach");
}

/// Only what was read and is zero is blank; absent is an error.
pub async fn a_probe_tells_blank_from_data(rig: HostRig) {
    if rig.lacks_privileges().await {
        return;
    }
    let blank = rig.attached("blank", ByteSize::mib(8)).await;
    let image = rig.image("data", ByteSize::mib(8));
    {
        use std::os::unix::fs::FileExt;
        let file = fs::OpenOptions::new().write(true).open(&image).expect("open");
        file.write_all_at(b"x", ByteSize::mib(8).get() - 1).expect("write the last byte");
    }
    let request = loop_request(&image, "contract");
    let data = rig.host.attach_loop(&request).await.expect("attach").into_inner();

    assert_eq!(rig.host.probe(&blank.device).await.expect("probe"), Content::Blank);
    assert_eq!(rig.host.probe(&data.device).await.expect("probe"), Content::Data);
    assert!(rig.host.probe(&rig.scratch.join("absent")).await.is_err());
    for device in [blank, data] {
        rig.host.detach_loop(&device, false).await.expect("detach");
    }
}

/// A new file system is found by its kind and UUID, and is sound.
pub async fn a_new_filesystem_is_found(rig: HostRig) {
    if rig.lacks_privileges().await {
        return;
    }
    let (device, uuid) = rig.formatted("disk", ByteSize::mib(16)).await;

    let content = rig.host.probe(&device.device).await.expect("probe");

    assert_eq!(content, Content::Filesystem { fs: FsKind::Ext4, uuid: Some(uuid) });
    let checked = rig.host.check_filesystem(&device.device, FsKind::Ext4).await.expect("check");
    assert_eq!(checked, Change::Already(()));
    rig.host.detach_loop(&device, false).await.expect("detach");
}

/// A device is mounted once, cannot be detached meanwhile, and can afterwards.
pub async fn a_mounted_device_is_busy(rig: HostRig) {
    if rig.lacks_privileges().await {
        return;
    }
    let (device, _) = rig.formatted("disk", ByteSize::mib(16)).await;
    let target = rig.folder("target");
    let request = ext4(&device, &target);

    let first = rig.host.mount(&request).await.expect("mount");
    let second = rig.host.mount(&request).await.expect("mount again");
    assert_eq!((first, second), (Change::Made(()), Change::Already(())));
    for force in [false, true] {
        let busy = rig.host.detach_loop(&device, force).await.expect_err("mounted");
        assert_eq!(busy.kind(), Kind::Busy, "{busy:?}");
        assert_eq!(busy.reason(), Some(Reason::DeviceBusy), "{busy:?}");
    }

    rig.host.unmount(&target).await.expect("unmount");
    assert_eq!(rig.host.detach_loop(&device, false).await.expect("detach"), Change::Made(()));
}

/// A mounted file system grows to its device once.
pub async fn growing_twice_answers_already(rig: HostRig) {
    if rig.lacks_privileges().await {
        return;
    }
    let (device, _) = rig.formatted("disk", ByteSize::mib(32)).await;
    let target = rig.folder("target");
    rig.host.mount(&ext4(&device, &target)).await.expect("mount");
    let before = rig.host.usage(&target).await.expect("usage").total;
    let file = fs::OpenOptions::new().write(true).open(&device.backing_file).expect("open");
    file.set_len(ByteSize::mib(64).get()).expect("grow");
    rig.host.resize_loop(&device).await.expect("resize");

    let grow = || rig.host.grow_filesystem(&device.device, FsKind::Ext4, &target);
    let first = grow().await.expect("grow");
    let second = grow().await.expect("grow again");

    assert_eq!((first, second), (Change::Made(()), Change::Already(())));
    assert!(rig.host.usage(&target).await.expect("usage").total > before);
    rig.host.unmount(&target).await.expect("unmount");
    rig.host.detach_loop(&device, false).await.expect("detach");
}

/// Freezing and thawing twice says so the second time.
pub async fn freezing_twice_answers_already(rig: HostRig) {
    if rig.lacks_privileges().await {
        return;
    }
    let (device, _) = rig.formatted("disk", ByteSize::mib(16)).await;
    let target = rig.folder("target");
    rig.host.mount(&ext4(&device, &target)).await.expect("mount");

    let frozen = [
        rig.host.freeze(&target).await.expect("freeze"),
        rig.host.freeze(&target).await.expect("freeze again"),
    ];
    let thawed = [
        rig.host.thaw(&target).await.expect("thaw"),
        rig.host.thaw(&target).await.expect("thaw again"),
    ];

    assert_eq!(frozen, [Change::Made(()), Change::Already(())]);
    assert_eq!(thawed, [Change::Made(()), Change::Already(())]);
    rig.host.sync_filesystem(&target).await.expect("sync");
    rig.host.unmount(&target).await.expect("unmount");
    rig.host.detach_loop(&device, false).await.expect("detach");
}

/// The parts of a file system's usage fit together.
pub async fn usage_adds_up(rig: HostRig) {
    let usage = rig.host.usage(&rig.scratch).await.expect("usage");

    assert!(usage.total >= usage.available && usage.total >= usage.used, "{usage:?}");
    assert!(usage.total > ByteSize::ZERO);
    assert!(usage.files >= usage.files_free, "{usage:?}");
    let absent = rig.host.usage(&rig.scratch.join("absent")).await.expect_err("absent");
    assert_eq!(absent.kind(), Kind::NotFound);
}

/// Runs every rule of the host port, each as a test of its own, with a fresh rig.
#[macro_export]
macro_rules! host_contract {
    ($rig:expr) => {
        mod host_contract {
            use super::*;
            $crate::host_contract! { @rules $rig;
                facts_do_not_change
                a_missing_program_is_unsupported_by_name
                a_program_with_a_path_is_refused
                targets_are_made_and_removed_once
                a_target_in_use_is_left_alone
                a_symlink_as_target_is_refused
                a_path_that_is_not_plain_is_refused
                looking_tells_what_is_there
                looking_tells_on_which_mount_a_path_lies
                a_folder_is_made_once_with_its_mode
                target_files_are_made_and_removed_once
                a_target_file_with_something_in_it_stays
                a_target_file_is_made_where_a_file_can_be
                a_device_is_shown_in_a_file_once
                a_shown_device_is_not_detached
                a_device_is_shown_in_plain_files_only
                another_device_or_access_in_a_file_is_refused
                a_folder_is_given_to_a_group_once
                what_a_link_leads_to_is_not_given
                what_is_no_folder_is_not_given
                binding_twice_answers_already
                a_read_only_bind_is_read_only
                a_taken_target_is_refused
                a_dangerous_option_is_refused
                mounts_give_no_rights_of_the_host
                a_missing_target_or_source_is_not_found
                attaching_twice_answers_already
                racing_attaches_give_one_device
                a_device_of_another_mark_is_left_alone
                a_wrong_attach_is_refused
                a_device_grows_with_its_file
                a_probe_tells_blank_from_data
                a_new_filesystem_is_found
                a_mounted_device_is_busy
                growing_twice_answers_already
                freezing_twice_answers_already
                usage_adds_up
                a_copy_has_the_same_bytes
                a_copy_never_replaces
                a_failed_copy_leaves_nothing
                a_copied_folder_is_the_same
                a_dropped_copy_leaves_nothing_half_made
                looking_at_nothing_is_nothing
                settings_are_stored_made_and_removed
                writing_never_makes_a_file
                what_is_no_device_is_not_opened
                locks_are_shared_or_alone
                a_waiter_for_a_lock_may_be_dropped
                a_wait_for_events_ends_at_its_limit
            }
        }
    };
    (@rules $rig:expr; $($rule:ident)*) => {
        $(
            #[tokio::test]
            async fn $rule() {
                $crate::contract::host::$rule($rig).await;
            }
        )*
    };
}
