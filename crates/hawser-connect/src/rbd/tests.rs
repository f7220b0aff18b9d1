use std::time::Duration;

use hawser_core::attach::{Attach, AttachRecord, Detach, Identity};
use hawser_core::connection::ConnectionInfo;
use hawser_core::{ByteSize, Change, Kind, Outcome, Reason};
use hawser_testkit::contract::connector::ConnectorRig;
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::fake_host::kernel::Lun;
use hawser_testkit::sim::rbd::{self, Cluster};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Rbd, data, mapped};

const FSID: &str = "5e3f8b1c-0000-4000-8000-000000000001";
const OTHER_FSID: &str = "5e3f8b1c-0000-4000-8000-000000000002";
const KEY: &str = "QVFBaGF3c2VydGVzdGtleQ==";

fn info(data: Value) -> ConnectionInfo {
    serde_json::from_value(json!({ "driver_volume_type": "rbd", "data": data })).unwrap()
}

fn data_of(name: &str) -> Value {
    json!({ "name": name, "hosts": ["192.0.2.1"], "ports": ["6789"], "cluster_name": "ceph",
            "auth_username": "cinder", "secret": KEY })
}

fn identity(id: &str) -> Identity {
    Identity::new("rbd", format!("{FSID}/volumes/{id}"))
}

/// Two clusters; in the first one several images of the same name.
fn host_with(volume: &Lun) -> FakeHost {
    let host = FakeHost::new();
    let bystander = Lun::new(ByteSize::mib(32));
    let near = Cluster::new(FSID, "192.0.2.1:6789")
        .with_monitor("192.0.2.2:6789")
        .with_monitor("192.0.2.1:3300")
        .with_user("cinder", KEY)
        .with_image("volumes/v1", "1a2b", volume)
        .with_snapshot("volumes/v1", "s1")
        .with_image("volumes/ns/v1", "2a2b", &bystander)
        .with_image("others/v1", "3a2b", &bystander)
        .with_image("volumes/strange", "4a2b", &bystander)
        .with_strange("volumes/strange");
    let far =
        Cluster::new(OTHER_FSID, "198.51.100.1:6789").with_image("volumes/v1", "5a2b", volume);
    rbd::install(host.kernel(), [near, far]);
    host
}

fn rig_of(data: Value) -> ConnectorRig {
    let volume = Lun::new(ByteSize::mib(64));
    let host = host_with(&volume);
    ConnectorRig::new(&Rbd, host, info(data), ()).on_grow(move |_| {
        volume.resize(ByteSize::mib(128));
        ByteSize::mib(128)
    })
}

fn rig() -> ConnectorRig {
    let mut rig = rig_of(data_of("volumes/v1"));
    rig.info.identity = Some(identity("1a2b"));
    // The administrator removed the image, made another of its name, and mapped that.
    rig.on_swap(|host| {
        let other = Lun::new(ByteSize::mib(64));
        rbd::replace_image(host.kernel(), FSID, "volumes/v1", "9a9b", &other);
        if rbd::unmap_by_hand(host.kernel(), 0).is_ok() {
            map_by_hand(host, "192.0.2.1:6789", "volumes v1");
        }
    })
}

fn map_by_hand(host: &FakeHost, monitor: &str, image: &str) -> u32 {
    let text = format!("{monitor} name=cinder,secret={KEY} {image} -");
    rbd::map_by_hand(host.kernel(), &text).unwrap()
}

hawser_testkit::connector_contract!(rig());

#[tokio::test(start_paused = true)]
async fn what_the_cluster_refuses_is_told_apart_and_leaves_nothing() {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut data = data_of("volumes/v1");
        change(&mut data);
        data
    };
    for (data, kind, reason) in [
        (with(&|d| d["name"] = json!("volumes/none")), Kind::NotFound, Some(Reason::LunNotFound)),
        (with(&|d| d["name"] = json!("volumes/v1@no")), Kind::NotFound, Some(Reason::LunNotFound)),
        (with(&|d| d["name"] = json!("volumes/strange")), Kind::Unsupported, None),
        (with(&|d| d["secret"] = json!("QUJD")), Kind::Denied, Some(Reason::AuthFailed)),
        (with(&|d| d["auth_username"] = json!("eve")), Kind::Denied, Some(Reason::AuthFailed)),
        (with(&|d| d["auth_enabled"] = json!(false)), Kind::Denied, Some(Reason::AuthFailed)),
        (
            with(&|d| d["hosts"] = json!(["203.0.113.9"])),
            Kind::Timeout,
            Some(Reason::PortalTimeout),
        ),
    ] {
        let rig = rig_of(data.clone());
        let before = rig.host.snapshot();

        let error = rig.connect().await.unwrap_err();

        assert_eq!(error.kind(), kind, "{data}: {error:?}");
        assert_eq!(error.outcome(), Outcome::Nothing, "{data}: {error:?}");
        assert!(reason.is_none() || error.reason() == reason, "{data}: {error:?}");
        assert_eq!(rig.host.snapshot(), before, "{data}");
    }
}

#[tokio::test(start_paused = true)]
async fn silent_monitors_are_given_up_in_time() {
    let rig = rig();
    for monitor in ["192.0.2.1:6789", "192.0.2.2:6789"] {
        rbd::silence(rig.host.kernel(), monitor);
    }
    let attach = Attach { deadline: Duration::from_secs(7), ..Attach::default() };
    let began = tokio::time::Instant::now();

    let error = rig.connect_as(&attach).await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::PortalTimeout), "{error:?}");
    assert!(began.elapsed() <= Duration::from_secs(8), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn case_19_images_of_the_same_name_elsewhere_are_left_alone() {
    let rig = rig_of(data_of("volumes/v1"));
    map_by_hand(&rig.host, "192.0.2.1:6789", "others v1");
    map_by_hand(&rig.host, "198.51.100.1:6789", "volumes v1");
    let text = format!("192.0.2.1:6789 name=cinder,secret={KEY},_pool_ns=ns volumes v1 -");
    rbd::map_by_hand(rig.host.kernel(), &text).unwrap();
    let text = format!("192.0.2.1:6789 name=cinder,secret={KEY},ro volumes v1 s1");
    rbd::map_by_hand(rig.host.kernel(), &text).unwrap();
    let before = rig.host.snapshot();
    assert_eq!(rig.disconnect(&rig.intent()).await.unwrap(), Change::Already(()));
    assert_eq!(rig.host.snapshot(), before);

    let made = rig.connect().await.unwrap();

    assert!(made.is_made());
    assert_eq!(made.get().identity(), Some(&identity("1a2b")));
    assert!(rig.disconnect(&rig.intent()).await.unwrap().is_made());
    assert_eq!(rig.host.snapshot(), before);
}

#[tokio::test(start_paused = true)]
async fn the_same_image_by_another_monitor_is_not_mapped_twice() {
    let rig = rig_of(data_of("volumes/v1"));
    let number = map_by_hand(&rig.host, "192.0.2.2:6789", "volumes v1");
    let before = rig.host.snapshot();

    let found = rig.connect().await.unwrap();

    assert!(!found.is_made());
    assert_eq!(found.get().path().to_str(), Some(format!("/dev/rbd{number}").as_str()));
    assert_eq!(rig.host.snapshot(), before);
    let record = rig.record(found.get());
    assert!(rig.disconnect(&record).await.unwrap().is_made(), "found by its identity");
}

#[tokio::test(start_paused = true)]
async fn two_mappings_of_a_cut_off_attach_both_go() {
    let rig = rig();
    map_by_hand(&rig.host, "192.0.2.1:6789", "volumes v1");
    map_by_hand(&rig.host, "192.0.2.1:6789", "volumes v1");

    assert!(rig.disconnect(&rig.intent()).await.unwrap().is_made());

    assert_eq!(rig.connector.lookup(&rig.host, &rig.info).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn an_identity_of_another_cluster_is_refused_and_taken_back() {
    let mut rig = rig();
    rig.info.identity = Some(Identity::new("rbd", format!("{OTHER_FSID}/volumes/1a2b")));
    let before = rig.host.snapshot();

    let error = rig.connect().await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::IdentityMismatch), "{error:?}");
    assert_eq!(error.outcome(), Outcome::RolledBack, "{error:?}");
    assert_eq!(rig.host.snapshot(), before);
}

#[tokio::test(start_paused = true)]
async fn images_without_an_id_are_not_taken_for_each_other() {
    let host = FakeHost::new();
    let (one, two) = (Lun::new(ByteSize::mib(8)), Lun::new(ByteSize::mib(16)));
    let cluster = Cluster::new(FSID, "192.0.2.1:6789")
        .with_user("cinder", KEY)
        .with_image("volumes/old1", "", &one)
        .with_image("volumes/old2", "", &two);
    rbd::install(host.kernel(), [cluster]);
    let mut rig = ConnectorRig::new(&Rbd, host, info(data_of("volumes/old1")), ());

    let first = rig.connect().await.unwrap().into_inner();
    rig.info = info(data_of("volumes/old2"));
    let second = rig.connect().await.unwrap();

    assert!(second.is_made());
    assert_ne!(second.get().path(), first.path());
    assert_eq!(first.identity(), None, "nothing tells it from others");
    assert!(rig.disconnect(&rig.record(second.get())).await.unwrap().is_made());
}

#[tokio::test(start_paused = true)]
async fn snapshots_are_devices_of_their_own_that_refuse_writes() {
    let rig = rig_of(data_of("volumes/v1@s1"));
    let live = rig_of(data_of("volumes/v1"));

    let made = rig.connect().await.unwrap();

    assert!(rig.host.refuses_writes(made.get().path()));
    let found = identity("1a2b@s1");
    assert_eq!(made.get().identity(), Some(&found));
    let others = AttachRecord { info: live.info.clone(), ..rig.intent() };
    assert_eq!(rig.disconnect(&others).await.unwrap(), Change::Already(()));
    assert!(rig.disconnect(&rig.record(made.get())).await.unwrap().is_made());
}

#[tokio::test(start_paused = true)]
async fn another_mode_than_the_mapped_one_is_refused() {
    let rig = rig();
    let read_only = Attach { read_only: true, ..Attach::default() };
    rig.connect_as(&read_only).await.unwrap();

    let error = rig.connect().await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::DeviceReadOnly), "{error:?}");
    assert!(!rig.connect_as(&read_only).await.unwrap().is_made());
    rig.disconnect(&rig.intent()).await.unwrap();
    rig.connect().await.unwrap();
    let error = rig.connect_as(&read_only).await.unwrap_err();
    assert_eq!((error.kind(), error.reason()), (Kind::Precondition, None), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn the_key_comes_from_the_hosts_keyring_when_none_is_given() {
    let mut data = data_of("volumes/v1");
    data["secret"] = Value::Null;
    let rig = rig_of(data);

    let error = rig.connect().await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::AuthFailed), "{error:?}");
    assert!(error.sentence().contains("/etc/ceph/ceph.client.cinder.keyring"), "{error:?}");
    let keyring = format!("[client.cinder]\n\tkey = {KEY}\n");
    rig.host.kernel().file("/etc/ceph/ceph.client.cinder.keyring", keyring);

    assert!(rig.connect().await.unwrap().is_made());
}

#[tokio::test(start_paused = true)]
async fn a_program_that_has_it_open_keeps_it_without_force() {
    let rig = rig();
    let attached = rig.connect().await.unwrap().into_inner();
    let open = hawser_core::port::Host::disks(&rig.host).open(attached.path()).await.unwrap();

    let error = rig.disconnect(&rig.record(&attached)).await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::DeviceBusy), "{error:?}");
    let forced = Detach { force: true, ..Detach::default() };
    assert!(rig.disconnect_as(&rig.record(&attached), &forced).await.unwrap().is_made());
    drop(open);
}

#[test]
fn names_hosts_and_keys_of_every_form_are_read() {
    let keyring = "[client.other]\n key = AAAA\n[client.cinder]\n\tkey = QVFB\n";
    let image = data::read(&info(json!({
        "name": "volumes/ns/v1@s", "hosts": ["192.0.2.1", "2001:db8::1"], "ports": ["6789", 6790],
        "auth_username": "cinder", "keyring": keyring,
    })))
    .unwrap();

    assert_eq!(image.name(), "volumes/ns/v1@s");
    assert_eq!(image.monitors(), "192.0.2.1:6789,[2001:db8::1]:6790");
    let key = hawser_core::secret::Secret::new("QVFB");
    assert_eq!(
        image.request(Some(&key), false, 30),
        "192.0.2.1:6789,[2001:db8::1]:6790 \
         name=cinder,secret=QVFB,mount_timeout=30,_pool_ns=ns,ro volumes v1 s"
    );
    assert!(!format!("{image:?}").contains("QVFB"), "a secret is shown");
}

#[test]
fn the_messenger_is_chosen_by_what_the_monitors_have() {
    for (more, monitors, mode) in [
        (json!({ "mon_addrs": ["192.0.2.1"] }), "192.0.2.1:6789", None),
        (json!({ "mon_addrs": ["192.0.2.1:3300"] }), "192.0.2.1:3300", Some("prefer-crc")),
        (json!({ "mon_addrs": ["v2:192.0.2.1"] }), "192.0.2.1:3300", Some("prefer-crc")),
        (
            json!({ "mon_addrs": ["[v2:192.0.2.1:3300/0,v1:192.0.2.1:6789/0]", "192.0.2.2:6789"] }),
            "192.0.2.1:6789,192.0.2.2:6789",
            None,
        ),
        (
            json!({ "mon_addrs": "[v2:[2001:db8::1]:3300/0,v1:[2001:db8::1]:6789/0]", "ms_mode": "secure" }),
            "[2001:db8::1]:3300",
            Some("secure"),
        ),
        (
            json!({ "hosts": ["192.0.2.1"], "ports": [7000], "ms_mode": "crc" }),
            "192.0.2.1:7000",
            Some("crc"),
        ),
    ] {
        let mut data = more.clone();
        data["name"] = json!("p/i");
        let image = data::read(&info(data)).unwrap();

        assert_eq!(image.monitors(), monitors, "{more}");
        let text = image.request(None, false, 30);
        let said = mode.map(|mode| format!("ms_mode={mode}"));
        assert!(said.as_ref().is_none_or(|said| text.contains(said)), "{more}: {text}");
        assert_eq!(text.contains("ms_mode"), said.is_some(), "{more}: {text}");
    }
}

#[test]
fn what_cannot_be_meant_is_refused_by_its_field() {
    for (data, field) in [
        (json!({ "hosts": ["192.0.2.1"] }), "name"),
        (json!({ "name": "image", "hosts": ["192.0.2.1"] }), "name"),
        (json!({ "name": "a/b/c/d", "hosts": ["192.0.2.1"] }), "name"),
        (json!({ "name": "pool/im age", "hosts": ["192.0.2.1"] }), "name"),
        (json!({ "name": "p/i" }), "hosts"),
        (json!({ "name": "p/i", "hosts": ["mon.example"] }), "hosts"),
        (json!({ "name": "p/i", "mon_addrs": ["v1:mon.example"] }), "mon_addrs"),
        (json!({ "name": "p/i", "hosts": ["192.0.2.1"], "ports": [1, 2] }), "ports"),
        (json!({ "name": "p/i", "hosts": ["192.0.2.1"], "ms_mode": "loud" }), "ms_mode"),
        (json!({ "name": "p/i", "hosts": ["192.0.2.1"], "auth_username": "a,b" }), "auth_username"),
        (json!({ "name": "p/i", "hosts": ["192.0.2.1"], "secret": "no key!" }), "secret"),
        (json!({ "name": "p/i", "hosts": ["192.0.2.1"], "cluster_name": "../x" }), "cluster_name"),
    ] {
        let said = data::read(&info(data.clone())).unwrap_err().to_string();
        assert!(said.contains(&format!(": {field} ")), "{data}: {said}");
        assert!(!said.contains("no key!"), "{said}");
    }
}

proptest! {
    #[test]
    fn any_name_and_keyring_is_read_or_refused(name in "\\PC{0,30}", keyring in "\\PC{0,60}") {
        let _ = data::read(&info(json!({ "name": name, "hosts": ["192.0.2.1"], "keyring": keyring })));
    }

    #[test]
    fn any_monitor_is_read_or_refused(monitor in "(v1:|v2:|\\[|\\]|/0|,|:|[0-9a-f.]|\\PC){0,24}") {
        let _ = data::read(&info(json!({ "name": "p/i", "mon_addrs": [monitor] })));
    }
}

hawser_testkit::fuzz_corpus!(keyring, "ceph_keyring", |bytes| {
    let keyring = String::from_utf8_lossy(bytes);
    let _ = data::read(&info(json!({ "name": "p/i", "hosts": ["192.0.2.1"], "keyring": keyring })));
});

hawser_testkit::fuzz_corpus!(config_info, "rbd_config_info", |bytes| {
    let text = String::from_utf8_lossy(bytes);
    let monitors = mapped::monitors_in(&text);
    assert!(text.trim_start().starts_with(monitors) && !monitors.contains(char::is_whitespace));
    let image = data::read(&info(data_of("volumes/v1"))).unwrap();
    let shared = monitors.split(',').any(|monitor| monitor == "192.0.2.1:6789");
    assert_eq!(image.shares_monitor(monitors), shared, "{monitors}");
});
