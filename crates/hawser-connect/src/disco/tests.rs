use std::net::TcpListener;
use std::time::Duration;

use hawser_core::attach::Identity;
use hawser_core::connection::Protocol;
use hawser_core::{ByteSize, Outcome, Reason};
use hawser_testkit::contract::connector::ConnectorRig;
use hawser_testkit::fake_host::FakeHost;
use hawser_testkit::fake_host::kernel::Lun;
use hawser_testkit::sim::disco;
use serde_json::{Value, json};

use super::*;
use crate::shared::vendor::Vendor;

static CONNECTOR: Vendor<Disco> = Vendor(Disco);

fn info(port: u16) -> ConnectionInfo {
    let data = json!({ "discoId": "7", "conf": { "serverIp": "127.0.0.1", "serverPort": port } });
    let Value::Object(data) = data else { unreachable!() };
    ConnectionInfo::new(Protocol::new("disco"), data, Some(Identity::new("disco", "dms7")))
}

fn rig() -> ConnectorRig {
    let host = FakeHost::new();
    let client = disco::install(&host, 7, &Lun::new(ByteSize::mib(8)));
    ConnectorRig::new(&CONNECTOR, host, info(client.port()), ())
}

hawser_testkit::connector_contract!(rig());

#[test]
fn a_message_has_length_operation_id_and_instance() {
    let bytes = wire::message(wire::ATTACH, 0x0102_0304_0506_0708);

    assert_eq!(&bytes[..4], &[0, 24, 0, 1]);
    assert_eq!(&bytes[4..12], &[1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(&bytes[12..], b"DEFAULT-INSTID");
}

#[tokio::test]
async fn a_client_that_is_not_there_is_an_error_and_not_success() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let rig = ConnectorRig::new(&CONNECTOR, FakeHost::new(), info(port), ());

    let error = rig.connect().await.unwrap_err();

    assert_eq!(error.reason(), Some(Reason::PortalRefused));
}

#[tokio::test]
async fn a_client_that_hangs_up_leaves_the_outcome_unknown() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let hang_up = std::thread::spawn(move || drop(listener.accept()));
    let client = SocketAddr::from(([127, 0, 0, 1], port));
    let deadline = Deadline::after(Duration::from_secs(5));

    let error = wire::ask(client, wire::ATTACH, 7, deadline).await.unwrap_err();

    assert_eq!(hawser_core::Error::from(error).outcome(), Outcome::Unknown);
    hang_up.join().unwrap();
}
