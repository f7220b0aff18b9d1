//! What a caller can rely on who takes several volumes at one instant, over the fake host.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hawser_core::doctor::FindingCode;
use hawser_core::error::{Error, Kind, Outcome, Result};
use hawser_core::group::{Group, GroupRequest};
use hawser_core::id::SnapshotId;
use hawser_core::name::{Alias, Labels, Scope};
use hawser_core::operation::{OperationKind, OperationState};
use hawser_core::page::PageRequest;
use hawser_core::port::control::Reply;
use hawser_core::port::store::{Cas, Key, Store};
use hawser_core::port::{Control, Host};
use hawser_core::publication::PublishRequest;
use hawser_core::snapshot::{Snapshot, SnapshotRef, SnapshotState};
use hawser_core::volume::{Access, SourceRef, Volume};
use hawser_live::rig::Rig;
use hawser_live::stage::{
    Machine, SHORT, Stage, Strike, WAIT, alias, by_name, done, group_named, group_of, request, says,
};

/// Volumes of these names, each mounted on the folder of its name.
async fn mounted(stage: &Stage, names: &[&str]) {
    for name in names {
        stage.volume(name).await;
        stage.mount(name).await;
    }
}

async fn take(stage: &Stage, name: &str, of: &[&str]) -> Result<Group> {
    let reply = stage.life.control.create_group(group_of(name, of), WAIT).await?;
    Ok(done(reply).into_inner())
}

async fn snapshots(control: &dyn Control) -> Vec<Snapshot> {
    control.list_snapshots(None, &PageRequest::largest()).await.expect("listed").items
}

/// Nothing of a group is there, no volume is held or frozen, and nothing was left anywhere.
async fn assert_nothing_of_it(stage: &Stage, volumes: &[&str]) {
    assert_eq!(snapshots(&*stage.life.control).await, []);
    for name in volumes {
        assert_eq!(stage.get(name).await.operation, None, "{name} is still held");
    }
    assert!(stage.rig.host.snapshot().frozen.is_empty(), "left frozen");
    stage.assert_healthy().await;
}

/// Where in the log of the host's calls this method stands.
fn at(stage: &Stage, method: &str) -> Vec<usize> {
    let calls = stage.rig.host.calls();
    (0..calls.len()).filter(|index| calls[*index].method == method).collect()
}

fn image(rig: &Rig, volume: &Volume) -> PathBuf {
    rig.path("pool-default/volumes").join(format!("{}.img", volume.id))
}

/// Far behind what the fake file systems write.
const MARK: u64 = 9 << 20;

fn write_mark(image: &Path, mark: u8) {
    let file = std::fs::File::options().write(true).open(image).expect("an image");
    file.write_all_at(&[mark], MARK).expect("it can be written");
}

fn mark_of(rig: &Rig, snapshot: &SnapshotId) -> u8 {
    let path = rig.path("pool-default/snapshots").join(format!("{snapshot}.img"));
    let mut byte = [0];
    let file = std::fs::File::open(path).expect("a snapshot");
    file.read_exact_at(&mut byte, MARK).expect("as long as its volume");
    byte[0]
}

#[tokio::test]
async fn all_volumes_stand_still_from_before_the_first_cut_until_after_the_last() {
    let stage = Stage::new().await;
    mounted(&stage, &["a", "b", "c"]).await;
    stage.rig.host.forget_calls();

    let group = take(&stage, "g", &["b", "a", "c"]).await.unwrap();

    let (frozen, cut, thawed) = (at(&stage, "freeze"), at(&stage, "copy_file"), at(&stage, "thaw"));
    assert_eq!(cut.len(), 3);
    assert!(frozen.iter().filter(|freeze| **freeze < cut[0]).count() == 3, "{frozen:?} {cut:?}");
    assert!(thawed.iter().all(|thaw| *thaw > cut[2]), "{cut:?} {thawed:?}");
    assert!(thawed.len() >= 3 && stage.rig.host.snapshot().frozen.is_empty());
    let names: Vec<_> = group.snapshots.iter().map(|s| s.alias.to_string()).collect();
    assert_eq!(names, ["g.b", "g.a", "g.c"], "in the order of the request");
    for (snapshot, volume) in group.snapshots.iter().zip(["b", "a", "c"]) {
        assert_eq!(snapshot.state, SnapshotState::Ready);
        assert_eq!(snapshot.group.as_ref(), Some(&group.id));
        assert_eq!(snapshot.volume, stage.get(volume).await.id);
        assert_eq!(stage.get(volume).await.operation, None);
    }
    stage.assert_healthy().await;
}

#[tokio::test]
async fn the_same_request_again_answers_the_same_group_and_another_is_refused() {
    let stage = Stage::new().await;
    for name in ["a", "b", "c"] {
        stage.volume(name).await;
    }
    let first = take(&stage, "g", &["a", "b"]).await.unwrap();

    let again = stage.life.control.create_group(group_of("g", &["b", "a"]), WAIT).await.unwrap();
    let again = done(again);
    let other = take(&stage, "g", &["a", "c"]).await.unwrap_err();
    let fewer = take(&stage, "g", &["a"]).await.unwrap_err();
    let pairs = std::collections::BTreeMap::from([("tier".to_owned(), "gold".to_owned())]);
    let labels = Labels::try_from(pairs).unwrap();
    let labelled = GroupRequest { labels, ..group_of("g", &["a", "b"]) };
    let labelled = stage.life.control.create_group(labelled, WAIT).await.unwrap_err();

    assert!(!again.is_made());
    assert_eq!(again.get(), &first);
    assert_eq!(stage.life.control.get_group(&group_named("g")).await.unwrap(), first);
    for error in [other, fewer, labelled] {
        assert_eq!(error.kind(), Kind::Exists, "{}", error.sentence());
    }
    done(stage.life.control.delete_volume(&by_name("a"), WAIT).await.unwrap());
    assert_eq!(take(&stage, "g", &["a", "b"]).await.unwrap(), first, "its volume is gone");
}

#[tokio::test]
async fn a_hundred_callers_with_one_name_take_one_group() {
    let stage = Stage::new().await;
    mounted(&stage, &["a", "b"]).await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let control = stage.life.control.clone();
        calls.spawn(async move {
            done(control.create_group(group_of("g", &["a", "b"]), WAIT).await.unwrap())
        });
    }

    let answers = calls.join_all().await;

    let id = &answers[0].get().id;
    assert!(answers.iter().all(|answer| answer.get().id == *id));
    assert_eq!(snapshots(&*stage.life.control).await.len(), 2);
    stage.assert_healthy().await;
}

#[tokio::test]
async fn what_cannot_be_taken_together_is_refused_before_anything_is_done() {
    let stage = Stage::new().await;
    let control = &stage.life.control;
    for name in ["a", "given"] {
        stage.volume(name).await;
    }
    let mut raw = request("raw", 16);
    raw.access = Some(Access::Block);
    let mut folder = request("folder", 16);
    folder.class = Some("folders".parse().unwrap());
    for wanted in [raw, folder] {
        done(control.create_volume(wanted, WAIT).await.unwrap());
    }
    let right = PublishRequest::new(stage.life.node.clone(), false);
    for name in ["raw", "given"] {
        control.attach(&by_name(name), right.clone(), WAIT).await.unwrap();
    }
    stage.mount("folder").await;
    stage.rig.host.forget_calls();

    for (volumes, kind, word) in [
        (vec![], Kind::Invalid, "at least one"),
        (vec!["a", "a"], Kind::Invalid, "more than once"),
        (vec!["a", "none"], Kind::NotFound, "none"),
        (vec!["a", "folder"], Kind::Precondition, "different classes"),
        (vec!["a", "raw"], Kind::Precondition, "raw cannot be held still"),
        (vec!["given"], Kind::Precondition, "given cannot be held still"),
        (vec!["folder"], Kind::Precondition, "folder cannot be held still"),
    ] {
        let error = take(&stage, "g", &volumes).await.unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (kind, Outcome::Nothing), "{volumes:?}");
        assert!(error.sentence().contains(word), "{}", error.sentence());
        let missing = control.get_group(&group_named("g")).await.unwrap_err();
        assert_eq!(missing.kind(), Kind::NotFound);
    }
    assert_eq!(at(&stage, "freeze"), [] as [usize; 0]);
    assert_nothing_of_it(&stage, &["a", "raw", "given", "folder"]).await;
    control.detach(&by_name("given"), &stage.life.node, WAIT).await.unwrap();
    take(&stage, "g", &["given", "a"]).await.expect("nobody uses it any more");
}

#[tokio::test]
async fn a_snapshot_of_a_group_goes_with_its_group_alone() {
    let stage = Stage::new().await;
    mounted(&stage, &["a", "b"]).await;
    let group = take(&stage, "g", &["a", "b"]).await.unwrap();
    let control = &stage.life.control;
    let member = SnapshotRef::Id(group.snapshots[0].id.clone());

    let error = control.delete_snapshot(&member, WAIT).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.sentence().contains(group.id.as_str()), "{}", error.sentence());
    assert!(error.sentence().contains("group g"), "{}", error.sentence());
    let mut restored = request("restored", 16);
    restored.source = Some(SourceRef::Snapshot(SnapshotRef::Alias(alias("g.b"))));
    done(control.create_volume(restored, WAIT).await.unwrap());
    assert!(done(control.delete_group(&group_named("g"), WAIT).await.unwrap()).is_made());
    assert!(!done(control.delete_group(&group_named("g"), WAIT).await.unwrap()).is_made());
    assert_nothing_of_it(&stage, &["a", "b", "restored"]).await;
    let left = std::fs::read_dir(stage.rig.path("pool-default/snapshots")).unwrap().count();
    assert_eq!(left, 0, "left in the pool");
}

#[tokio::test]
async fn a_group_that_is_being_copied_from_is_not_removed() {
    let stage = Stage::new().await;
    for name in ["a", "b"] {
        stage.volume(name).await;
    }
    take(&stage, "g", &["a", "b"]).await.unwrap();
    stage.rig.host.hang_always("copy_file");
    let mut copy = request("copy", 16);
    copy.source = Some(SourceRef::Snapshot(SnapshotRef::Alias(alias("g.b"))));
    let control = &stage.life.control;
    let Reply::Pending(operation) = control.create_volume(copy, SHORT).await.unwrap() else {
        panic!("a copy that hangs was answered")
    };

    let error = control.delete_group(&group_named("g"), WAIT).await.unwrap_err();

    assert_eq!((error.kind(), error.outcome()), (Kind::Precondition, Outcome::Nothing));
    assert!(error.sentence().contains("g.b"), "{}", error.sentence());
    let states: Vec<_> = snapshots(&**control).await.iter().map(|s| s.state).collect();
    assert_eq!(states, [SnapshotState::Ready; 2]);
    control.cancel_operation(&operation.id).await.unwrap();
    stage.rig.host.heal();
    done(control.delete_group(&group_named("g"), WAIT).await.unwrap());
    assert_nothing_of_it(&stage, &["a", "b"]).await;
}

#[tokio::test]
async fn a_group_of_which_one_cannot_be_cut_leaves_no_member() {
    for lost in ["a", "b"] {
        let stage = Stage::new().await;
        for name in ["a", "b"] {
            stage.volume(name).await;
        }
        let (path, aside) = (image(&stage.rig, &stage.get(lost).await), stage.rig.path("aside"));
        std::fs::rename(&path, &aside).unwrap();

        let error = take(&stage, "g", &["a", "b"]).await.unwrap_err();

        assert_eq!(error.kind(), Kind::NotFound, "{}", error.sentence());
        assert!(!error.is_unknown(), "{error:?}");
        std::fs::rename(&aside, &path).unwrap();
        assert_nothing_of_it(&stage, &["a", "b"]).await;
        take(&stage, "g", &["a", "b"]).await.expect("and can be taken again");
    }
}

#[tokio::test]
async fn a_file_system_that_does_not_freeze_fails_the_group_and_keeps_nobody_frozen() {
    let stage = Stage::new().await;
    mounted(&stage, &["a", "b"]).await;
    // Opening a pool copies a file, too, to see whether copies share their blocks.
    stage.rig.host.forget_calls();
    stage.rig.host.fail_next("freeze", Error::new(Kind::Precondition, "not today"));

    let error = take(&stage, "g", &["a", "b"]).await.unwrap_err();

    assert!(error.sentence().contains("not today"), "{}", error.sentence());
    assert_eq!(at(&stage, "copy_file"), [] as [usize; 0], "something was cut");
    assert_nothing_of_it(&stage, &["a", "b"]).await;
}

#[tokio::test]
async fn a_volume_that_is_let_go_of_before_the_last_is_cut_fails_the_group() {
    let stage = Stage::new().await;
    mounted(&stage, &["a", "b"]).await;
    let (host, target) = (stage.rig.host.clone(), stage.target("a"));
    stage.rig.host.forget_calls();
    // As a node does that was killed and started anew.
    let let_go = async {
        while !host.calls().iter().any(|call| call.method == "copy_file") {
            tokio::task::yield_now().await;
        }
        host.thaw(&target).await.unwrap();
    };

    let (taken, ()) = tokio::join!(take(&stage, "g", &["a", "b"]), let_go);

    let error = taken.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{}", error.sentence());
    assert!(error.sentence().contains("was let go of"), "{}", error.sentence());
    assert_nothing_of_it(&stage, &["a", "b"]).await;
    take(&stage, "g", &["a", "b"]).await.expect("and can be taken again");
}

#[tokio::test]
async fn a_volume_of_a_group_is_kept_from_everybody_else_meanwhile() {
    let stage = Stage::new().await;
    mounted(&stage, &["a", "b"]).await;
    stage.volume("c").await;
    stage.rig.host.hang_always("copy_file");
    let control = &stage.life.control;
    let begun = control.create_group(group_of("g", &["a", "b"]), SHORT).await.unwrap();
    let Reply::Pending(operation) = begun else { panic!("a group that hangs was answered") };
    assert_eq!(operation.kind, OperationKind::CreateGroup);

    let unmount = control.unmount(&by_name("a"), &stage.life.node, None, WAIT).await.unwrap_err();
    let other = take(&stage, "h", &["c", "b"]).await.unwrap_err();
    let removed = control.delete_group(&group_named("g"), WAIT).await.unwrap_err();
    let joined = control.create_group(group_of("g", &["a", "b"]), SHORT).await.unwrap();

    for error in [unmount, other, removed] {
        assert_eq!(error.kind(), Kind::Busy, "{}", error.sentence());
    }
    let Reply::Pending(joined) = joined else { panic!("a group that hangs was answered") };
    assert_eq!(joined.id, operation.id, "the same request joins the operation");
    assert_eq!(stage.get("c").await.operation, None, "the other group kept it");
    control.cancel_operation(&operation.id).await.unwrap();
    stage.rig.host.heal();
    assert_nothing_of_it(&stage, &["a", "b", "c"]).await;
}

#[tokio::test]
async fn a_group_can_be_cancelled_at_any_moment() {
    let stage = Stage::new().await;
    mounted(&stage, &["a", "b"]).await;
    let control = &stage.life.control;
    for polls in 0..80 {
        let reply = control.create_group(group_of("g", &["a", "b"]), Duration::ZERO).await;
        let Reply::Pending(operation) = reply.unwrap() else { continue };
        for _ in 0..polls {
            tokio::task::yield_now().await;
        }
        let ended = match control.cancel_operation(&operation.id).await {
            Ok(ended) => ended,
            // It had ended.
            Err(_) => control.get_operation(&operation.id, WAIT).await.unwrap(),
        };
        let there = control.get_group(&group_named("g")).await.is_ok();
        assert_eq!(ended.state == OperationState::Succeeded, there, "{polls}: {ended:?}");
        let members = snapshots(&**control).await;
        assert_eq!(members.len(), if there { 2 } else { 0 }, "{polls}: {members:?}");
        assert!(stage.rig.host.snapshot().frozen.is_empty(), "{polls}: left frozen");
        for name in ["a", "b"] {
            assert_eq!(stage.get(name).await.operation, None, "{polls}: {name} is still held");
        }
        done(control.delete_group(&group_named("g"), WAIT).await.unwrap());
    }
    assert_nothing_of_it(&stage, &["a", "b"]).await;
}

#[tokio::test]
async fn a_group_whose_journal_or_name_got_no_answer_is_taken_all_the_same() {
    for (method, key) in [("create", "group/"), ("create", "name/group/"), ("put", "group/")] {
        for strike in [Strike::Refused, Strike::AnswerLost] {
            let stage = Stage::new().await;
            mounted(&stage, &["a", "b"]).await;
            stage.store.strike_once(move |called, found, _| {
                (called == method && found.as_str().starts_with(key)).then_some(strike)
            });

            let _ = take(&stage, "g", &["a", "b"]).await;
            assert!(stage.store.struck());
            let again = async || take(&stage, "g", &["a", "b"]).await.is_ok();
            stage.until(&format!("{method} {key} {strike:?}: taken"), again).await;

            assert_eq!(snapshots(&*stage.life.control).await.len(), 2);
            for name in ["a", "b"] {
                stage.until_free(name).await;
            }
            stage.assert_healthy().await;
        }
    }
}

#[tokio::test]
async fn a_removal_that_was_begun_only_goes_forward() {
    let stage = Stage::new().await;
    for name in ["a", "b"] {
        stage.volume(name).await;
    }
    take(&stage, "g", &["a", "b"]).await.unwrap();
    // The first snapshot is gone when its record cannot be removed.
    stage.store.strike_once(|method, key, _| {
        (method == "delete" && key.as_str().starts_with("snapshot/")).then_some(Strike::Refused)
    });

    let error = stage.life.control.delete_group(&group_named("g"), WAIT).await.unwrap_err();

    assert!(error.is_unknown(), "{error:?}");
    let gone = async || stage.life.control.get_group(&group_named("g")).await.is_err();
    stage.until("the group is gone", gone).await;
    assert_nothing_of_it(&stage, &["a", "b"]).await;
}

#[test]
fn members_are_of_one_instant_also_when_the_server_died_between_two_cuts() {
    let machine = Machine::new();
    let mut volumes = Vec::new();
    machine.life(async |stage| {
        mounted(&stage, &["a", "b"]).await;
        volumes = vec![stage.get("a").await, stage.get("b").await];
        volumes.iter().for_each(|volume| write_mark(&image(&stage.rig, volume), 1));
        stage.rig.host.forget_calls();
        let host = stage.rig.host.clone();
        let hang_the_second = async {
            while !host.calls().iter().any(|call| call.method == "copy_file") {
                tokio::task::yield_now().await;
            }
            host.hang_always("copy_file");
        };
        let create = stage.life.control.create_group(group_of("g", &["a", "b"]), SHORT);
        let (begun, ()) = tokio::join!(create, hang_the_second);
        assert!(matches!(begun.unwrap(), Reply::Pending(_)));
        let second_begun = async || at(&stage, "copy_file").len() == 2;
        stage.until("one is cut, the other begun", second_begun).await;
    });
    // The volumes go on while nobody holds them.
    volumes.iter().for_each(|volume| write_mark(&image(&machine.rig, volume), 2));

    machine.life(async |stage| {
        let group = take(&stage, "g", &["a", "b"]).await.unwrap();
        let marks: Vec<_> = group.snapshots.iter().map(|s| mark_of(&machine.rig, &s.id)).collect();
        assert_eq!(marks, [2, 2]);
        assert!(stage.rig.host.snapshot().frozen.is_empty());
        stage.assert_healthy().await;
    });
}

#[test]
fn a_cut_that_was_not_recorded_as_whole_is_not_trusted() {
    let machine = Machine::new();
    let mut volumes = Vec::new();
    machine.life(async |stage| {
        mounted(&stage, &["a", "b"]).await;
        volumes = vec![stage.get("a").await, stage.get("b").await];
        volumes.iter().for_each(|volume| write_mark(&image(&stage.rig, volume), 1));
        stage.store.strike_once(|_, key, value| {
            let whole = key.as_str().starts_with("group/") && says(value, "\"done\":");
            whole.then_some(Strike::Swallowed)
        });
        let create = stage.life.control.create_group(group_of("g", &["a", "b"]), SHORT);
        assert!(matches!(create.await.unwrap(), Reply::Pending(_)));
        stage.until_struck().await;
    });
    volumes.iter().for_each(|volume| write_mark(&image(&machine.rig, volume), 2));

    machine.life(async |stage| {
        let group = take(&stage, "g", &["a", "b"]).await.unwrap();
        let marks: Vec<_> = group.snapshots.iter().map(|s| mark_of(&machine.rig, &s.id)).collect();
        assert_eq!(marks, [2, 2], "somebody may have let go of them before the last was cut");
        stage.assert_healthy().await;
    });
}

#[test]
fn a_group_that_was_being_removed_when_the_server_died_is_removed() {
    let machine = Machine::new();
    machine.life(async |stage| {
        mounted(&stage, &["a", "b"]).await;
        take(&stage, "g", &["a", "b"]).await.unwrap();
        stage.store.strike_once(|method, key, _| {
            (method == "delete" && key.as_str().starts_with("snapshot/")).then_some(Strike::Silent)
        });
        let removal = stage.life.control.delete_group(&group_named("g"), SHORT).await.unwrap();
        assert!(matches!(removal, Reply::Pending(_)));
        stage.until_struck().await;
    });

    machine.life(async |stage| {
        let gone = async || stage.life.control.get_group(&group_named("g")).await.is_err();
        stage.until("the group is gone", gone).await;
        assert_nothing_of_it(&stage, &["a", "b"]).await;
    });
}

#[tokio::test]
async fn a_group_of_another_world_has_members_with_names_of_their_own() {
    let stage = Stage::new().await;
    for name in ["a", "b"] {
        stage.volume(name).await;
    }
    let mut request = group_of("g", &["a", "b"]);
    request.alias = Alias::new(Scope::Csi, "x".repeat(128)).unwrap();
    let control = &stage.life.control;

    let group = done(control.create_group(request.clone(), WAIT).await.unwrap()).into_inner();
    let again = done(control.create_group(request, WAIT).await.unwrap());

    assert_eq!(again.get(), &group);
    for (number, snapshot) in group.snapshots.iter().enumerate() {
        assert_eq!(snapshot.alias.to_string(), format!("{}.{}", group.id, number + 1));
        let found = control.get_snapshot(&SnapshotRef::Alias(snapshot.alias.clone())).await;
        assert_eq!(&found.unwrap(), snapshot);
    }
    stage.assert_healthy().await;
    // A name that somebody has is not fought over.
    let taken = hawser_core::snapshot::SnapshotRequest {
        alias: alias("g.a"),
        volume: by_name("b"),
        labels: Default::default(),
    };
    done(control.create_snapshot(taken, WAIT).await.unwrap());
    let group = take(&stage, "g", &["a", "b"]).await.unwrap();
    let names: Vec<_> = group.snapshots.iter().map(|s| s.alias.to_string()).collect();
    assert_eq!(names, [format!("{}.1", group.id), "g.b".to_owned()]);
    stage.assert_healthy().await;
}

#[tokio::test]
async fn the_doctor_names_groups_and_snapshots_that_lost_each_other() {
    let stage = Stage::new().await;
    for name in ["a", "b"] {
        stage.volume(name).await;
    }
    let group = take(&stage, "g", &["a", "b"]).await.unwrap();
    let kept = take(&stage, "h", &["a", "b"]).await.unwrap();
    let forget = async |key: Key| {
        let found = stage.rig.store.get(&key).await.unwrap().unwrap();
        let gone = stage.rig.store.delete(&key, found.revision).await.unwrap();
        assert!(matches!(gone, Cas::Done(_)));
    };
    forget(Key::join(&["group", group.id.as_str()])).await;
    forget(Key::join(&["snapshot", kept.snapshots[0].id.as_str()])).await;
    let control = &stage.life.control;

    let findings = control.doctor(false).await.unwrap();

    let mut broken: Vec<_> = findings
        .iter()
        .filter(|found| found.code == FindingCode::BrokenGroup)
        .map(|found| found.subject.clone())
        .collect();
    broken.sort();
    let mut expected: Vec<_> = group.snapshots.iter().map(|s| s.id.to_string()).collect();
    expected.push(kept.id.to_string());
    expected.sort();
    assert_eq!(broken, expected, "{findings:?}");
    for snapshot in &group.snapshots {
        let by_id = SnapshotRef::Id(snapshot.id.clone());
        done(control.delete_snapshot(&by_id, WAIT).await.expect("its group is lost"));
    }
    done(control.delete_group(&group_named("h"), WAIT).await.unwrap());
    assert_eq!(snapshots(&**control).await, []);
    let findings = control.doctor(false).await.unwrap();
    let broken = findings.iter().any(|found| found.code == FindingCode::BrokenGroup);
    assert!(!broken, "{findings:?}");
}
