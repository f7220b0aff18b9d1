use std::path::Path;
use std::time::Duration;

use hawser_core::attach::{AttachState, Attached, Detach, Identity};
use hawser_core::id::PublicationId;
use hawser_core::port::node::AttachWork;
use hawser_core::port::{Host, Node, Registry};
use hawser_core::{Change, Error, Kind, Outcome};
use tokio::time::timeout;

use super::rig::{Rig, refused, text};

#[tokio::test]
async fn attach_answers_the_device_and_a_second_time_that_it_is_there() {
    let rig = Rig::new();

    let first = rig.node.attach(&rig.attach_work()).await.unwrap();
    let second = rig.node.attach(&rig.attach_work()).await.unwrap();

    assert!(first.is_made() && !second.is_made());
    assert_eq!(first.into_inner(), second.into_inner());
    assert_eq!(rig.record().unwrap().state, AttachState::Attached);
    assert_eq!(rig.host.snapshot().loops.len(), 1);
}

#[tokio::test]
async fn secrets_never_reach_the_record() {
    let rig = Rig::new();
    let mut work = rig.attach_work();
    work.info.secrets.insert("password".into(), hawser_core::secret::Secret::new("hunter2"));

    rig.node.attach(&work).await.unwrap();

    assert!(rig.record().unwrap().info.secrets.is_empty());
}

#[tokio::test]
async fn a_device_that_was_taken_away_is_attached_again() {
    let rig = Rig::new().attached().await;
    let device = rig.host.snapshot().loops.remove(0);
    hawser_core::port::Host::detach_loop(rig.host.as_ref(), &device, false).await.unwrap();

    let again = rig.node.attach(&rig.attach_work()).await.unwrap();

    assert!(again.is_made());
    assert_eq!(rig.host.snapshot().loops.len(), 1);
}

#[tokio::test]
async fn what_is_there_and_does_not_work_is_not_handed_out() {
    let rig = Rig::new().attached().await;
    *rig.connector.sick.lock().unwrap() = Some("its session is gone".into());
    *rig.connector.connect.lock().unwrap() = Some(Error::new(Kind::Unavailable, "no answer"));

    refused(rig.node.attach(&rig.attach_work()).await, Kind::Unavailable, &["no answer"]);
    assert_eq!(rig.record().unwrap().state, AttachState::Attached, "it is still there");

    let again = rig.node.attach(&rig.attach_work()).await.unwrap();
    assert!(!again.is_made(), "the connector brought it back");
    assert_eq!(rig.record().unwrap().attached.as_ref(), Some(again.get()));
}

#[tokio::test]
async fn a_request_that_differs_is_refused_with_both_values() {
    let rig = Rig::new().attached().await;
    let mut read_only = rig.attach_work();
    read_only.attach.read_only = true;
    let mut elsewhere = rig.attach_work();
    elsewhere.info.data.insert("file".into(), "/other.img".into());

    refused(rig.node.attach(&read_only).await, Kind::Exists, &["read-only", "writable"]);
    refused(rig.node.attach(&elsewhere).await, Kind::Exists, &["/other.img", text(&rig.image)]);
}

#[tokio::test]
async fn a_second_writer_on_the_host_is_refused_by_name() {
    let rig = Rig::new().attached().await;
    let mut second = rig.attach_work();
    second.publication = PublicationId::generate();
    let other = rig.stranger();

    let words = [rig.publication.as_str(), rig.instance.as_str()];
    refused(rig.node.attach(&second).await, Kind::Precondition, &words);
    refused(other.attach(&second).await, Kind::Precondition, &words);
    second.attach.read_only = true;
    refused(other.attach(&second).await, Kind::Precondition, &words);

    assert!(rig.registry.record(&second.publication).is_none());
}

/// Two attachments of one volume that only read.
fn readers(rig: &Rig) -> (AttachWork, AttachWork) {
    let (mut first, mut second) = (rig.attach_work(), rig.attach_work());
    second.publication = PublicationId::generate();
    (first.attach.read_only, second.attach.read_only) = (true, true);
    (first, second)
}

#[tokio::test]
async fn readers_share_a_volume_and_keep_writers_out() {
    let rig = Rig::new();
    let (first, second) = readers(&rig);
    rig.node.attach(&first).await.unwrap();
    rig.node.attach(&second).await.unwrap();
    let mut writer = rig.attach_work();
    writer.publication = PublicationId::generate();

    refused(rig.node.attach(&writer).await, Kind::Precondition, &["a writer must be alone"]);
}

#[tokio::test]
async fn the_last_reader_takes_the_device_away() {
    let rig = Rig::new();
    let (first, second) = readers(&rig);
    rig.node.attach(&first).await.unwrap();
    rig.stranger().attach(&second).await.unwrap();

    rig.node.detach(&first.publication, &Detach::default()).await.unwrap();
    assert_eq!(rig.host.snapshot().loops.len(), 1, "the second reader still has it");
    assert!(rig.record().is_none());

    rig.stranger().detach(&second.publication, &Detach::default()).await.unwrap();
    assert!(rig.host.snapshot().loops.is_empty());
}

#[tokio::test]
async fn readers_of_one_volume_ask_for_the_same() {
    let rig = Rig::new();
    let (first, mut second) = readers(&rig);
    second.info.data.insert("mark".into(), "another".into());
    rig.node.attach(&first).await.unwrap();

    refused(rig.node.attach(&second).await, Kind::Exists, &["another", rig.publication.as_str()]);
}

#[tokio::test]
async fn a_reader_waits_for_one_that_comes_or_goes() {
    let rig = Rig::new();
    let (first, second) = readers(&rig);
    rig.node.attach(&first).await.unwrap();
    rig.node.attach(&second).await.unwrap();

    rig.registry.edit(&second.publication, |record| record.state = AttachState::Detaching);
    let mut third = first.clone();
    third.publication = PublicationId::generate();
    refused(rig.node.attach(&third).await, Kind::Busy, &["being detached"]);

    rig.registry.edit(&second.publication, |record| record.state = AttachState::Intent);
    let lock = format!("publication/{}", second.publication);
    let working = rig.registry.lock(&lock).await.unwrap();
    let leave = rig.node.detach(&first.publication, &Detach::default()).await;
    refused(leave, Kind::Busy, &["being attached", second.publication.as_str()]);

    drop(working);
    rig.node.detach(&first.publication, &Detach::default()).await.unwrap();
    assert!(rig.host.snapshot().loops.is_empty(), "nobody was at the other's attach any more");
}

#[tokio::test]
async fn one_volume_under_two_names_is_refused() {
    let rig = Rig::new().attached().await;
    let mut second = rig.attach_work();
    second.publication = PublicationId::generate();
    second.volume = hawser_core::id::VolumeId::generate();
    let words = [rig.volume.as_str(), rig.publication.as_str()];

    refused(rig.node.attach(&second).await, Kind::Precondition, &words);

    second.info.data.insert("file".into(), "/a/second/way".into());
    second.info.identity = rig.record().unwrap().attached.unwrap().identity().cloned();
    refused(rig.node.attach(&second).await, Kind::Precondition, &words);
    assert!(rig.registry.record(&second.publication).is_none());
}

#[tokio::test]
async fn two_writers_at_once_get_one_attachment() {
    let rig = Rig::new();
    let (first, mut second) = (rig.attach_work(), rig.attach_work());
    second.publication = PublicationId::generate();

    let (one, two) = tokio::join!(rig.node.attach(&first), rig.node.attach(&second));

    assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
}

#[tokio::test]
async fn an_unreadable_record_stops_new_attachments_because_it_may_be_a_writer() {
    let rig = Rig::new();
    rig.registry.unreadable.lock().unwrap().push(("/run/x.json".into(), "torn".into()));

    let result = rig.node.attach(&rig.attach_work()).await;

    refused(result, Kind::Precondition, &["/run/x.json", "torn", "doctor"]);
    assert!(rig.host.snapshot().loops.is_empty());
}

/// CVE-2023-2088: what a connector brings is compared once more before anybody gets it.
#[tokio::test]
async fn a_device_of_another_identity_is_refused_and_taken_away_again() {
    let rig = Rig::new();
    let mut work = rig.attach_work();
    work.info.identity = Some(Identity::new("image", "the-right-one"));

    let result = rig.node.attach(&work).await;

    let error = refused(result, Kind::Precondition, &["image:the-right-one", text(&rig.image)]);
    assert_eq!(error.outcome(), Outcome::RolledBack);
    assert!(rig.host.snapshot().loops.is_empty());
    assert!(rig.record().is_none());
}

#[tokio::test]
async fn a_wrong_device_that_was_there_before_is_left_alone() {
    let rig = Rig::new();
    rig.host.add_foreign_loop(&rig.image, Some(rig.volume.as_str()));
    let mut work = rig.attach_work();
    work.info.identity = Some(Identity::new("image", "the-right-one"));

    refused(rig.node.attach(&work).await, Kind::Precondition, &["left alone"]);

    assert_eq!(rig.host.snapshot().loops.len(), 1);
    assert_eq!(*rig.connector.disconnects.lock().unwrap(), 0);
    assert!(rig.record().is_none());
}

#[tokio::test]
async fn the_identity_seen_first_is_enforced_after_a_reboot() {
    let rig = Rig::new().attached().await;
    rig.host.reboot();
    rig.change_identity();

    let result = rig.node.attach(&rig.attach_work()).await;

    refused(result, Kind::Precondition, &["somebody-else"]);
    assert!(rig.host.snapshot().loops.is_empty());
}

#[tokio::test]
async fn a_failed_connect_leaves_no_record_and_an_unknown_one_keeps_it() {
    let rig = Rig::new();

    rig.host.fail_next("attach_loop", Error::new(Kind::NoSpace, "no loop devices"));
    refused(rig.node.attach(&rig.attach_work()).await, Kind::NoSpace, &["no loop devices"]);
    assert!(rig.record().is_none());

    let lost = Error::new(Kind::Timeout, "no answer").with_outcome(Outcome::Unknown);
    rig.host.fail_next("attach_loop", lost);
    let error = refused(rig.node.attach(&rig.attach_work()).await, Kind::Timeout, &[]);
    assert!(error.is_unknown());
    assert_eq!(rig.record().unwrap().state, AttachState::Intent);
}

#[tokio::test]
async fn an_unknown_protocol_is_refused_before_anything_is_written() {
    let rig = Rig::new();
    let mut work = rig.attach_work();
    work.info.protocol = hawser_core::connection::Protocol::new("pigeon");

    refused(rig.node.attach(&work).await, Kind::Unsupported, &["PIGEON"]);

    assert!(rig.record().is_none());
}

#[tokio::test]
async fn detach_leaves_nothing_and_a_second_time_answers_already() {
    let rig = Rig::new();
    let before = rig.host.snapshot();
    let rig = rig.attached().await;
    let detach = Detach::default();

    let first = rig.node.detach(&rig.publication, &detach).await.unwrap();
    let second = rig.node.detach(&rig.publication, &detach).await.unwrap();

    assert_eq!((first, second), (Change::Made(()), Change::Already(())));
    assert_eq!(rig.host.snapshot(), before);
    assert!(rig.record().is_none());
    assert_eq!(rig.node.gates.count(), 0, "gates are not kept");
}

#[tokio::test]
async fn detach_of_a_mounted_volume_is_busy_and_lists_the_mounts() {
    let rig = Rig::new().mounted().await;

    let result = rig.node.detach(&rig.publication, &Detach::default()).await;

    refused(result, Kind::Busy, &[text(&rig.target())]);
    assert_eq!(rig.record().unwrap().state, AttachState::Attached);
    assert!(rig.is_mounted());
}

#[tokio::test]
async fn detach_of_another_device_is_refused_by_name() {
    let rig = Rig::new().attached().await;
    rig.change_identity();
    let force = Detach { force: true, ignore_errors: true, ..Detach::default() };

    refused(
        rig.node.detach(&rig.publication, &force).await,
        Kind::Precondition,
        &["somebody-else", text(&rig.device())],
    );

    assert_eq!(*rig.connector.disconnects.lock().unwrap(), 0);
    assert_eq!(rig.host.snapshot().loops.len(), 1);
}

#[tokio::test]
async fn a_detach_that_changed_nothing_leaves_the_volume_usable() {
    let rig = Rig::new().attached().await;
    *rig.connector.disconnect.lock().unwrap() = Some(Error::new(Kind::Busy, "open"));

    refused(rig.node.detach(&rig.publication, &Detach::default()).await, Kind::Busy, &["open"]);

    assert_eq!(rig.record().unwrap().state, AttachState::Attached);
}

#[tokio::test]
async fn a_detach_of_unknown_outcome_stays_in_the_journal() {
    let rig = Rig::new().attached().await;
    let lost = Error::new(Kind::Timeout, "no answer").with_outcome(Outcome::Unknown);
    *rig.connector.disconnect.lock().unwrap() = Some(lost);

    let error =
        refused(rig.node.detach(&rig.publication, &Detach::default()).await, Kind::Timeout, &[]);

    assert!(error.is_unknown());
    assert_eq!(rig.record().unwrap().state, AttachState::Detaching);
    refused(rig.node.mount(&rig.mount_work()).await, Kind::Precondition, &["detaching was begun"]);
    rig.node.detach(&rig.publication, &Detach::default()).await.unwrap();
    assert!(rig.host.snapshot().loops.is_empty());
}

#[tokio::test]
async fn after_a_reboot_the_volume_is_attached_anew_and_old_targets_are_gone() {
    let rig = Rig::new().mounted().await;
    rig.host.reboot();
    let node = rig.restarted();

    node.recover().await.unwrap();

    let record = rig.record().unwrap();
    assert_eq!(record.state, AttachState::Intent);
    assert!(record.mounts.is_empty() && record.attached.is_none());
    assert!(!rig.target().exists());
    refused(node.mount(&rig.mount_work()).await, Kind::Precondition, &["attach it first"]);
    assert!(node.attach(&rig.attach_work()).await.unwrap().is_made());
    node.mount(&rig.mount_work()).await.unwrap();
    assert!(rig.is_mounted());
}

#[tokio::test]
async fn a_record_of_an_earlier_boot_does_not_keep_others_out() {
    let rig = Rig::new().attached().await;
    rig.host.reboot();
    let mut second = rig.attach_work();
    second.publication = PublicationId::generate();

    rig.node.attach(&second).await.unwrap();

    let result = rig.node.attach(&rig.attach_work()).await;
    refused(result, Kind::Precondition, &[second.publication.as_str()]);
}

#[tokio::test]
async fn a_folder_is_attached_by_its_path() {
    let rig = Rig::new();
    let (work, path) = rig.folder_work();

    let attached = rig.node.attach(&work).await.unwrap().into_inner();

    assert_eq!(attached, Attached::Directory { path });
    rig.node.detach(&rig.publication, &Detach::default()).await.unwrap();
    assert!(rig.record().is_none());
}

#[tokio::test]
async fn the_node_describes_itself_in_the_spelling_of_os_brick() {
    let rig = Rig::new();

    let record = rig.node.describe().await.unwrap();

    assert_eq!(record.id.as_str(), "node-1");
    assert_eq!(record.properties["os_type"], "LINUX");
    assert_eq!(record.properties["multipath"], false);
    assert_eq!(record.properties["boot_id"], record.boot_id);
    assert_eq!(record.topology, [("node".to_owned(), "node-1".to_owned())].into());
}

#[tokio::test(start_paused = true)]
async fn calls_for_one_publication_wait_for_each_other_across_processes_and_others_do_not() {
    let rig = Rig::new();
    let other_process = rig.restarted();
    let registry = rig.registry.as_ref();
    let working = other_process.gates.enter(registry, &rig.publication).await.unwrap();
    let work = rig.attach_work();
    let mut unrelated = rig.attach_work();
    unrelated.publication = PublicationId::generate();
    unrelated.volume = hawser_core::id::VolumeId::generate();

    let waited = timeout(Duration::from_secs(50), rig.node.attach(&work)).await;
    assert!(waited.is_err() && rig.record().is_none());
    let unrelated_done = timeout(Duration::from_secs(60), rig.node.attach(&unrelated)).await;
    unrelated_done.expect("it waits for nobody").unwrap();
    assert_eq!(rig.node.gates.count(), 0, "who gave up waiting leaves no gate behind");

    drop(working);
    rig.node.detach(&unrelated.publication, &Detach::default()).await.unwrap();
    rig.node.attach(&work).await.unwrap();
}

#[tokio::test]
async fn calls_for_one_publication_in_one_process_do_the_work_once() {
    let rig = Rig::new();
    let work = rig.attach_work();

    let (one, two) = tokio::join!(rig.node.attach(&work), rig.node.attach(&work));

    let made = [one.unwrap().is_made(), two.unwrap().is_made()];
    assert_eq!(made.iter().filter(|made| **made).count(), 1);
    assert_eq!(rig.node.gates.count(), 0);
}

#[tokio::test]
async fn what_a_killed_process_was_writing_down_goes_with_the_detach() {
    let rig = Rig::new().attached().await;
    let before = rig.host.snapshot();
    rig.host.kernel().edit(|tree| {
        tree.file("/run/hawser/.hawser.7.0.new", "x")
            .file("/run/hawser/notes/.hawser.7.1.new", "x");
    });
    assert_ne!(rig.host.snapshot(), before);

    rig.node.detach(&rig.publication, &Detach::default()).await.unwrap();

    let left = |folder: &str| rig.host.files().list(Path::new(folder)).unwrap();
    assert_eq!(left("/run/hawser"), ["notes"]);
    assert!(left("/run/hawser/notes").is_empty());
}
