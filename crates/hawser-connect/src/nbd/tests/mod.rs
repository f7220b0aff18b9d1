//! The connector over a fake kernel and a real handshake.

mod server;
mod talking;

use std::sync::Arc;
use std::time::Duration;

use hawser_core::attach::{AttachState, Identity};
use hawser_core::connection::Protocol;
use hawser_core::{Error, Kind, Outcome, Reason};
use hawser_testkit::contract::connector::ConnectorRig;
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::fake_host::kernel::Lun;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use data::Place;
use server::{Manners, Server};

fn info(data: Value) -> ConnectionInfo {
    let Value::Object(data) = data else { panic!("data is an object") };
    ConnectionInfo::new(Protocol::new("nbd"), data, None)
}

fn host() -> FakeHost {
    let host = FakeHost::new();
    host.kernel().edit(|tree| tree.load_nbd(2));
    host
}

fn rig_at(server: &Arc<Server>, data: Value) -> ConnectorRig {
    let mut info = info(data);
    info.identity = Some(Identity::new("nbd", "v1"));
    let grown = Arc::clone(server);
    ConnectorRig::new(&Nbd, host(), info, Arc::clone(server)).on_grow(move |host| {
        host.kernel().edit(|tree| tree.lun_of("nbd0").unwrap().resize(ByteSize::mib(16)));
        grown.change(|manners| manners.size = 16 << 20);
        ByteSize::mib(16)
    })
}

fn rig_with(manners: Manners) -> (ConnectorRig, Arc<Server>) {
    let server = Arc::new(Server::new(manners));
    let data = json!({ "unix_socket": server.socket(), "export_name": "vol1", "volume_id": "v1" });
    (rig_at(&server, data), server)
}

fn rig() -> ConnectorRig {
    rig_with(Manners::default()).0
}

/// Over TCP, with two connections.
fn tcp_rig_with(mut manners: Manners) -> (ConnectorRig, Arc<Server>) {
    manners.flags |= wire::CAN_MULTI_CONN;
    let server = Arc::new(Server::new(manners));
    let data = json!({ "host": "127.0.0.1", "port": server.port(), "export_name": "vol1",
        "volume_id": "v1", "connections": 2 });
    (rig_at(&server, data), server)
}

fn tcp_rig() -> ConnectorRig {
    tcp_rig_with(Manners::default()).0
}

hawser_testkit::connector_contract!(rig());
hawser_testkit::connector_contract!(tcp_contract, tcp_rig());

fn size_of(attached: &Attached) -> u64 {
    match attached {
        Attached::Block { size, .. } => size.get(),
        Attached::Directory { .. } | Attached::File { .. } => panic!("no device"),
    }
}

async fn connect(rig: &ConnectorRig, attach: &Attach) -> Result<Change<Attached>> {
    Nbd.connect(&rig.host, &rig.info, attach).await
}

fn read_only() -> Attach {
    Attach { read_only: true, ..Attach::default() }
}

#[tokio::test]
async fn an_export_becomes_a_device_of_its_size_that_names_it() {
    let (rig, server) = rig_with(Manners::default());

    let attached = rig.connect().await.unwrap().into_inner();

    assert_eq!(attached.path().to_str(), Some("/dev/nbd0"));
    assert_eq!(size_of(&attached), 8 << 20);
    assert_eq!(attached.identity(), Some(&Identity::new("nbd", "v1")));
    let backend = rig.host.kernel().edit(|tree| tree.text("/sys/block/nbd0/backend"));
    assert!(backend.starts_with("nbd+unix:///vol1?socket="), "{backend}");
    assert!(backend.ends_with("#v1"), "{backend}");
    server.assert_taken(1);
}

#[tokio::test]
async fn several_connections_are_made_only_where_the_server_allows_them() {
    for (many, expected) in [(true, 3), (false, 1)] {
        let flags = Manners::default().flags | if many { wire::CAN_MULTI_CONN } else { 0 };
        let (mut rig, server) = rig_with(Manners { flags, ..Manners::default() });
        rig.info.data.insert("connections".into(), json!("3"));

        rig.connect().await.unwrap();

        server.assert_taken(expected);
    }
}

#[tokio::test]
async fn an_export_that_refuses_writes_is_only_taken_read_only() {
    let flags = Manners::default().flags | wire::READ_ONLY;
    let (rig, _server) = rig_with(Manners { flags, ..Manners::default() });

    let error = rig.connect().await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::DeviceReadOnly), "{error:?}");
    connect(&rig, &read_only()).await.unwrap();

    assert!(rig.host.kernel().edit(|tree| tree.is_read_only("nbd0")));
}

#[tokio::test]
async fn read_only_is_honoured_and_the_other_mode_is_refused_with_advice() {
    let rig = rig();
    connect(&rig, &read_only()).await.unwrap();
    assert!(rig.host.kernel().edit(|tree| tree.is_read_only("nbd0")));

    let error = rig.connect().await.unwrap_err();

    assert_eq!(error.kind(), Kind::Precondition);
    let said = error.sentence();
    assert!(said.contains("read-only, and was asked for read-write"), "{said}");
}

#[tokio::test]
async fn a_second_volume_over_the_same_export_is_refused() {
    let mut rig = rig();
    rig.connect().await.unwrap();
    rig.info.identity = None;
    rig.info.data.insert("volume_id".into(), json!("v2"));

    let error = rig.connect().await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::DeviceBusy), "{error:?}");
    assert_eq!(rig.disconnect(&rig.intent()).await.unwrap(), Change::Already(()));
}

/// The first attach was given up by its caller, and the kernel goes on with it.
#[tokio::test]
async fn an_attach_that_comes_through_late_leaves_one_device() {
    for rig in [rig(), tcp_rig()] {
        rig.connect().await.unwrap();
        let backend = "/sys/block/nbd0/backend";
        let known = rig.host.kernel().edit(|tree| {
            let known = tree.text(backend);
            tree.remove(backend);
            known
        });
        rig.host.kernel().on_nbd(move |tree, ask| {
            tree.value(backend, &known);
            Ok(Lun::new(ByteSize::bytes(ask.size)))
        });

        let again = rig.connect().await.unwrap();

        assert!(!again.is_made(), "{again:?}");
        assert_eq!(again.get().path().to_str(), Some("/dev/nbd0"));
        let second = rig.host.kernel().edit(|tree| tree.exists("/sys/block/nbd1/backend"));
        assert!(!second, "one export, one device");
        let record = rig.intent();
        assert!(Nbd.health(&rig.host, &record).await.unwrap().healthy);
        assert!(rig.disconnect(&record).await.unwrap().is_made());
    }
}

#[tokio::test]
async fn a_device_that_does_not_answer_gets_new_connections() {
    let (rig, server) = rig_with(Manners::default());
    let first = rig.connect().await.unwrap().into_inner();
    rig.host.kernel().edit(|tree| tree.set_online("nbd0", false));
    let record = rig.record(&first);
    let health = Nbd.health(&rig.host, &record).await.unwrap();
    assert!(!health.healthy && health.message.contains("does not answer"), "{health:?}");

    let again = rig.connect().await.unwrap();

    assert_eq!(again, Change::Already(first));
    server.assert_taken(2);
    assert!(Nbd.health(&rig.host, &record).await.unwrap().healthy);
}

#[tokio::test]
async fn a_dead_device_without_a_server_is_an_error_and_stays() {
    let (rig, server) = rig_with(Manners::default());
    rig.connect().await.unwrap();
    rig.host.kernel().edit(|tree| tree.set_online("nbd0", false));
    server.hide();

    let error = rig.connect().await.unwrap_err();

    assert_eq!(error.outcome(), Outcome::Nothing, "{error:?}");
    assert_eq!(error.reason(), Some(Reason::TargetUnreachable), "{error:?}");
    assert!(Nbd.lookup(&rig.host, &rig.info).await.unwrap().is_some());
}

#[tokio::test]
async fn an_export_that_shrank_is_neither_revived_nor_extended() {
    let (rig, server) = rig_with(Manners::default());
    let attached = rig.connect().await.unwrap().into_inner();
    server.change(|manners| manners.size = 4 << 20);

    let error = Nbd.extend(&rig.host, &rig.record(&attached)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Precondition, "{error:?}");
    rig.host.kernel().edit(|tree| tree.set_online("nbd0", false));
    let error = rig.connect().await.unwrap_err();

    assert_eq!(error.kind(), Kind::Precondition, "{error:?}");
    assert_eq!(rig.host.kernel().edit(|tree| tree.size_of("nbd0")), 8 << 20);
}

#[tokio::test]
async fn a_grown_export_is_seen_in_whole_blocks() {
    let (rig, server) = rig_with(Manners::default());
    let attached = rig.connect().await.unwrap().into_inner();
    rig.host.kernel().edit(|tree| tree.lun_of("nbd0").unwrap().resize(ByteSize::mib(16)));
    server.change(|manners| manners.size = (16 << 20) + 100);

    let size = Nbd.extend(&rig.host, &rig.record(&attached)).await.unwrap();

    assert_eq!(size, ByteSize::mib(16));
    assert_eq!(rig.host.kernel().edit(|tree| tree.size_of("nbd0")), 16 << 20);
    server.assert_taken(1);
}

#[tokio::test]
async fn growth_that_the_old_connections_do_not_see_is_taken_back_and_told() {
    let (rig, server) = rig_with(Manners::default());
    let attached = rig.connect().await.unwrap().into_inner();
    server.change(|manners| manners.size = 16 << 20);
    rig.host.kernel().fail_next("Disk::read", 5);

    let error = Nbd.extend(&rig.host, &rig.record(&attached)).await.unwrap_err();

    assert_eq!(error.outcome(), Outcome::RolledBack, "{error:?}");
    assert!(error.sentence().contains("attach it again"), "{error:?}");
    assert_eq!(rig.host.kernel().edit(|tree| tree.size_of("nbd0")), 8 << 20);
}

#[tokio::test]
async fn a_device_that_is_held_is_not_taken_away_even_by_force() {
    let rig = rig();
    let attached = rig.connect().await.unwrap().into_inner();
    rig.host.kernel().folder("/sys/block/nbd0/holders/dm-0");
    let before = rig.host.snapshot();

    for force in [false, true] {
        let detach = Detach { force, ..Detach::default() };
        let error = Nbd.disconnect(&rig.host, &rig.record(&attached), &detach).await.unwrap_err();

        assert_eq!(error.reason(), Some(Reason::DeviceBusy), "{error:?}");
        assert!(error.sentence().contains("dm-0"), "{error:?}");
        assert_eq!(rig.host.snapshot(), before);
    }
}

#[tokio::test]
async fn a_failed_flush_keeps_the_device_and_force_passes_it() {
    let rig = rig();
    let attached = rig.connect().await.unwrap().into_inner();
    let record = rig.record(&attached);
    let broken = || rig.host.kernel().edit(|tree| tree.set_online("nbd0", false));
    rig.host.kernel().edit(|tree| tree.make_dirty("nbd0"));
    broken();

    let error = rig.disconnect(&record).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::FlushFailed), "{error:?}");
    assert!(Nbd.lookup(&rig.host, &rig.info).await.unwrap().is_some());
    let force = Detach { force: true, ..Detach::default() };
    let error = Nbd.disconnect(&rig.host, &record, &force).await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::DataLost), "{error:?}");
    assert!(Nbd.lookup(&rig.host, &rig.info).await.unwrap().is_none());
}

#[tokio::test]
async fn tls_is_refused_by_name_and_leaves_nothing_to_detach() {
    let mut rig = rig();
    rig.info.data.insert("tls".into(), json!({ "mode": "require" }));

    let error = rig.connect().await.unwrap_err();

    assert_eq!(error.kind(), Kind::Unsupported);
    assert_eq!(error.reason(), Some(Reason::UnsupportedProtocol));
    assert!(error.sentence().contains("tls.mode"), "{error:?}");
    assert_eq!(rig.disconnect(&rig.intent()).await.unwrap(), Change::Already(()));
}

#[tokio::test]
async fn dead_connections_of_several_are_seen_and_replaced_one_by_one() {
    let (rig, server) = tcp_rig_with(Manners::default());
    let attached = rig.connect().await.unwrap().into_inner();
    let record = rig.record(&attached);
    let target = data::read(&rig.info).unwrap();
    let noted = Notes::of(&rig.host, &target).read().unwrap();
    assert_eq!(noted.len(), 2);
    if links::end(vec![noted[0]]).await.is_err() {
        hawser_testkit::skip("sockets cannot be ended here: root, and a kernel built for it");
        return;
    }
    let health = Nbd.health(&rig.host, &record).await.unwrap();
    assert!(health.message.contains("1 of its 2 connections"), "{health:?}");

    let again = rig.connect().await.unwrap();

    assert_eq!(again, Change::Already(attached));
    server.assert_taken(3);
    let now = Notes::of(&rig.host, &target).read().unwrap();
    assert_eq!((now.len(), now[0]), (2, noted[1]), "the living one is kept");
}

#[tokio::test]
async fn connections_that_do_not_see_the_new_size_are_replaced() {
    let (rig, server) = tcp_rig_with(Manners::default());
    let attached = rig.connect().await.unwrap().into_inner();
    let target = data::read(&rig.info).unwrap();
    let noted = Notes::of(&rig.host, &target).read().unwrap();
    server.change(|manners| manners.size = 16 << 20);
    rig.host.kernel().edit(|tree| tree.lun_of("nbd0").unwrap().resize(ByteSize::mib(16)));

    let grown = Nbd.extend(&rig.host, &rig.record(&attached)).await;

    if grown.as_ref().is_err_and(|error| error.sentence().contains("not permitted")) {
        hawser_testkit::skip("sockets cannot be ended here: root is needed");
        return;
    }
    assert_eq!(grown.unwrap(), ByteSize::mib(16));
    server.assert_taken(4);
    assert_eq!(links::alive(noted).await, Some(vec![false, false]));
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up_at_the_deadline() {
    let (rig, _server) = rig_with(Manners { silent: true, ..Manners::default() });
    let attach = Attach { deadline: Duration::from_millis(300), ..Attach::default() };

    let error = connect(&rig, &attach).await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::PortalTimeout), "{error:?}");
    assert_eq!(error.outcome(), Outcome::Nothing);
}

#[tokio::test]
async fn a_record_of_another_path_is_told_by_health() {
    let rig = rig();
    let attached = rig.connect().await.unwrap().into_inner();
    let mut record = rig.record(&attached);
    record.state = AttachState::Attached;
    record.attached = Some(Attached::Block {
        device: "/dev/nbd7".into(),
        identity: None,
        size: ByteSize::mib(8),
    });

    let health = Nbd.health(&rig.host, &record).await.unwrap();

    assert!(!health.healthy && health.message.contains("/dev/nbd7"), "{health:?}");
}

fn refusal(data: Value) -> Error {
    data::read(&info(data)).map(|target| panic!("{target:?}")).unwrap_err().into()
}

#[test]
fn bad_data_is_refused_by_the_name_of_its_field() {
    let good = json!({ "host": "a", "export_name": "x" });
    for (field, value) in [
        ("export_name", json!(null)),
        ("export_name", json!(7)),
        ("export_name", json!("x".repeat(4097))),
        ("host", json!(null)),
        ("host", json!("")),
        ("host", json!("a b")),
        ("host", json!("a/b")),
        ("unix_socket", json!("/a")),
        ("port", json!(0)),
        ("port", json!(65536)),
        ("port", json!("x")),
        ("connections", json!(0)),
        ("connections", json!(17)),
        ("timeout", json!(0)),
        ("dead_conn_timeout", json!(-1)),
        ("readonly", json!("maybe")),
        ("access_mode", json!("x")),
        ("block_size", json!(1000)),
        ("block_size", json!(8192)),
        ("volume_id", json!("")),
        ("tls", json!("require")),
        ("tls.mode", json!(null)),
    ] {
        let mut data = good.clone();
        if field == "tls.mode" {
            data["tls"] = json!({ "mode": "perhaps" });
        } else {
            data[field] = value.clone();
        }
        let error = refusal(data);
        assert_eq!(error.kind(), Kind::Invalid, "{field}: {error:?}");
        assert_eq!(error.reason(), Some(Reason::InvalidParameters));
        assert!(error.sentence().contains(field), "{field} {value}: {}", error.sentence());
    }
    let error = refusal(json!({ "unix_socket": "s", "export_name": "" }));
    assert!(error.sentence().contains("unix_socket"), "{error:?}");
    let error = refusal(json!({ "host": "a", "export_name": "", "readonly": true,
        "accessMode": "rw" }));
    assert!(error.sentence().contains("disagree"), "{error:?}");
}

#[test]
fn both_spellings_and_every_form_of_a_host_are_read() {
    let snake = json!({ "host": "[FD00::1]", "port": "10810", "export_name": "",
        "dead_conn_timeout": 5, "readonly": true, "volume_id": 7 });
    let camel = json!({ "host": "fd00::1", "port": 10810, "exportName": "",
        "deadConnTimeout": "5", "accessMode": "ro", "volumeId": "7", "unixSocket": null });

    let target = data::read(&info(snake)).unwrap();

    assert_eq!(target, data::read(&info(camel)).unwrap());
    assert_eq!(target.uri(), "nbd://[fd00::1]:10810/");
    assert_eq!(target.place, Place::Tcp { host: "fd00::1".into(), port: 10810 });
    assert_eq!((target.dead_timeout, target.read_only), (Duration::from_secs(5), true));
    let plain = data::read(&info(json!({ "host": "h.example", "export_name": "a b#/c" }))).unwrap();
    assert_eq!(plain.backend(), "nbd://h.example:10809/a%20b%23%2Fc#");
}

#[test]
fn identities_that_nobody_can_check_are_refused() {
    let mut given = info(json!({ "host": "a", "export_name": "x", "volume_id": "v" }));
    for good in ["v", "nbd://a:10809/x"] {
        given.identity = Some(Identity::new("nbd", good));
        assert!(data::read(&given).is_ok(), "{good}");
    }
    given.identity = Some(Identity::new("serial", "v"));
    assert!(matches!(data::read(&given), Err(NbdError::OtherIdentity { .. })));
    given.identity = None;
    given.data.insert("wwn".into(), json!("3600"));
    let error = Error::from(data::read(&given).unwrap_err());
    assert_eq!(error.reason(), Some(Reason::IdentityMismatch));
}

proptest! {
    #[test]
    fn any_data_is_a_target_or_refused(
        key in "(host|unix_socket|port|export_name|connections|timeout|tls|volumeId|wwn)",
        text in "\\PC{0,30}",
        number: u64,
    ) {
        for value in [json!(text), json!(number), json!([text]), json!({ "mode": text })] {
            let mut data = Map::new();
            data.insert("host".into(), json!("a"));
            data.insert("export_name".into(), json!("x"));
            data.insert(key.clone(), value);
            if let Ok(target) = data::read(&info(Value::Object(data))) {
                prop_assert!(target.backend().len() < 4000);
                prop_assert!(target.shares_export(&target.backend()));
                prop_assert!(!target.backend().contains(char::is_whitespace));
            }
        }
    }
}
