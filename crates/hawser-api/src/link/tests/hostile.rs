//! Peers that break the rules, and raw lines as another language would send them.

use std::sync::Arc;
use std::time::Duration;

use hawser_core::port::{Node, Upstream};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::fake::*;
use super::fake_control::{FakeControl, claim, grant};
use crate::link::frame::FrameReader;
use crate::link::hub::Guest;
use crate::link::message::Frame;
use crate::link::{DialOptions, Dialler, Hub, LinkError, NodeClient, serve_node};

struct Raw {
    lines: Lines<BufReader<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
    node: Arc<FakeNode>,
    server: JoinHandle<Result<(), LinkError>>,
    _shutdown: watch::Sender<bool>,
}

/// A node with a raw stream at its other end; its hello is read already.
async fn raw() -> Raw {
    let node = FakeNode::new("n1");
    let (near, far) = UnixStream::pair().unwrap();
    let (shutdown, down) = watch::channel(false);
    let server = tokio::spawn(serve_node(far, node.clone() as Arc<dyn Node>, down));
    let (reader, writer) = near.into_split();
    let lines = BufReader::new(reader).lines();
    let mut raw = Raw { lines, writer, node, server, _shutdown: shutdown };
    let hello = raw.next().await;
    assert_eq!(hello["hello"]["role"], "node");
    assert_eq!(hello["hello"]["node"]["id"], "n1");
    raw
}

impl Raw {
    async fn send(&mut self, line: &str) {
        self.writer.write_all(line.as_bytes()).await.unwrap();
        self.writer.write_all(b"\n").await.unwrap();
    }

    async fn greet(&mut self) {
        self.send(r#"{"hello":{"version":1,"role":"caller"}}"#).await;
    }

    async fn next(&mut self) -> Value {
        let line = self.lines.next_line().await.unwrap().expect("a line");
        serde_json::from_str(&line).unwrap()
    }

    async fn ask(&mut self, request: Value) -> Value {
        self.send(&request.to_string()).await;
        self.next().await
    }
}

#[tokio::test]
async fn a_program_in_another_language_needs_two_lines() {
    let mut raw = raw().await;
    raw.greet().await;

    let answer = raw
        .ask(json!({ "id": 1, "method": "attach", "params": {
            "publication": publication(), "volume": "vol-01k5zzzzzzzzzzzzzzzzzzzzzz",
            "info": { "driverVolumeType": "iscsi", "data": { "targetIqn": "iqn.a" } },
            "secrets": { "auth_password": "hunter2" } } }))
        .await;

    assert_eq!(answer["id"], 1);
    assert_eq!(answer["ok"]["change"], "made");
    assert_eq!(answer["ok"]["value"]["device"], "/dev/loop3");
    let works = raw.node.works.lock().unwrap();
    assert_eq!(works[0].info.secrets["auth_password"].expose(), "hunter2");
    assert_eq!(works[0].attach, hawser_core::attach::Attach::default());
}

#[tokio::test]
async fn a_result_that_is_null_inside_and_one_that_is_a_number_are_answers() {
    let mut raw = raw().await;
    raw.greet().await;
    let p = publication();

    let thawed = raw.ask(json!({ "id": 5, "method": "thaw", "params": { "publication": p } }));
    assert_eq!(thawed.await, json!({ "id": 5, "ok": { "change": "already", "value": null } }));
    let grown =
        raw.ask(json!({ "id": 6, "method": "extend", "params": { "publication": p, "size": 1 } }));
    assert_eq!(grown.await, json!({ "id": 6, "ok": 2 }));
}

#[tokio::test]
async fn bad_calls_are_answered_and_the_link_goes_on() {
    let mut raw = raw().await;
    raw.greet().await;
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));

    for (line, kind, word) in [
        (r#"{"id":1,"method":"reboot"}"#.to_owned(), "unsupported", "reboot"),
        (r#"{"id":2,"method":"freeze"}"#.to_owned(), "invalid", "publication"),
        (r#"{"id":3,"method":"freeze","params":{"publication":"../x"}}"#.into(), "invalid", "x"),
        (r#"{"id":4,"method":"survey","params":{"fixx":true}}"#.into(), "invalid", "fixx"),
        (format!(r#"{{"id":5,"method":"attach","params":{deep}}}"#), "invalid", "attach"),
        (r#"{"id":6,"method":"describe","params":7}"#.to_owned(), "invalid", "describe"),
        (
            r#"{"id":8,"method":"pools","params":{"class":"a","call":"all"}}"#.into(),
            "invalid",
            "pools",
        ),
        (r#"{"id":9,"method":"usage","params":{"target":"/"}}"#.into(), "invalid", "publication"),
        (r#"{"id":10,"method":"upstream.grant"}"#.to_owned(), "invalid", "volume"),
        (release(), "unsupported", "calls of nodes"),
    ] {
        raw.send(&line).await;
        let answer = raw.next().await;
        assert_eq!(answer["error"]["kind"], kind, "{answer}");
        assert!(answer["error"]["messages"].to_string().contains(word), "{answer}");
    }
    assert!(raw.node.seen.lock().unwrap().is_empty());
    let alive = raw.ask(json!({ "id": 7, "method": "attachments", "params": null })).await;
    assert_eq!(alive["id"], 7);
    assert!(alive["ok"].is_array());
}

/// A call upwards that is right in itself.
fn release() -> String {
    let params = json!({ "volume": "vol-01k5zzzzzzzzzzzzzzzzzzzzzz", "node": "n1" });
    json!({ "id": 11, "method": "upstream.release", "params": params }).to_string()
}

/// Raw lines to a control half, as the node `n1`; answers the next line that is no hello.
async fn as_node(control: Arc<FakeControl>, line: &str) -> Value {
    let (near, far) = UnixStream::pair().unwrap();
    let guest = Guest { certificate: None, upstream: Some(control) };
    tokio::spawn(async move { Hub::default().accept_guest(far, guest).await });
    let (reader, mut writer) = near.into_split();
    let record = FakeNode::new("n1").describe().await.unwrap();
    let hello = json!({ "hello": { "version": 1, "role": "node", "node": record } });
    writer.write_all(format!("{hello}\n{line}\n").as_bytes()).await.unwrap();
    let mut lines = BufReader::new(reader).lines();
    assert!(lines.next_line().await.unwrap().unwrap().contains("hello"));
    serde_json::from_str(&lines.next_line().await.unwrap().expect("an answer")).unwrap()
}

#[tokio::test]
async fn a_node_may_ask_its_control_half_and_only_what_is_for_nodes() {
    let control = FakeControl::new();

    let released = as_node(control.clone(), &release()).await;
    assert_eq!(released, json!({ "id": 11, "ok": null }));
    let other = release().replace("n1", "n2");
    assert_eq!(as_node(control.clone(), &other).await["error"]["kind"], "denied");
    let attach = r#"{"id":1,"method":"survey","params":{"fix":true}}"#;
    assert_eq!(as_node(control.clone(), attach).await["error"]["kind"], "unsupported");
    assert_eq!(control.seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn the_secrets_of_a_grant_stand_beside_it() {
    let params = json!({ "volume": "vol-01k5zzzzzzzzzzzzzzzzzzzzzz", "node": "n1",
        "read_only": false, "publish": true });
    let call = json!({ "id": 4, "method": "upstream.grant", "params": params });

    let answer = as_node(FakeControl::new(), &call.to_string()).await;

    assert_eq!(answer["ok"]["secrets"], json!({ "auth_password": "hunter2" }));
    assert!(!answer["ok"]["info"].to_string().contains("hunter2"), "{answer}");
}

/// A control half that answers the first call it gets with this.
async fn answering(ok: Value) -> hawser_core::Error {
    let (near, far) = UnixStream::pair().unwrap();
    let dialler = Dialler::new(FakeNode::new("n1"), DialOptions::default());
    let upstream = dialler.upstream();
    let (_keep, down) = watch::channel(false);
    let mut streams = vec![near];
    let connect = move || {
        let stream = streams.pop().ok_or_else(|| std::io::Error::other("only once"));
        async move { stream }
    };
    tokio::spawn(dialler.run_with(connect, down));
    tokio::spawn(async move {
        let (reader, mut writer) = far.into_split();
        let hello = json!({ "hello": { "version": 1, "role": "control" } });
        writer.write_all(format!("{hello}\n").as_bytes()).await.unwrap();
        let mut lines = BufReader::new(reader).lines();
        lines.next_line().await.unwrap();
        let call: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
        let answer = json!({ "id": call["id"], "ok": ok });
        writer.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
        lines.next_line().await
    });
    upstream.grant(&claim("n1", true)).await.unwrap_err()
}

#[tokio::test]
async fn a_grant_of_a_wrong_shape_is_unknown_and_its_secrets_are_not_repeated() {
    let mut right = serde_json::to_value(grant()).unwrap();
    for secrets in [json!("hunter2"), json!({ "auth_password": { "is": "hunter2" } })] {
        right["secrets"] = secrets;

        let error = answering(right.clone()).await;

        assert_eq!(error.kind(), hawser_core::Kind::Internal);
        assert!(error.is_unknown(), "it may have been published");
        assert!(!error.sentence().contains("hunter2"), "{error:?}");
    }
    right["size"] = json!("much");
    let error = answering(right).await;
    assert!(error.is_unknown() && !error.sentence().contains("hunter2"), "{error:?}");
}

#[tokio::test]
async fn secrets_of_a_wrong_shape_are_refused_without_repeating_them() {
    let mut raw = raw().await;
    raw.greet().await;

    for secrets in [json!("hunter2"), json!({ "auth_password": ["hunter2"] })] {
        let answer = raw
            .ask(json!({ "id": 1, "method": "attach", "params": {
                "publication": publication(), "volume": "vol-01k5zzzzzzzzzzzzzzzzzzzzzz",
                "info": { "driver_volume_type": "x", "data": {} }, "secrets": secrets } }))
            .await;

        assert_eq!(answer["error"]["kind"], "invalid");
        assert!(!answer.to_string().contains("hunter2"), "{answer}");
    }
}

#[tokio::test]
async fn lines_that_are_no_frames_end_the_link_with_a_reason() {
    for (line, word) in [
        ("GET / HTTP/1.1", "not a JSON object"),
        (r#"["hello"]"#, "not a JSON object"),
        (r#"{"id":1}"#, "it needs id and method"),
        (r#"{"id":-1,"method":"freeze"}"#, "another type"),
        (r#"{"hello":{"version":1,"role":"caller"}}"#, "second hello"),
    ] {
        let mut raw = raw().await;
        raw.greet().await;

        raw.send(line).await;

        let bye = raw.next().await;
        assert!(bye["bye"]["reason"].to_string().contains(word), "{line}: {bye}");
        assert!(raw.lines.next_line().await.unwrap().is_none());
        assert!(raw.server.await.unwrap().is_err());
    }
}

#[tokio::test]
async fn an_endless_line_ends_the_link() {
    let mut raw = raw().await;
    raw.greet().await;
    let mut writer = raw.writer;
    let flood = tokio::spawn(async move {
        let chunk = vec![b'a'; 1 << 20];
        let mut sent = 0_usize;
        while writer.write_all(&chunk).await.is_ok() {
            sent += 1;
            assert!(sent < 64, "nobody stops the flood");
        }
    });

    let error = raw.server.await.unwrap().unwrap_err();

    assert!(matches!(error, LinkError::FrameTooLong { .. }), "{error}");
    flood.await.unwrap();
}

#[tokio::test]
async fn other_versions_are_refused_in_plain_words() {
    for hello in [
        r#"{"hello":{"version":9,"oldest":7,"role":"caller"}}"#,
        r#"{"hello":{"version":9,"oldest":7,"role":"something new","shape":[]}}"#,
    ] {
        let mut raw = raw().await;

        raw.send(hello).await;

        let bye = raw.next().await;
        let reason = bye["bye"]["reason"].as_str().unwrap().to_owned();
        assert!(reason.contains("speaks version 1 of the node link"), "{reason}");
        assert!(reason.contains("versions 7 to 9"), "{reason}");
    }
    let mut raw = raw().await;
    raw.send(r#"{"hello":{"version":9,"oldest":1,"role":"caller","new":1}}"#).await;
    assert!(raw.ask(json!({ "id": 1, "method": "attachments" })).await["ok"].is_array());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_says_hello_is_sent_away() {
    let (_near, far) = tokio::io::duplex(1024);
    let error = Hub::default().accept(far).await.unwrap_err();
    assert!(matches!(error, LinkError::HelloLate(_)), "{error}");
}

#[tokio::test]
async fn calls_before_the_hello_are_refused() {
    let mut raw = raw().await;
    raw.send(r#"{"id":1,"method":"survey","params":{"fix":true}}"#).await;
    assert!(matches!(raw.server.await.unwrap(), Err(LinkError::HelloMissing)));
    assert!(raw.node.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn answers_nobody_waits_for_and_garbage_answers_do_no_harm() {
    let (near, far) = UnixStream::pair().unwrap();
    let (reader, mut writer) = far.into_split();
    let hello = json!({ "hello": { "version": 1, "role": "node" } });
    writer.write_all(format!("{hello}\n").as_bytes()).await.unwrap();
    let client = NodeClient::open(near).await.unwrap();
    let mut lines = BufReader::new(reader).lines();
    lines.next_line().await.unwrap();
    for id in 0..10_000_u64 {
        let stray = json!({ "id": u64::MAX - id, "ok": null });
        writer.write_all(format!("{stray}\n").as_bytes()).await.unwrap();
    }
    let answer = tokio::spawn(async move {
        let request = lines.next_line().await.unwrap().unwrap();
        let request: Value = serde_json::from_str(&request).unwrap();
        let wrong = json!({ "id": request["id"], "ok": { "change": "perhaps" } });
        writer.write_all(format!("{wrong}\n").as_bytes()).await.unwrap();
        (lines, writer)
    });

    let error = client.freeze(&publication()).await.unwrap_err();

    assert_eq!(error.kind(), hawser_core::Kind::Internal);
    assert!(error.is_unknown(), "it may have happened");
    let (mut lines, mut writer) = answer.await.unwrap();
    writer.write_all(b"{\"id\":0,\"method\":\"freeze\"}\n").await.unwrap();
    let refused = lines.next_line().await.unwrap().unwrap();
    assert!(refused.contains("invalid"), "{refused}");
}

#[tokio::test]
async fn a_peer_that_sends_without_end_is_told_to_wait() {
    let mut raw = raw().await;
    raw.greet().await;
    raw.node.hold();
    let call = json!({ "id": 1, "method": "freeze", "params": { "publication": publication() } });
    for _ in 0..1024 {
        raw.send(&call.to_string()).await;
    }

    let refused = raw.ask(call).await;

    assert_eq!(refused["error"]["kind"], "busy", "{refused}");
    assert_eq!(refused["error"]["outcome"], "nothing");
    raw.node.release();
    for _ in 0..1024 {
        assert!(raw.next().await["ok"].is_object());
    }
}

#[tokio::test]
async fn a_frame_in_pieces_blank_lines_and_pings_are_fine() {
    let mut raw = raw().await;
    for byte in b"{\"hello\":{\"version\":1,\"role\":\"caller\"}}\r\n\n  \n{\"ping\":7}\n" {
        raw.writer.write_all(&[*byte]).await.unwrap();
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    assert_eq!(raw.next().await, json!({ "pong": 7 }));
}

/// Every line of the document that other languages are written from is a frame, every call can be
/// read, and every method has one.
#[test]
fn the_document_shows_every_method_as_it_is() {
    let document = include_str!("../../../../../docs/node-link.md");
    let mut methods = std::collections::BTreeSet::new();
    for line in document.lines().filter(|line| line.starts_with("{\"")) {
        match Frame::parse(line.as_bytes()).unwrap_or_else(|error| panic!("{line}: {error}")) {
            Frame::Request { method, params, .. } => {
                let call = crate::link::call::Call::parse(&method, params.as_deref());
                methods.insert(call.unwrap_or_else(|error| panic!("{line}: {error:?}")).method());
            }
            Frame::Answer { .. } | Frame::Hello(_) => {}
            Frame::Ping(_) | Frame::Pong | Frame::Bye(_) => panic!("{line}"),
        }
    }
    assert_eq!(methods.len(), 23, "{methods:?}");
}

// Frames as the document shows them, and others; damaged, and read as far as they can be.
hawser_testkit::fuzz_corpus!(corpus, "link_frame", |bytes| {
    let Ok(frame) = Frame::parse(bytes) else { return };
    if let Frame::Request { method, params, .. } = &frame {
        let _ = crate::link::call::Call::parse(method, params.as_deref());
    }
    if let Frame::Answer { result: Ok(ok), .. } = &frame {
        let _ = serde_json::from_str::<hawser_core::port::pools::PoolAnswer>(ok.get());
        let read = serde_json::from_str::<crate::link::upstream::GrantRead>(ok.get());
        let _ = read.map(|grant| grant.into_grant(true));
    }
});

proptest! {
    #[test]
    fn no_line_makes_the_parser_panic(line in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Frame::parse(&line);
    }

    #[test]
    fn no_json_makes_the_parser_panic(
        line in r#"\{("(id|method|params|ok|error|hello|ping|bye)":(-?[0-9]{1,25}|null|"[a-z]{0,5}"|\{"version":[0-9]{1,12}\}|\[\]),?){0,5}\}"#,
    ) {
        let _ = Frame::parse(line.as_bytes());
    }

    #[test]
    fn no_call_makes_the_reader_panic(
        method in "describe|attach|detach|format|mount|unmount|extend|survey|usage|pools|library[.](connect|disconnect|lookup|properties)|upstream[.](grant|report|release)|[a-z]{0,80}",
        params in r#"(\{("(publication|volume|info|size|fix|target|secrets|class|call|node|fact|publish)":("[^"\\]{0,9}"|[0-9]{1,22}|\{\}|null|\{"(call|type)":"[a-z_]{0,9}","(of|value)":(null|\{\}|\[\])\}),?){0,5}\})|null|\[\]"#,
    ) {
        if let Ok(raw) = serde_json::value::RawValue::from_string(params) {
            let _ = crate::link::call::Call::parse(&method, Some(&raw));
        }
    }

    #[test]
    fn however_a_stream_is_cut_the_same_frames_come_out(
        numbers in proptest::collection::vec(any::<u64>(), 0..20),
        piece in 1_usize..40,
    ) {
        let text: String = numbers.iter().map(|n| format!("{{\"ping\":{n}}}\n")).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let read = runtime.block_on(async {
            let (mut near, far) = tokio::io::duplex(piece);
            let write = async {
                for part in text.as_bytes().chunks(piece) {
                    near.write_all(part).await.unwrap();
                }
                drop(near);
            };
            let read = async {
                let mut reader = FrameReader::new(far);
                let mut read = Vec::new();
                while let Ok((Frame::Ping(number), _)) = reader.next(|| ()).await {
                    read.push(number);
                }
                read
            };
            tokio::join!(write, read).1
        });
        prop_assert_eq!(read, numbers);
    }
}
