//! Known vulnerabilities of others, tried on this driver.

use std::fs;
use std::path::Path;

use hawser_api::csi::v1::*;
use tonic::Code;

use super::rig::{Rig, Staging, code, map, mount, mount_as, new, publish};
use crate::csi::CsiDriver;

/// CVE-2020-8567, CVE-2020-8568: `..` in a target path writes files of the host.
#[tokio::test]
async fn no_target_leads_out_of_the_folders_of_the_kubelet() {
    let rig = Rig::with(CsiDriver::Published, |settings, _| {
        let root = settings.endpoint.path().parent().unwrap().to_owned();
        settings.kubelet_dir = Some(root);
    })
    .await;
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

/// CVE-2026-3864, CVE-2026-3865: `../` in a volume id deletes folders of others.
#[tokio::test]
async fn no_volume_id_is_a_path() {
    let rig = Rig::start().await;
    let precious = rig.path("precious");
    fs::create_dir(&precious).unwrap();

    for id in ["../precious", &precious, "vol-../precious", "v1:local:../../precious"] {
        let delete = DeleteVolumeRequest { volume_id: id.into(), ..Default::default() };
        assert_eq!(code(rig.controller().delete_volume(delete).await), Code::Ok);
        let there = Staging { id: id.into(), capability: mount(), context: map(&[]) };
        let answer = rig.nodes().node_stage_volume(there.stage(&rig.staging())).await;
        assert_eq!(code(answer), Code::NotFound, "{id}");
    }

    assert!(Path::new(&precious).is_dir());
    rig.stop().await;
}

/// CVE-2019-11255: a tampered object gives a volume the data of another.
#[tokio::test]
async fn the_context_of_one_volume_does_not_open_another() {
    let rig = Rig::start().await;
    let theirs = rig.published(mount()).await;
    let id = rig.create(new("mine", mount())).await;
    rig.controller().controller_publish_volume(publish(&id, mount())).await.unwrap();
    // As if nothing were left to be made inside, so that nobody would be asked.
    let mut context = theirs.context.clone();
    let done = context["filesystem"].replace("/never", "/done");
    context.insert("filesystem".into(), done);
    let tampered = Staging { id, capability: mount(), context };

    let answer = rig.nodes().node_stage_volume(tampered.stage(&rig.staging())).await;

    assert_eq!(code(answer), Code::FailedPrecondition);
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

/// CVE-2021-25741 and the link in a GCS FUSE folder: a target is swapped for a link.
#[tokio::test]
async fn a_link_at_the_target_is_left_alone() {
    let rig = Rig::start().await;
    let there = rig.staged(mount()).await;
    let (target, precious) = (rig.path("target"), rig.path("precious"));
    fs::create_dir(&precious).unwrap();
    std::os::unix::fs::symlink(&precious, &target).unwrap();

    let answer = rig.nodes().node_unpublish_volume(there.unpublish(&target)).await;

    assert_eq!(code(answer), Code::Ok);
    assert!(Path::new(&precious).is_dir() && Path::new(&target).is_symlink());
    rig.stop().await;
}
