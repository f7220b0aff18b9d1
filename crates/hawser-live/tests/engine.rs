//! What a caller of the engine can rely on, one rule at a time, over the fake host.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hawser_core::change::Change;
use hawser_core::doctor::{FindingCode, Repair};
use hawser_core::error::{Error, Kind, Outcome, Result};
use hawser_core::name::{Alias, Labels};
use hawser_core::operation::{OperationKind, OperationState};
use hawser_core::page::PageRequest;
use hawser_core::port::Store;
use hawser_core::port::control::{OperationFilter, Reply, VolumeFilter};
use hawser_core::port::host::Content;
use hawser_core::port::store::{Cas, Key};
use hawser_core::publication::{MountRequest, PublishRequest};
use hawser_core::size::ByteSize;
use hawser_core::snapshot::{SnapshotRef, SnapshotRequest};
use hawser_core::volume::{SourceRef, Volume, VolumeRef, VolumeRequest};
use hawser_live::rig::{Life, Rig};
use hawser_testkit::fault::Faults;

const WAIT: Duration = Duration::from_secs(20);

struct Stage {
    rig: Rig,
    life: Life,
}

impl Stage {
    async fn new() -> Self {
        let rig = Rig::new();
        std::fs::create_dir(rig.path("mnt")).expect("the host's folder can be written");
        let life = rig.boot(&Faults::counting()).await.expect("the process starts");
        Self { rig, life }
    }

    async fn create(&self, request: VolumeRequest) -> Result<Reply<Volume>> {
        self.life.control.create_volume(request, WAIT).await
    }

    async fn volume(&self, name: &str) -> Volume {
        done(self.create(request(name, 16)).await.expect("created")).into_inner()
    }

    async fn mount(&self, name: &str) -> Result<()> {
        let request = MountRequest {
            node: self.life.node.clone(),
            target: self.rig.path(&format!("mnt/{name}")),
            read_only: false,
            flags: Vec::new(),
        };
        self.life.control.mount(&by_name(name), request, WAIT).await.map(drop)
    }
}

fn alias(name: &str) -> Alias {
    Alias::native(name).expect("a legal name")
}

fn by_name(name: &str) -> VolumeRef {
    VolumeRef::Alias(alias(name))
}

fn request(name: &str, mib: u64) -> VolumeRequest {
    VolumeRequest::new(alias(name), ByteSize::mib(mib))
}

fn done<T: std::fmt::Debug>(reply: Reply<T>) -> Change<T> {
    match reply {
        Reply::Done(change) => change,
        Reply::Pending(operation) => panic!("still running: {operation:?}"),
    }
}

#[tokio::test]
async fn the_same_request_again_answers_the_same_volume() {
    let stage = Stage::new().await;

    let first = done(stage.create(request("v", 16)).await.unwrap());
    let second = done(stage.create(request("v", 16)).await.unwrap());

    assert!(first.is_made() && !second.is_made());
    assert_eq!(first.into_inner().id, second.into_inner().id);
}

#[tokio::test]
async fn a_request_that_differs_is_refused_with_both_values() {
    let stage = Stage::new().await;
    stage.volume("v").await;

    let error = stage.create(request("v", 32)).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Exists);
    let message = error.sentence();
    assert!(message.contains("16MiB") && message.contains("32MiB"), "{message}");
}

#[tokio::test]
async fn a_volume_that_would_be_larger_than_it_may_be_is_not_made() {
    let stage = Stage::new().await;
    let (size, limit) = (Some(ByteSize::bytes((16 << 20) + 1)), Some(ByteSize::mib(16)));
    let wanted = VolumeRequest { size, limit, ..request("v", 16) };

    let error = stage.create(wanted).await.unwrap_err();

    assert_eq!(error.kind(), Kind::OutOfRange, "{}", error.sentence());
    assert!(error.sentence().contains("17MiB"), "{}", error.sentence());
    stage.life.control.get_volume(&by_name("v")).await.unwrap_err();
}

#[tokio::test]
async fn a_hundred_callers_with_one_name_make_one_volume() {
    let stage = Stage::new().await;

    let control = &stage.life.control;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let control = control.clone();
        calls.spawn(
            async move { done(control.create_volume(request("v", 16), WAIT).await.unwrap()) },
        );
    }
    let answers = calls.join_all().await;

    let id = &answers[0].get().id;
    assert!(answers.iter().all(|answer| answer.get().id == *id));
    let made = answers.iter().filter(|answer| answer.is_made()).count();
    assert_eq!(made, 1, "only one of them may take it back");
    let all =
        control.list_volumes(&VolumeFilter::default(), &PageRequest::largest()).await.unwrap();
    assert_eq!(all.items.len(), 1);
}

#[tokio::test]
async fn a_caller_that_does_not_wait_gets_the_operation_and_can_join_it() {
    let stage = Stage::new().await;
    stage.volume("v").await;
    stage.rig.host.hang_always("copy_file");
    let mut copy = request("copy", 16);
    copy.source = Some(SourceRef::Volume(by_name("v")));
    let short = Duration::from_millis(20);
    let control = &stage.life.control;

    let first = control.create_volume(copy.clone(), short).await.unwrap();
    let second = control.create_volume(copy, short).await.unwrap();

    let (Reply::Pending(first), Reply::Pending(second)) = (first, second) else {
        panic!("a copy that hangs was answered")
    };
    assert_eq!(first.kind, OperationKind::CreateVolume);
    assert_eq!(first.id, second.id, "the same request joins the operation");
}

#[tokio::test]
async fn a_caller_that_goes_away_takes_nothing_with_it() {
    let stage = Stage::new().await;
    // Dropped after more and more polls: before, between and after the writes of the journal.
    for polls in 0..12 {
        let name = format!("v{polls}");
        let call = stage.life.control.create_volume(request(&name, 16), WAIT);
        let mut call = Box::pin(call);
        for _ in 0..polls {
            if tokio::time::timeout(Duration::ZERO, &mut call).await.is_ok() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(call);
    }

    let findings = loop {
        let all = PageRequest::largest();
        let list = stage.life.control.list_operations(&OperationFilter::default(), &all).await;
        if list.unwrap().items.iter().all(|operation| operation.state.is_final()) {
            break stage.life.control.doctor(false).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };

    assert_eq!(findings, []);
}

#[tokio::test]
async fn another_operation_on_a_busy_volume_is_refused_and_names_the_first() {
    let stage = Stage::new().await;
    stage.volume("v").await;
    stage.rig.host.hang_always("copy_file");
    let control = &stage.life.control;
    let request =
        SnapshotRequest { alias: alias("s"), volume: by_name("v"), labels: Labels::default() };
    let short = Duration::from_millis(20);
    let Reply::Pending(first) = control.create_snapshot(request, short).await.unwrap() else {
        panic!("a snapshot that hangs was answered")
    };

    let error = control.expand_volume(&by_name("v"), ByteSize::mib(32), WAIT).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Busy);
    assert!(error.sentence().contains(first.id.as_str()), "{}", error.sentence());
}

#[tokio::test]
async fn a_cancelled_creation_leaves_nothing() {
    let stage = Stage::new().await;
    stage.volume("v").await;
    stage.rig.host.hang_always("copy_file");
    let mut copy = request("copy", 16);
    copy.source = Some(SourceRef::Volume(by_name("v")));
    let Reply::Pending(operation) =
        stage.life.control.create_volume(copy, Duration::from_millis(50)).await.unwrap()
    else {
        panic!("the copy came too fast")
    };

    let cancelled = stage.life.control.cancel_operation(&operation.id).await.unwrap();
    stage.rig.host.heal();

    assert_eq!(cancelled.state, OperationState::Failed);
    assert_eq!(stage.life.control.doctor(false).await.unwrap(), []);
    let missing = stage.life.control.get_volume(&by_name("copy")).await.unwrap_err();
    assert_eq!(missing.kind(), Kind::NotFound);
    let source = stage.life.control.get_volume(&by_name("v")).await.unwrap();
    assert_eq!(source.operation, None, "the source is free again");
}

#[tokio::test]
async fn an_unknown_outcome_is_answered_as_such_and_settled_behind_the_caller() {
    let stage = Stage::new().await;
    stage.volume("v").await;
    let lost = Error::new(Kind::Timeout, "the answer was lost").with_outcome(Outcome::Unknown);
    stage.rig.host.fail_next("attach_loop", lost);

    let request = PublishRequest::new(stage.life.node.clone(), false);
    let error = stage.life.control.attach(&by_name("v"), request.clone(), WAIT).await.unwrap_err();

    assert!(error.is_unknown(), "{error:?}");
    let attached = stage.life.control.attach(&by_name("v"), request, WAIT).await.unwrap();
    assert!(matches!(attached, Reply::Done(_)), "the same request joins what is tried again");
}

#[tokio::test]
async fn a_definite_failure_is_taken_back_whole() {
    let stage = Stage::new().await;
    stage.volume("v").await;
    let broken = Error::new(Kind::Precondition, "the superblock is damaged");
    stage.rig.host.fail_next("mount", broken);

    let error = stage.mount("v").await.unwrap_err();

    assert!(error.sentence().contains("superblock"), "{}", error.sentence());
    let volume = stage.life.control.get_volume(&by_name("v")).await.unwrap();
    assert_eq!(volume.publications, []);
    assert_eq!(stage.rig.host.snapshot().loops, []);
    stage.mount("v").await.expect("and can be done again");
}

#[tokio::test]
async fn a_device_that_was_never_seen_blank_is_not_formatted_at_the_second_try_either() {
    let stage = Stage::new().await;
    let volume = stage.volume("v").await;
    let image = stage.rig.path("pool-default/volumes").join(format!("{}.img", volume.id));
    stage.rig.host.set_content(&image, &Content::Data);

    for _ in 0..3 {
        let error = stage.mount("v").await.unwrap_err();
        assert_eq!(error.kind(), Kind::Precondition, "{}", error.sentence());
    }

    let made = stage.rig.host.calls().iter().any(|call| call.method == "make_filesystem");
    assert!(!made, "somebody's data was formatted over");
}

#[tokio::test]
async fn after_a_reboot_what_was_mounted_is_mounted_again() {
    let stage = Stage::new().await;
    stage.volume("v").await;
    stage.mount("v").await.unwrap();
    let Stage { rig, life } = stage;
    drop(life);

    rig.host.reboot();
    let life = rig.boot(&Faults::counting()).await.unwrap();

    let target = rig.path("mnt/v");
    let deadline = tokio::time::Instant::now() + WAIT;
    while !rig.host.snapshot().mounts.iter().any(|mount| mount.target == target) {
        assert!(tokio::time::Instant::now() < deadline, "not mounted again");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    loop {
        let volume = life.control.get_volume(&by_name("v")).await.unwrap();
        if volume.operation.is_none() {
            assert!(volume.publications[0].mounts[0].ready);
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(life.control.doctor(false).await.unwrap(), []);
}

#[tokio::test]
async fn a_volume_in_use_is_not_deleted() {
    let stage = Stage::new().await;
    stage.volume("v").await;
    stage.mount("v").await.unwrap();

    let error = stage.life.control.delete_volume(&by_name("v"), WAIT).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Precondition);
    assert!(error.sentence().contains("hawser unmount v"), "{}", error.sentence());
}

#[tokio::test]
async fn a_volume_is_never_made_smaller() {
    let stage = Stage::new().await;
    stage.volume("v").await;

    let error =
        stage.life.control.expand_volume(&by_name("v"), ByteSize::mib(8), WAIT).await.unwrap_err();

    assert_eq!(error.kind(), Kind::OutOfRange);
}

#[tokio::test]
async fn deleting_what_is_not_there_is_fine() {
    let stage = Stage::new().await;

    let volume = done(stage.life.control.delete_volume(&by_name("v"), WAIT).await.unwrap());
    let snapshot = SnapshotRef::Alias(alias("s"));
    let snapshot = done(stage.life.control.delete_snapshot(&snapshot, WAIT).await.unwrap());

    assert_eq!((volume, snapshot), (Change::Already(()), Change::Already(())));
}

#[tokio::test]
async fn labels_are_changed_and_select() {
    let stage = Stage::new().await;
    for name in ["a", "b"] {
        stage.volume(name).await;
    }
    let patch = BTreeMap::from([("tier".to_owned(), Some("gold".to_owned()))]);

    done(stage.life.control.label_volume(&by_name("a"), patch.clone(), WAIT).await.unwrap());

    let labels = Labels::default().patched(&patch).unwrap();
    let filter = VolumeFilter { labels, ..VolumeFilter::default() };
    let found = stage.life.control.list_volumes(&filter, &PageRequest::default()).await.unwrap();
    assert_eq!(found.items.iter().map(Volume::display_name).collect::<Vec<_>>(), ["a"]);
    let all = PageRequest::largest();
    let listed = stage.life.control.list_operations(&OperationFilter::default(), &all).await;
    let newest = &listed.unwrap().items[0];
    assert_eq!((newest.kind, newest.subject_name.as_str()), (OperationKind::LabelVolume, "a"));
}

#[tokio::test]
async fn lists_come_in_pages_without_gaps_or_repeats() {
    let stage = Stage::new().await;
    for number in 0..7 {
        stage.volume(&format!("v{number}")).await;
    }

    let mut names = Vec::new();
    let mut page = PageRequest { limit: 3, token: None };
    loop {
        let found = stage.life.control.list_volumes(&VolumeFilter::default(), &page).await.unwrap();
        assert!(found.items.len() <= 3);
        names.extend(found.items.iter().map(Volume::display_name));
        match found.next {
            Some(next) => page.token = Some(next),
            None => break,
        }
    }

    assert_eq!(names, ["v0", "v1", "v2", "v3", "v4", "v5", "v6"]);
    let bad = PageRequest { limit: 3, token: Some("../etc".into()) };
    let error = stage.life.control.list_volumes(&VolumeFilter::default(), &bad).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
}

#[tokio::test]
async fn the_doctor_names_storage_that_vanished_and_storage_that_appeared() {
    let stage = Stage::new().await;
    let gone = stage.volume("gone").await;
    let kept = stage.volume("kept").await;
    let pool = stage.rig.path("pool-default/volumes");
    std::fs::remove_file(pool.join(format!("{}.img", gone.id))).unwrap();
    let stranger = hawser_core::id::VolumeId::generate();
    let image = pool.join(format!("{}.img", kept.id));
    std::fs::copy(image, pool.join(format!("{stranger}.img"))).unwrap();

    let findings = stage.life.control.doctor(false).await.unwrap();

    let codes: BTreeMap<_, _> =
        findings.iter().map(|found| (found.subject.clone(), found.code)).collect();
    assert_eq!(codes.get(gone.id.as_str()), Some(&FindingCode::RecordWithoutStorage));
    assert_eq!(codes.get(stranger.as_str()), Some(&FindingCode::StorageWithoutRecord));
    assert_eq!(findings.len(), 2, "{findings:?}");
}

#[tokio::test]
async fn the_doctor_attaches_again_what_the_host_lost() {
    let stage = Stage::new().await;
    let volume = stage.volume("v").await;
    stage.mount("v").await.unwrap();
    // As if somebody had unmounted, detached and removed the host's record by hand.
    let target = stage.rig.path("mnt/v");
    let host: Arc<dyn hawser_core::port::Host> = stage.rig.host.clone();
    host.unmount(&target).await.unwrap();
    for device in host.loop_devices().await.unwrap() {
        host.detach_loop(&device, false).await.unwrap();
    }
    for entry in std::fs::read_dir(stage.rig.path("run/attachments")).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }

    let found = stage.life.control.doctor(false).await.unwrap();
    assert!(
        found.iter().any(|f| f.code == FindingCode::VolumeWithoutAttachment
            && f.subject == volume.id.as_str()
            && f.fixable),
        "{found:?}"
    );
    let fixed = stage.life.control.doctor(true).await.unwrap();

    assert!(fixed.iter().any(|f| f.repair == Some(Repair::Done)), "{fixed:?}");
    assert!(host.mounts().await.unwrap().iter().any(|mount| mount.target == target));
    assert_eq!(stage.life.control.doctor(false).await.unwrap(), []);
}

#[tokio::test]
async fn one_unreadable_record_keeps_nobody_from_the_others() {
    let stage = Stage::new().await;
    let broken = stage.volume("broken").await;
    stage.volume("sound").await;
    let Stage { rig, life } = stage;
    drop(life);
    let key = Key::join(&["volume", broken.id.as_str()]);
    let found = rig.store.get(&key).await.unwrap().unwrap();
    let garbage =
        format!(r#"{{"volume":{{"id":"{}"}},"journal":{{"of":"another time"}}}}"#, broken.id);
    let written = rig.store.put(&key, garbage.into(), found.revision).await.unwrap();
    assert!(matches!(written, Cas::Done(_)));

    let life = rig.boot(&Faults::counting()).await.expect("the process starts");

    assert!(life.control.get_volume(&by_name("sound")).await.is_ok());
    let findings = life.control.doctor(true).await.unwrap();
    assert!(
        findings.iter().any(|found| found.code == FindingCode::UnreadableRecord
            && found.subject == key.as_str()
            && found.repair.is_none()),
        "{findings:?}"
    );
    let left = rig.store.get(&key).await.unwrap();
    assert!(left.is_some(), "what cannot be read is never removed");
}
