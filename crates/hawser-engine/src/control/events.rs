//! Events: a bounded memory of what changed, and a stream of what changes.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use futures_core::stream::BoxStream;
use futures_util::StreamExt;
use futures_util::stream;
use tokio::sync::broadcast;

use hawser_core::Timestamp;
use hawser_core::event::{Event, EventKind};

/// How many events a caller may have missed and still get.
const KEPT: usize = 1024;

/// Tells whoever listens what changed.
pub(crate) struct Events {
    kept: Mutex<(u64, VecDeque<Event>)>,
    sender: broadcast::Sender<Event>,
}

impl Events {
    pub(crate) fn new() -> Self {
        Self { kept: Mutex::new((0, VecDeque::new())), sender: broadcast::Sender::new(KEPT) }
    }

    pub(crate) fn tell(&self, kind: EventKind, subject: &str, message: impl Into<String>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.0 += 1;
        let event = Event {
            sequence: kept.0,
            at: Timestamp::now(),
            kind,
            subject: subject.to_owned(),
            message: message.into(),
        };
        if kept.1.len() == KEPT {
            kept.1.pop_front();
        }
        kept.1.push_back(event.clone());
        // Nobody listening is no failure. Sent under the lock, so that the order is that of the
        // numbers.
        let _ = self.sender.send(event);
    }

    /// Events after this number, or from now on.
    pub(crate) fn stream(&self, after: Option<u64>) -> BoxStream<'static, Event> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let receiver = self.sender.subscribe();
        let mut missed: Vec<Event> = Vec::new();
        if let Some(after) = after {
            let oldest = kept.1.front().map_or(kept.0 + 1, |event| event.sequence);
            if after.saturating_add(1) < oldest || after > kept.0 {
                missed.push(compacted(kept.0));
            } else {
                missed.extend(kept.1.iter().filter(|event| event.sequence > after).cloned());
            }
        }
        drop(kept);
        let live = stream::unfold(receiver, |mut receiver| async move {
            match receiver.recv().await {
                Ok(event) => Some((event, receiver)),
                Err(broadcast::error::RecvError::Lagged(_)) => Some((compacted(0), receiver)),
                Err(broadcast::error::RecvError::Closed) => None,
            }
        });
        stream::iter(missed).chain(live).boxed()
    }
}

fn compacted(sequence: u64) -> Event {
    Event {
        sequence,
        at: Timestamp::now(),
        kind: EventKind::Compacted,
        subject: String::new(),
        message: "events were missed; read the lists again".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn take(stream: BoxStream<'static, Event>, count: usize) -> Vec<(u64, EventKind)> {
        stream.take(count).map(|event| (event.sequence, event.kind)).collect().await
    }

    #[tokio::test]
    async fn a_listener_gets_what_it_missed_and_what_follows() {
        let events = Events::new();
        for _ in 0..3 {
            events.tell(EventKind::VolumeChanged, "v", "");
        }
        let stream = events.stream(Some(1));
        events.tell(EventKind::VolumeDeleted, "v", "");

        let seen = take(stream, 3).await;

        assert_eq!(seen.iter().map(|event| event.0).collect::<Vec<_>>(), [2, 3, 4]);
    }

    #[tokio::test]
    async fn a_listener_that_missed_too_much_is_told_so() {
        let events = Events::new();
        for _ in 0..KEPT + 5 {
            events.tell(EventKind::VolumeChanged, "v", "");
        }

        let behind = take(events.stream(Some(1)), 1).await;
        let ahead = take(events.stream(Some(1_000_000)), 1).await;

        assert_eq!(behind[0].1, EventKind::Compacted);
        assert_eq!(ahead[0].1, EventKind::Compacted, "a number of an earlier server life");
    }
}
