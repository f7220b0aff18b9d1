//! The fake host keeps the contract of the real one, and plays what only a fake can.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail with their test")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use hawser_core::error::Error;
use hawser_core::filesystem::FsKind;
use hawser_core::port::Host;
use hawser_core::port::host::{
    Content, HostMount, LoopAttach, LoopDevice, MountSource, Tool, ToolOutput,
};
use hawser_core::port::progress::Silent;
use hawser_core::{ByteSize, Change, Kind};
use hawser_testkit::contract::host::HostRig;
use hawser_testkit::fake_host::{FakeHost, METHODS, Soundness, When};
use uuid::Uuid;

fn rig() -> HostRig {
    let host = FakeHost::new();
    let scratch = host.dir().join("scratch");
    fs::create_dir(&scratch).unwrap();
    HostRig::new(Arc::new(host), scratch, ())
}

hawser_testkit::host_contract!(rig());

async fn attach(host: &FakeHost, image: &Path) -> LoopDevice {
    let request =
        LoopAttach { file: image.into(), mark: "m".into(), read_only: false, sector_size: 512 };
    host.attach_loop(&request).await.unwrap().into_inner()
}

fn ext4(device: &LoopDevice, target: &Path) -> HostMount {
    HostMount {
        source: MountSource::Device { device: device.device.clone(), fs: FsKind::Ext4 },
        target: target.into(),
        read_only: false,
        flags: Vec::new(),
    }
}

#[test]
fn every_method_of_the_port_has_its_switch() {
    let port = include_str!("../../hawser-core/src/port/host.rs");
    let methods: Vec<_> = port
        .lines()
        .filter_map(|line| line.strip_prefix("    async fn "))
        .filter_map(|line| line.split('(').next())
        .collect();

    assert_eq!(methods, METHODS);
}

#[tokio::test]
async fn content_survives_detach_rename_copy_and_reboot() {
    let host = FakeHost::new();
    let image = host.add_image("a.img", ByteSize::mib(16));
    let uuid = Uuid::new_v4();
    let device = attach(&host, &image).await;
    host.make_filesystem(&device.device, FsKind::Ext4, uuid).await.unwrap();
    let (copy, renamed) = (host.dir().join("copy.img"), host.dir().join("renamed.img"));
    host.copy_file(&image, &copy, &Silent).await.unwrap();
    host.reboot();
    fs::rename(&image, &renamed).unwrap();

    for file in [copy, renamed] {
        let device = attach(&host, &file).await;
        let content = host.probe(&device.device).await.unwrap();
        assert_eq!(content, Content::Filesystem { fs: FsKind::Ext4, uuid: Some(uuid) });
    }
}

#[tokio::test]
async fn a_new_file_in_the_place_of_an_old_one_is_blank() {
    let host = FakeHost::new();
    let image = host.add_image("a.img", ByteSize::mib(16));
    host.set_content(&image, &Content::Filesystem { fs: FsKind::Ext4, uuid: None });
    fs::remove_file(&image).unwrap();
    let image = host.add_image("a.img", ByteSize::mib(16));

    let device = attach(&host, &image).await;

    assert_eq!(host.probe(&device.device).await.unwrap(), Content::Blank);
}

#[tokio::test]
async fn a_deleted_backing_file_is_told_as_the_kernel_does() {
    let host = FakeHost::new();
    let image = host.add_image("a.img", ByteSize::mib(1));
    attach(&host, &image).await;
    fs::remove_file(&image).unwrap();

    let loops = host.loop_devices().await.unwrap();

    assert_eq!(loops[0].backing_file, Path::new(&format!("{} (deleted)", image.display())));
}

#[tokio::test]
async fn mount_refuses_what_is_not_on_the_device() {
    let host = FakeHost::new();
    let target = host.dir().join("t");
    host.make_target(&target).await.unwrap();
    let image = host.add_image("a.img", ByteSize::mib(16));
    let device = attach(&host, &image).await;
    let xfs = Content::Filesystem { fs: FsKind::Xfs, uuid: None };

    for content in [Content::Blank, Content::Data, Content::Other("gpt".into()), xfs] {
        host.set_content(&image, &content);
        let error = host.mount(&ext4(&device, &target)).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Precondition, "{content:?}");
    }
    host.set_content(&image, &Content::Filesystem { fs: FsKind::Ext4, uuid: None });
    host.set_soundness(&image, Soundness::Dirty);
    let check = || host.check_filesystem(&device.device, FsKind::Ext4);
    assert_eq!(check().await.unwrap(), Change::Made(()));
    assert_eq!(check().await.unwrap(), Change::Already(()));
    host.mount(&ext4(&device, &target)).await.unwrap();
    assert_eq!(check().await.unwrap_err().kind(), Kind::Busy);
}

#[tokio::test]
async fn busy_targets_and_frozen_devices_are_kept() {
    let host = FakeHost::new();
    let target = host.dir().join("t");
    host.make_target(&target).await.unwrap();
    let image = host.add_image("a.img", ByteSize::mib(16));
    host.set_content(&image, &Content::Filesystem { fs: FsKind::Ext4, uuid: None });
    let device = attach(&host, &image).await;
    host.mount(&ext4(&device, &target)).await.unwrap();
    host.set_busy(&target, true);

    assert_eq!(host.unmount(&target).await.unwrap_err().kind(), Kind::Busy);
    host.set_busy(&target, false);
    host.freeze(&target).await.unwrap();
    host.unmount(&target).await.unwrap();
    let error = host.detach_loop(&device, false).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Busy, "a frozen file system keeps its device");
}

#[tokio::test]
async fn a_reboot_takes_devices_and_mounts_and_changes_the_boot_id() {
    let host = FakeHost::new();
    let before = (host.snapshot(), host.facts().await.unwrap().boot_id);
    let image = host.add_image("a.img", ByteSize::mib(16));
    host.set_content(&image, &Content::Filesystem { fs: FsKind::Ext4, uuid: None });
    let device = attach(&host, &image).await;
    let target = host.dir().join("t");
    host.make_target(&target).await.unwrap();
    host.mount(&ext4(&device, &target)).await.unwrap();
    host.freeze(&target).await.unwrap();

    host.reboot();

    let after = host.snapshot();
    assert!(after.loops.is_empty() && after.mounts.is_empty() && after.frozen.is_empty());
    assert_ne!(host.facts().await.unwrap().boot_id, before.1);
    assert_eq!(after.files.len(), before.0.files.len() + 2, "image and folder stay");
}

#[tokio::test]
async fn a_read_only_mark_is_told_and_is_not_how_a_device_was_attached() {
    let host = FakeHost::new();
    let image = host.add_image("a.img", ByteSize::mib(1));
    let device = attach(&host, &image).await;

    host.disks().set_read_only(&device.device, true).await.unwrap();

    assert!(host.refuses_writes(&device.device));
    assert_eq!(attach(&host, &image).await, device, "attached writable as before");
    let marked = std::slice::from_ref(&device.device);
    assert_eq!(host.snapshot().marked, marked);
    host.detach_loop(&device, false).await.unwrap();
    assert_eq!(host.snapshot().marked, marked, "nobody took it off");
    let again = attach(&host, &image).await;
    assert!(!host.refuses_writes(&again.device) && host.snapshot().marked.is_empty());
}

#[tokio::test]
async fn failures_strike_before_or_after_the_act() {
    let host = FakeHost::new();
    let target = host.dir().join("t");

    host.fail_next("make_target", Error::new(Kind::NoSpace, "full"));
    assert_eq!(host.make_target(&target).await.unwrap_err().kind(), Kind::NoSpace);
    host.fail_always("make_target");
    assert!(host.make_target(&target).await.is_err() && host.make_target(&target).await.is_err());
    assert!(!target.exists());
    host.heal();
    host.fail_call(1, When::After);
    host.facts().await.unwrap();
    assert!(host.make_target(&target).await.unwrap_err().is_unknown());
    assert!(target.exists(), "only the answer was lost");
    assert_eq!(host.struck(), 1);
    assert_eq!(host.make_target(&target).await.unwrap(), Change::Already(()));
    assert_eq!(host.changes().len(), 5);
    assert_eq!(host.calls().len(), 6);
}

#[tokio::test]
async fn a_user_without_rights_gets_neither_mounts_nor_devices() {
    let host = FakeHost::new();
    let image = host.add_image("a.img", ByteSize::mib(1));
    host.set_privileged(false);
    let bind = HostMount {
        source: MountSource::Bind { path: host.dir().into() },
        target: host.dir().join("dev"),
        read_only: false,
        flags: Vec::new(),
    };
    let request = LoopAttach { file: image, mark: "m".into(), read_only: false, sector_size: 512 };

    assert_eq!(host.mount(&bind).await.unwrap_err().kind(), Kind::Denied);
    assert_eq!(host.attach_loop(&request).await.unwrap_err().kind(), Kind::Denied);
}

#[tokio::test]
async fn tools_answer_as_scripted() {
    let host = FakeHost::new();
    let mut runs = 0;
    host.on_tool("lvs", move |tool| {
        runs += 1;
        let stdout = format!("run {runs} {:?}", tool.args.len());
        Ok(ToolOutput { program: "lvs".into(), code: Some(0), stdout, stderr: String::new() })
    });

    host.run(&Tool::new("lvs")).await.unwrap();
    let second = host.run(&Tool::new("lvs").arg("-v")).await.unwrap();

    assert_eq!(second.ok().unwrap().stdout, "run 2 1");
}

#[tokio::test]
async fn a_second_host_at_the_folder_is_the_machine_after_a_reboot() {
    let dir = tempfile::tempdir().unwrap();
    let host = FakeHost::at(dir.path());
    let image = host.add_image("a.img", ByteSize::mib(1));
    let device = attach(&host, &image).await;
    // As after SIGKILL: nothing is cleaned up.
    std::mem::forget(host);

    let host = FakeHost::at(dir.path());

    assert!(host.loop_devices().await.unwrap().is_empty());
    assert_eq!(attach(&host, &image).await.device, device.device);
}

#[test]
#[should_panic(expected = "no method of the host port")]
fn a_misspelt_method_is_noticed() {
    FakeHost::new().fail_always("mount_it");
}
