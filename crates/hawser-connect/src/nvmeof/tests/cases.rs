//! Faults, reuse, sharing: what must hold beyond the contract.

use std::time::Duration;

use hawser_core::attach::{Identity, Multipath};
use hawser_core::port::Connector;
use hawser_core::{Kind, Outcome, Reason};
use hawser_testkit::fake_host::kernel::{Flush, Tree};
use hawser_testkit::sim::multipath;
use hawser_testkit::sim::nvme::Portal;

use super::*;

const KEY: &str = "DHHC-1:00:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:";

fn with(key: &str, value: Value) -> Value {
    let mut all = data();
    all[key] = value;
    all
}

#[tokio::test(start_paused = true)]
async fn several_portals_become_one_device_and_all_controllers_go_again() {
    let lab = lab();

    let made = lab.connect(data()).await.unwrap();

    assert!(made.is_made());
    assert_eq!(made.get().path(), std::path::Path::new("/dev/nvme0n1"));
    assert_eq!(made.get().identity(), Some(&Identity::new("uuid", UUID)));
    assert_eq!(lab.controllers(), ["nvme0", "nvme1"]);
    assert_eq!(lab.connect(data()).await.unwrap(), Change::Already(made.into_inner()));
    assert!(lab.disconnect(data(), &Detach::default()).await.unwrap().is_made());
    assert!(lab.controllers().is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_multipath_one_live_portal_is_enough() {
    let lab = lab();
    nvme::set_portal(lab.host.kernel(), A, Portal::Refused);

    Nvmeof.connect(&lab.host, &info(data()), &Attach::default()).await.unwrap();

    assert_eq!(lab.controllers(), ["nvme0"]);
}

#[tokio::test(start_paused = true)]
async fn a_dead_portal_does_not_keep_the_other_from_being_used() {
    let lab = lab();
    nvme::set_portal(lab.host.kernel(), B, Portal::Silent);

    let attached = lab.connect(data()).await.unwrap().into_inner();
    let one = AttachRecord { attached: Some(attached), ..record(&info(data())) };
    let all = AttachRecord { attach: all_paths(), ..one.clone() };
    let health = async |record| Nvmeof.health(&lab.host, record).await.unwrap();
    let (enough, missing) = (health(&one).await, health(&all).await);
    nvme::set_portal(lab.host.kernel(), B, Portal::Open);
    let healed = lab.connect(data()).await.unwrap();

    assert!(enough.healthy, "{enough:?}");
    assert!(!missing.healthy && missing.message.contains(B), "{missing:?}");
    assert!(healed.is_made(), "the missing way is made by the next connect");
    assert!(health(&all).await.healthy);
    assert_eq!(lab.controllers().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn refusals_of_the_kernel_are_told_apart() {
    for (arrange, kind, reason) in [
        (
            (|lab| [A, B].map(|p| nvme::set_portal(lab.host.kernel(), p, Portal::Refused)).len())
                as fn(&Lab) -> usize,
            Kind::Unavailable,
            Reason::PortalRefused,
        ),
        (
            |lab| [A, B].map(|p| nvme::set_portal(lab.host.kernel(), p, Portal::Silent)).len(),
            Kind::Timeout,
            Reason::PortalTimeout,
        ),
        (
            |lab| {
                nvme::allow(lab.host.kernel(), NQN, &["nqn.2020-01.org.example:another"]);
                0
            },
            Kind::NotFound,
            Reason::TargetNotFound,
        ),
        (
            |lab| {
                nvme::require_key(lab.host.kernel(), NQN, KEY);
                0
            },
            Kind::Denied,
            Reason::AuthFailed,
        ),
        (
            |lab| {
                lab.target.hide(1);
                0
            },
            Kind::NotFound,
            Reason::LunNotFound,
        ),
    ] {
        let lab = lab();
        arrange(&lab);
        let before = lab.host.snapshot();

        let error = lab.connect(data()).await.unwrap_err();

        assert_eq!((error.kind(), error.reason()), (kind, Some(reason)), "{error:?}");
        assert_ne!(error.outcome(), Outcome::Unknown, "{error:?}");
        assert_eq!(before.difference(&lab.host.snapshot()), "", "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_key_opens_the_target_and_is_seen_nowhere() {
    let lab = lab();
    nvme::require_key(lab.host.kernel(), NQN, KEY);
    let wrong = KEY.replace('a', "b");

    let error = lab.connect(with("dhchap_secret", json!(wrong))).await.unwrap_err();
    lab.connect(with("dhchapKey", json!(KEY))).await.unwrap();

    assert_eq!(error.reason(), Some(Reason::AuthFailed));
    let seen = format!("{error:?} {:?} {:?}", lab.host.calls(), lab.host.snapshot());
    assert!(!seen.contains("DHHC-1") && !seen.contains("bbbbbb"), "{seen}");
}

#[tokio::test(start_paused = true)]
async fn a_kernel_without_authentication_is_told_before_a_key_is_written() {
    let lab = lab();
    lab.host.kernel().remove_all("/sys/module/nvme_auth");

    let error = lab.connect(with("dhchap_secret", json!(KEY))).await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::ToolOrModuleMissing), "{error:?}");
    assert_eq!(nvme::made(lab.host.kernel()), 0);
}

#[tokio::test(start_paused = true)]
async fn enforced_multipath_is_refused_where_the_kernel_has_none() {
    let lab = lab_with(false);
    let attach = Attach { multipath: Multipath::Enforced, ..Attach::default() };

    let error = Nvmeof.connect(&lab.host, &info(data()), &attach).await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::MultipathUnavailable), "{error:?}");
}

/// Case 15 of docs/cases.md.
#[tokio::test(start_paused = true)]
async fn case_15_a_controller_outlasts_any_outage_of_its_target() {
    let lab = lab();
    let by_hand = nvme::connect_by_hand(
        lab.host.kernel(),
        &format!(
            "nqn={NQN},transport=tcp,traddr=10.0.0.1,trsvcid=4420,hostid=11111111-2222-4333-8444-\
             555555555555,hostnqn=nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555"
        ),
    );

    lab.connect(data()).await.unwrap();

    let limits = |name: &str| {
        lab.host.kernel().edit(|tree| tree.text(format!("/sys/class/nvme/{name}/ctrl_loss_tmo")))
    };
    assert_eq!(by_hand, "nvme0");
    assert_eq!((limits("nvme0").as_str(), limits("nvme1").as_str()), ("off", "off"));
}

/// Case 16 of docs/cases.md.
#[tokio::test(start_paused = true)]
async fn case_16_a_number_given_to_another_volume_is_never_taken_for_the_old_one() {
    let lab = lab();
    lab.connect(data()).await.unwrap();
    let new = nvme::namespace(OTHER, ByteSize::mib(64));
    lab.target.show(1, &new);

    let error = lab.connect(data()).await.unwrap_err();
    let other = lab.connect(with("vol_uuid", json!(OTHER))).await.unwrap();

    assert_eq!(error.reason(), Some(Reason::IdentityMismatch), "{error:?}");
    assert!(error.sentence().contains(OTHER), "{error:?}");
    assert_eq!(other.get().identity(), Some(&Identity::new("uuid", OTHER)));
}

/// Case 16 of docs/cases.md.
#[tokio::test(start_paused = true)]
async fn case_16_a_volume_with_ids_of_another_kind_is_not_the_old_one() {
    for ids in [nvme::Ids { nguid: Some(7), ..Default::default() }, nvme::Ids::default()] {
        let lab = lab();
        let attached = lab.connect(data()).await.unwrap().into_inner();
        let record = AttachRecord { attached: Some(attached), ..record(&info(data())) };

        lab.target.show(1, &nvme::namespace_with(&ids, 9, ByteSize::mib(128)));

        assert!(Nvmeof.extend(&lab.host, &record).await.is_err(), "{ids:?}");
        let refused = lab.connect(data()).await.unwrap_err();
        assert_ne!(refused.outcome(), Outcome::Unknown, "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn case_16_a_bare_number_is_held_to_what_was_found_there() {
    let lab = lab();
    let mut bare = data();
    bare.as_object_mut().unwrap().remove("vol_uuid");
    bare["ns_id"] = json!("1");

    let first = lab.connect(bare.clone()).await.unwrap();
    lab.target.show(1, &nvme::namespace(OTHER, ByteSize::mib(64)));
    let error = lab.connect(bare.clone()).await.unwrap_err();

    assert_eq!(first.get().identity(), Some(&Identity::new("uuid", UUID)));
    assert_eq!(error.reason(), Some(Reason::IdentityMismatch), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_without_ids_is_refused() {
    let host = FakeHost::new();
    nvme::install(host.kernel(), true);
    let lun = nvme::namespace_with(&nvme::Ids::default(), 9, ByteSize::mib(1));
    nvme::add_subsystem(host.kernel(), NQN, &Target::new().with(1, &lun), &[A]);
    let bare = json!({ "target_nqn": NQN, "ns_id": 1, "portals": [["10.0.0.1", 4420, "tcp"]] });

    let error = Nvmeof.connect(&host, &info(bare), &Attach::default()).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Invalid, "{error:?}");
    assert_eq!(error.outcome(), Outcome::RolledBack);
}

/// Case 17 of docs/cases.md.
#[tokio::test(start_paused = true)]
async fn case_17_a_controller_stays_as_long_as_another_volume_needs_it() {
    let lab = lab();
    lab.target.show(2, &nvme::namespace(OTHER, ByteSize::mib(64)));
    let other = with("vol_uuid", json!(OTHER));
    lab.connect(data()).await.unwrap();
    lab.connect(other.clone()).await.unwrap();

    assert!(lab.disconnect(data(), &Detach::default()).await.unwrap().is_made());
    assert_eq!(lab.controllers().len(), 2, "another volume claims them");
    assert_eq!(lab.disconnect(data(), &Detach::default()).await.unwrap(), Change::Already(()));
    assert!(lab.disconnect(other, &Detach::default()).await.unwrap().is_made());
    assert!(lab.controllers().is_empty());
}

/// Case 17 of docs/cases.md.
#[tokio::test(start_paused = true)]
async fn case_17_a_namespace_that_somebody_mounted_by_hand_keeps_the_controller() {
    let lab = lab();
    lab.target.show(2, &nvme::namespace(OTHER, ByteSize::mib(64)));
    lab.connect(data()).await.unwrap();
    let neighbour = std::path::Path::new("/dev/nvme0n2");
    lab.host.set_busy(neighbour, true);

    assert!(lab.disconnect(data(), &Detach::default()).await.unwrap().is_made());
    assert_eq!(lab.controllers().len(), 2);
    lab.host.set_busy(neighbour, false);
    lab.connect(data()).await.unwrap();
    lab.disconnect(data(), &Detach::default()).await.unwrap();
    assert!(lab.controllers().is_empty());
}

#[tokio::test(start_paused = true)]
async fn controllers_of_others_are_used_and_never_deleted() {
    let lab = lab();
    nvme::connect_by_hand(
        lab.host.kernel(),
        &format!(
            "nqn={NQN},transport=tcp,traddr=10.0.0.1,trsvcid=4420,hostid=11111111-2222-4333-8444-\
             555555555555,hostnqn=nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555"
        ),
    );

    let found = Nvmeof.connect(&lab.host, &info(data()), &Attach::default()).await.unwrap();
    let made = nvme::made(lab.host.kernel());
    lab.disconnect(data(), &Detach::default()).await.unwrap();

    assert!(!found.is_made(), "the device was there");
    assert_eq!(made, 1, "no second controller on the same portal");
    assert_eq!(lab.controllers(), ["nvme0"]);
}

#[tokio::test(start_paused = true)]
async fn another_host_id_under_our_name_is_named_in_the_refusal() {
    let lab = lab();
    nvme::connect_by_hand(
        lab.host.kernel(),
        "nqn=nqn.2020-01.org.example:s1,transport=tcp,traddr=10.0.0.2,trsvcid=4420,\
         hostid=99999999-2222-4333-8444-555555555555,\
         hostnqn=nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555",
    );

    let error = Nvmeof.connect(&lab.host, &info(data()), &Attach::default()).await.unwrap_err();

    assert!(error.sentence().contains("nvme0"), "{error:?}");
}

/// Case 18 of docs/cases.md.
#[tokio::test(start_paused = true)]
async fn case_18_a_volume_with_a_path_down_is_not_grown() {
    let lab = lab();
    lab.connect(data()).await.unwrap();
    nvme::set_reachable(lab.host.kernel(), B, false);
    lab.lun.resize(ByteSize::mib(128));

    let error = Nvmeof.extend(&lab.host, &record(&info(data()))).await.unwrap_err();
    nvme::set_reachable(lab.host.kernel(), B, true);
    let size = Nvmeof.extend(&lab.host, &record(&info(data()))).await.unwrap();

    assert_eq!(error.reason(), Some(Reason::PathsDown), "{error:?}");
    assert_eq!(size, ByteSize::mib(128));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_with_large_blocks_grows_to_the_size_the_target_means() {
    let host = FakeHost::new();
    nvme::install(host.kernel(), true);
    let ids = nvme::Ids { nguid: Some(0x77), ..nvme::Ids::default() };
    let lun = nvme::namespace_with(&ids, 12, ByteSize::mib(64));
    nvme::add_subsystem(host.kernel(), NQN, &Target::new().with(1, &lun), &[A]);
    let data = json!({ "target_nqn": NQN, "volume_nguid": format!("{:032x}", 0x77),
        "portals": [["10.0.0.1", 4420, "tcp"]] });
    Nvmeof.connect(&host, &info(data.clone()), &Attach::default()).await.unwrap();
    lun.resize(ByteSize::mib(96));

    let size = Nvmeof.extend(&host, &record(&info(data.clone()))).await.unwrap();
    lun.resize(ByteSize::mib(32));
    let error = Nvmeof.extend(&host, &record(&info(data))).await.unwrap_err();

    assert_eq!(size, ByteSize::mib(96));
    assert_eq!(error.kind(), Kind::Precondition, "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn inaccessible_ways_are_no_ways() {
    let lab = lab();
    for portal in [A, B] {
        nvme::set_access(lab.host.kernel(), NQN, portal, 1, "inaccessible");
    }
    let before = lab.host.snapshot();

    let error = lab.connect(data()).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::TargetUnreachable), "{error:?}");
    assert_eq!(before.difference(&lab.host.snapshot()), "");

    nvme::set_access(lab.host.kernel(), NQN, B, 1, "non-optimized");
    let attached = lab.connect(data()).await.unwrap().into_inner();
    let record = AttachRecord { attached: Some(attached), ..record(&info(data())) };
    let health = Nvmeof.health(&lab.host, &record).await.unwrap();
    assert!(!health.healthy && health.message.contains("inaccessible"), "{health:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reconnecting_controller_is_waited_for_and_not_doubled() {
    let lab = lab();
    lab.connect(data()).await.unwrap();
    for portal in [A, B] {
        nvme::set_reachable(lab.host.kernel(), portal, false);
    }
    let made = nvme::made(lab.host.kernel());
    lab.host.kernel().edit(|tree| {
        tree.later(3, |tree| {
            tree.value("/sys/class/nvme/nvme0/state", "live");
            tree.set_online("nvme0n1", true);
        });
    });

    let again = lab.connect(data()).await.unwrap();

    assert!(!again.is_made());
    assert_eq!(nvme::made(lab.host.kernel()), made);
}

#[tokio::test(start_paused = true)]
async fn a_failed_connect_leaves_what_was_attached_before() {
    let lab = lab();
    lab.connect(data()).await.unwrap();
    for portal in [A, B] {
        nvme::set_reachable(lab.host.kernel(), portal, false);
    }
    let before = lab.host.snapshot();
    let attach = Attach { deadline: Duration::from_secs(1), ..all_paths() };

    let error = Nvmeof.connect(&lab.host, &info(data()), &attach).await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::TargetUnreachable), "{error:?}");
    assert_eq!(before.difference(&lab.host.snapshot()), "");
}

#[tokio::test(start_paused = true)]
async fn controllers_that_go_away_are_waited_for_by_a_detach() {
    let lab = lab();
    lab.connect(data()).await.unwrap();
    let set = |state: &'static str| {
        move |tree: &mut Tree| {
            for name in ["nvme0", "nvme1"] {
                tree.value(format!("/sys/class/nvme/{name}/state"), state);
            }
        }
    };
    lab.host.kernel().edit(|tree| {
        set("deleting")(tree);
        tree.later(3, set("live"));
    });

    lab.disconnect(data(), &Detach::default()).await.unwrap();

    assert_eq!(lab.controllers(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_detached_while_it_is_used_or_cannot_be_written_out() {
    let lab = lab();
    let attached = lab.connect(data()).await.unwrap().into_inner();
    let before = lab.host.snapshot();

    lab.host.set_busy(attached.path(), true);
    let busy = lab.disconnect(data(), &Detach::default()).await.unwrap_err();
    lab.host.set_busy(attached.path(), false);
    lab.host.kernel().set_flush(attached.path(), Flush::Fails(5));
    let failed = lab.disconnect(data(), &Detach::default()).await.unwrap_err();

    assert_eq!(busy.reason(), Some(Reason::DeviceBusy), "{busy:?}");
    assert_eq!(failed.reason(), Some(Reason::FlushFailed), "{failed:?}");
    assert_eq!(before.difference(&lab.host.snapshot()), "");
}

#[tokio::test(start_paused = true)]
async fn force_goes_on_past_a_failed_flush_and_says_what_was_lost() {
    for (ignore_errors, detached) in [(false, false), (true, true)] {
        let lab = lab();
        let attached = lab.connect(data()).await.unwrap().into_inner();
        lab.host.kernel().set_flush(attached.path(), Flush::Fails(5));
        let detach = Detach { force: true, ignore_errors, ..Detach::default() };

        let result = lab.disconnect(data(), &detach).await;

        assert_eq!(result.is_ok(), detached);
        if let Err(error) = result {
            assert_eq!(error.reason(), Some(Reason::DataLost), "{error:?}");
        }
        assert!(lab.controllers().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn with_no_way_left_only_a_forced_detach_lets_go() {
    let lab = lab();
    lab.connect(data()).await.unwrap();
    for portal in [A, B] {
        nvme::set_reachable(lab.host.kernel(), portal, false);
    }

    let refused = lab.disconnect(data(), &Detach::default()).await.unwrap_err();
    let force = Detach { force: true, ..Detach::default() };
    let lost = lab.disconnect(data(), &force).await.unwrap_err();

    assert_eq!(refused.reason(), Some(Reason::FlushFailed), "{refused:?}");
    assert_eq!(lost.reason(), Some(Reason::DataLost), "{lost:?}");
    assert!(!lost.sentence().contains("nothing was detached"), "{lost:?}");
    assert!(lab.controllers().is_empty());
    assert_eq!(lab.disconnect(data(), &force).await.unwrap(), Change::Already(()));
}

#[tokio::test(start_paused = true)]
async fn what_is_cached_for_a_volume_that_is_gone_is_not_written_over_another() {
    let lab = lab();
    let attached = lab.connect(data()).await.unwrap().into_inner();
    lab.target.show(1, &nvme::namespace(OTHER, ByteSize::mib(64)));
    // Were it flushed, this would fail the detach.
    lab.host.kernel().set_flush(attached.path(), Flush::Fails(5));

    let done = lab.disconnect(data(), &Detach::default()).await.unwrap();

    assert!(done.is_made());
    assert!(lab.controllers().is_empty());
}

#[tokio::test(start_paused = true)]
async fn read_only_devices_refuse_writes_and_the_others_must_take_them() {
    let lab = lab();
    let attach = Attach { read_only: true, ..Attach::default() };
    Nvmeof.connect(&lab.host, &info(data()), &attach).await.unwrap();
    assert!(lab.host.kernel().edit(|tree| tree.is_read_only("nvme0n1")));
    let writable = Nvmeof.connect(&lab.host, &info(data()), &Attach::default()).await;
    assert!(writable.is_ok(), "the mark was ours: {writable:?}");
    assert!(!lab.host.kernel().edit(|tree| tree.is_read_only("nvme0n1")));
    lab.disconnect(data(), &Detach::default()).await.unwrap();

    lab.lun.set_read_only(true);
    let before = lab.host.snapshot();
    let attach = Attach { deadline: Duration::from_secs(2), ..Attach::default() };
    let error = Nvmeof.connect(&lab.host, &info(data()), &attach).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::DeviceReadOnly), "{error:?}");
    assert_eq!(before.difference(&lab.host.snapshot()), "");
}

#[tokio::test(start_paused = true)]
async fn a_controller_whose_end_nobody_saw_is_found_by_the_next_call() {
    let lab = lab();
    let before = lab.host.snapshot();
    nvme::set_portal(lab.host.kernel(), A, Portal::Silent);
    nvme::set_portal(lab.host.kernel(), B, Portal::Silent);
    let attach = Attach { deadline: Duration::from_secs(1), ..Attach::default() };

    let error = Nvmeof.connect(&lab.host, &info(data()), &attach).await.unwrap_err();
    lab.disconnect(data(), &Detach::default()).await.unwrap();

    assert_eq!(error.outcome(), Outcome::Unknown, "{error:?}");
    assert_eq!(before.difference(&lab.host.snapshot()), "");
}

#[tokio::test(start_paused = true)]
async fn health_says_which_way_is_down_and_which_limit_is_dangerous() {
    let lab = lab();
    let attached = lab.connect(data()).await.unwrap().into_inner();
    let record = AttachRecord { attached: Some(attached), ..record(&info(data())) };
    let health = async || Nvmeof.health(&lab.host, &record).await.unwrap();

    assert!(health().await.healthy);
    nvme::set_reachable(lab.host.kernel(), B, false);
    let down = health().await;
    nvme::set_reachable(lab.host.kernel(), B, true);
    lab.host.kernel().value("/sys/class/nvme/nvme1/ctrl_loss_tmo", 600);
    let limited = health().await;

    assert!(!down.healthy && down.message.contains("nvme1"), "{down:?}");
    assert!(!limited.healthy && limited.message.contains("600"), "{limited:?}");
}

#[tokio::test(start_paused = true)]
async fn without_native_multipath_the_ways_become_a_map() {
    let lab = lab_with(false);
    multipath::install(&lab.host);
    lab.host.kernel().multipathd(FindMultipaths::Strict);
    let before = lab.host.snapshot();

    let made = lab.connect(data()).await.unwrap();
    let device = made.get().path().to_owned();
    let paths = lab.host.kernel().edit(|tree| {
        let name = tree.disk_at(&device).unwrap();
        tree.list(format!("/sys/block/{name}/slaves"))
    });
    let done = lab.disconnect(data(), &Detach::default()).await.unwrap();

    assert_eq!(paths, ["nvme0n1", "nvme1n1"]);
    assert!(made.is_made() && done.is_made());
    assert_eq!(before.difference(&lab.host.snapshot()), "");
}

#[tokio::test(start_paused = true)]
async fn one_way_without_a_map_is_the_device_itself() {
    for daemon in [false, true] {
        let lab = lab_with(false);
        if daemon {
            lab.host.kernel().multipathd(FindMultipaths::Strict);
        }

        let made = Nvmeof.connect(&lab.host, &info(data()), &Attach::default()).await.unwrap();

        assert_eq!(made.get().path(), std::path::Path::new("/dev/nvme0n1"));
    }
}
