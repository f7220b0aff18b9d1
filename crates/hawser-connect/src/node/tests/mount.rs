use std::fs;
use std::path::PathBuf;

use hawser_core::attach::{AttachRecord, Attached};
use hawser_core::filesystem::FsKind;
use hawser_core::port::host::{Content, HostMount, MountEntry, MountSource};
use hawser_core::port::{Host, Node};
use hawser_core::{ByteSize, Change, Error, Kind, Outcome};
use hawser_testkit::fake_host::{FakeHost, Soundness};
use uuid::Uuid;

use super::rig::{Rig, SIZE, refused, text};
use crate::node::table::Table;

#[tokio::test]
async fn a_volume_is_mounted_once_however_often_it_is_asked_for() {
    let rig = Rig::new().formatted().await;

    let first = rig.node.mount(&rig.mount_work()).await.unwrap();
    let second = rig.node.mount(&rig.mount_work()).await.unwrap();

    assert_eq!((first, second), (Change::Made(()), Change::Already(())));
    assert_eq!(rig.host.snapshot().mounts.len(), 1);
    let mount = rig.record().unwrap().mounts.remove(0);
    assert!(mount.ready && mount.made_target);
}

#[tokio::test]
async fn unmount_leaves_everything_as_before_the_mount() {
    let rig = Rig::new().formatted().await;
    let (before, record) = (rig.host.snapshot(), rig.record());
    rig.node.mount(&rig.mount_work()).await.unwrap();

    let first = rig.node.unmount(&rig.publication, &rig.target()).await.unwrap();
    let second = rig.node.unmount(&rig.publication, &rig.target()).await.unwrap();

    assert_eq!((first, second), (Change::Made(()), Change::Already(())));
    assert_eq!(rig.host.snapshot(), before);
    assert_eq!(rig.record(), record);
}

#[tokio::test]
async fn a_folder_of_the_user_stays_after_unmount() {
    let rig = Rig::new().formatted().await;
    fs::create_dir(rig.target()).unwrap();
    rig.node.mount(&rig.mount_work()).await.unwrap();

    rig.node.unmount(&rig.publication, &rig.target()).await.unwrap();

    assert!(rig.target().is_dir());
}

#[tokio::test]
async fn the_same_target_with_other_options_is_refused_without_repeating_them() {
    let rig = Rig::new().mounted().await;
    for (read_only, what) in [(true, "the right to write"), (false, "a mount option")] {
        let mut work = rig.mount_work();
        (work.read_only, work.flags) = (read_only, vec!["context=planted".into()]);

        let answer = rig.node.mount(&work).await;

        let said = answer.as_ref().unwrap_err().sentence();
        assert!(!said.contains("context") && !said.contains("planted"), "{said}");
        refused(answer, Kind::Exists, &[what]);
    }
}

#[tokio::test]
async fn a_second_target_is_another_mount_of_the_same_device_without_a_check() {
    let rig = Rig::new().mounted().await;
    rig.host.forget_calls();
    let mut work = rig.mount_work();
    work.target = rig.host.dir().join("second");
    work.read_only = true;

    rig.node.mount(&work).await.unwrap();

    assert!(rig.host.calls().iter().all(|call| call.method != "check_filesystem"));
    assert_eq!(rig.record().unwrap().mounts.len(), 2);
    rig.node.unmount(&rig.publication, &rig.target()).await.unwrap();
    assert_eq!(rig.record().unwrap().mounts.len(), 1);
}

#[tokio::test]
async fn another_device_is_not_mounted() {
    let rig = Rig::new().formatted().await;
    rig.change_identity();

    let result = rig.node.mount(&rig.mount_work()).await;

    refused(result, Kind::Precondition, &["somebody-else", text(&rig.device())]);
    assert!(!rig.is_mounted() && rig.record().unwrap().mounts.is_empty());
}

#[tokio::test]
async fn only_the_expected_file_system_is_mounted() {
    let foreign = Content::Filesystem { fs: FsKind::Ext4, uuid: Some(Uuid::new_v4()) };
    for (content, words) in [
        (Content::Blank, "never formatted"),
        (Content::Data, "data without"),
        (Content::Other("gpt".into()), "gpt"),
        (foreign, "is expected"),
    ] {
        let rig = Rig::new().formatted().await;
        rig.host.set_content(&rig.image, &Content::Blank);
        rig.host.set_content(&rig.image, &content);

        refused(rig.node.mount(&rig.mount_work()).await, Kind::Precondition, &[words]);

        assert!(!rig.is_mounted() && !rig.target().exists(), "{content:?}");
    }
}

#[tokio::test]
async fn a_dirty_file_system_is_repaired_and_a_broken_one_is_not_mounted() {
    let rig = Rig::new().formatted().await;
    rig.host.set_soundness(&rig.image, Soundness::Dirty);
    rig.node.mount(&rig.mount_work()).await.unwrap();
    rig.node.unmount(&rig.publication, &rig.target()).await.unwrap();

    rig.host.set_soundness(&rig.image, Soundness::Broken);
    refused(rig.node.mount(&rig.mount_work()).await, Kind::Precondition, &["needs a person"]);
}

#[tokio::test]
async fn a_raw_volume_is_not_mounted() {
    let rig = Rig::new().attached().await;
    let mut work = rig.mount_work();
    work.filesystem = None;

    refused(rig.node.mount(&work).await, Kind::Unsupported, &["raw", "attach"]);
}

#[tokio::test]
async fn a_volume_attached_read_only_is_only_mounted_so() {
    let rig = Rig::new();
    rig.host
        .set_content(&rig.image, &Content::Filesystem { fs: FsKind::Ext4, uuid: Some(rig.uuid) });
    let mut attach = rig.attach_work();
    attach.attach.read_only = true;
    rig.node.attach(&attach).await.unwrap();
    let mut work = rig.mount_work();

    refused(rig.node.mount(&work).await, Kind::Precondition, &["without the right to write"]);
    work.read_only = true;
    rig.node.mount(&work).await.unwrap();

    let calls = rig.host.calls();
    for method in ["check_filesystem", "grow_filesystem"] {
        assert!(calls.iter().all(|call| call.method != method), "{method} writes");
    }
}

#[tokio::test]
async fn without_root_the_words_say_what_to_do() {
    let rig = Rig::new();
    let (work, _) = rig.folder_work();
    rig.host.set_privileged(false);
    rig.node.attach(&work).await.unwrap();
    let mut work = rig.mount_work();
    work.filesystem = None;

    refused(rig.node.mount(&work).await, Kind::Denied, &["needs root", "attach"]);
}

#[tokio::test]
async fn a_folder_is_bound_and_let_go() {
    let rig = Rig::new();
    let (work, folder) = rig.folder_work();
    rig.node.attach(&work).await.unwrap();
    let mut work = rig.mount_work();
    work.filesystem = None;

    rig.node.mount(&work).await.unwrap();

    assert!(!rig.node.mount(&work).await.unwrap().is_made());
    let detach = Default::default();
    refused(rig.node.detach(&rig.publication, &detach).await, Kind::Busy, &["target"]);
    assert!(rig.node.unmount(&rig.publication, &rig.target()).await.unwrap().is_made());
    rig.node.detach(&rig.publication, &detach).await.unwrap();
    assert!(!rig.is_mounted() && folder.exists() && !rig.target().exists());
}

#[tokio::test]
async fn hostile_targets_are_refused_before_anything_is_touched() {
    let rig = Rig::new().formatted().await;
    rig.host.forget_calls();
    for bad in ["relative", "/", "/a/../b", "/a/./b", "/a/", "/a\0b"] {
        let mut work = rig.mount_work();
        work.target = PathBuf::from(bad);
        refused(rig.node.mount(&work).await, Kind::Invalid, &["absolute"]);
    }
    assert!(rig.host.calls().is_empty());

    std::os::unix::fs::symlink("/etc", rig.target()).unwrap();
    refused(rig.node.mount(&rig.mount_work()).await, Kind::Invalid, &["symlink"]);
    assert!(rig.target().is_symlink() && rig.record().unwrap().mounts.is_empty());
}

#[tokio::test]
async fn a_strangers_mount_is_neither_covered_nor_removed() {
    let rig = Rig::new().formatted().await;
    fs::create_dir(rig.target()).unwrap();
    let other = rig.host.add_disk("other", SIZE);
    let fs = FsKind::Ext4;
    rig.host.set_content(&other, &Content::Filesystem { fs, uuid: None });
    let stranger = HostMount {
        source: MountSource::Device { device: other.clone(), fs },
        target: rig.target(),
        read_only: false,
        flags: Vec::new(),
    };
    rig.host.mount(&stranger).await.unwrap();
    let before = rig.host.snapshot();

    refused(rig.node.mount(&rig.mount_work()).await, Kind::Precondition, &[text(&other)]);
    // The volume is not mounted there, so there is nothing to take out.
    let result = rig.node.unmount(&rig.publication, &rig.target()).await;

    assert_eq!(result.unwrap(), Change::Already(()));
    assert_eq!(rig.host.snapshot(), before);
    assert!(rig.record().unwrap().mounts.is_empty());
}

#[tokio::test]
async fn a_file_system_smaller_than_its_volume_grows_with_the_mount() {
    let rig = Rig::new().formatted().await;
    rig.node.detach(&rig.publication, &Default::default()).await.unwrap();
    rig.grow_image(ByteSize::mib(32));
    let rig = rig.attached().await;

    rig.node.mount(&rig.mount_work()).await.unwrap();

    assert_eq!(rig.host.usage(&rig.target()).await.unwrap().total, ByteSize::mib(32));
}

#[tokio::test]
async fn a_mount_that_fails_is_taken_back_and_both_failures_are_told() {
    let rig = Rig::new().formatted().await;
    let before = rig.host.snapshot();

    rig.host.fail_next("grow_filesystem", Error::new(Kind::NoSpace, "no room to grow"));
    let error = refused(rig.node.mount(&rig.mount_work()).await, Kind::NoSpace, &[]);
    assert_eq!(error.outcome(), Outcome::RolledBack);
    assert_eq!(rig.host.snapshot(), before);

    rig.host.fail_next("grow_filesystem", Error::new(Kind::NoSpace, "no room to grow"));
    rig.host.fail_next("unmount", Error::new(Kind::Busy, "somebody is in it"));
    let words = ["no room to grow", "somebody is in it"];
    let error = refused(rig.node.mount(&rig.mount_work()).await, Kind::NoSpace, &words);
    assert!(error.is_unknown());
    assert!(!rig.record().unwrap().mounts[0].ready, "the record leads to what is left");
}

/// As a file system does after an error.
#[tokio::test]
async fn a_mount_that_became_read_only_is_made_anew() {
    let rig = Rig::new().mounted().await;
    rig.host.unmount(&rig.target()).await.unwrap();
    let source = MountSource::Device { device: rig.device(), fs: FsKind::Ext4 };
    let broken = HostMount { source, target: rig.target(), read_only: true, flags: Vec::new() };
    rig.host.mount(&broken).await.unwrap();

    let change = rig.node.mount(&rig.mount_work()).await.unwrap();

    assert_eq!(change, Change::Made(()));
    let mounts = rig.host.snapshot().mounts;
    assert!(mounts.len() == 1 && !mounts[0].read_only(), "{mounts:?}");
    assert_eq!(rig.node.mount(&rig.mount_work()).await.unwrap(), Change::Already(()));
}

#[tokio::test]
async fn a_mount_that_does_not_work_and_is_in_use_stays() {
    let rig = Rig::new().mounted().await;
    rig.host.unmount(&rig.target()).await.unwrap();
    let source = MountSource::Device { device: rig.device(), fs: FsKind::Ext4 };
    let broken = HostMount { source, target: rig.target(), read_only: true, flags: Vec::new() };
    rig.host.mount(&broken).await.unwrap();
    rig.host.set_busy(&rig.target(), true);

    refused(rig.node.mount(&rig.mount_work()).await, Kind::Busy, &[text(&rig.target())]);

    assert_eq!(rig.record().unwrap().mounts.len(), 1);
}

#[tokio::test]
async fn a_busy_mount_stays() {
    let rig = Rig::new().mounted().await;
    rig.host.set_busy(&rig.target(), true);

    let result = rig.node.unmount(&rig.publication, &rig.target()).await;

    refused(result, Kind::Busy, &[text(&rig.target())]);
    assert_eq!(rig.record().unwrap().mounts.len(), 1);
}

#[tokio::test]
async fn an_unmount_by_hand_is_noticed_and_cleaned_up() {
    let rig = Rig::new().mounted().await;
    rig.host.unmount(&rig.target()).await.unwrap();

    let change = rig.node.unmount(&rig.publication, &rig.target()).await.unwrap();

    assert_eq!(change, Change::Already(()));
    assert!(rig.record().unwrap().mounts.is_empty() && !rig.target().exists());
}

#[tokio::test]
async fn extend_grows_device_and_file_system_while_mounted() {
    let rig = Rig::new().mounted().await;
    rig.grow_image(ByteSize::mib(64));

    let size = rig.node.extend(&rig.publication, ByteSize::mib(64)).await.unwrap();

    assert_eq!(size, ByteSize::mib(64));
    assert_eq!(rig.host.usage(&rig.target()).await.unwrap().total, ByteSize::mib(64));
    let Some(Attached::Block { size, .. }) = rig.record().unwrap().attached else { panic!() };
    assert_eq!(size, ByteSize::mib(64));
}

#[tokio::test]
async fn a_mount_that_a_dead_process_brought_back_is_ready_after_an_extend() {
    let rig = Rig::new().mounted().await;
    rig.registry.edit(&rig.publication, |record| record.mounts[0].ready = false);

    rig.node.extend(&rig.publication, ByteSize::mib(16)).await.unwrap();

    assert!(rig.record().unwrap().mounts[0].ready);
}

#[tokio::test]
async fn extend_of_a_device_that_did_not_grow_tells_both_sizes() {
    let rig = Rig::new().mounted().await;

    let result = rig.node.extend(&rig.publication, ByteSize::mib(64)).await;

    refused(result, Kind::Precondition, &["16MiB", "64MiB"]);
}

#[tokio::test]
async fn another_device_is_not_grown() {
    let rig = Rig::new().mounted().await;
    rig.grow_image(ByteSize::mib(64));
    rig.change_identity();
    rig.host.forget_calls();

    let result = rig.node.extend(&rig.publication, ByteSize::mib(64)).await;

    refused(result, Kind::Precondition, &["somebody-else"]);
    assert!(rig.host.changes().is_empty());
}

#[tokio::test]
async fn a_folder_extends_without_a_device() {
    let rig = Rig::new();
    let (work, _) = rig.folder_work();
    rig.node.attach(&work).await.unwrap();

    let size = rig.node.extend(&rig.publication, ByteSize::gib(1)).await.unwrap();

    assert_eq!(size, ByteSize::ZERO);
}

#[tokio::test]
async fn health_tells_what_is_wrong() {
    let rig = Rig::new();
    refused(rig.node.health(&rig.publication).await, Kind::NotFound, &["not known"]);
    let rig = rig.mounted().await;
    let health = async || rig.node.health(&rig.publication).await.unwrap();
    assert!(health().await.healthy);

    rig.host.fail_next("usage", Error::new(Kind::Timeout, "statfs hangs"));
    assert!(health().await.message.contains("statfs hangs"));
    rig.host.unmount(&rig.target()).await.unwrap();
    assert!(health().await.message.contains("not mounted there"));
    let device = rig.device();
    let remount = HostMount {
        source: MountSource::Device { device, fs: FsKind::Ext4 },
        target: rig.target(),
        read_only: true,
        flags: Vec::new(),
    };
    rig.host.mount(&remount).await.unwrap();
    assert!(health().await.message.contains("has become read-only"));
    rig.change_identity();
    assert!(health().await.message.contains("somebody-else"));
    rig.host.reboot();
    assert!(health().await.message.contains("restarted"));
    assert!(!health().await.healthy);
}

fn entry(id: u64, device: u32, root: &str, target: &str) -> MountEntry {
    MountEntry {
        id,
        parent: 1,
        device: (8, device),
        root: root.into(),
        target: target.into(),
        options: vec!["rw".into()],
        propagation: Vec::new(),
        fs_type: "ext4".into(),
        source: format!("/dev/sd{device}"),
        super_options: vec!["rw".into()],
    }
}

#[test]
fn a_bound_folder_is_known_through_the_mount_it_lies_on() {
    let table = [
        entry(1, 1, "/", "/"),
        entry(2, 2, "/sub", "/pool"),
        entry(3, 2, "/sub/a", "/mnt/a"),
        entry(4, 1, "/sub/a", "/mnt/other-device"),
        entry(5, 2, "/sub/ab", "/mnt/other-folder"),
    ];
    let (host, folder) = (FakeHost::new(), Attached::Directory { path: "/pool/a".into() });

    let table = Table::new(table.into(), host.kernel());
    let found: Vec<_> = table.all_of(&folder).iter().map(|entry| entry.id).collect();

    assert_eq!(found, [3]);
}

#[tokio::test]
async fn what_covers_our_mount_is_not_taken_for_ours() {
    let rig = Rig::new().mounted().await;
    let record: AttachRecord = rig.record().unwrap();
    let mut mounts = rig.host.snapshot().mounts;
    let seen = Table::new(mounts.clone(), rig.host.kernel());
    assert!(seen.ours(&record, &rig.target()).is_some());

    mounts.push(entry(99, 9, "/", text(&rig.target())));

    let covered = Table::new(mounts, rig.host.kernel());
    assert!(covered.ours(&record, &rig.target()).is_none());
}
