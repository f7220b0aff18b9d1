//! What callers should not send: each refused in plain words with the right status, nothing else.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::book::Book;
use super::rig::{Answered, Rig};
use crate::rest::Limits;

fn assert_problem(answer: &Answered, status: u16, kind: &str, words: &str) {
    let problem = answer.json();
    assert_eq!(answer.header("content-type"), "application/problem+json", "{problem}");
    assert_eq!((answer.status.as_u16(), &problem["status"]), (status, &json!(status)), "{problem}");
    assert_eq!(problem["kind"], kind, "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains(words), "{detail:?} does not say {words:?}");
    assert!(answer.body.len() < 4096, "an answer of {} bytes", answer.body.len());
}

#[tokio::test]
async fn bad_bodies_are_refused_with_the_reason() {
    let rig = Rig::start();
    let mut book = Book::open(&rig).await;
    let long = "x".repeat(300);
    let other = hawser_core::id::SnapshotId::generate().to_string();
    let cases: Vec<(Value, &str, &str)> = vec![
        (json!({ "name": "a", "size": -1 }), "invalid", "is not a size"),
        (json!({ "name": "a", "size": "-1" }), "invalid", "is not a size"),
        (json!({ "name": "a", "size": 1e30 }), "invalid", "a whole number of bytes"),
        (json!({ "name": "a", "size": "1e30" }), "invalid", "is not a size"),
        (json!({ "name": "a", "size": "9999PiB" }), "invalid", "larger than any device"),
        (json!({ "name": "a", "size": 0 }), "out_of_range", "0 bytes is not possible"),
        (json!({ "name": "a" }), "invalid", "a size is needed"),
        (json!({ "name": "a", "size": 1, "sise": 2 }), "invalid", "unknown field `sise`"),
        (json!({ "name": "a/b", "size": 1 }), "invalid", "is not allowed"),
        (json!({ "name": "..", "size": 1 }), "invalid", "is not allowed"),
        (json!({ "name": "a\u{0}b", "size": 1 }), "invalid", "is not allowed"),
        (json!({ "name": long, "size": 1 }), "invalid", "300 bytes is longer"),
        (json!({ "name": "", "size": 1 }), "invalid", "is empty"),
        (json!({ "name": other, "size": 1 }), "invalid", "has the form of an internal id"),
        (json!({ "name": 7, "size": 1 }), "invalid", "expected a string"),
        (json!({ "name": "a", "size": 1, "class": "../x" }), "invalid", "class name"),
        (json!({ "name": "a", "size": 1, "labels": { "a b": "c" } }), "invalid", "label key"),
        (json!([]), "invalid", "reading the body"),
        (json!({ "name": "a", "size": 1, "source": { "snapshot": "none" } }), "not_found", "none"),
        (json!({ "x".repeat(100_000): 1 }), "invalid", "unknown field"),
    ];

    for (body, kind, words) in cases {
        let status = if kind == "not_found" { 404 } else { 400 };
        let answer = book.call(&rig, "POST", "/v1/volumes", Some(body)).await;
        assert_problem(&answer, status, kind, words);
    }
    let mount = json!({ "node": "n1", "target": "/a/../b" });
    let answer = book.call(&rig, "POST", "/v1/volumes/a/mounts", Some(mount)).await;
    assert_problem(&answer, 400, "invalid", "must not contain ..");
    for text in ["", "{", "nul\0", "{\"name\":\"a\",\"size\":1}x", &"[".repeat(10_000)] {
        let request = Request::post("/v1/volumes").header("content-type", "application/json");
        let answer = rig.send(request.body(Full::new(Bytes::from(text.to_owned()))).unwrap()).await;
        assert_problem(&answer, 400, "invalid", "reading the body");
        book.judge("POST", "/v1/volumes", &answer);
    }
    let form = Request::post("/v1/volumes").body(Full::new(Bytes::from("a=b"))).unwrap();
    assert_problem(&rig.send(form).await, 415, "invalid", "content-type application/json");
    assert_eq!(rig.call("GET", "/v1/volumes", None).await.json()["items"], json!([]));
    rig.stop().await;
}

#[tokio::test]
async fn bad_paths_and_queries_are_refused_with_the_reason() {
    let rig = Rig::start();
    let snapshot = hawser_core::id::SnapshotId::generate();
    let volume = hawser_core::id::VolumeId::generate();
    let long = "x".repeat(300);
    for (path, status, kind, words) in [
        ("/v1/volumes/..", 400, "invalid", "is not allowed"),
        ("/v1/volumes/a%2Fb", 400, "invalid", "is not allowed"),
        ("/v1/volumes/a%00b", 400, "invalid", "is not allowed"),
        ("/v1/volumes/%FF", 400, "invalid", "reading the path"),
        (&*format!("/v1/volumes/{long}"), 400, "invalid", "is longer than"),
        (&*format!("/v1/volumes/{snapshot}"), 400, "invalid", "form of an internal id"),
        (&*format!("/v1/volumes/{volume}"), 404, "not_found", volume.as_str()),
        (&*format!("/v1/snapshots/{volume}"), 400, "invalid", "form of an internal id"),
        (&*format!("/v1/operations/{volume}"), 400, "invalid", "is not an operation id"),
        ("/v1/volumes/heketi:xyz", 400, "invalid", "hex"),
        ("/v1/classes/NO/capacity", 400, "invalid", "class name"),
        ("/v1/classes/none/capacity", 404, "not_found", "none"),
        ("/v1/volumes?limit=-1", 400, "invalid", "limit"),
        ("/v1/volumes?limit=1e9", 400, "invalid", "limit"),
        ("/v1/volumes?limit=1&limit=2", 400, "invalid", "more than once"),
        ("/v1/volumes?label=x", 400, "invalid", "key=value"),
        ("/v1/volumes?page_token=zz", 400, "invalid", "page token"),
        ("/v1/volumes?x=1", 400, "invalid", "\"x\" is not known here"),
        (
            "/v1/operations/op-01k5zzzzzzzzzzzzzzzzzzzzzz?wait=11m",
            400,
            "out_of_range",
            "10 minutes",
        ),
        ("/v1/operations/op-01k5zzzzzzzzzzzzzzzzzzzzzz?wait=soon", 400, "invalid", "not a time"),
        ("/v1/events?after=x", 400, "invalid", "sequence number"),
        ("/v1/none", 404, "not_found", "/v1/openapi.json"),
        ("/", 404, "not_found", "/v1/openapi.json"),
        ("/v1/volumes/", 404, "not_found", "there is nothing"),
    ] {
        assert_problem(&rig.call("GET", path, None).await, status, kind, words);
    }
    let answer = rig.call("PUT", "/v1/volumes", None).await;
    assert_problem(&answer, 405, "invalid", "PUT is not possible at /v1/volumes");
    assert_eq!(answer.header("allow"), "GET,HEAD,POST");
    let answer = rig.call("BREW", "/v1/volumes", None).await;
    assert_problem(&answer, 405, "invalid", "BREW");
    rig.stop().await;
}

#[tokio::test]
async fn a_fault_of_ours_is_a_fixed_sentence_with_the_callers_request_id() {
    let rig = Rig::start();
    for (name, status) in [("panic", 500), ("internal", 500), ("unknown", 503)] {
        let request = Request::post("/v1/volumes")
            .header("content-type", "application/json")
            .header("x-request-id", "mine-1");
        let body = json!({ "name": name, "size": 1 }).to_string();
        let answer = rig.send(request.body(Full::new(Bytes::from(body))).unwrap()).await;

        assert_problem(
            &answer,
            status,
            "internal",
            "the server's log has the details under mine-1",
        );
        assert_eq!(answer.json()["trace_id"], "mine-1");
        assert_eq!(answer.json()["retryable"], json!(status == 503));
        assert_eq!(answer.header("x-request-id"), "mine-1");
        assert!(!String::from_utf8_lossy(&answer.body).contains("secret"));
    }
    for bad in ["a b", &"x".repeat(200), ""] {
        let request = Request::get("/healthz").header("x-request-id", bad);
        let answer = rig.send(request.body(Full::<Bytes>::default()).unwrap()).await;
        assert_eq!(answer.header("x-request-id").len(), 32, "{bad:?} was taken over");
    }
    rig.stop().await;
}

/// Four GiB in pieces, made as they are asked for.
struct Endless {
    piece: Bytes,
    left: u64,
    sent: Arc<AtomicU64>,
}

impl hyper::body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(left) = self.left.checked_sub(self.piece.len() as u64) else {
            return Poll::Ready(None);
        };
        self.left = left;
        self.sent.fetch_add(self.piece.len() as u64, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(self.piece.clone()))))
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_body_of_4_gib_is_refused_after_a_mebibyte_and_memory_stays_flat() {
    let rig = Rig::start();
    let piece = Bytes::from(vec![b' '; 64 << 10]);
    let before = resident_kib();
    for _ in 0..20 {
        let sent = Arc::new(AtomicU64::new(0));
        let body = Endless { piece: piece.clone(), left: 4 << 30, sent: sent.clone() };
        let request = Request::post("/v1/volumes").header("content-type", "application/json");

        let answer = rig.send(request.body(body).unwrap()).await;

        assert_problem(&answer, 413, "out_of_range", "larger than 1048576 bytes");
        let sent = sent.load(Ordering::Relaxed);
        assert!(sent < 16 << 20, "{sent} bytes were taken");
    }
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 64 << 10, "memory grew by {grown} KiB");
    rig.stop().await;
}

async fn raw(rig: &Rig, text: &str) -> String {
    let mut stream = UnixStream::connect(&rig.socket).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    tokio::time::timeout(Duration::from_secs(60), read).await.expect("an end").unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_declared_length_above_the_limit_is_refused_before_the_body() {
    let rig = Rig::start();
    let begun = Instant::now();

    let answer = raw(
        &rig,
        "POST /v1/volumes HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ncontent-length: 4294967296\r\nconnection: close\r\n\r\n",
    )
    .await;

    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    // Waiting for the body would take 30 s.
    assert!(begun.elapsed() < Duration::from_secs(25));
    rig.stop().await;
}

#[tokio::test]
async fn heads_that_never_end_or_are_too_long_are_cut_off() {
    let limits = Limits { header: Duration::from_millis(200), ..Limits::default() };
    let rig = Rig::with(Limits { grace: Duration::from_millis(300), ..limits });
    let mut idle = UnixStream::connect(&rig.socket).await.unwrap();
    let mut slow = UnixStream::connect(&rig.socket).await.unwrap();
    slow.write_all(b"GET /healthz HTTP/1.1\r\nx: ").await.unwrap();

    for stream in [&mut idle, &mut slow] {
        let mut buffer = Vec::new();
        let end = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut buffer));
        end.await.expect("the server hangs up").ok();
    }
    let long = format!("GET /healthz HTTP/1.1\r\nhost: h\r\nx: {}\r\n\r\n", "y".repeat(80 << 10));
    let mut stream = UnixStream::connect(&rig.socket).await.unwrap();
    let _ = stream.write_all(long.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut answer)).await;
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "a head of 80 KiB was taken");
    assert_eq!(rig.call("GET", "/healthz", None).await.status, StatusCode::OK);
    rig.stop().await;
}

#[tokio::test]
async fn more_connections_than_allowed_wait_and_are_served_later() {
    let grace = Duration::from_millis(300);
    let rig = Rig::with(Limits { connections: 2, grace, ..Limits::default() });
    let idle = [
        UnixStream::connect(&rig.socket).await.unwrap(),
        UnixStream::connect(&rig.socket).await.unwrap(),
    ];
    let mut call = Box::pin(rig.call("GET", "/healthz", None));

    let early = tokio::time::timeout(Duration::from_millis(300), call.as_mut()).await;
    drop(idle);
    let later = call.as_mut().await;
    drop(call);

    assert!(early.is_err(), "the limit was not kept");
    assert_eq!(later.status, StatusCode::OK);
    rig.stop().await;
}

#[tokio::test]
async fn a_caller_that_leaves_does_not_hold_its_events() {
    use hawser_core::port::Control;

    let rig = Rig::start();
    let client = rig.client();
    let events = client.events(None).await.unwrap();
    let held = rig.control.watchers();
    assert!(held >= 1);

    drop(events);

    let begun = Instant::now();
    while rig.control.watchers() >= held {
        assert!(begun.elapsed() < Duration::from_secs(60), "the stream is still held");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    rig.stop().await;
}
