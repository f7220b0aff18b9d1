//! Races and lost answers, over the fake host: nothing is lost, leaked, wedged or answered wrongly.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use hawser_core::doctor::Repair;
use hawser_core::error::{Error, Kind, Outcome};
use hawser_core::operation::OperationState;
use hawser_core::page::PageRequest;
use hawser_core::port::Host;
use hawser_core::port::control::{Reply, VolumeFilter};
use hawser_core::port::host::Content;
use hawser_core::size::ByteSize;
use hawser_core::volume::SourceRef;
use hawser_live::stage::{
    SHORT, Stage, Strike, WAIT, alias, by_name, done, is_volume, request, says, snapshot_of,
};

#[tokio::test]
async fn a_target_that_another_volume_has_is_refused_and_holds_nothing_up() {
    let stage = Stage::new().await;
    for name in ["a", "b"] {
        stage.volume(name).await;
    }
    stage.mount("a").await;

    let error = stage.mount_on("b", "a").await.unwrap_err();

    assert_eq!((error.kind(), error.outcome()), (Kind::Precondition, Outcome::RolledBack));
    assert_eq!(stage.get("b").await.operation, None, "the failed mount still holds the volume");
    assert_eq!(stage.get("b").await.publications, []);
    assert_eq!(stage.mounted(), BTreeSet::from([stage.target("a")]));
    stage.assert_healthy().await;
}

#[tokio::test]
async fn the_doctor_mounts_again_what_was_unmounted_below_it() {
    let stage = Stage::new().await;
    stage.volume("a").await;
    stage.mount("a").await;
    stage.rig.host.unmount(&stage.target("a")).await.unwrap();

    let fixed = stage.life.control.doctor(true).await.unwrap();

    assert!(fixed.iter().all(|found| found.repair == Some(Repair::Done)), "{fixed:?}");
    assert_eq!(stage.mounted(), BTreeSet::from([stage.target("a")]));
    stage.assert_healthy().await;
}

#[tokio::test]
async fn a_cancel_that_comes_after_the_end_does_not_call_it_failed() {
    let stage = Stage::new().await;
    stage.store.strike_once(|method, key, value| {
        let ends = method == "put" && is_volume(key) && says(value, "\"journal\":null");
        ends.then_some(Strike::Silent)
    });
    let reply = stage.life.control.create_volume(request("a", 16), SHORT).await.unwrap();
    let Reply::Pending(operation) = reply else { panic!("answered without an answer") };
    stage.until_struck().await;

    let cancelled = stage.life.control.cancel_operation(&operation.id).await.unwrap();

    assert_eq!(stage.names().await, ["a"]);
    assert_eq!(cancelled.state, OperationState::Succeeded, "{cancelled:?}");
    stage.assert_healthy().await;
}

#[tokio::test]
async fn a_creation_whose_name_could_not_be_written_leaves_no_second_volume() {
    for strike in [Strike::Refused, Strike::AnswerLost] {
        let stage = Stage::new().await;
        stage.store.strike_once(move |method, key, _| {
            (method == "create" && key.as_str().starts_with("name/")).then_some(strike)
        });

        let _ = stage.life.control.create_volume(request("a", 16), WAIT).await;
        let second = stage.life.control.create_volume(request("a", 16), WAIT).await;

        assert!(stage.store.struck());
        second.unwrap_or_else(|error| panic!("{strike:?}: {}", error.sentence()));
        stage.until("one volume", async || stage.names().await == ["a"]).await;
        stage.until_free("a").await;
        stage.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_creation_whose_journal_got_no_answer_is_driven_all_the_same() {
    let stage = Stage::new().await;
    stage.store.strike_once(|method, key, _| {
        (method == "create" && is_volume(key)).then_some(Strike::AnswerLost)
    });

    let error = stage.life.control.create_volume(request("a", 16), WAIT).await.unwrap_err();

    assert!(error.is_unknown(), "{error:?}");
    let settled = async || {
        let all = PageRequest::largest();
        let found = stage.life.control.list_volumes(&VolumeFilter::default(), &all).await.unwrap();
        found.items.iter().all(|volume| volume.operation.is_none())
    };
    stage.until("nothing is left half-made", settled).await;
    let again = done(stage.life.control.create_volume(request("a", 16), WAIT).await.unwrap());
    assert_eq!(again.get().display_name(), "a");
    assert_eq!(stage.names().await, ["a"]);
    stage.assert_healthy().await;
}

#[tokio::test]
async fn a_change_whose_journal_got_no_answer_is_driven_all_the_same() {
    let stage = Stage::new().await;
    stage.volume("a").await;
    stage.store.strike_once(|method, key, value| {
        let begins = method == "put" && is_volume(key) && says(value, "expand_volume");
        begins.then_some(Strike::AnswerLost)
    });

    let control = &stage.life.control;
    let error = control.expand_volume(&by_name("a"), ByteSize::mib(32), WAIT).await.unwrap_err();

    assert!(error.is_unknown(), "{error:?}");
    stage.until_free("a").await;
    assert_eq!(stage.get("a").await.size, ByteSize::mib(32));
}

#[tokio::test]
async fn a_snapshot_deletion_whose_journal_got_no_answer_is_driven_all_the_same() {
    let stage = Stage::new().await;
    stage.volume("a").await;
    let snapshot = stage.life.control.create_snapshot(snapshot_of("a"), WAIT).await.unwrap();
    let id = done(snapshot).into_inner().id;
    stage.store.strike_once(|method, key, value| {
        let begins = method == "put" && key.as_str().starts_with("snapshot/");
        (begins && says(value, "delete_snapshot")).then_some(Strike::AnswerLost)
    });

    let by_id = hawser_core::snapshot::SnapshotRef::Id(id);
    let error = stage.life.control.delete_snapshot(&by_id, WAIT).await.unwrap_err();

    assert!(error.is_unknown(), "{error:?}");
    let gone = async || stage.life.control.get_snapshot(&by_id).await.is_err();
    stage.until("the snapshot is gone", gone).await;
}

#[tokio::test]
async fn the_same_expansion_again_is_fine_also_when_the_size_was_rounded() {
    let stage = Stage::new().await;
    stage.volume("a").await;
    let odd = ByteSize::bytes((20 << 20) + 1);
    let control = &stage.life.control;

    let first = done(control.expand_volume(&by_name("a"), odd, WAIT).await.unwrap());
    let second = done(control.expand_volume(&by_name("a"), odd, WAIT).await.unwrap());

    assert_eq!(first.get().size, second.get().size);
    assert!(first.get().size >= odd);
}

#[tokio::test]
async fn racing_deletions_all_succeed() {
    let stage = Stage::new().await;
    for round in 0..20 {
        let name = format!("v{round}");
        stage.volume(&name).await;
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let (control, volume) = (stage.life.control.clone(), by_name(&name));
            calls.spawn(async move { control.delete_volume(&volume, WAIT).await.map(done) });
        }
        for answer in calls.join_all().await {
            answer.unwrap_or_else(|error| panic!("round {round}: {}", error.sentence()));
        }
    }
    stage.assert_healthy().await;
}

#[tokio::test]
async fn a_creation_can_be_cancelled_at_any_moment() {
    let stage = Stage::new().await;
    stage.volume("v").await;
    stage.mount("v").await;
    for polls in 0..40 {
        let mut copy = request("copy", 16);
        copy.source = Some(SourceRef::Volume(by_name("v")));
        let reply = stage.life.control.create_volume(copy, Duration::ZERO).await.unwrap();
        let Reply::Pending(operation) = reply else { continue };
        for _ in 0..polls {
            tokio::task::yield_now().await;
        }
        let ended = match stage.life.control.cancel_operation(&operation.id).await {
            Ok(ended) => ended,
            // It had ended.
            Err(_) => stage.life.control.get_operation(&operation.id, WAIT).await.unwrap(),
        };
        let there = stage.names().await.contains(&"copy".to_owned());
        assert_eq!(ended.state == OperationState::Succeeded, there, "{polls}: {ended:?}");
        assert!(stage.rig.host.snapshot().frozen.is_empty(), "{polls}: left frozen");
        assert_eq!(stage.get("v").await.operation, None, "{polls}: still lent");
        if there {
            done(stage.life.control.delete_volume(&by_name("copy"), WAIT).await.unwrap());
        }
    }
    stage.assert_healthy().await;
}

#[tokio::test]
async fn a_snapshot_can_be_cancelled_at_any_moment() {
    let stage = Stage::new().await;
    stage.volume("v").await;
    stage.mount("v").await;
    for polls in 0..40 {
        let reply = stage.life.control.create_snapshot(snapshot_of("v"), Duration::ZERO).await;
        let Reply::Pending(operation) = reply.unwrap() else { continue };
        for _ in 0..polls {
            tokio::task::yield_now().await;
        }
        let ended = match stage.life.control.cancel_operation(&operation.id).await {
            Ok(ended) => ended,
            Err(_) => stage.life.control.get_operation(&operation.id, WAIT).await.unwrap(),
        };
        let by_name = hawser_core::snapshot::SnapshotRef::Alias(alias("v-s"));
        let there = stage.life.control.get_snapshot(&by_name).await.is_ok();
        assert_eq!(ended.state == OperationState::Succeeded, there, "{polls}: {ended:?}");
        assert!(stage.rig.host.snapshot().frozen.is_empty(), "{polls}: left frozen");
        assert_eq!(stage.get("v").await.operation, None, "{polls}: still held");
        done(stage.life.control.delete_snapshot(&by_name, WAIT).await.unwrap());
    }
    stage.assert_healthy().await;
}

#[tokio::test]
async fn a_volume_is_never_formatted_twice_whatever_answer_is_lost() {
    // Each write of a first mount loses its answer once; the file system is made once and kept.
    for nth in 0..8 {
        let stage = Stage::new().await;
        let volume = stage.volume("v").await;
        let count = Mutex::new(0);
        stage.store.strike_once(move |method, key, _| {
            if method != "put" || !is_volume(key) {
                return None;
            }
            let mut count = count.lock().unwrap();
            *count += 1;
            (*count == nth + 1).then_some(Strike::AnswerLost)
        });

        let _ = stage.mount_on("v", "v").await;
        stage.until_free("v").await;
        stage.mount_on("v", "v").await.unwrap();

        let inside = stage.get("v").await.filesystem.unwrap();
        let image = stage.rig.path("pool-default/volumes").join(format!("{}.img", volume.id));
        let device = stage.rig.host.snapshot().loops[0].device.clone();
        assert!(image.exists());
        let content = stage.rig.host.probe(&device).await.unwrap();
        let expected = Content::Filesystem { fs: inside.kind, uuid: Some(inside.uuid) };
        assert_eq!(content, expected, "write {nth}");
        stage.assert_healthy().await;
    }
}

#[tokio::test]
async fn an_operation_that_another_server_took_over_is_left_to_it() {
    let stage = Stage::new().await;
    let volume = stage.volume("a").await;
    let lost = Error::new(Kind::Timeout, "the answer was lost").with_outcome(Outcome::Unknown);
    stage.rig.host.fail_next("attach_loop", lost);
    let error = stage.mount_on("a", "a").await.unwrap_err();
    assert!(error.is_unknown(), "{error:?}");
    let operation = stage.get("a").await.operation.expect("it is tried again");
    // The lease has run out, and the other server has written itself into the journal.
    let other = hawser_core::id::InstanceId::generate();
    let expires = hawser_core::Timestamp::now().saturating_add(WAIT).unwrap();
    let rewrite = |record: &mut serde_json::Value| {
        record["journal"]["holder"] = serde_json::json!(other);
        record["journal"]["expires"] = serde_json::json!(expires);
    };
    stage.rewrite(&volume, rewrite).await;

    let ended = async || {
        let found = stage.life.control.get_operation(&operation, SHORT).await.unwrap();
        found.state.is_final()
    };
    stage.until("this server lets go of it", ended).await;

    let found = stage.life.control.get_operation(&operation, SHORT).await.unwrap();
    let failure = found.error.expect("not called a success");
    assert_eq!(failure.outcome, Outcome::Unknown, "{failure:?}");
    assert_eq!(stage.rig.host.snapshot().loops, [], "two servers drive one operation");
    assert_eq!(stage.get("a").await.operation, Some(operation), "the other server's journal");
}

#[tokio::test]
async fn a_copy_of_a_volume_whose_node_is_away_is_refused_and_holds_nothing_up() {
    let stage = Stage::new().await;
    let volume = stage.volume("a").await;
    stage.mount("a").await;
    let away = |record: &mut serde_json::Value| {
        record["volume"]["publications"][0]["node"] = serde_json::json!("elsewhere");
    };
    stage.rewrite(&volume, away).await;
    let mut copy = request("copy", 16);
    copy.source = Some(SourceRef::Volume(by_name("a")));

    let snapshot = stage.life.control.create_snapshot(snapshot_of("a"), WAIT).await.unwrap_err();
    let copied = stage.life.control.create_volume(copy, WAIT).await.unwrap_err();

    for error in [snapshot, copied] {
        assert_eq!((error.kind(), error.outcome()), (Kind::Unavailable, Outcome::Nothing));
    }
    assert_eq!(stage.get("a").await.operation, None, "still held");
    assert_eq!(stage.names().await, ["a"]);
}
