//! Who gets in: the socket's file and users, the token, TLS.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use hawser_api::{Endpoint, RestClient};
use hawser_core::Kind;
use hawser_core::port::Control;
use hawser_core::secret::Secret;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::rig::Rig;
use crate::rest::{Limits, Listener, Tls};

fn limits() -> Limits {
    Limits { grace: Duration::from_millis(300), ..Limits::default() }
}

fn loopback() -> std::net::SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

#[tokio::test]
async fn the_socket_is_private_and_goes_with_the_server() {
    let rig = Rig::start();
    let mode = std::fs::metadata(&rig.socket).unwrap().permissions().mode();
    let path = rig.socket.clone();
    let left: Vec<_> = std::fs::read_dir(path.parent().unwrap()).unwrap().collect();

    assert_eq!(mode & 0o7777, 0o600);
    assert_eq!(left.len(), 1, "more than the socket was left: {left:?}");
    let taken = Listener::unix(&path, None).err().unwrap();
    assert_eq!(taken.kind(), Kind::Busy);
    assert!(rig.client().ready().await.unwrap(), "the running server lost its socket");
    rig.stop().await;
    assert!(!path.exists());
}

#[test]
fn a_stale_socket_is_replaced_and_other_files_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let stale = folder.path().join("stale");
    drop(UnixListener::bind(&stale).unwrap());
    let file = folder.path().join("file");
    std::fs::write(&file, "precious").unwrap();

    assert!(stale.exists());
    Listener::unix(&stale, None).unwrap();

    assert_eq!(Listener::unix(&file, None).err().unwrap().kind(), Kind::Precondition);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    let long = folder.path().join("x".repeat(120));
    assert!(Listener::unix(&long, None).is_err());
}

/// Asks from a thread that has become another user; answers the status line.
fn ask_as(uid: u32, gid: u32, socket: &std::path::Path) -> String {
    let socket = socket.to_owned();
    let asking = std::thread::spawn(move || {
        let (uid, gid) = (rustix::process::Uid::from_raw(uid), rustix::process::Gid::from_raw(gid));
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        let mut stream = UnixStream::connect(&socket).unwrap();
        // The body is announced and never sent: the answer must not wait for it.
        let head = "POST /v1/volumes HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = vec![0; 512];
        let read = stream.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..read]).into_owned()
    });
    asking.join().unwrap()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[tokio::test(flavor = "multi_thread")]
async fn another_user_is_refused_before_its_body_is_read() {
    if !is_root() {
        return eprintln!("skipped: becoming another user needs root");
    }
    let rig = Rig::start();
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(rig.socket.parent().unwrap(), open.clone()).unwrap();
    std::fs::set_permissions(&rig.socket, open).unwrap();
    let socket = rig.socket.clone();

    let answer = tokio::task::spawn_blocking(move || ask_as(65534, 65534, &socket));
    let answer = answer.await.unwrap();

    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert!(answer.contains("application/problem+json"), "{answer}");
    rig.stop().await;
}

/// Who a caller is takes a look into a file, and others come and go meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn callers_are_answered_that_come_while_others_leave() {
    if !is_root() {
        return eprintln!("skipped: becoming another user needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder.path(), open.clone()).unwrap();
    let socket = folder.path().join("s");
    let listener = Listener::unix(&socket, Some(4242)).unwrap();
    std::fs::set_permissions(&socket, open).unwrap();
    let rig = Rig::listening(limits(), vec![listener]);

    let callers = (0..4).map(|_| {
        let socket = socket.clone();
        let each = move |_| ask_as(65534, 4243, &socket);
        tokio::task::spawn_blocking(move || (0..50).map(each).collect::<Vec<_>>())
    });
    for caller in callers.collect::<Vec<_>>() {
        for answer in caller.await.unwrap() {
            assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        }
    }
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_the_group_may_use_the_socket() {
    if !is_root() {
        return eprintln!("skipped: becoming another user needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let socket = folder.path().join("s");
    let listener = Listener::unix(&socket, Some(4242)).unwrap();
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o660);
    let rig = Rig::listening(limits(), vec![listener]);

    let within = socket.clone();
    let answer = tokio::task::spawn_blocking(move || ask_as(65534, 4242, &within)).await.unwrap();
    // Let in, and told that a body must be JSON.
    assert!(answer.starts_with("HTTP/1.1 415"), "{answer}");
    let open = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(&socket, open).unwrap();
    let answer = tokio::task::spawn_blocking(move || ask_as(65534, 4243, &socket)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    rig.stop().await;
}

#[tokio::test]
async fn tcp_needs_the_token_for_everything() {
    for bad in ["", "with space", "line\nbreak"] {
        let refused = Listener::tcp(loopback(), Secret::new(bad), None).err().unwrap();
        assert_eq!(refused.kind(), Kind::Invalid);
    }
    let listener = Listener::tcp(loopback(), Secret::new("right-token"), None).unwrap();
    let address = listener.address().unwrap();
    let rig = Rig::listening(limits(), vec![listener]);
    let endpoint: Endpoint = format!("http://{address}").parse().unwrap();
    let with = |token: &str| RestClient::new(endpoint.clone()).with_token(Secret::new(token));

    assert!(with("right-token").ready().await.unwrap());
    for wrong in ["wrong-token", "right-tokem", "right-toke", "right-token1", ""] {
        let error = with(wrong).list_classes().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Unauthenticated, "{wrong:?}");
    }
    for path in ["/healthz", "/metrics", "/v1/volumes", "/none"] {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 401"), "{path}: {answer}");
        assert!(answer.contains("www-authenticate: Bearer"), "{path}: {answer}");
    }
    rig.stop().await;
}

#[tokio::test]
async fn tls_protects_the_token_and_an_unknown_server_is_refused() {
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (pair.cert.pem(), pair.signing_key.serialize_pem());
    let tls = Tls::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap();
    assert!(Tls::from_pem(b"", key.as_bytes()).is_err());
    assert!(Tls::from_pem(certificate.as_bytes(), b"x").is_err());
    let listener = Listener::tcp(loopback(), Secret::new("t"), Some(tls)).unwrap();
    let port = listener.address().unwrap().port();
    let rig = Rig::listening(limits(), vec![listener]);
    let endpoint: Endpoint = format!("https://localhost:{port}").parse().unwrap();
    let client = || RestClient::new(endpoint.clone()).with_token(Secret::new("t"));

    let known = client().with_roots(certificate.as_bytes()).unwrap();

    assert!(known.ready().await.unwrap());
    assert_eq!(known.list_classes().await.unwrap().len(), 1);
    let stranger = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = client().with_roots(stranger.cert.pem().as_bytes()).unwrap();
    assert_eq!(other.ready().await.unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(client().ready().await.unwrap_err().kind(), Kind::Invalid);
    assert!(client().with_roots(b"nothing").is_err());
    let clear = RestClient::new(Endpoint::Http("localhost".into(), port));
    assert!(clear.ready().await.is_err(), "answered without TLS");
    rig.stop().await;
}
