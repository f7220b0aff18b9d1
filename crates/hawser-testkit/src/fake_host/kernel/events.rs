//! The `Events` part: what behaviours tell of, and waits that make delayed effects happen.

use std::time::Duration;

use async_trait::async_trait;
use hawser_core::port::kernel::{DeviceEvents, Events};

use super::Kernel;

/// One subscription: knows what it has seen.
struct Subscription {
    kernel: Kernel,
    seen: u64,
}

impl Events for Kernel {
    fn subscribe(&self) -> Box<dyn DeviceEvents> {
        let seen = self.state().tree().events();
        Box::new(Subscription { kernel: self.clone(), seen })
    }
}

impl Subscription {
    /// True when there is something new, or was something to wait for.
    fn look(&mut self) -> bool {
        let mut state = self.kernel.state();
        let tree = state.tree();
        let answers = tree.events() != self.seen || tree.wait_once();
        self.seen = tree.events();
        answers
    }
}

#[async_trait]
impl DeviceEvents for Subscription {
    /// While effects are pending, each wait ends at once and counts: an event may be about anything.
    /// Otherwise it ends with the next event, or with its limit; tests stop the clock, so that a
    /// limit costs no time.
    async fn changed(&mut self, limit: Duration) {
        self.kernel.note("DeviceEvents::changed");
        tokio::task::yield_now().await;
        let end = tokio::time::Instant::now() + limit.min(Duration::from_secs(1 << 30));
        loop {
            let kernel = self.kernel.clone();
            let changed = kernel.changed();
            if self.look() {
                return;
            }
            if tokio::time::timeout_at(end, changed).await.is_err() {
                return;
            }
        }
    }
}
