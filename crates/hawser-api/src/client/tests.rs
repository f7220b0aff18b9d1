use hawser_core::name::Alias;
use hawser_core::port::Control;
use hawser_core::volume::{VolumeRef, VolumeRequest};
use hawser_core::{ByteSize, Kind, Outcome};
use proptest::prelude::*;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use super::sse::Decoder;
use super::{Endpoint, RestClient};

fn request() -> VolumeRequest {
    VolumeRequest::new(Alias::native("data").unwrap(), ByteSize::gib(1))
}

/// A server that reads one request, writes these bytes and closes.
async fn says(answer: &'static [u8]) -> (tempfile::TempDir, RestClient) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer).await;
            let _ = stream.write_all(answer).await;
        }
    });
    (folder, RestClient::new(Endpoint::Unix(path)))
}

#[test]
fn the_usual_addresses_are_read() {
    for (text, shown) in [
        ("unix:/run/h.sock", "unix:/run/h.sock"),
        ("unix:///run/h.sock", "unix:/run/h.sock"),
        ("/run/h.sock", "unix:/run/h.sock"),
        ("http://localhost", "http://localhost:8170"),
        ("https://[::1]:9", "https://[::1]:9"),
    ] {
        assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), shown);
    }
    for text in ["", "unix:", "ftp://x", "http://", "http://a/b", "http://u@h", "host:1", "\0"] {
        assert!(text.parse::<Endpoint>().is_err(), "{text:?}");
    }
}

#[tokio::test]
async fn a_missing_server_is_explained_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let client = RestClient::new(Endpoint::Unix(folder.path().join("none")));

    let error = client.create_volume(request(), Duration::ZERO).await.unwrap_err();

    assert_eq!((error.kind(), error.outcome()), (Kind::Unavailable, Outcome::Nothing));
    let text = error.sentence();
    assert!(text.contains("/none") && text.contains("`hawser up`"), "{text}");
}

#[tokio::test]
async fn a_connection_lost_during_a_change_leaves_the_outcome_unknown() {
    for answer in [&b""[..], b"HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\n{"] {
        let (_folder, client) = says(answer).await;

        let change = client.create_volume(request(), Duration::ZERO).await.unwrap_err();
        let read = client.get_volume(&VolumeRef::parse("data").unwrap()).await.unwrap_err();

        assert_eq!((change.kind(), change.outcome()), (Kind::Unavailable, Outcome::Unknown));
        assert_eq!((read.kind(), read.outcome()), (Kind::Unavailable, Outcome::Nothing));
    }
}

#[tokio::test]
async fn what_no_hawser_server_says_is_named_as_such() {
    let html = b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>";
    let (_folder, client) = says(html).await;

    let error = client.list_classes().await.unwrap_err();

    assert!(error.sentence().contains("is it a hawser server?"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_a_timeout_after_the_wait_and_a_margin() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let _listener = UnixListener::bind(&path).unwrap();
    let client = RestClient::new(Endpoint::Unix(path));
    let begun = tokio::time::Instant::now();

    let error = client.create_volume(request(), Duration::from_secs(7)).await.unwrap_err();

    assert_eq!((error.kind(), error.outcome()), (Kind::Timeout, Outcome::Unknown));
    assert_eq!(begun.elapsed().as_secs(), 37);
}

#[test]
fn events_are_read_whatever_the_line_ends() {
    let text =
        "\u{feff}id: 1\r\nevent: x\r\ndata: a\r\ndata: b\r\n\r\n: ping\n\ndata:c\n\ndata: d\r\r";

    let events = Decoder::default().push(text.as_bytes());

    assert_eq!(events, [&b"a\nb"[..], b"c", b"d"]);
}

#[test]
fn an_endless_line_is_dropped_and_the_next_event_is_read() {
    let mut decoder = Decoder::default();
    for _ in 0..40 {
        assert!(decoder.push(&[b'x'; 65536]).is_empty());
    }
    decoder.push(b"\n\n");

    assert_eq!(decoder.push(b"data: y\n\n"), [b"y"]);
}

proptest! {
    #[test]
    fn no_bytes_make_the_event_reader_panic(pieces in prop::collection::vec(
        prop::collection::vec(any::<u8>(), 0..64), 0..16)) {
        let mut decoder = Decoder::default();
        for piece in pieces {
            decoder.push(&piece);
        }
        decoder.push(b"\n\n");
        let events = decoder.push(b"data: ok\n\n");
        prop_assert_eq!(events.last().map(Vec::as_slice), Some(&b"ok"[..]));
    }

    #[test]
    fn pieces_do_not_matter(text in "(data|id|event|x)?:? ?[a-z]{0,5}[\r\n]{0,3}", cut in 0_usize..20) {
        let text = format!("{text}data: z\n\n");
        let cut = cut.min(text.len());
        let whole = Decoder::default().push(text.as_bytes());
        let mut decoder = Decoder::default();
        let mut pieces = decoder.push(&text.as_bytes()[..cut]);
        pieces.extend(decoder.push(&text.as_bytes()[cut..]));
        prop_assert_eq!(whole, pieces);
    }

    #[test]
    fn no_text_makes_the_address_reader_panic(text in "\\PC*") {
        let _ = text.parse::<Endpoint>();
    }
}
