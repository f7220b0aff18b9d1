//! The driver's socket, and how the kubelet gets to know it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use hawser_api::csi::registration::registration_client::RegistrationClient;
use hawser_api::csi::registration::{InfoRequest, RegistrationStatus};
use hawser_api::csi::v1::*;
use hawser_core::Kind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::Code;

use super::fake::abilities;
use super::rig::{Rig, code, dial, mount};
use crate::csi::{CsiDriver, CsiParts, CsiSettings, KubeletAnswer, Registration, Services, serve};

/// What becomes of a driver on a socket of its own, with the parts of a rig.
async fn try_serve(rig: &Rig, socket: &Path) -> hawser_core::Result<()> {
    let endpoint = socket.to_str().unwrap().parse().unwrap();
    let settings = CsiSettings::new(CsiDriver::Published, endpoint, "n1".parse().unwrap());
    let parts = CsiParts {
        abilities: abilities(),
        control: Some(rig.control.clone()),
        node: Some(rig.node.clone()),
        upstream: rig.upstream.clone(),
        metrics: rig.metrics.clone(),
    };
    serve(Services::new(parts, settings), std::future::ready(())).await
}

#[tokio::test]
async fn the_socket_is_for_its_owner_and_group_and_stands_alone() {
    let rig = Rig::start().await;

    let mode = fs::metadata(&rig.socket).unwrap().permissions().mode();

    assert_eq!(mode & 0o777, 0o660);
    assert_eq!(fs::read_dir(rig.path("")).unwrap().count(), 1, "nothing else is made there");
    let socket = rig.socket.clone();
    let folder = rig.stop().await;
    assert!(!socket.exists(), "it goes with the driver");
    drop(folder);
}

#[tokio::test]
async fn only_a_socket_that_nobody_listens_on_is_replaced() {
    let rig = Rig::start().await;
    let taken = try_serve(&rig, &rig.socket).await.unwrap_err();
    assert_eq!(taken.kind(), Kind::Busy);
    assert!(rig.identity().probe(ProbeRequest {}).await.is_ok(), "and whoever listens is well");

    let stale = rig.path("stale.sock");
    drop(UnixListener::bind(&stale).unwrap());
    try_serve(&rig, Path::new(&stale)).await.unwrap();
    let file = rig.path("file.sock");
    fs::write(&file, "precious").unwrap();
    let refused = try_serve(&rig, Path::new(&file)).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Precondition);
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    let nowhere = rig.path("nowhere/csi.sock");
    let refused = try_serve(&rig, Path::new(&nowhere)).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Unavailable);
    rig.stop().await;
}

#[tokio::test]
async fn a_driver_that_is_told_to_stop_finishes_what_it_began() {
    let mut rig = Rig::start().await;
    let there = rig.published(mount()).await;
    let node = rig.node.clone();
    let held = node.pause.write().await;
    let (mut client, request) = (rig.nodes(), there.stage(&rig.staging()));
    let call = tokio::spawn(async move { client.node_stage_volume(request).await });
    while !node.asked.lock().unwrap().contains(&"attach") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    rig.end();
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(held);

    assert_eq!(code(call.await.unwrap()), Code::Ok);
    assert_eq!(rig.node.only().mounts.len(), 1);
    rig.stop().await;
}

#[tokio::test]
async fn a_driver_without_parts_is_refused() {
    let rig = Rig::start().await;
    let endpoint = rig.path("other.sock").parse().unwrap();
    let settings = CsiSettings::new(CsiDriver::Published, endpoint, "n1".parse().unwrap());
    let parts = CsiParts {
        abilities: abilities(),
        control: None,
        node: None,
        upstream: rig.upstream.clone(),
        metrics: rig.metrics.clone(),
    };

    assert!(serve(Services::new(parts, settings), std::future::ready(())).await.is_err());
    rig.stop().await;
}

#[tokio::test]
async fn the_kubelet_finds_the_driver_and_its_answer_is_kept() {
    let answer = KubeletAnswer::default();
    let kept = answer.clone();
    let rig = Rig::with(CsiDriver::Local, move |settings, _| {
        let folder = settings.endpoint.path().parent().unwrap().to_owned();
        let endpoint = "/var/lib/kubelet/plugins/local.csi.hawser.storage/csi.sock".into();
        settings.registration = Some(Registration { folder, endpoint, answer });
    })
    .await;
    let socket = rig.path("local.csi.hawser.storage@reg.sock");
    let mut kubelet = RegistrationClient::new(dial(Path::new(&socket)).await);

    let info = kubelet.get_info(InfoRequest {}).await.unwrap().into_inner();
    assert_eq!(
        (info.r#type.as_str(), info.name.as_str()),
        ("CSIPlugin", "local.csi.hawser.storage")
    );
    assert_eq!(info.endpoint, "/var/lib/kubelet/plugins/local.csi.hawser.storage/csi.sock");
    assert_eq!(info.supported_versions, ["1.0.0"]);
    assert_eq!(kept.last(), None);
    let refused = RegistrationStatus { plugin_registered: false, error: "another is there".into() };
    kubelet.notify_registration_status(refused).await.unwrap();
    assert_eq!(kept.last(), Some(Err("another is there".into())));
    let taken = RegistrationStatus { plugin_registered: true, error: String::new() };
    kubelet.notify_registration_status(taken).await.unwrap();
    assert_eq!(kept.last(), Some(Ok(())));
    drop(kubelet);
    rig.stop().await;
    assert!(!Path::new(&socket).exists());
}

#[tokio::test]
async fn numbers_and_health_are_served_over_http() {
    let rig = Rig::start().await;
    rig.identity().probe(ProbeRequest {}).await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let control: std::sync::Arc<dyn hawser_core::port::Control> = rig.control.clone();
    let server = tokio::spawn(crate::csi::serve_monitor(
        listener,
        rig.metrics.clone(),
        Some(control),
        async move { drop(stopped.await) },
    ));
    let get = async |line: &str| {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("{line} HTTP/1.1\r\nhost: h\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    };

    let metrics = get("GET /metrics").await;
    assert!(metrics.starts_with("HTTP/1.1 200") && metrics.contains("method_name=\"Probe\""));
    assert!(get("GET /healthz").await.starts_with("HTTP/1.1 200"));
    *rig.control.ready.lock().unwrap() = false;
    assert!(get("GET /healthz").await.starts_with("HTTP/1.1 503"));
    assert!(get("GET /").await.starts_with("HTTP/1.1 404"));
    assert!(get("POST /metrics").await.starts_with("HTTP/1.1 405"));
    drop(stop);
    server.await.unwrap().unwrap();
    rig.stop().await;
}
