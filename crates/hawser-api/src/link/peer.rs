//! One end of a link: calls of ours, calls of theirs and signs of life over one stream.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use hawser_core::Error;
use hawser_core::operation::Failure;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use super::behind::Behind;
use super::call::Call;
use super::error::LinkError;
use super::frame::encode;
use super::message::Written;
use super::tasks::Tasks;

/// How many frames wait for the transport before whoever sends has to wait too.
const OUTBOX: usize = 64;

/// Calls of ours in flight; more wait for their turn, so that the other side never has to refuse.
const OUR_CALLS: usize = 512;

/// Bytes of their calls in flight; more are refused, so that a peer cannot fill the memory.
const THEIR_BYTES: usize = 16 << 20;

/// What a call counts for at least: bounds their number at 1024.
const LEAST_COST: usize = 16 << 10;

type Answered = Result<Box<RawValue>, Failure>;

/// Why a link ended, as it is told to whoever still waits for an answer.
pub(super) type Reason = Arc<str>;

struct Pending {
    waiting: HashMap<u64, oneshot::Sender<Answered>>,
    ended: Option<Reason>,
}

/// What both the calling side and the driver of a link hold.
pub(super) struct Shared {
    /// Whom the other side is, in errors.
    label: String,
    outbox: mpsc::Sender<Vec<u8>>,
    pending: Mutex<Pending>,
    next_id: AtomicU64,
    ours: Semaphore,
    theirs: Arc<Semaphore>,
    stop: watch::Sender<Option<Stop>>,
}

/// How this side ends a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It is shutting down.
    Stopped,
    /// A newer connection took over.
    Replaced,
}

impl From<Stop> for LinkError {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Stopped => Self::Stopped,
            Stop::Replaced => Self::Replaced,
        }
    }
}

/// Sends calls over a link. Cheap to clone; the link lives in its driver.
#[derive(Clone)]
pub(super) struct Peer {
    shared: Arc<Shared>,
}

/// Takes a call's entry out again when its caller stops waiting.
struct Waiting<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.pending().waiting.remove(&self.id);
    }
}

impl Peer {
    /// A link to `label` and the frames that its driver has to write.
    pub(super) fn new(label: impl Into<String>) -> (Self, mpsc::Receiver<Vec<u8>>) {
        let (outbox, frames) = mpsc::channel(OUTBOX);
        let pending = Mutex::new(Pending { waiting: HashMap::new(), ended: None });
        let shared = Arc::new(Shared {
            label: label.into(),
            outbox,
            pending,
            next_id: AtomicU64::new(1),
            ours: Semaphore::new(OUR_CALLS),
            theirs: Arc::new(Semaphore::new(THEIR_BYTES)),
            stop: watch::Sender::new(None),
        });
        (Self { shared }, frames)
    }

    /// Sends a call and waits for its answer. Dropping this does not stop the work over there.
    pub(super) async fn call<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Error> {
        let shared = &*self.shared;
        let (method, changes) = (call.method(), call.changes());
        let id = shared.next_id.fetch_add(1, Ordering::Relaxed);
        let params = call.params()?;
        let line = encode(&Written::Request { id, method, params: &params }, || {
            format!("the call {method}")
        })?;
        let unsent = || Error::from(shared.lost(method, false));
        let _turn = shared.ours.acquire().await.map_err(|_| unsent())?;
        let answer = shared.register(id).ok_or_else(unsent)?;
        let _waiting = Waiting { shared, id };
        shared.outbox.send(line).await.map_err(|_| unsent())?;
        // From here on the other side may have begun.
        match answer.await {
            Ok(Ok(raw)) => serde_json::from_str(raw.get())
                .map_err(|source| Error::from(LinkError::AnswerShape { method, changes, source })),
            Ok(Err(failure)) => Err(failure.into()),
            Err(_) => Err(shared.lost(method, changes).into()),
        }
    }

    /// Ends the link from this side.
    pub(super) fn stop(&self, why: Stop) {
        self.shared.stop.send_replace(Some(why));
    }

    /// What the driver needs.
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }
}

impl Shared {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        // Nothing in the critical sections can panic half-way.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(&self, id: u64) -> Option<oneshot::Receiver<Answered>> {
        let mut pending = self.pending();
        if pending.ended.is_some() {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        pending.waiting.insert(id, answer);
        Some(answered)
    }

    fn lost(&self, method: &'static str, unknown: bool) -> LinkError {
        let reason = self.pending().ended.as_deref().unwrap_or("the link ended").to_owned();
        LinkError::Lost { node: self.label.clone(), method, reason, unknown }
    }

    /// Hands an answer to whoever waits for it; one that nobody waits for any more is dropped.
    pub(super) fn settle(&self, id: u64, answer: Answered) {
        if let Some(waiting) = self.pending().waiting.remove(&id) {
            let _ = waiting.send(answer);
        }
    }

    /// Tells everyone who waits that no answer will come.
    pub(super) fn end(&self, reason: &str) {
        let mut pending = self.pending();
        pending.ended.get_or_insert_with(|| reason.into());
        pending.waiting.clear();
    }

    /// Resolves when this side wants the link to end.
    pub(super) async fn stopped(&self) -> Stop {
        let mut stop = self.stop.subscribe();
        let wanted = stop.wait_for(Option::is_some).await.map(|stop| *stop);
        wanted.ok().flatten().unwrap_or(Stop::Stopped)
    }

    /// Takes a call of the other side: refused at once, or begun as a task that answers by itself.
    pub(super) async fn serve(
        &self,
        request: Request,
        behind: &Arc<Behind>,
        tasks: &Tasks,
    ) -> Result<(), LinkError> {
        let Request { id, method, params, bytes } = request;
        let cost = bytes.max(LEAST_COST) as u32;
        let accepted = Call::parse(&method, params.as_deref()).and_then(|call| {
            let room = Arc::clone(&self.theirs).try_acquire_many_owned(cost);
            Ok((call, room.map_err(|_| LinkError::Overloaded)?))
        });
        match accepted {
            Ok((call, room)) => {
                let (outbox, behind) = (self.outbox.clone(), Arc::clone(behind));
                tasks.spawn(async move {
                    let line = answer(id, &call, &behind).await;
                    // The link may be gone; the work is done all the same.
                    let _ = outbox.send(line).await;
                    drop(room);
                });
                Ok(())
            }
            Err(refused) => {
                let line = failure(id, &Failure::from(&Error::from(refused)));
                self.outbox.send(line).await.map_err(|_| LinkError::Stopped)
            }
        }
    }
}

/// A call of the other side as it came.
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) method: String,
    pub(super) params: Option<Box<RawValue>>,
    /// The length of its line.
    pub(super) bytes: usize,
}

async fn answer(id: u64, call: &Call, behind: &Behind) -> Vec<u8> {
    let (method, changes) = (call.method(), call.changes());
    let done = AssertUnwindSafe(call.run(behind)).catch_unwind().await;
    let result = match done {
        Ok(result) => result,
        Err(_) => {
            tracing::error!(method, "a call of the node link panicked");
            Err(LinkError::Panicked { method, changes }.into())
        }
    };
    let written = result.and_then(|ok| {
        let what = || format!("the answer to {method}");
        Ok(encode(&Written::Ok { id, ok: &ok }, what)?)
    });
    written.unwrap_or_else(|error| failure(id, &Failure::from(&error)))
}

fn failure(id: u64, error: &Failure) -> Vec<u8> {
    let what = || "an error".to_owned();
    encode(&Written::Error { id, error }, what).unwrap_or_else(|too_large| {
        let messages = vec![too_large.to_string()];
        let short = Failure { messages, ..error.clone() };
        // A kind, an outcome and one sentence always fit.
        encode(&Written::Error { id, error: &short }, what).unwrap_or_default()
    })
}
