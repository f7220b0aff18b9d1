//! Crashes and reboots at bad moments, over the fake host: what was mounted comes back, and what was
//! begun comes to its end.

use hawser_core::error::{Error, Kind};
use hawser_core::operation::OperationState;
use hawser_core::port::Host;
use hawser_core::port::control::Reply;
use hawser_core::size::ByteSize;
use hawser_core::volume::SourceRef;
use hawser_live::stage::{
    Machine, SHORT, Strike, WAIT, by_name, is_volume, request, says, snapshot_of,
};

#[test]
fn every_volume_comes_back_also_when_the_server_dies_again_while_bringing_them_back() {
    let machine = Machine::new();
    machine.life(async |stage| {
        for name in ["a", "b", "c"] {
            stage.volume(name).await;
            stage.mount(name).await;
        }
    });
    machine.rig.host.reboot();
    machine.rig.host.hang_always("attach_loop");
    machine.life(async |_| tokio::time::sleep(SHORT).await);

    machine.life(async |stage| {
        stage.until_mounted(&["a", "b", "c"]).await;
        stage.assert_healthy().await;
    });
}

#[test]
fn a_volume_that_was_busy_at_the_reboot_comes_back_when_it_is_free() {
    let machine = Machine::new();
    machine.life(async |stage| {
        stage.volume("a").await;
        stage.mount("a").await;
        stage.rig.host.hang_always("copy_file");
        let pending = stage.life.control.create_snapshot(snapshot_of("a"), SHORT).await.unwrap();
        assert!(matches!(pending, Reply::Pending(_)));
    });
    machine.rig.host.reboot();

    machine.life(async |stage| {
        stage.until_mounted(&["a"]).await;
        stage.assert_healthy().await;
    });
}

#[test]
fn a_volume_that_was_being_expanded_at_the_reboot_comes_back_larger() {
    let machine = Machine::new();
    machine.life(async |stage| {
        stage.volume("a").await;
        stage.mount("a").await;
        stage.rig.host.hang_always("resize_loop");
        let control = &stage.life.control;
        let larger = control.expand_volume(&by_name("a"), ByteSize::mib(32), SHORT).await.unwrap();
        assert!(matches!(larger, Reply::Pending(_)));
    });
    machine.rig.host.reboot();

    machine.life(async |stage| {
        stage.until_mounted(&["a"]).await;
        assert_eq!(stage.get("a").await.size, ByteSize::mib(32));
        stage.assert_healthy().await;
    });
}

#[test]
fn a_mount_that_could_not_be_brought_back_is_not_forgotten() {
    let machine = Machine::new();
    machine.life(async |stage| {
        stage.volume("a").await;
        stage.mount("a").await;
    });
    machine.rig.host.reboot();
    machine.rig.host.fail_next("mount", Error::new(Kind::Precondition, "not today"));

    machine.life(async |stage| {
        let tried = async || {
            let calls = stage.rig.host.calls();
            calls.iter().filter(|call| call.method == "mount").count() >= 2
        };
        stage.until("the mount is tried", tried).await;
        stage.until_free("a").await;
        let volume = stage.get("a").await;
        assert_eq!(volume.publications[0].mounts.len(), 1, "the record forgot the mount");
        assert!(!volume.publications[0].mounts[0].ready, "the record calls it mounted");
        let findings = stage.life.control.doctor(false).await.unwrap();
        assert!(findings.iter().any(|found| found.subject == volume.id.as_str()), "{findings:?}");

        let change = stage.mount_on("a", "a").await.unwrap();

        assert!(change.is_made(), "the request was answered as if it were mounted");
        stage.until_mounted(&["a"]).await;
        stage.assert_healthy().await;
    });
}

#[test]
fn a_file_system_that_was_off_for_growing_when_the_server_died_comes_back() {
    let machine = Machine::new();
    machine.life(async |stage| {
        stage.volume("a").await;
        stage.mount("a").await;
        stage.rig.host.hang_always("grow_filesystem");
        let control = &stage.life.control;
        let larger = control.expand_volume(&by_name("a"), ByteSize::mib(32), SHORT).await.unwrap();
        assert!(matches!(larger, Reply::Pending(_)));
        // What a host without CAP_SYS_RESOURCE does in there.
        stage.rig.host.unmount(&stage.target("a")).await.unwrap();
    });

    machine.life(async |stage| {
        stage.until_free("a").await;
        let (mounts, target) = (stage.rig.host.snapshot().mounts, stage.target("a"));
        assert!(
            mounts.iter().any(|mount| mount.target == target),
            "the expansion ended without it"
        );
        stage.assert_healthy().await;
    });
}

#[test]
fn an_undo_that_ends_unconfirmed_after_a_restart_is_not_called_a_success() {
    let machine = Machine::new();
    let mut operation = None;
    machine.life(async |stage| {
        stage.volume("v").await;
        stage.rig.host.hang_always("copy_file");
        let mut copy = request("copy", 16);
        copy.source = Some(SourceRef::Volume(by_name("v")));
        let reply = stage.life.control.create_volume(copy, SHORT).await.unwrap();
        let Reply::Pending(pending) = reply else { panic!("the copy came too fast") };
        // It is being taken back when the server dies.
        stage.store.strike_once(|_, key, value| {
            (is_volume(key) && says(value, "\"undoing\":true")).then_some(Strike::Silent)
        });
        let cancel = stage.life.control.cancel_operation(&pending.id);
        let _ = tokio::time::timeout(SHORT, cancel).await;
        stage.until_struck().await;
        operation = Some(pending.id);
    });
    let operation = operation.expect("begun");
    machine.store.strike_once(|method, key, _| {
        (method == "delete" && is_volume(key)).then_some(Strike::AnswerLost)
    });

    machine.life(async |stage| {
        let ended = async || {
            let found = stage.life.control.get_operation(&operation, WAIT).await.unwrap();
            found.state.is_final()
        };
        stage.until("the operation has ended", ended).await;
        let found = stage.life.control.get_operation(&operation, WAIT).await.unwrap();
        assert_eq!(found.state, OperationState::Failed, "{found:?}");
        assert_eq!(stage.names().await, ["v"]);
    });
}

#[test]
fn an_unmount_that_a_restart_cut_off_does_not_hold_a_busy_volume_for_ever() {
    let machine = Machine::new();
    machine.life(async |stage| {
        stage.volume("a").await;
        stage.mount("a").await;
        stage.rig.host.hang_always("unmount");
        let (control, node) = (&stage.life.control, &stage.life.node);
        let pending = control.unmount(&by_name("a"), node, None, SHORT).await.unwrap();
        assert!(matches!(pending, Reply::Pending(_)));
    });
    machine.rig.host.set_busy(&machine.rig.path("mnt/a"), true);

    machine.life(async |stage| {
        stage.until_free("a").await;
        stage.until_mounted(&["a"]).await;
        assert!(stage.get("a").await.publications[0].mounts[0].ready);
        stage.assert_healthy().await;
    });
}

#[test]
fn what_was_unmounted_by_hand_is_mounted_again_at_the_next_start() {
    let machine = Machine::new();
    machine.life(async |stage| {
        for name in ["a", "b"] {
            stage.volume(name).await;
            stage.mount(name).await;
        }
        stage.rig.host.unmount(&stage.target("a")).await.unwrap();
    });

    machine.life(async |stage| {
        stage.until_mounted(&["a", "b"]).await;
        stage.assert_healthy().await;
    });
}

#[test]
fn a_copy_of_a_volume_that_grew_in_the_meantime_is_as_large_as_it() {
    let machine = Machine::new();
    machine.life(async |stage| {
        stage.volume("v").await;
        let mut copy = request("copy", 0);
        (copy.size, copy.source) = (None, Some(SourceRef::Volume(by_name("v"))));
        // The copy is recorded with the size of now, and has not begun when its source grows.
        stage.store.strike_once(|method, key, _| {
            (method == "create" && key.as_str().starts_with("name/")).then_some(Strike::Silent)
        });
        let control = &stage.life.control;
        let begun = tokio::time::timeout(SHORT, control.create_volume(copy, WAIT)).await;
        assert!(begun.is_err(), "the store never answered");
        control.expand_volume(&by_name("v"), ByteSize::mib(32), WAIT).await.unwrap();
    });

    machine.life(async |stage| {
        stage.until_free("copy").await;
        assert_eq!(stage.get("copy").await.size, ByteSize::mib(32));
        stage.assert_healthy().await;
    });
}
