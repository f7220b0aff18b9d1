//! What is special about Fibre Channel.

use std::time::Duration;

use hawser_core::{Outcome, Reason};
use hawser_testkit::sim::scsi;

use super::*;

fn attach(multipath: Multipath) -> Attach {
    Attach { multipath, ..Attach::default() }
}

fn slaves(host: &FakeHost, attached: &Attached) -> usize {
    let map = attached.path().file_name().unwrap().to_string_lossy().into_owned();
    host.files().list(format!("/sys/block/{map}/slaves").as_ref()).unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn exactly_one_place_is_scanned_for_each_way() {
    let rig = two_paths();
    let storage_has_more = Lun::scsi("6001405ccccccccccccccccccccccccc", ByteSize::mib(1));
    let stranger = Target::new().with(1, &storage_has_more);
    fc::add_remote_port(rig.host.kernel(), 3, "500a0980000000ff", &stranger);

    let attached = rig.connect().await.unwrap();

    assert_eq!(devices(&rig.host), ["3:0:0:1", "4:0:0:1"]);
    assert_eq!(slaves(&rig.host, attached.get()), 2);
    assert_eq!(scsi::wide_scans(rig.host.kernel()), 0);
}

#[tokio::test(start_paused = true)]
async fn ports_that_are_not_zoned_for_us_are_not_used() {
    let storage = Storage::with_fabrics(2);
    let mut data = both_ports();
    data["initiator_target_map"] = json!({ OURS[0]: [THEIRS[0]], OURS[1]: [] });
    let mut rig = storage.rig(data);
    rig.attach = attach(Multipath::Wanted);

    rig.connect().await.unwrap();
    assert_eq!(devices(&rig.host), ["3:0:0:1"]);

    let mut info = rig.info.clone();
    info.data["initiator_target_map"] = json!({ "2100001b320000ff": [THEIRS[0]] });
    let error = FibreChannel.connect(&rig.host, &info, &rig.attach).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::TargetUnreachable), "{error:?}");
    assert!(error.sentence().contains("2100001b320000ff"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn every_failure_has_its_word_and_leaves_nothing() {
    let rig = single();
    let with = |key: &str, value: Value| {
        let mut info = rig.info.clone();
        info.data.insert(key.into(), value);
        info
    };
    for (info, reason) in [
        (with("target_wwn", json!("500a0980000000ee")), Reason::TargetNotFound),
        (with("target_lun", json!(77)), Reason::LunNotFound),
        (with("wwn", json!(format!("3{OTHER}"))), Reason::IdentityMismatch),
    ] {
        let before = rig.host.snapshot();
        let error = rig.connector.connect(&rig.host, &info, &rig.attach).await.unwrap_err();
        assert_eq!(error.reason(), Some(reason), "{error:?}");
        assert_ne!(error.outcome(), Outcome::Unknown, "{error:?}");
        assert_eq!(before.difference(&rig.host.snapshot()), "", "{reason:?}");
    }
    fc::set_remote_port(rig.host.kernel(), 3, THEIRS[0], fc::PortState::NotPresent);
    let error = rig.connect().await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::TargetUnreachable), "{error:?}");
    fc::set_adapter(rig.host.kernel(), 3, false);
    let error = rig.connect().await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::NoHba), "{error:?}");
    let none = Storage::new().rig(one_port());
    let error = none.connect().await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::NoHba), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_number_that_is_looked_for_everywhere_brings_in_nothing_of_others() {
    for (allowed, scans) in [(None, 1), (Some(false), 0)] {
        let storage = Storage::with_fabrics(1);
        let mut data = one_port();
        data["target_wwn"] = json!("500a0980000000ee");
        if let Some(allowed) = allowed {
            data["enable_wildcard_scan"] = json!(allowed);
        }
        let rig = storage.rig(data);
        let before = rig.host.snapshot();

        let error = rig.connect().await.unwrap_err();

        assert_eq!(error.reason(), Some(Reason::TargetNotFound));
        let calls = rig.host.calls();
        let scanned = calls.iter().filter(|call| call.detail.contains("scsi_host/host3/scan"));
        assert_eq!(scanned.count(), scans, "{allowed:?}");
        assert_eq!(before.difference(&rig.host.snapshot()), "");
    }
}

#[tokio::test(start_paused = true)]
async fn a_port_that_comes_late_is_waited_for() {
    let storage = Storage::with_fabrics(1);
    let kernel = storage.host.kernel();
    fc::add_adapter(kernel, 4, OURS[1]);
    kernel.multipathd(FindMultipaths::Strict);
    let target = storage.target.clone();
    kernel.edit(|tree| {
        tree.later(4, move |tree| fc::show_port(tree, 4, THEIRS[1], &target));
    });
    let mut rig = storage.rig(both_ports());
    rig.attach = attach(Multipath::Enforced);

    let attached = rig.connect().await.unwrap();

    assert_eq!(slaves(&rig.host, attached.get()), 2);
}

#[tokio::test(start_paused = true)]
async fn a_port_that_is_down_costs_seconds_and_its_path_joins_later() {
    let mut rig = two_paths();
    fc::set_remote_port(rig.host.kernel(), 4, THEIRS[1], fc::PortState::Blocked);
    rig.attach = attach(Multipath::Wanted);
    let begun = tokio::time::Instant::now();

    let attached = rig.connect().await.unwrap();

    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    assert_eq!(slaves(&rig.host, attached.get()), 1);
    fc::set_remote_port(rig.host.kernel(), 4, THEIRS[1], fc::PortState::Online);
    let again = rig.connect().await.unwrap();
    assert!(again.is_made());
    assert_eq!((again.get().path(), slaves(&rig.host, again.get())), (attached.get().path(), 2));
}

#[tokio::test(start_paused = true)]
async fn a_path_that_is_down_is_told_and_nothing_grows_meanwhile() {
    let rig = two_paths();
    let attached = rig.connect().await.unwrap();
    let record = rig.record(attached.get());
    assert!(rig.connector.health(&rig.host, &record).await.unwrap().healthy);
    fc::set_remote_port(rig.host.kernel(), 3, THEIRS[0], fc::PortState::Blocked);

    let health = rig.connector.health(&rig.host, &record).await.unwrap();
    let refused = rig.connector.extend(&rig.host, &record).await.unwrap_err();

    assert!(!health.healthy && health.message.contains("Blocked"), "{health:?}");
    assert_eq!(refused.reason(), Some(Reason::PathsDown));
    rig.disconnect(&record).await.expect("one path is enough to flush");
    assert_eq!(devices(&rig.host), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_way_that_leads_to_another_volume_spoils_the_attach() {
    let storage = Storage::with_fabrics(2);
    let mut data = both_ports();
    data["target_luns"] = json!([1, 2]);
    let mut rig = storage.rig(data);
    rig.info.identity = None;
    rig.attach = attach(Multipath::Wanted);
    let before = rig.host.snapshot();

    let error = rig.connect().await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::IdentityMismatch), "{error:?}");
    assert_eq!(before.difference(&rig.host.snapshot()), "");
}

#[tokio::test(start_paused = true)]
async fn the_same_number_at_a_port_of_another_storage_system_is_left_alone() {
    let rig = single();
    let other = Lun::scsi(OTHER, ByteSize::mib(8));
    fc::add_remote_port(rig.host.kernel(), 3, "500a0980000000c1", &Target::new().with(1, &other));
    rig.host.kernel().edit(|tree| {
        scsi::scan_for(tree, 3, Some(0), Some(1), Some(1));
        tree.settle();
    });

    let attached = rig.connect().await.unwrap();
    rig.disconnect(&rig.record(attached.get())).await.unwrap();

    assert_eq!(devices(&rig.host), ["3:0:1:1"]);
}

#[tokio::test(start_paused = true)]
async fn numbers_above_255_are_found_where_the_kernel_has_them() {
    let storage = Storage::with_fabrics(1);
    let target = storage.target.clone().with(16_684, &storage.volume);
    target.hide(1);
    let mut data = one_port();
    data["target_lun"] = json!(300);
    data["addressing_mode"] = json!("SAM2");
    let rig = storage.rig(data);

    rig.connect().await.unwrap();

    assert_eq!(devices(&rig.host), ["3:0:0:16684"]);
}

#[tokio::test(start_paused = true)]
async fn a_path_in_use_that_is_down_is_not_replaced_by_another_device() {
    let rig = Storage::with_fabrics(2).rig(both_ports());
    let attached = rig.connect().await.unwrap();
    let node = attached.get().path().to_owned();
    fc::set_remote_port(rig.host.kernel(), 3, THEIRS[0], fc::PortState::Blocked);
    rig.host.set_busy(&node, true);

    let refused = rig.connect().await.unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::DeviceBusy), "{refused:?}");
    assert_eq!(devices(&rig.host), ["3:0:0:1"]);

    rig.host.set_busy(&node, false);
    let other = rig.connect().await.unwrap();
    assert_ne!(other.get().path(), node);
    rig.disconnect(&rig.record(other.get())).await.unwrap();
    assert_eq!(devices(&rig.host), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_path_that_somebody_uses_as_it_is_stays_his() {
    let mut rig = Storage::with_fabrics(2).rig(both_ports());
    rig.host.kernel().multipathd(FindMultipaths::Strict);
    let attached = rig.connect().await.unwrap().into_inner();
    rig.host.set_busy(attached.path(), true);

    rig.attach = attach(Multipath::Enforced);
    let refused = rig.connect().await.unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::DeviceBusy), "{refused:?}");
    rig.attach = attach(Multipath::Wanted);
    assert_eq!(rig.connect().await.unwrap(), Change::Already(attached.clone()));
    assert_eq!(devices(&rig.host), ["3:0:0:1"]);

    rig.host.set_busy(attached.path(), false);
    let map = rig.connect().await.unwrap().into_inner();
    assert_eq!(slaves(&rig.host, &map), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pair_that_the_storage_system_named_and_that_never_met_is_a_missing_path() {
    let storage = Storage::with_fabrics(1);
    fc::add_adapter(storage.host.kernel(), 4, OURS[1]);
    let target = storage.target.clone();
    let mut data = both_ports();
    data["initiator_target_map"] = json!({ OURS[0]: [THEIRS[0]], OURS[1]: [THEIRS[1]] });
    let mut rig = storage.rig(data);
    rig.host.kernel().multipathd(FindMultipaths::Strict);
    rig.attach = attach(Multipath::Wanted);
    let attached = rig.connect().await.unwrap();

    let record = rig.record(attached.get());
    let health = FibreChannel.health(&rig.host, &record).await.unwrap();
    assert!(!health.healthy && health.message.contains(THEIRS[1]), "{health:?}");

    fc::add_remote_port(rig.host.kernel(), 4, THEIRS[1], &target);
    let again = rig.connect().await.unwrap();
    assert_eq!(slaves(&rig.host, again.get()), 2);
    let health = FibreChannel.health(&rig.host, &rig.record(again.get())).await.unwrap();
    assert!(health.healthy, "{health:?}");
}
