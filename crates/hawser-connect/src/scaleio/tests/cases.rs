use std::net::TcpListener;
use std::time::Duration;

use hawser_core::attach::{Attach, Attached, Detach};
use hawser_core::{Change, Error, Kind, Outcome, Reason};
use hawser_testkit::sim::scaleio::Manner;

use super::*;

/// What connecting with these data is refused with; nothing is left of it.
async fn refused(storage: Storage, data: Value) -> Error {
    let (rig, _gateway) = storage.rig(data);
    let before = rig.host.snapshot();
    let error = rig.connect().await.unwrap_err();
    let difference = before.difference(&rig.host.snapshot());
    assert!(difference.is_empty(), "{error:?}: {difference}");
    error
}

#[tokio::test]
async fn a_token_is_used_until_it_expires_and_only_then_is_logged_in() {
    let storage = Storage::new();
    let data = storage.data();
    let (rig, gateway) = storage.rig(with(data, "serverToken", Value::Null));

    for _ in 0..2 {
        let attached = rig.connect().await.unwrap().into_inner();
        rig.disconnect(&rig.record(&attached)).await.unwrap();
    }
    let logins = || gateway.requests().iter().filter(|r| *r == "GET /api/login").count();
    assert_eq!(logins(), 1, "{:?}", gateway.requests());
    gateway.expire_tokens();
    rig.connect().await.unwrap();

    assert_eq!(logins(), 2, "{:?}", gateway.requests());
    assert!(gateway.is_mapped(ID));
}

#[tokio::test]
async fn a_wrong_password_is_told_as_such_even_after_a_right_one() {
    let storage = Storage::new();
    let data = storage.data();
    let (mut rig, _gateway) = storage.rig(data.clone());
    rig.connect().await.unwrap();
    rig.disconnect(&rig.intent()).await.unwrap();

    rig.info = info(with(data, "serverPassword", json!("wrong horse")));
    let error = rig.connect().await.unwrap_err();

    assert_eq!((error.kind(), error.reason()), (Kind::Denied, Some(Reason::AuthFailed)));
    assert!(!format!("{error:?}").contains("horse"), "{error:?}");
}

#[tokio::test]
async fn settings_without_the_password_are_named() {
    for (text, word) in [(None, config::FILE), (Some(conf("")), "san_password")] {
        let storage = Storage::new();
        if let Some(text) = text {
            storage.host.kernel().file(config::FILE, text);
        }
        let data = with(storage.data(), "serverPassword", Value::Null);
        let data = with(data, "config_group", json!("powerflex"));

        let error = refused(storage, data).await;

        assert_eq!(error.reason(), Some(Reason::ToolOrModuleMissing), "{error:?}");
        assert!(error.sentence().contains(word), "{error:?}");
    }
}

#[tokio::test]
async fn gateways_that_cannot_be_had_are_told_apart() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let storage = Storage::new();
    let data = with(storage.data(), "serverPort", json!(closed));
    let error = refused(storage, data).await;
    assert_eq!(error.reason(), Some(Reason::PortalRefused), "{error:?}");

    let storage = Storage::new();
    let data = with(storage.data(), "serverIP", json!("no.such.host.invalid"));
    let error = refused(storage, data).await;
    assert_eq!(error.reason(), Some(Reason::TargetUnreachable), "{error:?}");

    let storage = Storage::new();
    storage.gateway.set_manner(Manner::Silent);
    let data = storage.data();
    let (mut rig, _gateway) = storage.rig(data);
    rig.attach = Attach { deadline: Duration::from_millis(300), ..Attach::default() };
    let error = rig.connect().await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::PortalTimeout), "{error:?}");
    assert_eq!(error.outcome(), Outcome::Nothing);
}

#[tokio::test]
async fn a_certificate_that_nobody_signed_is_refused_unless_it_is_not_to_be_checked() {
    let storage = Storage::new();
    storage.host.kernel().file("/etc/ssl/certs/ca-certificates.crt", stranger());
    let data = with(storage.data(), "certificate_path", Value::Null);
    let (mut rig, gateway) = storage.rig(data.clone());

    let error = rig.connect().await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::TargetUnreachable), "{error:?}");
    assert!(error.sentence().contains("certificate"), "{error:?}");
    assert!(gateway.requests().is_empty(), "nothing was said to a stranger");
    rig.info = info(with(data.clone(), "verify_certificate", json!(false)));
    rig.connect().await.unwrap();
    rig.disconnect(&rig.intent()).await.unwrap();

    rig.host.kernel().file("/etc/ssl/certs/ca-certificates.crt", Gateway::certificate());
    rig.info = info(data.clone());
    rig.connect().await.expect("what this host trusts is trusted");
    for (path, word) in [("/etc/nothing.pem", "not there"), (config::FILE, "no certificate")] {
        rig.host.kernel().file(config::FILE, conf("x"));
        rig.info = info(with(data.clone(), "certificate_path", json!(path)));
        let error = rig.connect().await.unwrap_err();
        assert_eq!(error.reason(), Some(Reason::InvalidParameters), "{error:?}");
        assert!(error.sentence().contains(word), "{error:?}");
    }
}

/// A certificate of somebody else.
fn stranger() -> String {
    let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    pair.cert.pem()
}

#[tokio::test]
async fn an_answer_that_is_lost_leaves_the_outcome_unknown_and_a_detach_settles_it() {
    let storage = Storage::new();
    let data = with(storage.data(), "serverToken", Value::Null);
    let (mut rig, gateway) = storage.rig(data);
    let before = rig.host.snapshot();
    rig.connect().await.unwrap();
    rig.disconnect(&rig.intent()).await.unwrap();
    rig.attach = Attach { deadline: Duration::from_secs(5), ..Attach::default() };

    gateway.set_manner(Manner::HangsUp);
    let error = rig.connect().await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown, "{error:?}");

    // Mapped and unmapped again without an answer: the note knows that something was begun.
    gateway.set_manner(Manner::Works);
    assert_eq!(rig.disconnect(&rig.intent()).await.unwrap(), Change::Made(()));
    assert!(!gateway.is_mapped(ID));
    assert!(before.difference(&rig.host.snapshot()).is_empty());
}

#[tokio::test]
async fn whatever_a_gateway_says_nothing_is_believed_that_it_did_not_say() {
    for manner in [
        Manner::Babbles(Vec::new()),
        Manner::Babbles(b"SSH-2.0-OpenSSH\r\n".to_vec()),
        Manner::Babbles(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n{".to_vec()),
        Manner::Answers(500, r#"{"message":"no room","httpStatusCode":500,"errorCode":7}"#.into()),
        Manner::Answers(502, "<html>Bad Gateway</html>".into()),
        Manner::Answers(302, String::new()),
        Manner::Answers(500, format!(r#"{{"message":"{PASSWORD}","errorCode":81e3}}"#)),
    ] {
        let storage = Storage::new();
        let data = storage.data();
        let (mut rig, gateway) = storage.rig(data);
        rig.attach = Attach { deadline: Duration::from_secs(5), ..Attach::default() };
        gateway.set_manner(manner.clone());

        let error = rig.connect().await.unwrap_err();

        assert!(!gateway.is_mapped(ID), "{manner:?}");
        assert!(!error.sentence().contains(PASSWORD), "{manner:?}: {error:?}");
        gateway.set_manner(Manner::Works);
        rig.disconnect(&rig.intent()).await.unwrap();
        assert!(rig.connect().await.unwrap().is_made(), "{manner:?}");
    }
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_is_not_that_there_is_no_such_volume() {
    let unreachable = Some(Reason::TargetUnreachable);
    for (body, reason) in [
        ("<html>Please log in</html>", unreachable),
        ("", unreachable),
        (r#"{"id":"0a1b2c3d00000007"}"#, unreachable),
        (r#""0a1b/../3d""#, unreachable),
        ("null", Some(Reason::LunNotFound)),
        (r#""""#, Some(Reason::LunNotFound)),
    ] {
        let storage = Storage::new();
        storage.gateway.set_manner(Manner::Answers(200, body.into()));
        let data = with(storage.data(), "scaleIO_volume_id", Value::Null);

        let error = refused(storage, data).await;

        assert_eq!(error.reason(), reason, "{body}: {error:?}");
    }
}

#[tokio::test]
async fn a_refusal_is_told_in_the_gateways_words() {
    let storage = Storage::new();
    let complaint = r#"{"message":"no room","httpStatusCode":500,"errorCode":7}"#;
    storage.gateway.set_manner(Manner::Answers(500, complaint.into()));
    let data = storage.data();

    let error = refused(storage, data).await;

    assert!(error.sentence().contains(r#""no room" (status 500, error code 7)"#), "{error:?}");
    assert_eq!(error.outcome(), Outcome::Nothing);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_mapped_or_unmapped_already_is_no_error_in_either_version() {
    for new_codes in [false, true] {
        let storage = Storage::new();
        if new_codes {
            storage.gateway.use_new_codes();
        }
        storage.gateway.map(ID);
        let data = storage.data();
        let (rig, gateway) = storage.rig(data);

        let attached = rig.connect().await.unwrap().into_inner();
        gateway.unmap(ID);
        rig.disconnect(&rig.record(&attached)).await.unwrap();

        let said = gateway.requests();
        assert!(said.iter().any(|r| r.ends_with("addMappedSdc")), "{said:?}");
        assert!(said.iter().any(|r| r.ends_with("removeMappedSdc")), "{said:?}");
        assert!(rig.connector.lookup(&rig.host, &rig.info).await.unwrap().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_mapped_by_others_and_shows_no_disk_stays_mapped() {
    let storage = Storage::new();
    storage.gateway.map(ID);
    let data = storage.data();
    // Its disk never comes.
    storage.gateway.remove_volume(ID);
    storage.host.kernel().edit(|tree| tree.settle());
    storage.gateway.add_volume(ID, NAME, &Lun::new(ByteSize::ZERO));
    storage.gateway.map(ID);

    let (rig, gateway) = storage.rig(data);
    let error = rig.connect().await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::LunNotFound), "{error:?}");
    assert!(gateway.is_mapped(ID), "it is not ours to take away");
}

#[tokio::test]
async fn limits_are_set_where_they_are_given_and_a_refusal_of_them_is_no_failure() {
    let storage = Storage::new();
    let data = with(storage.data(), "iopsLimit", json!("500"));
    let (rig, gateway) = storage.rig(with(data, "bandwidthLimit", json!(10240)));
    rig.connect().await.unwrap();
    let limits = json!({ "guid": GUID, "iopsLimit": 500, "bandwidthLimitInKbps": 10240 });
    assert_eq!(gateway.limits(ID), Some(limits));
    rig.disconnect(&rig.intent()).await.unwrap();

    gateway.refuse_limits();
    rig.connect().await.unwrap();
    assert_eq!(gateway.limits(ID), None);
}

#[tokio::test]
async fn a_name_that_was_given_to_another_volume_is_refused_when_the_volume_is_known() {
    let storage = Storage::new();
    let data = with(storage.data(), "scaleIO_volume_id", Value::Null);
    let (mut rig, gateway) = storage.rig(data);
    rig.info.identity = Some(Identity::new("scaleio", ID));
    let attached = rig.connect().await.unwrap().into_inner();
    assert_eq!(attached.identity(), Some(&Identity::new("scaleio", ID)));

    gateway.remove_volume(ID);
    gateway.add_volume("0a1b2c3d00000008", NAME, &Lun::new(ByteSize::mib(8)));
    let error = rig.connect().await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::IdentityMismatch), "{error:?}");
    let unknown = {
        let storage = Storage::new();
        let data = with(storage.data(), "scaleIO_volume_id", Value::Null);
        refused(storage, with(data, "scaleIO_volname", json!("nobody"))).await
    };
    assert!(unknown.sentence().contains("nobody"), "{unknown:?}");
}

#[tokio::test(start_paused = true)]
async fn a_detach_by_name_never_takes_the_volume_that_has_the_name_by_now() {
    let storage = Storage::new();
    storage.host.kernel().file(config::FILE, conf(PASSWORD));
    let data = with(storage.data(), "config_group", json!("powerflex"));
    let (rig, gateway) = storage.rig(with(data, "scaleIO_volume_id", Value::Null));
    let attached = rig.connect().await.unwrap().into_inner();
    let other = "0a1b2c3d00000008";

    gateway.rename_volume(ID, "retired");
    gateway.add_volume(other, NAME, &Lun::new(ByteSize::mib(8)));
    gateway.map(other);
    rig.host.reboot();
    rig.host.kernel().edit(|tree| tree.settle());
    assert_eq!(rig.disconnect(&rig.record(&attached)).await.unwrap(), Change::Made(()));

    assert!(!gateway.is_mapped(ID) && gateway.is_mapped(other));
}

#[tokio::test(start_paused = true)]
async fn a_volume_mapped_by_the_backend_is_waited_for_written_out_and_left() {
    let storage = Storage::new();
    storage.gateway.map(ID);
    let lun = storage.volume.clone();
    let (rig, gateway) = storage.rig(new_data());

    let made = rig.connect().await.unwrap();
    assert!(made.is_made(), "its disk came meanwhile");
    let record = rig.record(made.get());
    let read_only = Attach { read_only: true, ..Attach::default() };
    rig.connect_as(&read_only).await.unwrap();
    assert!(rig.host.refuses_writes(made.get().path()));
    assert_eq!(rig.disconnect(&record).await.unwrap(), Change::Made(()));

    assert!(!rig.host.refuses_writes(made.get().path()), "as it was before");
    assert_eq!(rig.disconnect(&record).await.unwrap(), Change::Already(()));
    lun.resize(ByteSize::mib(16));
    assert_eq!(rig.connector.extend(&rig.host, &record).await.unwrap(), ByteSize::mib(16));
    assert!(gateway.is_mapped(ID) && gateway.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_volume_mapped_to_another_host_and_one_that_never_comes_are_refused() {
    let other = "00000000-1111-4222-8333-444455556666";
    let data = with(new_data(), "sdc_guid", json!(other));
    let error = refused(Storage::new(), data).await;
    assert_eq!(error.reason(), Some(Reason::InvalidParameters), "{error:?}");
    assert!(error.sentence().contains(GUID), "{error:?}");

    let error = refused(Storage::new(), new_data()).await;
    assert_eq!(error.reason(), Some(Reason::LunNotFound), "{error:?}");
}

#[tokio::test]
async fn a_host_without_the_client_says_so_and_has_no_guid_to_tell() {
    let storage = Storage::new();
    storage.host.kernel().remove_all("/dev/scini");
    assert_eq!(own_guid(&storage.host).await, None);
    let data = storage.data();

    let error = refused(storage, data).await;

    assert_eq!(error.reason(), Some(Reason::ToolOrModuleMissing), "{error:?}");
    assert_eq!(own_guid(&Storage::new().host).await.as_deref(), Some(GUID));
}

#[tokio::test(start_paused = true)]
async fn after_a_boot_the_mapping_is_still_known_to_the_gateway_and_goes() {
    let storage = Storage::new();
    let data = storage.data();
    let (rig, gateway) = storage.rig(data);
    let attached = rig.connect().await.unwrap().into_inner();
    rig.host.reboot();

    // The password went with the boot, and the disk has not come back yet.
    assert_eq!(rig.disconnect(&rig.record(&attached)).await.unwrap(), Change::Already(()));
    assert!(gateway.is_mapped(ID));
    rig.host.kernel().edit(|tree| tree.settle());
    let error = rig.disconnect(&rig.record(&attached)).await.unwrap_err();
    assert!(error.sentence().contains("serverPassword"), "{error:?}");
    // The library hands the secrets of the caller on.
    let mut record = rig.record(&attached);
    record.info.secrets = rig.info.secrets.clone();
    assert_eq!(rig.disconnect(&record).await.unwrap(), Change::Made(()));
    assert!(!gateway.is_mapped(ID));
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_is_gone_keeps_a_volume_here_unless_it_is_forced() {
    let storage = Storage::new();
    let data = storage.data();
    let (rig, gateway) = storage.rig(data);
    let attached = rig.connect().await.unwrap().into_inner();
    let record = rig.record(&attached);
    drop(gateway);

    let error = rig.disconnect(&record).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::PortalRefused), "{error:?}");
    assert_eq!(rig.connector.lookup(&rig.host, &rig.info).await.unwrap(), Some(attached));
    let forced = Detach { force: true, ..Detach::default() };
    let error = rig.disconnect_as(&record, &forced).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::PortalRefused), "its note still has the password");
    let forced = Detach { ignore_errors: true, ..forced };
    assert_eq!(rig.disconnect_as(&record, &forced).await.unwrap(), Change::Made(()));
}

#[tokio::test]
async fn a_link_that_leads_elsewhere_is_not_believed() {
    let storage = Storage::new();
    let kernel = storage.host.kernel();
    let stranger = Lun::new(ByteSize::mib(1));
    kernel.disk(hawser_testkit::fake_host::kernel::DiskSpec::new("sdq", &stranger));
    kernel.disk(hawser_testkit::fake_host::kernel::DiskSpec::new("sciniz", &stranger));
    let files = hawser_core::port::Host::files(&storage.host);
    let find = || sdc::find(files, ID).unwrap().map(|disk| disk.name);
    let link = format!("/dev/disk/by-id/emc-vol-1f2e3d4c-{ID}");

    kernel.link(&link, "/dev/sdq");
    assert_eq!(find(), None, "no disk of the client");
    kernel.link(&link, "/dev/nothing");
    assert_eq!(find(), None, "dangling");
    kernel.link(&link, "/dev/sciniz");
    assert_eq!(find().as_deref(), Some("sciniz"));
    kernel.link("/dev/disk/by-id/emc-vol-1f2e3d4c-0a1b2c3d00000009", "/dev/sciniz");
    assert_eq!(find(), None, "two volumes claim it");
}

#[tokio::test]
async fn a_disk_that_is_not_the_recorded_one_is_unhealthy() {
    let storage = Storage::new();
    let data = storage.data();
    let (rig, _gateway) = storage.rig(data);
    rig.connect().await.unwrap();
    let other =
        Attached::Block { device: "/dev/sciniq".into(), identity: None, size: ByteSize::mib(8) };

    let health = rig.connector.health(&rig.host, &rig.record(&other)).await.unwrap();

    assert!(!health.healthy && health.message.contains("/dev/sciniq"), "{health:?}");
}
