//! Watches: what changed since a revision, line by line.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::sync::watch as bell;
use tokio::time::Instant;

use super::FakeApi;
use super::answer::{self, Answer, Refusal};
use super::call::{Call, View};
use super::fault::{self, Cut};
use super::select::Selection;
use super::state::{Change, State};

/// How long a watch lasts when its caller does not say; the real one takes a time of this order.
const LASTS: Duration = Duration::from_secs(1800);
const INITIAL_END: &str = "k8s.io/initial-events-end";

type Line = io::Result<Frame<Bytes>>;

/// One watch that is open.
struct Watch {
    open: Open,
    bell: bell::Receiver<()>,
    selection: Selection,
    view: View,
    kind: String,
    /// What is sent before anything else.
    first: VecDeque<Value>,
    after: u64,
    cuts: u64,
    takes_bookmarks: bool,
    bookmarks: u64,
    until: Instant,
    ended: bool,
}

/// Is counted as long as it lives.
struct Open {
    fake: FakeApi,
    plural: String,
}

impl Open {
    fn new(fake: FakeApi, plural: String) -> Self {
        fake.change(|state| state.watched.push(plural.clone()));
        Self { fake, plural }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.fake.change(|state| {
            let at = state.watched.iter().position(|plural| *plural == self.plural);
            at.map(|at| state.watched.swap_remove(at))
        });
    }
}

impl FakeApi {
    pub(super) fn watch(&self, call: &Call) -> Answer {
        let watch = match self.open(call) {
            Ok(watch) => watch,
            Err(refusal) => return answer::refuse(&refusal),
        };
        let lines = stream::unfold(watch, |mut watch| async move {
            let line = watch.next().await?;
            Some((line, watch))
        });
        Ok(Response::new(StreamBody::new(lines).boxed_unsync()))
    }

    fn open(&self, call: &Call) -> Result<Watch, Refusal> {
        let state = self.lock();
        let target = state.target(call)?;
        let selection = Selection::new(&target, call)?;
        let view = call.view(&target);
        let kind = state.kind(&target);
        let takes_bookmarks = call.flag("allowWatchBookmarks");
        let wants_initial = call.flag("sendInitialEvents");
        if wants_initial && call.option("resourceVersionMatch") != "NotOlderThan" {
            return Err(Refusal::new(422, "sendInitialEvents needs resourceVersionMatch"));
        }
        let mut first = VecDeque::new();
        let from = call.option("resourceVersion");
        let after = match from {
            "" | "0" => state.revision,
            _ if wants_initial => state.revision,
            from => from.parse().map_err(|_| Refusal::bad_request("invalid resource version"))?,
        };
        if wants_initial || matches!(from, "" | "0") {
            let there = state.select(&selection);
            first.extend(there.into_iter().map(|object| event("ADDED", view.object(object))));
        }
        if wants_initial && takes_bookmarks {
            let mut end = bookmark(&kind, &view, after);
            end["object"]["metadata"]["annotations"] = json!({ INITIAL_END: "true" });
            first.push_back(end);
        }
        // The real one says so in the stream, too, and not in the code of its answer.
        let ended = after < state.compacted;
        if ended {
            first.push_back(event("ERROR", too_old(after)));
        }
        let lasts = call.option("timeoutSeconds").parse().map_or(LASTS, Duration::from_secs);
        let (cuts, bookmarks) = (state.cuts, state.bookmarks);
        drop(state);
        Ok(Watch {
            open: Open::new(self.clone(), target.plural),
            bell: self.bell.subscribe(),
            selection,
            view,
            kind,
            first,
            after,
            cuts,
            takes_bookmarks,
            bookmarks,
            until: Instant::now() + lasts,
            ended,
        })
    }
}

impl Watch {
    async fn next(&mut self) -> Option<Line> {
        loop {
            if let Some(event) = self.first.pop_front() {
                return Some(Ok(line(&event)));
            }
            if self.ended {
                return None;
            }
            self.bell.borrow_and_update();
            if let Some(line) = self.look() {
                return line;
            }
            tokio::select! {
                // The watch has an end of the bell itself, so this never fails.
                _ = self.bell.changed() => {}
                () = tokio::time::sleep_until(self.until) => {
                    self.ended = true;
                    if self.takes_bookmarks {
                        self.first.push_back(bookmark(&self.kind, &self.view, self.after));
                    }
                }
            }
        }
    }

    /// What there is to say now; `Some(None)` ends the stream.
    fn look(&mut self) -> Option<Option<Line>> {
        let fake = self.open.fake.clone();
        let state = fake.lock();
        if self.cuts != state.cuts {
            self.ended = true;
            return Some(match state.cut {
                Cut::End => None,
                Cut::Reset => Some(Err(fault::reset())),
                Cut::Gone => Some(Ok(line(&event("ERROR", too_old(self.after))))),
            });
        }
        if state.held {
            return None;
        }
        if let Some(event) = self.advance(&state) {
            return Some(Some(Ok(line(&event))));
        }
        if self.takes_bookmarks && self.bookmarks != state.bookmarks {
            self.bookmarks = state.bookmarks;
            return Some(Some(Ok(line(&bookmark(&self.kind, &self.view, self.after)))));
        }
        None
    }

    /// The next event that the selection is about.
    fn advance(&mut self, state: &State) -> Option<Value> {
        let later = state.history.partition_point(|change| change.revision <= self.after);
        for change in &state.history[later..] {
            self.after = change.revision;
            if self.selection.covers(&change.key)
                && let Some(event) = self.seen(change)
            {
                return Some(event);
            }
        }
        self.after = self.after.max(state.revision);
        None
    }

    /// A change as the selection sees it: what no longer fits is gone, and what now fits is new.
    fn seen(&self, change: &Change) -> Option<Value> {
        let fits = |object: &Option<Value>| {
            object.as_ref().filter(|object| self.selection.fits(object)).cloned()
        };
        let (kind, mut object) = match (fits(&change.before), fits(&change.after)) {
            (None, Some(after)) => ("ADDED", after),
            (Some(_), Some(after)) => ("MODIFIED", after),
            (Some(before), None) => ("DELETED", before),
            (None, None) => return None,
        };
        object["metadata"]["resourceVersion"] = json!(change.revision.to_string());
        Some(event(kind, self.view.object(object)))
    }
}

fn event(kind: &str, object: Value) -> Value {
    json!({ "type": kind, "object": object })
}

fn bookmark(kind: &str, view: &View, revision: u64) -> Value {
    let metadata = json!({ "resourceVersion": revision.to_string() });
    event("BOOKMARK", view.object(json!({ "kind": kind, "metadata": metadata })))
}

fn too_old(revision: u64) -> Value {
    Refusal::expired(&format!("too old resource version: {revision}")).status()
}

fn line(event: &Value) -> Frame<Bytes> {
    Frame::data(Bytes::from(format!("{event}\n")))
}
