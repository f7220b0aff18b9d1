//! Known vulnerabilities of others, tried on this driver.

use std::fs;
use std::path::Path;

use hawser_api::csi::v1::*;
use tonic::Code;

use super::rig::{Rig, Staging, code, map, mount, mount_as, new, publish};
use crate::csi::CsiDriver;

/// A driver that takes the rig's folder for that of the kubelet.
async fn with_kubelet() -> Rig {
    Rig::with(CsiDriver::Published, |settings, _| {
        let root = settings.endpoint.path().parent().unwrap().to_owned();
        settings.kubelet_dir = Some(root);
    })
    .await
}

/// CVE-2020-8567, CVE-2020-8568: `..` in a target path writes files of the host.
#[tokio::test]
async fn no_target_leads_out_of_the_folders_of_the_kubelet() {
    let rig = with_kubelet().await;
    let there = rig.published(mount()).await;
    let pods = rig.path("pods");
    fs::create_dir(&pods).unwrap();
    fs::create_dir_all(rig.path("plugins/staging")).unwrap();
    let staging = rig.path("plugins/staging");
    rig.nodes().node_stage_volume(there.stage(&staging)).await.unwrap();

    for target in [
        format!("{pods}/../escaped"),
        rig.path("escaped"),
        "/etc/escaped".to_owned(),
        format!("{pods}/a\nb"),
        "pods/escaped".to_owned(),
    ] {
        let answer = rig.nodes().node_publish_volume(there.publish(&staging, &target)).await;
        assert_eq!(code(answer), Code::InvalidArgument, "{target}");
        let answer = rig.nodes().node_unpublish_volume(there.unpublish(&target)).await;
        assert_eq!(code(answer), Code::InvalidArgument, "{target}");
    }
    assert!(!Path::new(&rig.path("escaped")).exists());
    let fine = there.publish(&staging, &format!("{pods}/fine"));
    assert_eq!(code(rig.nodes().node_publish_volume(fine).await), Code::Ok);
    rig.stop().await;
}

/// CVE-2020-8567, CVE-2020-8568, through the other path of a request.
#[tokio::test]
async fn no_staging_path_leads_out_of_the_folders_of_the_kubelet() {
    let rig = with_kubelet().await;
    let there = rig.published(mount()).await;
    let plugins = rig.path("plugins");
    let staging = format!("{plugins}/staging");
    fs::create_dir_all(&staging).unwrap();
    fs::create_dir(rig.path("pods")).unwrap();
    let target = rig.path("pods/target");
    let bad = [
        format!("{plugins}/../escaped"),
        rig.path("escaped"),
        "/etc/escaped".to_owned(),
        format!("{plugins}/a\nb"),
        "plugins/escaped".to_owned(),
    ];

    for path in &bad {
        let answer = rig.nodes().node_stage_volume(there.stage(path)).await;
        assert_eq!(code(answer), Code::InvalidArgument, "{path}");
    }
    assert!(rig.node.asked.lock().unwrap().is_empty(), "the host was not touched");

    rig.nodes().node_stage_volume(there.stage(&staging)).await.unwrap();
    let before = rig.node.only();
    for path in &bad {
        let answer = rig.nodes().node_publish_volume(there.publish(path, &target)).await;
        assert_eq!(code(answer), Code::InvalidArgument, "{path}");
        let answer = rig.nodes().node_unstage_volume(there.unstage(path)).await;
        assert_eq!(code(answer), Code::InvalidArgument, "{path}");
    }
    assert_eq!(rig.node.only(), before);
    assert!(!Path::new(&rig.path("escaped")).exists());
    rig.stop().await;
}

/// CVE-2017-1002101, CVE-2021-25741: a folder is swapped for a link before it is mounted on. That no
/// link is followed is a rule of every host (`a_symlink_as_target_is_refused` of its contract); here,
/// that paths reach the host as they came, and that nothing stays of what it refuses.
#[tokio::test]
async fn nothing_is_staged_or_published_through_a_link() {
    let rig = Rig::start().await;
    let there = rig.published(mount()).await;
    let (host, links) = (rig.path("host"), rig.path("links"));
    fs::create_dir_all(format!("{host}/inner")).unwrap();
    fs::create_dir(&links).unwrap();
    std::os::unix::fs::symlink(&host, format!("{links}/last")).unwrap();

    for path in ["last", "last/inner", "last/new"] {
        let path = format!("{links}/{path}");
        let answer = rig.nodes().node_stage_volume(there.stage(&path)).await;
        assert_eq!(code(answer), Code::InvalidArgument, "{path}");
        assert!(rig.node.records().is_empty(), "nothing of it stays");
    }
    rig.nodes().node_stage_volume(there.stage(&rig.staging())).await.unwrap();
    let before = rig.node.only();
    for path in ["last", "last/inner", "last/new"] {
        let path = format!("{links}/{path}");
        let answer = rig.nodes().node_publish_volume(there.publish(&rig.staging(), &path)).await;
        assert_eq!(code(answer), Code::InvalidArgument, "{path}");
    }

    assert_eq!(rig.node.only(), before);
    assert_eq!(fs::read_dir(&host).unwrap().count(), 1, "nothing was made where they lead to");
    rig.stop().await;
}

/// CVE-2026-3864, CVE-2026-3865: `../` in a volume id deletes folders of others. The storage behind
/// this one trusts ids.
#[tokio::test]
async fn no_volume_id_is_a_path() {
    let rig = Rig::start().await;
    let (pool, precious) = (rig.path("pool"), rig.path("precious"));
    fs::create_dir_all(format!("{pool}/vol-")).unwrap();
    fs::create_dir(&precious).unwrap();
    *rig.control.pool.lock().unwrap() = Some(pool.clone().into());
    let mine = rig.create(new("data", mount())).await;
    fs::create_dir(format!("{pool}/{mine}")).unwrap();
    let delete = DeleteVolumeRequest { volume_id: mine.clone(), ..Default::default() };
    rig.controller().delete_volume(delete).await.unwrap();
    assert!(!Path::new(&format!("{pool}/{mine}")).exists(), "a pool that goes by ids");

    let below = format!("{mine}/../../precious");
    for id in ["../precious", &precious, "vol-/../../precious", &below, ".", "", "../pool/vol-"] {
        let delete = DeleteVolumeRequest { volume_id: id.into(), ..Default::default() };
        let said = code(rig.controller().delete_volume(delete).await);
        assert_eq!(said, if id.is_empty() { Code::InvalidArgument } else { Code::Ok }, "{id}");
        let delete = DeleteSnapshotRequest { snapshot_id: id.into(), ..Default::default() };
        let said = code(rig.controller().delete_snapshot(delete).await);
        assert_eq!(said, if id.is_empty() { Code::InvalidArgument } else { Code::Ok }, "{id}");
        if id.is_empty() {
            continue;
        }
        let there = Staging { id: id.into(), capability: mount(), context: map(&[]) };
        let answer = rig.nodes().node_stage_volume(there.stage(&rig.staging())).await;
        assert_eq!(code(answer), Code::NotFound, "{id}");
    }

    assert!(Path::new(&precious).is_dir() && Path::new(&format!("{pool}/vol-")).is_dir());
    rig.stop().await;
}

/// CVE-2019-11255: a tampered object gives a volume the data of another. The host finds what the
/// context leads to; it is the record that has no such right.
#[tokio::test]
async fn the_context_of_one_volume_does_not_open_another() {
    let rig = Rig::start().await;
    let theirs = rig.staged(mount()).await;
    rig.nodes().node_unstage_volume(theirs.unstage(&rig.staging())).await.unwrap();
    let id = rig.create(new("mine", mount())).await;
    rig.controller().controller_publish_volume(publish(&id, mount())).await.unwrap();
    // As if nothing were left to be made inside, so that nobody would be asked.
    let mut context = theirs.context.clone();
    let done = context["filesystem"].replace("/never", "/done");
    context.insert("filesystem".into(), done);
    let tampered = Staging { id, capability: mount(), context };
    rig.upstream.take_heard();
    rig.node.asked.lock().unwrap().clear();

    let answer = rig.nodes().node_stage_volume(tampered.stage(&rig.staging())).await;

    assert_eq!(code(answer), Code::FailedPrecondition);
    assert!(!rig.node.asked.lock().unwrap().contains(&"mount"), "nobody saw what is inside");
    assert!(rig.node.records().is_empty(), "and nothing of it stays");
    rig.stop().await;
}

/// CVE-2023-3676, CVE-2023-3893, CVE-2023-3955, CVE-2023-5528: commands in what a caller may write.
#[tokio::test]
async fn nothing_from_outside_is_a_command() {
    use volume_capability::access_mode::Mode;
    let rig = Rig::start().await;
    for fs in ["ext4; reboot", "$(reboot)", "-h", "ext4 -F"] {
        let answer =
            rig.controller().create_volume(new("x", mount_as(fs, Mode::SingleNodeWriter))).await;
        assert_eq!(code(answer), Code::InvalidArgument, "{fs}");
    }
    let there = rig.published(mount()).await;

    for flag in ["noatime;reboot", "$(reboot)", "`reboot`", "-o", "errors=panic"] {
        let mut tampered = there.clone();
        let Some(volume_capability::AccessType::Mount(mount)) =
            &mut tampered.capability.access_type
        else {
            panic!("a mount")
        };
        mount.mount_flags = vec![flag.to_owned()];
        let answer = rig.nodes().node_stage_volume(tampered.stage(&rig.staging())).await;
        assert_eq!(code(answer), Code::InvalidArgument, "{flag}");
    }
    assert!(rig.node.records().is_empty());
    rig.stop().await;
}

/// gcs-fuse-csi-driver#1542: a target in a folder that others may write is a link when it is removed.
#[tokio::test]
async fn a_link_at_the_target_is_left_alone() {
    let rig = Rig::start().await;
    let there = rig.staged(mount()).await;
    let precious = rig.path("precious");
    fs::create_dir_all(format!("{precious}/empty")).unwrap();
    fs::write(format!("{precious}/file"), "").unwrap();
    let link = |to: &str, name: &str| {
        let target = rig.path(name);
        std::os::unix::fs::symlink(to, &target).unwrap();
        target
    };
    let links = [
        link(&precious, "to-folder"),
        link(&format!("{precious}/empty"), "to-empty"),
        link(&format!("{precious}/file"), "to-file"),
    ];
    let below = [rig.path("to-folder/empty"), rig.path("to-folder/file")];

    for target in links.iter().chain(&below) {
        let answer = rig.nodes().node_unpublish_volume(there.unpublish(target)).await;
        assert_eq!(code(answer), Code::Ok, "{target}");
    }

    for target in &links {
        assert!(Path::new(target).is_symlink(), "{target} is not ours");
    }
    for target in &below {
        assert!(Path::new(target).exists(), "{target} is what a link leads to");
    }
    rig.stop().await;
}
