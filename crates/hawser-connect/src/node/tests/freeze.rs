use std::time::Duration;

use hawser_core::port::node::FREEZE_LIMIT;
use hawser_core::port::{Host, Node};
use hawser_core::{ByteSize, Change, Error, Kind};

use super::rig::{Rig, refused};

fn is_frozen(rig: &Rig) -> bool {
    !rig.host.snapshot().frozen.is_empty()
}

#[tokio::test]
async fn freeze_and_thaw_are_recorded_and_idempotent() {
    let rig = Rig::new().mounted().await;

    assert!(rig.node.freeze(&rig.publication).await.unwrap().is_made());
    assert!(!rig.node.freeze(&rig.publication).await.unwrap().is_made());
    assert!(is_frozen(&rig));
    assert_eq!(rig.record().unwrap().frozen, Some(rig.target()));

    assert!(rig.node.thaw(&rig.publication).await.unwrap().is_made());
    assert!(!rig.node.thaw(&rig.publication).await.unwrap().is_made());
    assert!(!is_frozen(&rig));
    assert_eq!(rig.record().unwrap().frozen, None);
}

#[tokio::test]
async fn what_cannot_write_needs_no_freeze() {
    let rig = Rig::new();
    assert_eq!(rig.node.freeze(&rig.publication).await.unwrap(), Change::Already(()));
    let rig = rig.formatted().await;
    assert_eq!(rig.node.freeze(&rig.publication).await.unwrap(), Change::Already(()));
    let mut work = rig.mount_work();
    work.read_only = true;
    rig.node.mount(&work).await.unwrap();

    assert_eq!(rig.node.freeze(&rig.publication).await.unwrap(), Change::Already(()));

    assert!(!is_frozen(&rig));
}

#[tokio::test]
async fn a_folder_is_synced_instead() {
    let rig = Rig::new();
    let (work, folder) = rig.folder_work();
    rig.node.attach(&work).await.unwrap();

    rig.node.freeze(&rig.publication).await.unwrap();

    let synced = rig.host.calls().into_iter().find(|call| call.method == "sync_filesystem");
    assert_eq!(synced.unwrap().detail, folder.display().to_string());
    assert!(!rig.node.thaw(&rig.publication).await.unwrap().is_made());
}

#[tokio::test]
async fn a_freeze_left_by_a_dead_process_is_thawed_at_start() {
    let mut rig = Rig::new().mounted().await;
    rig.node.freeze(&rig.publication).await.unwrap();
    rig.node = rig.restarted();

    rig.node.recover().await.unwrap();

    assert!(!is_frozen(&rig));
    assert_eq!(rig.record().unwrap().frozen, None);
}

#[tokio::test(start_paused = true)]
async fn a_freeze_of_a_living_process_is_left_to_it() {
    let rig = Rig::new().mounted().await;
    rig.node.freeze(&rig.publication).await.unwrap();
    let second = rig.restarted();

    second.recover().await.unwrap();

    assert!(is_frozen(&rig));
    refused(second.freeze(&rig.publication).await, Kind::Busy, &["snapshot"]);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_asks_to_keep_frozen_goes_on_by_itself() {
    let rig = Rig::new().mounted().await;
    rig.node.freeze(&rig.publication).await.unwrap();

    for _ in 0..10 {
        tokio::time::sleep(FREEZE_LIMIT * 2 / 3).await;
        assert!(!rig.node.freeze(&rig.publication).await.unwrap().is_made(), "let go of");
    }
    tokio::time::sleep(FREEZE_LIMIT + Duration::from_secs(1)).await;

    assert!(!is_frozen(&rig));
    assert_eq!(rig.record().unwrap().frozen, None);
    assert!(rig.node.freeze(&rig.publication).await.unwrap().is_made(), "and is told so");
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_thawed_in_time_is_tried_again() {
    let rig = Rig::new().mounted().await;
    rig.node.freeze(&rig.publication).await.unwrap();
    rig.host.fail_next("thaw", Error::new(Kind::Timeout, "no answer"));

    tokio::time::sleep(FREEZE_LIMIT + Duration::from_secs(10)).await;

    assert!(!is_frozen(&rig));
}

#[tokio::test]
async fn recovery_leaves_other_instances_alone() {
    let mut rig = Rig::new().mounted().await;
    rig.node.freeze(&rig.publication).await.unwrap();
    let before = rig.record();
    rig.node = rig.stranger();

    rig.node.recover().await.unwrap();

    assert!(is_frozen(&rig));
    assert_eq!(rig.record(), before);
}

#[tokio::test]
async fn recovery_tries_every_record_and_names_those_that_failed() {
    let mut rig = Rig::new().mounted().await;
    rig.node.freeze(&rig.publication).await.unwrap();
    rig.node = rig.restarted();
    rig.host.fail_next("thaw", Error::new(Kind::Timeout, "no answer"));

    let words = [rig.publication.as_str(), "no answer"];
    refused(rig.node.recover().await, Kind::Timeout, &words);

    rig.node.recover().await.unwrap();
    assert!(!is_frozen(&rig));
}

#[tokio::test]
async fn what_others_froze_is_neither_used_nor_thawed() {
    let rig = Rig::new().mounted().await;
    rig.host.freeze(&rig.target()).await.unwrap();

    refused(rig.node.freeze(&rig.publication).await, Kind::Busy, &["somebody else"]);
    assert!(!rig.node.thaw(&rig.publication).await.unwrap().is_made());

    assert!(is_frozen(&rig));
    assert_eq!(rig.record().unwrap().frozen, None);
}

#[tokio::test]
async fn a_frozen_volume_neither_grows_nor_gets_another_mount() {
    let rig = Rig::new().mounted().await;
    rig.node.freeze(&rig.publication).await.unwrap();
    let mut work = rig.mount_work();
    work.target = rig.host.dir().join("second");

    refused(rig.node.mount(&work).await, Kind::Busy, &["frozen"]);
    let result = rig.node.extend(&rig.publication, ByteSize::mib(16)).await;
    refused(result, Kind::Busy, &["frozen"]);
}

#[tokio::test]
async fn unmount_thaws_first() {
    let rig = Rig::new().mounted().await;
    rig.node.freeze(&rig.publication).await.unwrap();

    rig.node.unmount(&rig.publication, &rig.target()).await.unwrap();

    assert!(!is_frozen(&rig));
    let calls = rig.host.changes();
    let at = |method: &str| calls.iter().position(|call| call.method == method).unwrap();
    assert!(at("thaw") < at("unmount"));
    assert_eq!(rig.record().unwrap().frozen, None);
}

#[tokio::test]
async fn a_failed_freeze_is_taken_back() {
    let rig = Rig::new().mounted().await;
    rig.host.fail_next("freeze", Error::new(Kind::Timeout, "no answer"));

    refused(rig.node.freeze(&rig.publication).await, Kind::Timeout, &["no answer"]);

    assert_eq!(rig.record().unwrap().frozen, None);
    assert!(rig.node.freeze(&rig.publication).await.unwrap().is_made());
}

#[tokio::test]
async fn another_device_is_not_frozen() {
    let rig = Rig::new().mounted().await;
    rig.change_identity();

    refused(rig.node.freeze(&rig.publication).await, Kind::Precondition, &["somebody-else"]);

    assert!(!is_frozen(&rig));
}
