//! Waiting for a fact, driven by device events.

use std::time::Duration;

use hawser_core::error::Result;
use hawser_core::port::kernel::DeviceEvents;
use tokio::time::Instant;

/// The longest time without a look of our own. Not every fact has an event (a daemon's view, an
/// attribute without a uevent), and an event may be lost; this bounds what that costs.
pub(crate) const RECHECK: Duration = Duration::from_millis(250);

/// The first pause without an event. Each further one is twice as long, up to [`RECHECK`]: most facts
/// without an event of their own come a moment after one that has.
const FIRST: Duration = Duration::from_millis(15);

/// How long to wait for an event before the next look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause(Duration);

impl Pause {
    /// Before anything was waited for.
    pub(crate) fn new() -> Self {
        Self(FIRST)
    }

    /// Waits for an event, at most until the deadline.
    pub(crate) async fn wait(&mut self, events: &mut dyn DeviceEvents, deadline: Deadline) {
        let begun = Instant::now();
        events.changed(deadline.left().min(self.0)).await;
        if begun.elapsed() >= self.0 {
            self.0 = (self.0 * 2).min(RECHECK);
        }
    }
}

/// When to give up, shared by all steps of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    end: Instant,
    limit: Duration,
}

impl Deadline {
    /// So long from now.
    pub(crate) fn after(limit: Duration) -> Self {
        Self { end: Instant::now() + limit, limit }
    }

    /// At most so long from now, and never later than this one.
    pub(crate) fn within(&self, limit: Duration) -> Self {
        let end = self.end.min(Instant::now() + limit);
        Self { end, limit: limit.min(self.limit) }
    }

    /// What is left.
    pub(crate) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// What is left for a part of the call that has a limit of its own, in whole seconds: it is
    /// told in words.
    pub(crate) fn rest(&self) -> Duration {
        let left = self.left();
        let begun = u64::from(left.subsec_nanos() > 0);
        Duration::from_secs(left.as_secs() + begun).min(self.limit)
    }

    /// How long the whole may take.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// True when it has passed.
    pub(crate) fn passed(&self) -> bool {
        self.left().is_zero()
    }
}

/// Looks until `look` finds something, after each event; `None` when the deadline passes first.
/// The subscription is made before the act whose effect is waited for.
///
/// `look` is an async closure that borrows only shared references. (An `AsyncFnMut` could borrow
/// more, but the compiler cannot tell yet that its futures may move between threads; see [`again`].)
pub(crate) async fn until<T, F>(
    events: &mut dyn DeviceEvents,
    deadline: Deadline,
    mut look: impl FnMut() -> F + Send,
) -> Result<Option<T>>
where
    F: Future<Output = Result<Option<T>>> + Send,
{
    let mut pause = Pause::new();
    loop {
        if let Some(found) = look().await? {
            return Ok(Some(found));
        }
        if deadline.passed() {
            return Ok(None);
        }
        pause.wait(events, deadline).await;
    }
}

/// Waits for something to change; false when the deadline has passed. For loops of callers that
/// change something of their own while they wait.
pub(crate) async fn again(events: &mut dyn DeviceEvents, deadline: Deadline) -> bool {
    if deadline.passed() {
        return false;
    }
    events.changed(deadline.left().min(RECHECK)).await;
    true
}
