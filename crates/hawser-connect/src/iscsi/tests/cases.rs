//! What is special about iSCSI.

use std::time::Duration;

use hawser_core::attach::{Attach, Identity, Multipath};
use hawser_core::port::Host;
use hawser_core::{Change, Kind, Outcome, Reason};
use hawser_testkit::contract::connector::ConnectorRig;
use hawser_testkit::fake_host::kernel::FindMultipaths;
use hawser_testkit::sim::{iscsi, scsi};
use serde_json::json;

use super::*;

fn record(rig: &ConnectorRig) -> String {
    let portal = rig.info.data["target_portal"].as_str().unwrap().replace(':', ",");
    rig.host.kernel().edit(|tree| tree.text(format!("/etc/iscsi/nodes/{IQN}/{portal}")))
}

#[tokio::test(start_paused = true)]
async fn one_login_is_all_that_is_run() {
    let rig = single();

    rig.connect().await.unwrap();

    assert_eq!(iscsi::counts(rig.host.kernel()), (1, 1));
    assert_eq!(scsi::wide_scans(rig.host.kernel()), 0);
    rig.connect().await.unwrap();
    assert_eq!(iscsi::counts(rig.host.kernel()), (1, 1), "nothing more for what is there");
}

#[tokio::test(start_paused = true)]
async fn a_record_has_what_the_host_says_and_over_it_what_we_need() {
    let rig = with_chap();
    rig.host.kernel().file(
        "/etc/iscsi/iscsid.conf",
        "# a comment = x\nnode.startup = automatic\nnode.session.timeo.replacement_timeout = 7\n\
         node.session.auth.username_in = <empty>\ndiscovery.sendtargets.x = 1\nbroken line\n",
    );

    rig.connect().await.unwrap();

    let text = record(&rig);
    for line in [
        "node.startup = manual",
        "node.session.scan = manual",
        "node.session.initial_login_retry_max = 0",
        "node.session.timeo.replacement_timeout = 7",
        "node.session.auth.authmethod = CHAP",
        "node.session.auth.username = user1",
        "iface.transport_name = tcp",
    ] {
        assert!(text.lines().any(|its| its == line), "{line} is not in:\n{text}");
    }
    assert!(!text.contains("discovery.") && !text.contains("<empty>"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_record_of_somebody_else_is_used_and_put_back() {
    let rig = with_chap();
    let portal = rig.info.data["target_portal"].as_str().unwrap().replace(':', ",");
    let file = format!("/etc/iscsi/nodes/{IQN}/{portal},1/default");
    let theirs = "node.session.scan = auto\nnode.session.timeo.replacement_timeout = 9\n";
    rig.host.kernel().file(&file, theirs);

    rig.connect().await.unwrap();
    let after = rig.host.kernel().edit(|tree| tree.text(&file));
    rig.disconnect(&rig.intent()).await.unwrap();

    assert_eq!(after, theirs.trim(), "it is back as soon as the login is through");
    assert_eq!(rig.host.kernel().edit(|tree| tree.text(&file)), theirs.trim());
    assert_eq!(iscsi::sessions(rig.host.kernel()).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_database_that_is_elsewhere_is_found_by_asking() {
    let rig = single();
    // As on a host where open-iscsi was never used.
    for folder in ["nodes", "send_targets", "ifaces"] {
        rig.host.kernel().remove_all(format!("/etc/iscsi/{folder}"));
    }

    rig.connect().await.unwrap();

    assert!(record(&rig).contains("node.session.scan = manual"));
    rig.disconnect(&rig.intent()).await.unwrap();
    assert_eq!(record(&rig), "");
}

#[tokio::test(start_paused = true)]
async fn every_failure_has_its_word() {
    let rig = single();
    let with = |key: &str, value: serde_json::Value| {
        let mut info = rig.info.clone();
        info.data.insert(key.into(), value);
        info
    };
    let attach = Attach { deadline: Duration::from_secs(10), ..Attach::default() };
    let closed = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let refused = closed.local_addr().unwrap().to_string();
    drop(closed);

    for (info, reason) in [
        (with("target_portal", json!(refused)), Reason::PortalRefused),
        (with("target_iqn", json!("iqn.2020-01.org.example:nobody")), Reason::TargetNotFound),
        (with("target_lun", json!(77)), Reason::LunNotFound),
    ] {
        let before = rig.host.snapshot();
        let error = Iscsi.connect(&rig.host, &info, &attach).await.unwrap_err();
        assert_eq!(error.reason(), Some(reason), "{error:?}");
        assert_ne!(error.outcome(), Outcome::Unknown, "{error:?}");
        assert_eq!(before.difference(&rig.host.snapshot()), "", "{reason:?}");
    }
    iscsi::set_daemon(rig.host.kernel(), false);
    let error = rig.connect().await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::ToolOrModuleMissing), "{error:?}");
    assert!(error.sentence().contains("iscsid"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wrong_secret_is_told_and_not_tried_again() {
    let mut rig = with_chap();
    rig.info.secrets.insert("auth_password".into(), hawser_core::secret::Secret::new("wrong-one"));
    let before = rig.host.snapshot();

    let error = rig.connect().await.unwrap_err();

    assert_eq!((error.kind(), error.reason()), (Kind::Denied, Some(Reason::AuthFailed)));
    assert_eq!(iscsi::counts(rig.host.kernel()), (0, 1));
    assert_eq!(before.difference(&rig.host.snapshot()), "");
}

#[tokio::test(start_paused = true)]
async fn sessions_of_others_are_used_and_stay() {
    let rig = single();
    let portal = rig.info.data["target_portal"].as_str().unwrap().to_owned();
    let tool = |args: &[&str]| hawser_core::port::host::Tool::new("iscsiadm").args(args.to_vec());
    for last in [["-o", "new"].as_slice(), &["--login"]] {
        let args = [["-m", "node", "-T", IQN, "-p", portal.as_str()].as_slice(), last].concat();
        assert_eq!(rig.host.run(&tool(&args)).await.unwrap().code, Some(0));
    }
    let before = iscsi::sessions(rig.host.kernel());

    rig.connect().await.unwrap();
    rig.disconnect(&rig.intent()).await.unwrap();

    assert_eq!(iscsi::sessions(rig.host.kernel()), before);
}

#[tokio::test(start_paused = true)]
async fn a_login_of_which_nothing_was_heard_is_finished_and_ended() {
    let rig = single();
    let before = rig.host.snapshot();
    let silent = hawser_core::Error::new(Kind::Timeout, "no answer");
    rig.host.fail_next("run", silent.with_outcome(Outcome::Unknown));

    let error = rig.connect().await.unwrap_err();

    assert_eq!(error.outcome(), Outcome::RolledBack, "{error:?}");
    // iscsid may have gone on with the first one: only a session that is there can be ended.
    assert_eq!(iscsi::counts(rig.host.kernel()), (1, 1));
    assert_eq!(iscsi::sessions(rig.host.kernel()).len(), 0);
    assert_eq!(before.difference(&rig.host.snapshot()), "");
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_with_its_last_volume() {
    let storage = Storage::new(1);
    let data = one_way(&storage.portals[0]);
    let mut second = info(json!({ "target_portal": storage.portals[0], "target_iqn": IQN,
        "target_lun": 2, "volume_id": "v2" }));
    second.identity = Some(Identity::new("wwid", format!("3{OTHER}")));
    let rig = storage.rig(data);
    let other = hawser_core::attach::AttachRecord { info: second.clone(), ..rig.intent() };
    rig.connect().await.unwrap();
    Iscsi.connect(&rig.host, &second, &Attach::default()).await.unwrap();
    assert_eq!(iscsi::counts(rig.host.kernel()).0, 1, "one session for both");

    rig.disconnect(&rig.intent()).await.unwrap();
    assert_eq!(iscsi::sessions(rig.host.kernel()).len(), 1);
    rig.disconnect(&other).await.unwrap();

    assert_eq!(iscsi::sessions(rig.host.kernel()).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_volume_whose_device_is_gone_keeps_its_session() {
    let storage = Storage::new(1);
    let data = one_way(&storage.portals[0]);
    let second = info(json!({ "target_portal": storage.portals[0], "target_iqn": IQN,
        "target_lun": 2, "volume_id": "v2" }));
    let second = ConnectionInfo { identity: None, ..second };
    let rig = storage.rig(data);
    rig.connect().await.unwrap();
    let attached = Iscsi.connect(&rig.host, &second, &Attach::default()).await.unwrap();
    let name = attached.get().path().file_name().unwrap().to_string_lossy().into_owned();
    let delete = format!("/sys/block/{name}/device/delete");
    rig.host.files().write(delete.as_ref(), b"1", Duration::from_secs(1)).await.unwrap();

    rig.disconnect(&rig.intent()).await.unwrap();

    assert_eq!(iscsi::sessions(rig.host.kernel()).len(), 1, "the other volume needs it");
    let again = Iscsi.connect(&rig.host, &second, &Attach::default()).await.unwrap();
    assert!(again.is_made(), "and gets its device back through it");
    assert_eq!(iscsi::counts(rig.host.kernel()).0, 1);
}

#[tokio::test(start_paused = true)]
async fn one_dead_portal_leaves_the_others() {
    let mut rig = two_paths(FindMultipaths::Strict);
    let closed = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let dead = closed.local_addr().unwrap().to_string();
    drop(closed);
    for (key, value) in
        [("target_portals", json!(dead)), ("target_iqns", json!(IQN)), ("target_luns", json!(1))]
    {
        rig.info.data[key].as_array_mut().unwrap().push(value);
    }
    let before = rig.host.snapshot();

    let attached = rig.connect().await.unwrap();

    let map = attached.get().path().file_name().unwrap().to_string_lossy().into_owned();
    assert!(map.starts_with("dm-"));
    assert_eq!(
        rig.host.files().list(format!("/sys/block/{map}/slaves").as_ref()).unwrap().len(),
        2
    );
    rig.disconnect(&rig.record(attached.get())).await.unwrap();
    assert_eq!(before.difference(&rig.host.snapshot()), "");
}

#[tokio::test(start_paused = true)]
async fn a_way_that_leads_to_another_volume_spoils_the_attach() {
    let storage = Storage::new(2);
    storage.host.kernel().multipathd(FindMultipaths::Greedy);
    storage.host.kernel().volatile("/etc/multipath/wwids");
    let mut data = many_ways(&storage);
    data["target_luns"] = json!([1, 2]);
    let mut rig = storage.rig(data);
    rig.info.identity = None;
    rig.attach.multipath = Multipath::Wanted;
    let before = rig.host.snapshot();

    let error = rig.connect().await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::IdentityMismatch), "{error:?}");
    assert_eq!(before.difference(&rig.host.snapshot()), "");
}

#[tokio::test(start_paused = true)]
async fn one_path_that_multipathd_takes_is_given_as_its_map() {
    for (find, map) in [(FindMultipaths::Greedy, true), (FindMultipaths::Strict, false)] {
        let rig = single();
        rig.host.kernel().multipathd(find);

        let attached = rig.connect().await.unwrap();

        let device = attached.get().path().to_string_lossy().into_owned();
        assert_eq!(device.starts_with("/dev/dm-"), map, "{find:?}: {device}");
        assert_eq!(rig.connect().await.unwrap(), Change::Already(attached.into_inner()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_portal_that_went_silent_is_told_by_health() {
    let rig = two_paths(FindMultipaths::Strict);
    let attached = rig.connect().await.unwrap();
    let record = rig.record(attached.get());
    let portal = rig.info.data["target_portals"][0].as_str().unwrap().to_owned();
    iscsi::set_portal(rig.host.kernel(), &portal, iscsi::PortalState::Silent);

    let health = Iscsi.health(&rig.host, &record).await.unwrap();
    let refused = Iscsi.extend(&rig.host, &record).await.unwrap_err();

    assert!(!health.healthy && health.message.contains("FAILED"), "{health:?}");
    assert_eq!(refused.reason(), Some(Reason::PathsDown));
    rig.disconnect(&record).await.expect("one path is enough to flush");
}

#[tokio::test(start_paused = true)]
async fn a_map_that_has_not_noticed_that_its_paths_run_is_waited_for() {
    let rig = two_paths(FindMultipaths::Strict);
    let attached = rig.connect().await.unwrap();
    let record = rig.record(attached.get());
    let (maps, files) = (rig.host.maps(), rig.host.files());
    let disk = attached.get().path().file_name().unwrap().to_string_lossy().into_owned();
    let name = files.read_text(format!("/sys/block/{disk}/dm/name").as_ref()).unwrap().unwrap();
    let table = maps.table(&name).await.unwrap().remove(0).parameters;
    let numbers: Vec<&str> = table.split_whitespace().filter(|word| word.contains(':')).collect();
    assert_eq!(numbers.len(), 2, "{table}");
    let tell = async |verb: &str| {
        for number in &numbers {
            maps.message(&name, &format!("{verb} {number}")).await.unwrap();
        }
    };

    // What multipathd had yet to hear of.
    rig.host.events().subscribe().changed(Duration::from_secs(1)).await;
    tell("fail_path").await;
    let refused = rig.disconnect(&record).await.unwrap_err();
    let notice = async {
        tokio::time::sleep(Duration::from_secs(4)).await;
        tell("reinstate_path").await;
    };
    let (detached, ()) = tokio::join!(rig.disconnect(&record), notice);

    assert!(refused.sentence().contains("no path that works"), "{refused:?}");
    detached.unwrap();
}
