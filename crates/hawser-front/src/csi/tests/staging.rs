//! Rows 81 to 85 and 94 to 95: volumes on their way to this host, and what is done when that fails.

use hawser_api::csi::v1::volume_capability::access_mode::Mode;
use hawser_api::csi::v1::*;
use hawser_core::attach::AttachRecord;
use hawser_core::filesystem::FormatState;
use hawser_core::id::PublicationId;
use hawser_core::{Error, Kind};
use tonic::Code;

use super::fake::unknown;
use super::rig::{Rig, Staging, block, code, mount, mount_as, new};

async fn stage(rig: &Rig, request: NodeStageVolumeRequest) -> Code {
    code(rig.nodes().node_stage_volume(request).await)
}

async fn unstage(rig: &Rig, there: &Staging) -> Code {
    code(rig.nodes().node_unstage_volume(there.unstage(&rig.staging())).await)
}

fn state_of(rig: &Rig, there: &Staging) -> FormatState {
    rig.control.volume_of(&there.id).unwrap().filesystem.unwrap().state
}

/// Rows 81 to 85.
#[tokio::test]
async fn what_is_missing_is_asked_for() {
    let rig = Rig::start().await;
    let fake = Staging {
        id: "fake-vol-id".into(),
        capability: mount(),
        context: super::rig::map(&[("device", "/dev/mock")]),
    };
    let staging = rig.staging();
    let full = || fake.stage(&staging);

    let no_id = NodeStageVolumeRequest { volume_id: String::new(), ..full() };
    assert_eq!(stage(&rig, no_id).await, Code::InvalidArgument);
    let no_path = NodeStageVolumeRequest { staging_target_path: String::new(), ..full() };
    assert_eq!(stage(&rig, no_path).await, Code::InvalidArgument);
    let no_capability = NodeStageVolumeRequest { volume_capability: None, ..full() };
    assert_eq!(stage(&rig, no_capability).await, Code::InvalidArgument);
    assert_eq!(stage(&rig, full()).await, Code::NotFound);
    for request in [
        NodeUnstageVolumeRequest { volume_id: String::new(), ..fake.unstage(&staging) },
        NodeUnstageVolumeRequest { staging_target_path: String::new(), ..fake.unstage(&staging) },
    ] {
        let answer = rig.nodes().node_unstage_volume(request).await;
        assert_eq!(code(answer), Code::InvalidArgument);
    }
    assert_eq!(unstage(&rig, &fake).await, Code::Ok);
    rig.stop().await;
}

#[tokio::test]
async fn a_new_volume_is_formatted_once_and_recorded_before_and_after() {
    let rig = Rig::start().await;
    let there = rig.published(mount()).await;

    assert_eq!(stage(&rig, there.stage(&rig.staging())).await, Code::Ok);

    let heard = rig.upstream.take_heard();
    assert_eq!(heard, ["grant", "attached", "format begins", "formatted"]);
    assert_eq!(state_of(&rig, &there), FormatState::Done);
    assert_eq!(*rig.node.asked.lock().unwrap(), ["attach", "format", "format", "mount"]);
    // The context still says that it was never formatted: the record knows better.
    for _ in 0..10 {
        assert_eq!(stage(&rig, there.stage(&rig.staging())).await, Code::Ok);
    }
    assert_eq!(rig.upstream.take_heard(), ["grant", "attached"].repeat(10));
    assert_eq!(rig.node.asked.lock().unwrap().iter().filter(|a| **a == "format").count(), 2);
    rig.stop().await;
}

/// A control half that restarts does not keep pods from starting.
#[tokio::test]
async fn a_volume_that_was_formatted_is_staged_without_the_control_half() {
    let rig = Rig::start().await;
    let mut there = rig.staged(mount()).await;
    assert_eq!(unstage(&rig, &there).await, Code::Ok);
    let done = there.context["filesystem"].replace("/never", "/done");
    there.context.insert("filesystem".into(), done);
    rig.upstream.take_heard();

    *rig.upstream.down.lock().unwrap() = true;
    assert_eq!(stage(&rig, there.stage(&rig.staging())).await, Code::Ok);
    assert_eq!(unstage(&rig, &there).await, Code::Ok);

    assert!(rig.upstream.take_heard().is_empty(), "nobody could be asked");
    rig.stop().await;
}

#[tokio::test]
async fn nothing_is_formatted_without_the_control_half() {
    let rig = Rig::start().await;
    let there = rig.published(mount()).await;

    *rig.upstream.down.lock().unwrap() = true;
    assert_eq!(stage(&rig, there.stage(&rig.staging())).await, Code::Unavailable);

    assert!(rig.node.asked.lock().unwrap().is_empty(), "the host was not touched");
    *rig.upstream.down.lock().unwrap() = false;
    assert_eq!(stage(&rig, there.stage(&rig.staging())).await, Code::Ok);
    rig.stop().await;
}

#[tokio::test]
async fn a_raw_device_is_attached_and_mounted_nowhere() {
    let rig = Rig::start().await;

    let there = rig.staged(block(Mode::SingleNodeWriter)).await;

    assert!(rig.node.only().mounts.is_empty());
    assert!(!rig.upstream.take_heard().contains(&"grant".into()), "the context says it all");
    assert_eq!(unstage(&rig, &there).await, Code::Ok);
    assert!(rig.node.records().is_empty());
    rig.stop().await;
}

#[tokio::test]
async fn another_use_than_the_volumes_own_is_refused_and_changes_nothing() {
    let rig = Rig::start().await;
    let there = rig.staged(mount()).await;
    let before = rig.node.only();

    for other in [block(Mode::SingleNodeWriter), mount_as("xfs", Mode::SingleNodeWriter)] {
        let request = NodeStageVolumeRequest {
            volume_capability: Some(other),
            ..there.stage(&rig.staging())
        };
        assert_eq!(stage(&rig, request).await, Code::FailedPrecondition);
    }
    let mut flags = there.clone();
    let Some(volume_capability::AccessType::Mount(mount)) = &mut flags.capability.access_type
    else {
        panic!("a mount")
    };
    mount.mount_flags = vec!["noatime".into()];
    assert_eq!(stage(&rig, flags.stage(&rig.staging())).await, Code::AlreadyExists);

    assert_eq!(rig.node.only(), before, "what was staged stays staged");
    rig.stop().await;
}

#[tokio::test]
async fn a_staged_device_stays_when_somebody_asks_to_mount_it() {
    let rig = Rig::start().await;
    let there = rig.staged(block(Mode::SingleNodeWriter)).await;
    let before = rig.node.only();

    let mut flagged = mount();
    let Some(volume_capability::AccessType::Mount(with)) = &mut flagged.access_type else {
        panic!("a mount")
    };
    with.mount_flags = vec!["noatime".into()];
    for wrong in [mount(), mount_as("xfs", Mode::SingleNodeWriter), flagged] {
        let wrong = Staging { capability: wrong, ..there.clone() };
        assert_eq!(stage(&rig, wrong.stage(&rig.staging())).await, Code::FailedPrecondition);
    }

    assert_eq!(rig.node.only(), before, "what was staged stays staged");
    assert_eq!(*rig.node.asked.lock().unwrap(), ["attach"], "and the host was not touched");
    rig.stop().await;
}

/// Labels of SELinux among them: a pod of another label must not get the volume as if it had its own.
#[tokio::test]
async fn options_that_came_with_a_folder_are_neither_changed_nor_lost() {
    let rig = Rig::start().await;
    let with = |flags: &[&str]| {
        let mut wanted = mount_as("", Mode::MultiNodeMultiWriter);
        let Some(volume_capability::AccessType::Mount(mount)) = &mut wanted.access_type else {
            panic!("a mount")
        };
        mount.mount_flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        wanted
    };
    let (mine, other) = ("context=\"u:r:t:s0:c1,c2\"", "context=\"u:r:t:s0:c3,c4\"");
    let files = CreateVolumeRequest {
        parameters: super::rig::map(&[("class", "files")]),
        ..new("data", with(&[]))
    };
    let id = rig.create(files).await;
    let request = super::rig::publish(&id, with(&[]));
    let answer = rig.controller().controller_publish_volume(request).await.unwrap();
    let context = answer.into_inner().publish_context;
    let there = Staging { id, capability: with(&[mine, "noatime"]), context };
    assert_eq!(stage(&rig, there.stage(&rig.staging())).await, Code::Ok);
    let before = rig.node.only();
    assert_eq!(before.attach.mount_flags, [mine]);

    for flags in [vec![other, "noatime"], vec!["noatime"]] {
        let otherwise = Staging { capability: with(&flags), ..there.clone() };
        let refused = rig.nodes().node_stage_volume(otherwise.stage(&rig.staging())).await;
        assert_eq!(code(refused), Code::AlreadyExists, "{flags:?}");
    }
    let pod = Staging { capability: with(&[other]), ..there.clone() };
    let pod = pod.publish(&rig.staging(), &rig.path("a"));
    assert_eq!(code(rig.nodes().node_publish_volume(pod).await), Code::AlreadyExists);

    assert_eq!(rig.node.only(), before);
    let pod = there.publish(&rig.staging(), &rig.path("b"));
    assert_eq!(code(rig.nodes().node_publish_volume(pod).await), Code::Ok);
    rig.stop().await;
}

/// The kubelet takes a final answer for the end of the matter and never unstages.
#[tokio::test]
async fn a_final_failure_leaves_nothing_behind() {
    let rig = Rig::start().await;
    let there = rig.published(mount()).await;

    let damaged = || Error::new(Kind::Precondition, "the file system is damaged");
    *rig.node.fail_mount.lock().unwrap() = Some(damaged);
    assert_eq!(stage(&rig, there.stage(&rig.staging())).await, Code::FailedPrecondition);
    assert!(rig.node.records().is_empty(), "it was taken away again");
    assert_eq!(rig.upstream.take_heard().last().unwrap(), "detached");

    *rig.upstream.other_device.lock().unwrap() = true;
    assert_eq!(stage(&rig, there.stage(&rig.staging())).await, Code::FailedPrecondition);
    assert!(rig.node.records().is_empty(), "a device of another identity is not kept");
    *rig.upstream.other_device.lock().unwrap() = false;
    assert_eq!(stage(&rig, there.stage(&rig.staging())).await, Code::Ok);
    rig.stop().await;
}

#[tokio::test]
async fn a_failure_that_nobody_understands_is_told_as_going_on() {
    let rig = Rig::start().await;
    let there = rig.published(mount()).await;

    *rig.node.fail_mount.lock().unwrap() = Some(unknown);
    assert_eq!(stage(&rig, there.stage(&rig.staging())).await, Code::Unavailable);

    assert_eq!(rig.node.records().len(), 1, "the kubelet will unstage it");
    assert_eq!(unstage(&rig, &there).await, Code::Ok);
    assert!(rig.node.records().is_empty());
    rig.stop().await;
}

#[tokio::test]
async fn what_is_left_of_an_earlier_right_makes_room() {
    let rig = Rig::start().await;
    let there = rig.staged(mount()).await;
    let old = rig.node.only();
    // The right was taken back by force and given again: nobody unstaged.
    let request = ControllerUnpublishVolumeRequest {
        volume_id: there.id.clone(),
        node_id: "n1".into(),
        ..Default::default()
    };
    rig.controller().controller_unpublish_volume(request).await.unwrap();
    let request = super::rig::publish(&there.id, mount());
    let answer = rig.controller().controller_publish_volume(request).await.unwrap();
    let again = Staging { context: answer.into_inner().publish_context, ..there };

    assert_eq!(stage(&rig, again.stage(&rig.staging())).await, Code::Ok);

    assert_ne!(rig.node.only().publication, old.publication);
    rig.stop().await;
}

#[tokio::test]
async fn what_an_earlier_right_still_shows_to_a_pod_stays() {
    let rig = Rig::start().await;
    let there = rig.published(mount()).await;
    let mut stale: AttachRecord = {
        rig.nodes().node_stage_volume(there.stage(&rig.staging())).await.unwrap();
        let target = rig.path("pod");
        let request = there.publish(&rig.staging(), &target);
        rig.nodes().node_publish_volume(request).await.unwrap();
        rig.node.only()
    };
    rig.node.records().clear();
    stale.publication = PublicationId::generate();
    rig.node.records().insert(stale.publication.clone(), stale.clone());

    assert_eq!(stage(&rig, there.stage(&rig.staging())).await, Code::FailedPrecondition);

    assert_eq!(rig.node.only(), stale);
    rig.stop().await;
}

#[tokio::test]
async fn a_volume_whose_data_is_lost_is_unstaged_all_the_same() {
    let rig = Rig::start().await;
    let there = rig.staged(mount()).await;

    *rig.node.flush_fails.lock().unwrap() = true;
    assert_eq!(unstage(&rig, &there).await, Code::Ok);

    assert!(rig.node.records().is_empty());
    rig.stop().await;
}

#[tokio::test]
async fn a_volume_that_is_not_published_here_is_not_staged() {
    let rig = Rig::start().await;
    let id = rig.create(new("data", mount())).await;
    let there = Staging { id, capability: mount(), context: Default::default() };

    assert_eq!(stage(&rig, there.stage(&rig.staging())).await, Code::FailedPrecondition);
    let unknown = Staging { id: "vol-01k5zzzzzzzzzzzzzzzzzzzzzz".into(), ..there };
    assert_eq!(stage(&rig, unknown.stage(&rig.staging())).await, Code::NotFound);
    rig.stop().await;
}
