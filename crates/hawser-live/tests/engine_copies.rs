//! What a caller can rely on who copies a volume that is in use, over the fake host.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use hawser_core::error::{Error, Kind};
use hawser_core::port::control::Reply;
use hawser_core::publication::PublishRequest;
use hawser_core::snapshot::SnapshotRef;
use hawser_core::volume::{Access, SourceRef, VolumeRequest};
use hawser_live::stage::{
    Machine, SHORT, Stage, Strike, WAIT, alias, by_name, done, is_volume, request, says,
    snapshot_of,
};
use hawser_testkit::fake_host::Call;

fn clone_of(name: &str, of: &str) -> VolumeRequest {
    let source = Some(SourceRef::Volume(by_name(of)));
    VolumeRequest { size: None, source, ..request(name, 16) }
}

/// Asks for a snapshot and a clone, both of which must be refused and leave nothing.
async fn assert_not_copied(stage: &Stage, of: &str) {
    let refused: [Error; 2] = [
        stage.life.control.create_snapshot(snapshot_of(of), WAIT).await.unwrap_err(),
        stage.life.control.create_volume(clone_of("copy", of), WAIT).await.unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), Kind::Precondition, "{}", error.sentence());
        assert!(error.sentence().contains("stop what uses it"), "{}", error.sentence());
    }
    stage.until_free(of).await;
    stage.assert_healthy().await;
}

async fn assert_copied(stage: &Stage, of: &str) {
    done(stage.life.control.create_snapshot(snapshot_of(of), WAIT).await.unwrap());
    done(stage.life.control.create_volume(clone_of("copy", of), WAIT).await.unwrap());
}

async fn raw(stage: &Stage, node_led: bool) {
    let control = &stage.life.control;
    let wanted = VolumeRequest { access: Some(Access::Block), ..request("raw", 16) };
    done(control.create_volume(wanted, WAIT).await.unwrap());
    let right = PublishRequest { node_led, ..PublishRequest::new(stage.life.node.clone(), false) };
    if node_led {
        control.publish(&by_name("raw"), right, WAIT).await.unwrap();
    } else {
        control.attach(&by_name("raw"), right, WAIT).await.unwrap();
    }
}

#[tokio::test]
async fn a_raw_device_in_use_is_not_copied_piece_by_piece() {
    let stage = Stage::new().await;
    raw(&stage, false).await;

    assert_not_copied(&stage, "raw").await;

    stage.life.control.detach(&by_name("raw"), &stage.life.node, WAIT).await.unwrap();
    assert_copied(&stage, "raw").await;
}

#[tokio::test]
async fn a_raw_device_that_a_node_may_use_by_itself_is_not_copied_piece_by_piece() {
    let stage = Stage::new().await;
    raw(&stage, true).await;

    assert_not_copied(&stage, "raw").await;

    stage.life.control.unpublish(&by_name("raw"), &stage.life.node, WAIT).await.unwrap();
    assert_copied(&stage, "raw").await;
}

#[tokio::test]
async fn a_raw_device_in_use_is_copied_where_that_takes_one_instant() {
    let machine = Machine::new();
    machine.rig.host.set_shares_blocks(true);
    let stage = machine.start().await;
    raw(&stage, false).await;

    assert_copied(&stage, "raw").await;
}

#[tokio::test]
async fn a_folder_in_use_is_not_copied_file_by_file() {
    let stage = Stage::new().await;
    let class = Some("folders".parse().unwrap());
    let wanted = VolumeRequest { class, ..request("folder", 16) };
    done(stage.life.control.create_volume(wanted, WAIT).await.unwrap());
    stage.mount("folder").await;

    assert_not_copied(&stage, "folder").await;

    stage.life.control.unmount(&by_name("folder"), &stage.life.node, None, WAIT).await.unwrap();
    assert_copied(&stage, "folder").await;
}

#[tokio::test]
async fn a_mounted_file_system_is_copied_as_it_is() {
    let stage = Stage::new().await;
    stage.volume("v").await;
    stage.mount("v").await;

    assert_copied(&stage, "v").await;

    assert!(stage.rig.host.snapshot().frozen.is_empty(), "left frozen");
}

#[test]
fn a_snapshot_that_somebody_was_told_of_is_not_taken_again_and_not_lost() {
    let machine = Machine::new();
    let snapshot = SnapshotRef::Alias(alias("v-s"));
    machine.life(async |stage| {
        stage.volume("v").await;
        stage.mount("v").await;
        // The snapshot is recorded; its operation is not ended.
        stage.store.strike_once(|method, key, value| {
            let ends = method == "put" && is_volume(key) && says(value, "\"journal\":null");
            ends.then_some(Strike::Swallowed)
        });
        let control = &stage.life.control;
        let begun = control.create_snapshot(snapshot_of("v"), SHORT).await.unwrap();
        assert!(matches!(begun, Reply::Pending(_)));
        stage.until_struck().await;

        assert!(!done(control.create_snapshot(snapshot_of("v"), WAIT).await.unwrap()).is_made());
        let refused = control.delete_snapshot(&snapshot, WAIT).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::Busy, "{}", refused.sentence());
    });
    machine.rig.host.forget_calls();

    machine.life(async |stage| {
        stage.until_free("v").await;

        let calls = stage.rig.host.calls();
        let copied = |call: &Call| call.method == "copy_file" && call.detail.contains("/volumes/");
        assert!(!calls.iter().any(copied), "taken again");
        stage.life.control.get_snapshot(&snapshot).await.expect("it is still there");
        done(stage.life.control.delete_snapshot(&snapshot, WAIT).await.unwrap());
        stage.assert_healthy().await;
    });
}
