//! Server-sent events, as the WHATWG HTML standard defines their text (section 9.2).

use std::collections::VecDeque;
use std::time::Duration;

use futures_core::stream::BoxStream;
use futures_util::StreamExt;
use futures_util::stream;
use hawser_core::event::Event;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::pool::Connection;
use crate::rest::events::EventView;

/// No event is nearly as long; what is longer is dropped, and the stream goes on.
const LONGEST_EVENT: usize = 1 << 20;

/// The server says something at least every 15 s; silence for longer means it is gone.
const SILENCE: Duration = Duration::from_secs(60);

/// Turns bytes, in whatever pieces they come, into the `data` of events.
#[derive(Default)]
pub(super) struct Decoder {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    overflow: bool,
    after_cr: bool,
    begun: bool,
}

impl Decoder {
    /// Takes some bytes and gives the data of each event that they complete.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut events = Vec::new();
        for &byte in bytes {
            // CR, LF and CR LF each end a line.
            let second_half = byte == b'\n' && self.after_cr;
            self.after_cr = byte == b'\r';
            match byte {
                b'\n' if second_half => {}
                b'\r' | b'\n' => events.extend(self.end_line()),
                _ if self.line.len() < LONGEST_EVENT => self.line.push(byte),
                _ => self.overflow = true,
            }
        }
        events
    }

    fn end_line(&mut self) -> Option<Vec<u8>> {
        let mut line = std::mem::take(&mut self.line);
        if !self.begun {
            self.begun = true;
            if line.starts_with(b"\xef\xbb\xbf") {
                line.drain(..3);
            }
        }
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            let has_data = std::mem::take(&mut self.has_data);
            let overflow = std::mem::take(&mut self.overflow);
            return (has_data && !overflow).then_some(data);
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (&line[..], &[][..]),
        };
        // The id and the kind are in the data too; comments keep the connection alive.
        if field == b"data" {
            let value = value.strip_prefix(b" ").unwrap_or(value);
            if self.data.len() + value.len() > LONGEST_EVENT {
                self.overflow = true;
            } else {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            self.has_data = true;
        }
        None
    }
}

struct Source {
    body: Incoming,
    decoder: Decoder,
    ready: VecDeque<Event>,
    /// Drives the body; dropped with the stream.
    _connection: Connection,
}

/// The events of an answer; ends with its connection. What cannot be read is skipped.
pub(super) fn events(connection: Connection, body: Incoming) -> BoxStream<'static, Event> {
    let source = Source {
        body,
        decoder: Decoder::default(),
        ready: VecDeque::new(),
        _connection: connection,
    };
    stream::unfold(source, |mut source| async move {
        loop {
            if let Some(event) = source.ready.pop_front() {
                return Some((event, source));
            }
            let frame = tokio::time::timeout(SILENCE, source.body.frame()).await.ok()??.ok()?;
            let Ok(bytes) = frame.into_data() else { continue };
            source.ready.extend(source.decoder.push(&bytes).iter().filter_map(|data| read(data)));
        }
    })
    .boxed()
}

fn read(data: &[u8]) -> Option<Event> {
    serde_json::from_slice::<EventView>(data).ok().map(Event::from)
}
