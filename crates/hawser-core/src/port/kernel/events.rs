//! Device events, so that nothing sleeps and looks again.

use std::time::Duration;

use async_trait::async_trait;

/// Hands out subscriptions to device events.
pub trait Events: Send + Sync {
    /// Listens from now on: subscribe, then act, then look, then wait.
    fn subscribe(&self) -> Box<dyn DeviceEvents>;
}

/// One subscription.
#[async_trait]
pub trait DeviceEvents: Send {
    /// Answers when something about a device may have changed, or when `limit` has passed. Events
    /// are hints: the caller looks at what it waits for each time. Where no events can be had (a
    /// network namespace without them, an unprivileged process), it answers every 50 ms.
    async fn changed(&mut self, limit: Duration);
}
