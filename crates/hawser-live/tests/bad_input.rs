//! What nobody should send, to the running program: each refused in plain words with the right
//! status, the process alive, its memory flat.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use hawser_core::id::{OperationId, SnapshotId, VolumeId};
use hawser_live::process::{Ground, Program};
use hawser_live::raw::{self, Answer};
use serde_json::{Value, json};

/// How much the memory of the server may grow, whatever it is sent.
const GROWTH_KIB: u64 = 16 << 10;

/// Panics unless this is a refusal with this status that says these words.
#[track_caller]
fn assert_refused(answer: &Answer, status: u16, words: &str) {
    let text = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.status, status, "{text}");
    assert_eq!(answer.header("content-type"), "application/problem+json", "{text}");
    let problem = answer.json();
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(detail.contains(words), "{detail:?} does not say {words:?}");
    assert!(answer.body.len() < 4096, "an answer of {} bytes", answer.body.len());
}

/// The server, warmed up: what it needs for its first answers is no growth.
async fn start(ground: &Ground) -> (Program, u64) {
    let server = ground.up(&[]).await;
    for _ in 0..200 {
        assert_eq!(raw::call(&ground.socket(), "GET", "/v1/volumes", None).status, 200);
    }
    let resident = server.resident_kib();
    (server, resident)
}

/// Alive, answering, and no larger than before.
#[track_caller]
fn assert_well(ground: &Ground, server: &mut Program, before: u64) {
    server.assert_alive();
    let answer = raw::call(&ground.socket(), "GET", "/v1/volumes", None);
    assert_eq!((answer.status, &answer.json()["items"]), (200, &json!([])));
    let grown = server.resident_kib().saturating_sub(before);
    assert!(grown < GROWTH_KIB, "memory grew by {grown} KiB");
}

#[tokio::test]
async fn bodies_that_mean_nothing_are_refused_with_the_reason() {
    let ground = Ground::new();
    let (mut server, before) = start(&ground).await;
    let long = "x".repeat(300);
    let foreign = SnapshotId::generate().to_string();
    let cases: Vec<(Value, u16, &str)> = vec![
        (json!({ "name": "a", "size": -1 }), 400, "is not a size"),
        (json!({ "name": "a", "size": "-1" }), 400, "is not a size"),
        (json!({ "name": "a", "size": 1e30 }), 400, "whole number of bytes"),
        (json!({ "name": "a", "size": "1e30" }), 400, "is not a size"),
        (json!({ "name": "a", "size": "9999PiB" }), 400, "larger than any device"),
        (json!({ "name": "a", "size": 0 }), 400, "0 bytes is not possible"),
        (json!({ "name": "a", "size": "8EiB" }), 400, "size"),
        (json!({ "name": "a", "size": "4PiB" }), 507, "pool"),
        (json!({ "name": "a" }), 400, "a size is needed"),
        (json!({ "name": "a", "size": 1, "sise": 2 }), 400, "unknown field `sise`"),
        (json!({ "name": "a/b", "size": 1 }), 400, "is not allowed"),
        (json!({ "name": "..", "size": 1 }), 400, "is not allowed"),
        (json!({ "name": "a\u{0}b", "size": 1 }), 400, "is not allowed"),
        (json!({ "name": long, "size": 1 }), 400, "300 bytes is longer"),
        (json!({ "name": "", "size": 1 }), 400, "is empty"),
        (json!({ "name": foreign, "size": 1 }), 400, "form of an internal id"),
        (json!({ "name": "a", "size": 1, "class": "none" }), 404, "none"),
        (json!({ "name": "a", "size": 1, "class": "../x" }), 400, "class name"),
        (json!({ "name": "a", "size": 1, "source": { "snapshot": foreign } }), 404, &foreign),
        (json!({ "name": "a", "size": 1, "labels": { "a b": "c" } }), 400, "label key"),
        (json!({ "x".repeat(100_000): 1 }), 400, "unknown field"),
        (json!([]), 400, "reading the body"),
    ];

    for (body, status, words) in &cases {
        let answer = raw::call(&ground.socket(), "POST", "/v1/volumes", Some(&body.to_string()));
        assert_refused(&answer, *status, words);
    }

    for text in ["", "{", "nul\0", "{\"name\":\"a\",\"size\":1}x", &"[".repeat(100_000)] {
        let answer = raw::call(&ground.socket(), "POST", "/v1/volumes", Some(text));
        assert_refused(&answer, 400, "reading the body");
    }
    assert_well(&ground, &mut server, before);
}

#[tokio::test]
async fn paths_and_other_peoples_ids_are_refused_with_the_reason() {
    let ground = Ground::new();
    let (mut server, before) = start(&ground).await;
    let (volume, snapshot) = (VolumeId::generate(), SnapshotId::generate());
    let operation = OperationId::generate();
    let long = "x".repeat(300);
    let node = raw::call(&ground.socket(), "GET", "/v1/nodes", None).json();
    let node = node["items"][0]["id"].as_str().unwrap().to_owned();

    for (method, path, status, words) in [
        ("GET", "/v1/volumes/..", 400, "is not allowed"),
        ("GET", "/v1/volumes/a%2Fb", 400, "is not allowed"),
        ("GET", "/v1/volumes/%2E%2E%2F%2E%2E", 400, "is not allowed"),
        ("GET", "/v1/volumes/a%00b", 400, "is not allowed"),
        ("GET", "/v1/volumes/%FF", 400, "reading the path"),
        ("GET", &*format!("/v1/volumes/{long}"), 400, "is longer than"),
        ("GET", &*format!("/v1/volumes/{snapshot}"), 400, "form of an internal id"),
        ("GET", &*format!("/v1/volumes/{volume}"), 404, volume.as_str()),
        ("GET", &*format!("/v1/snapshots/{snapshot}"), 404, snapshot.as_str()),
        ("GET", &*format!("/v1/operations/{operation}"), 404, operation.as_str()),
        ("POST", &*format!("/v1/operations/{operation}/cancel"), 404, operation.as_str()),
        ("PUT", &*format!("/v1/volumes/{volume}/publications/{node}"), 404, volume.as_str()),
        ("PUT", &*format!("/v1/volumes/{volume}/attachments/{node}"), 404, volume.as_str()),
        ("PUT", &*format!("/v1/volumes/{volume}/attachments/nobody"), 404, "nobody"),
        ("GET", "/v1/classes/none/capacity", 404, "none"),
        ("GET", "/v1/volumes?limit=-1", 400, "limit"),
        ("GET", "/v1/volumes?limit=1e9", 400, "limit"),
        ("GET", "/v1/volumes?page_token=zz", 400, "page token"),
        ("GET", "/v1/none", 404, "/v1/openapi.json"),
        ("BREW", "/v1/volumes", 405, "BREW"),
    ] {
        let answer = raw::call(&ground.socket(), method, path, None);
        assert_refused(&answer, status, words);
    }

    let mount = |target: &str| json!({ "node": node, "target": target }).to_string();
    let mounts = "/v1/volumes/a/mounts";
    for (target, status, words) in
        [("/a/../b", 400, ".."), ("a", 400, "absolute"), ("/a\0b", 400, "target"), ("/a", 404, "a")]
    {
        let answer = raw::call(&ground.socket(), "POST", mounts, Some(&mount(target)));
        assert_refused(&answer, status, words);
    }
    assert_well(&ground, &mut server, before);
}

/// Writes a body of 4 GiB in chunks, as fast as the server takes it, and reads the answer.
fn send_4_gib(socket: &Path) -> (u64, Answer) {
    let mut stream = raw::connect(socket);
    let head = "POST /v1/volumes HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("a head is taken");
    let mut chunk = format!("{:x}\r\n", 64 << 10).into_bytes();
    chunk.extend(vec![b' '; 64 << 10]);
    chunk.extend(b"\r\n");
    let mut sent = 0_u64;
    while sent < 4 << 30 {
        if stream.write_all(&chunk).is_err() {
            break;
        }
        sent += 64 << 10;
    }
    (sent, raw::read_answer(&mut stream))
}

#[tokio::test]
async fn a_body_of_4_gib_is_refused_early_and_memory_stays_flat() {
    let ground = Ground::new();
    let (mut server, before) = start(&ground).await;

    for _ in 0..5 {
        let (sent, answer) = send_4_gib(&ground.socket());
        assert!(sent < 64 << 20, "{sent} bytes were taken");
        assert_refused(&answer, 413, "larger than 1048576 bytes");
    }

    let declared = "POST /v1/volumes HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ncontent-length: 4294967296\r\nconnection: close\r\n\r\n";
    assert_refused(&raw::send(&ground.socket(), declared.as_bytes()), 413, "larger than");
    assert_well(&ground, &mut server, before);
}

#[tokio::test]
async fn what_is_not_http_is_cut_off() {
    let ground = Ground::new();
    let (mut server, before) = start(&ground).await;
    let endless = format!("GET / HTTP/1.1\r\nhost: h\r\nx: {}\r\n\r\n", "y".repeat(1 << 20));
    let smuggled = "POST /v1/volumes HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n0\r\n\r\n";

    for bytes in [
        b"\r\n\r\n\0\0\0".as_slice(),
        b"GET\r\n\r\n",
        b"GET /v1/volumes HTTP/9.9\r\nhost: h\r\n\r\n",
        b"GET /v1/vol\0umes HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS greeting, more or less\r\n\r\n",
        b"POST /v1/volumes HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\nzz\r\n",
        b"POST /v1/volumes HTTP/1.1\r\nhost: h\r\ncontent-length: -1\r\n\r\n",
        endless.as_bytes(),
        smuggled.as_bytes(),
    ] {
        let answer = raw::send(&ground.socket(), bytes);
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        let refused = answer.status == 0 || (400..500).contains(&answer.status) || answer.status == 505;
        assert!(refused, "{shown:?} was answered with {}", answer.status);
    }
    // Callers that leave in the middle of a body.
    for _ in 0..50 {
        let mut stream = raw::connect(&ground.socket());
        let head = "POST /v1/volumes HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{";
        stream.write_all(head.as_bytes()).unwrap();
    }
    assert_well(&ground, &mut server, before);
}

/// Connects where the queue may be full for a moment.
async fn patient(socket: &Path) -> tokio::net::UnixStream {
    loop {
        match tokio::net::UnixStream::connect(socket).await {
            Ok(stream) => return stream,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => panic!("connecting: {error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_connections_at_once_are_all_served() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let wanted = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    let raised = rustix::process::setrlimit(rustix::process::Resource::Nofile, wanted);
    raised.expect("the limit of open files can be raised");
    let ground = Ground::new();
    let (mut server, before) = start(&ground).await;
    let socket = ground.socket();
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));

    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..1000 {
        let (socket, gate) = (socket.clone(), gate.clone());
        callers.spawn(async move {
            let _open = gate.acquire().await.expect("never closed");
            let mut stream = patient(&socket).await;
            let request = b"GET /v1/volumes HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
            stream.write_all(request).await.expect("the server reads");
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.expect("the server answers");
            Answer::parse(&answer).status
        });
    }
    gate.add_permits(1000);
    let all = tokio::time::timeout(Duration::from_secs(60), callers.join_all());
    let statuses = all.await.expect("all are served within a minute");

    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1000);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_well(&ground, &mut server, before);
}

#[tokio::test]
async fn garbage_on_the_node_socket_is_cut_off() {
    let ground = Ground::new();
    let (mut server, before) = start(&ground).await;
    let socket = ground.state().join("node.sock");
    let line = |length: usize| [vec![b'x'; length], vec![b'\n']].concat();

    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        b"{}\n".to_vec(),
        b"null\n[1,2]\n".to_vec(),
        b"{\"hello\":{\"version\":999999,\"node\":\"../..\"}}\n".to_vec(),
        vec![0; 1 << 20],
        line(1 << 20),
        line(64 << 20),
        "[".repeat(1 << 20).into_bytes(),
    ] {
        let mut stream = UnixStream::connect(&socket).expect("nodes can dial in");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut said = Vec::new();
        // A reset also means that the server hung up; only silence is wrong.
        match stream.read_to_end(&mut said) {
            Ok(_) => {}
            Err(error) => assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "no end"),
        }
        assert!(said.len() < 64 << 10, "{} bytes were said to a stranger", said.len());
    }
    let nodes = raw::call(&ground.socket(), "GET", "/v1/nodes", None).json();
    assert_eq!(nodes["items"].as_array().map(Vec::len), Some(1), "{nodes}");
    assert_well(&ground, &mut server, before);
}
