//! Callers that come twice, leave early or are in a hurry.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use hawser_api::csi::v1::*;
use tonic::{Code, Request};

use super::rig::{Rig, code, mount, new};

/// Waits until the host was asked to do something.
async fn asked(rig: &Rig, what: &'static str) {
    for _ in 0..500 {
        if rig.node.asked.lock().unwrap().contains(&what) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("nobody asked to {what}");
}

#[tokio::test]
async fn a_second_call_for_a_volume_is_told_at_once_to_come_back() {
    let rig = Rig::start().await;
    let there = rig.published(mount()).await;
    let staging = rig.staging();
    let held = rig.node.pause.write().await;
    let mut first = rig.nodes();
    let request = there.stage(&staging);
    let first = tokio::spawn(async move { first.node_stage_volume(request).await });
    asked(&rig, "attach").await;

    for answer in [
        code(rig.nodes().node_stage_volume(there.stage(&staging)).await),
        code(rig.nodes().node_unstage_volume(there.unstage(&staging)).await),
        code(rig.nodes().node_publish_volume(there.publish(&staging, &rig.path("t"))).await),
        code(rig.nodes().node_unpublish_volume(there.unpublish(&rig.path("t"))).await),
    ] {
        assert_eq!(answer, Code::Aborted);
    }
    assert!(rig.nodes().node_get_info(NodeGetInfoRequest {}).await.is_ok(), "others are served");
    drop(held);

    assert_eq!(code(first.await.unwrap()), Code::Ok);
    rig.stop().await;
}

#[tokio::test]
async fn work_goes_on_when_its_caller_leaves() {
    let rig = Rig::start().await;
    let there = rig.published(mount()).await;
    let staging = rig.staging();
    let held = rig.node.pause.write().await;

    let mut client = rig.nodes();
    let call = tokio::time::timeout(
        Duration::from_millis(200),
        client.node_stage_volume(there.stage(&staging)),
    );
    assert!(call.await.is_err(), "the caller leaves");
    asked(&rig, "attach").await;
    drop(held);
    asked(&rig, "mount").await;

    let again = loop {
        let code = code(rig.nodes().node_stage_volume(there.stage(&staging)).await);
        if code != Code::Aborted {
            break code;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(again, Code::Ok);
    assert_eq!(rig.node.only().mounts.len(), 1);
    rig.stop().await;
}

#[tokio::test]
async fn a_deadline_is_kept_with_an_answer_that_may_be_repeated() {
    let rig = Rig::start().await;
    let there = rig.published(mount()).await;
    let staging = rig.staging();
    let held = rig.node.pause.write().await;

    let mut request = Request::new(there.stage(&staging));
    request.set_timeout(Duration::from_secs(1));
    let answer = rig.nodes().node_stage_volume(request).await.unwrap_err();

    assert_eq!(answer.code(), Code::Aborted, "{answer}");
    assert!(answer.message().contains("goes on"), "{answer}");
    drop(held);
    rig.stop().await;
}

#[tokio::test]
async fn a_caller_that_is_always_in_a_hurry_gets_there() {
    let rig = Rig::start().await;
    let hurried = |request| {
        let mut request = Request::new(request);
        request.set_timeout(Duration::from_millis(10));
        request
    };
    let made = async {
        loop {
            if rig.controller().create_volume(hurried(new("data", mount()))).await.is_ok() {
                break;
            }
        }
    };

    tokio::time::timeout(Duration::from_secs(30), made).await.expect("it converges");

    assert_eq!(rig.control.count(), 1);
    rig.stop().await;
}

#[tokio::test]
async fn many_calls_for_one_volume_end_well_or_come_back() {
    let rig = Rig::start().await;
    let there = rig.published(mount()).await;
    let staging = rig.staging();

    let calls = (0..200).map(|n| {
        let (mut client, there, staging) = (rig.nodes(), there.clone(), staging.clone());
        async move {
            match n % 2 {
                0 => code(client.node_stage_volume(there.stage(&staging)).await),
                _ => code(client.node_unstage_volume(there.unstage(&staging)).await),
            }
        }
    });
    let codes: BTreeSet<i32> = join_all(calls).await.into_iter().map(|code| code as i32).collect();

    let allowed = BTreeSet::from([Code::Ok as i32, Code::Aborted as i32]);
    assert!(codes.is_subset(&allowed) && codes.contains(&(Code::Ok as i32)), "{codes:?}");
    assert_eq!(code(rig.nodes().node_unstage_volume(there.unstage(&staging)).await), Code::Ok);
    assert!(rig.node.records().is_empty());
    rig.stop().await;
}

#[tokio::test]
async fn many_callers_of_one_name_get_one_volume() {
    let rig = Rig::start().await;

    let calls = (0..100).map(|_| rig.create(new("data", mount())));
    let ids: BTreeSet<String> = join_all(calls).await.into_iter().collect();

    assert_eq!(ids.len(), 1);
    rig.stop().await;
}
