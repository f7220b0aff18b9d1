use std::fs;

use hawser_core::attach::AttachState;
use hawser_core::doctor::{Finding, FindingCode, Repair};
use hawser_core::filesystem::FsKind;
use hawser_core::id::VolumeId;
use hawser_core::port::host::{HostMount, MountSource};
use hawser_core::port::{Host, Node};
use hawser_core::{Error, Kind, Outcome};

use super::rig::{Rig, SIZE, text};

/// The one finding there is.
fn only(findings: Vec<Finding>, code: FindingCode, subject: &str) -> Finding {
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = findings.into_iter().next().unwrap();
    assert_eq!((finding.code, finding.subject.as_str()), (code, subject), "{finding:?}");
    assert!(finding.explanation.len() > 20 && finding.advice.len() > 20, "{finding:?}");
    finding
}

#[tokio::test]
async fn a_host_in_order_has_no_findings() {
    let rig = Rig::new().mounted().await;
    let before = (rig.host.snapshot(), rig.record());

    assert_eq!(rig.node.survey(true).await.unwrap(), []);

    assert_eq!((rig.host.snapshot(), rig.record()), before);
    assert_eq!(rig.node.gates.count(), 0);
}

#[tokio::test]
async fn a_stray_loop_device_of_ours_is_found_and_detached() {
    let rig = Rig::new();
    let stray = rig.host.add_foreign_loop(&rig.image, Some(rig.volume.as_str()));
    let subject = text(&stray.device);

    let found =
        only(rig.node.survey(false).await.unwrap(), FindingCode::LoopWithoutRecord, subject);
    assert!(found.fixable && found.repair.is_none());
    assert_eq!(rig.host.snapshot().loops.len(), 1);

    let found = only(rig.node.survey(true).await.unwrap(), FindingCode::LoopWithoutRecord, subject);
    assert_eq!(found.repair, Some(Repair::Done));
    assert_eq!(rig.node.survey(false).await.unwrap(), []);
    assert!(rig.host.snapshot().loops.is_empty());
}

#[tokio::test]
async fn loop_devices_of_others_are_never_touched() {
    let rig = Rig::new();
    rig.host.add_foreign_loop(&rig.image, None);
    rig.host.add_foreign_loop(&rig.image, Some("backup-of-somebody"));

    assert_eq!(rig.node.survey(true).await.unwrap(), []);

    assert_eq!(rig.host.snapshot().loops.len(), 2);
}

#[tokio::test]
async fn a_stray_loop_device_that_is_mounted_or_may_be_recorded_stays() {
    let rig = Rig::new().mounted().await;
    rig.registry.records.lock().unwrap().clear();
    let findings = rig.node.survey(true).await.unwrap();
    let codes: Vec<_> = findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, [FindingCode::LoopWithoutRecord, FindingCode::MountWithoutRecord]);
    assert!(findings.iter().all(|finding| !finding.fixable));

    rig.host.unmount(&rig.target()).await.unwrap();
    rig.registry.unreadable.lock().unwrap().push(("/run/x.json".into(), "torn".into()));
    let findings = rig.node.survey(true).await.unwrap();
    assert_eq!(findings[0].code, FindingCode::UnreadableRecord);
    assert!(findings.iter().all(|finding| !finding.fixable));
    assert_eq!(rig.host.snapshot().loops.len(), 1);
}

#[tokio::test]
async fn a_second_device_of_an_attached_volume_is_stray() {
    let rig = Rig::new().attached().await;
    let copy = rig.host.add_image("copy.img", SIZE);
    let stray = rig.host.add_foreign_loop(&copy, Some(rig.volume.as_str()));

    let findings = rig.node.survey(true).await.unwrap();

    only(findings, FindingCode::LoopWithoutRecord, text(&stray.device));
    assert_eq!(rig.host.snapshot().loops.len(), 1, "the recorded one stays");
}

#[tokio::test]
async fn a_deleted_backing_file_is_told_and_left() {
    let rig = Rig::new().attached().await;
    let device = rig.device();
    fs::remove_file(&rig.image).unwrap();

    let findings = rig.node.survey(true).await.unwrap();

    let found = findings.iter().find(|f| f.code == FindingCode::RecordWithoutStorage).unwrap();
    assert_eq!(found.subject, text(&device));
    assert!(!found.fixable && found.advice.contains("copy the data"));
    assert_eq!(rig.host.snapshot().loops.len(), 1);
}

#[tokio::test]
async fn a_record_without_its_device_is_told() {
    let rig = Rig::new().attached().await;
    let device = rig.host.snapshot().loops.remove(0);
    rig.host.detach_loop(&device, false).await.unwrap();

    let findings = rig.node.survey(true).await.unwrap();

    only(findings, FindingCode::RecordWithoutDevice, rig.publication.as_str());
    assert!(rig.record().is_some(), "the control half decides");
}

#[tokio::test]
async fn a_record_of_an_earlier_boot_is_told() {
    let rig = Rig::new().attached().await;
    rig.host.reboot();

    let findings = rig.node.survey(true).await.unwrap();

    let found = only(findings, FindingCode::RecordWithoutDevice, rig.publication.as_str());
    assert!(found.explanation.contains("restarted"));
}

#[tokio::test]
async fn a_missing_mount_is_found_and_forgotten() {
    let rig = Rig::new().mounted().await;
    rig.host.unmount(&rig.target()).await.unwrap();
    let target = rig.target();

    let findings = rig.node.survey(true).await.unwrap();

    let found = only(findings, FindingCode::RecordWithoutMount, text(&target));
    assert_eq!(found.repair, Some(Repair::Done));
    assert!(rig.record().unwrap().mounts.is_empty() && !target.exists());
    assert_eq!(rig.node.survey(false).await.unwrap(), []);
}

#[tokio::test]
async fn a_mount_made_by_others_is_told_and_left() {
    let rig = Rig::new().formatted().await;
    fs::create_dir(rig.target()).unwrap();
    let source = MountSource::Device { device: rig.device(), fs: FsKind::Ext4 };
    let mount = HostMount { source, target: rig.target(), read_only: false, flags: Vec::new() };
    rig.host.mount(&mount).await.unwrap();

    let findings = rig.node.survey(true).await.unwrap();

    let target = rig.target();
    let found = only(findings, FindingCode::MountWithoutRecord, text(&target));
    assert!(!found.fixable);
    assert!(rig.is_mounted());
}

#[tokio::test]
async fn a_half_made_attachment_is_found_and_taken_away() {
    let rig = Rig::new();
    let lost = Error::new(Kind::Timeout, "no answer").with_outcome(Outcome::Unknown);
    rig.host.fail_next("attach_loop", lost);
    rig.node.attach(&rig.attach_work()).await.unwrap_err();
    rig.host.add_foreign_loop(&rig.image, Some(rig.volume.as_str()));
    assert_eq!(rig.record().unwrap().state, AttachState::Intent);

    let findings = rig.node.survey(true).await.unwrap();

    let found = only(findings, FindingCode::HalfMadeAttachment, rig.publication.as_str());
    assert_eq!(found.repair, Some(Repair::Done));
    assert!(rig.record().is_none() && rig.host.snapshot().loops.is_empty());
}

#[tokio::test]
async fn things_of_another_instance_are_told_and_left() {
    let rig = Rig::new().mounted().await;
    rig.host.unmount(&rig.target()).await.unwrap();
    let other = rig.stranger();
    let before = rig.record();

    let found = only(
        other.survey(true).await.unwrap(),
        FindingCode::RecordWithoutMount,
        text(&rig.target()),
    );
    assert!(!found.fixable && found.repair.is_none());
    assert_eq!(rig.record(), before);

    rig.registry.edit(&rig.publication, |record| record.state = AttachState::Intent);
    let found = only(
        other.survey(true).await.unwrap(),
        FindingCode::HalfMadeAttachment,
        rig.publication.as_str(),
    );
    assert!(!found.fixable && found.advice.contains("another instance"));
}

#[tokio::test]
async fn a_freeze_is_a_finding_only_when_its_owner_is_gone() {
    let mut rig = Rig::new().mounted().await;
    rig.node.freeze(&rig.publication).await.unwrap();
    assert_eq!(rig.node.survey(true).await.unwrap(), []);
    assert!(!rig.host.snapshot().frozen.is_empty());
    rig.node = rig.restarted();

    let target = rig.target();
    let found = only(rig.node.survey(false).await.unwrap(), FindingCode::LeftFrozen, text(&target));
    assert!(found.fixable);
    let found = only(rig.node.survey(true).await.unwrap(), FindingCode::LeftFrozen, text(&target));
    assert_eq!(found.repair, Some(Repair::Done));
    assert!(rig.host.snapshot().frozen.is_empty());
}

#[tokio::test]
async fn another_device_in_place_of_ours_is_told_and_left() {
    let rig = Rig::new().attached().await;
    rig.change_identity();

    let findings = rig.node.survey(true).await.unwrap();

    let found = only(findings, FindingCode::IdentityMismatch, text(&rig.device()));
    assert!(found.explanation.contains("somebody-else") && !found.fixable);
    assert_eq!(rig.host.snapshot().loops.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn work_in_progress_is_no_finding() {
    let rig = Rig::new().attached().await;
    rig.registry.edit(&rig.publication, |record| record.state = AttachState::Intent);
    let registry = rig.registry.as_ref();
    let _working = rig.node.gates.enter(registry, &rig.publication).await.unwrap();

    assert_eq!(rig.stranger().survey(true).await.unwrap(), []);
    assert_eq!(rig.node.survey(true).await.unwrap(), []);
}

#[tokio::test]
async fn a_failed_repair_says_why() {
    let rig = Rig::new();
    let volume = VolumeId::generate();
    rig.host.add_foreign_loop(&rig.image, Some(volume.as_str()));
    rig.host.fail_always("detach_loop");

    let found = rig.node.survey(true).await.unwrap().remove(0);

    let Some(Repair::Failed(why)) = found.repair else { panic!("{found:?}") };
    assert!(why.contains("detach_loop"), "{why}");
}
