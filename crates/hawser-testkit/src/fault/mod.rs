//! Fault points: wrappers around every method of every port.
//!
//! Each call is two points, one before it and one after it. A run with [`Faults::counting`] tells how
//! many there are; a run with [`Faults::crash_at`] stops the world at one of them: the call never
//! returns, and neither does any later call of any wrapped port, as if the process had been killed.
//! What lies behind the wrappers (files, the fake host, the store) stays as it was at that instant.
//!
//! Methods that only compute (`info`, `handle`, the ability getters) are no points: they touch
//! nothing. Nor are those of the kernel's parts that a host hands out: a host passes them on as they
//! are, and a world that stopped stops in front of the connector's call, which is a point.

mod ports;
mod wrap;

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

pub use ports::{
    FaultyConnector, FaultyControl, FaultyHost, FaultyNode, FaultyNodes, FaultyProvider,
    FaultyRegistry, FaultyStore, METHODS,
};

/// On which side of a call a point is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Nothing was done yet.
    Before,
    /// It was done, and the caller does not know.
    After,
}

/// Counts points, and stops the world at one of them. Clones share their count.
#[derive(Clone)]
pub struct Faults {
    shared: Arc<Shared>,
}

struct Shared {
    crash_at: Option<u64>,
    state: Mutex<State>,
    dead: Notify,
}

#[derive(Default)]
struct State {
    passed: u64,
    dead: bool,
    hits: BTreeMap<(&'static str, Side), u64>,
    died_at: Option<(&'static str, Side)>,
}

impl Faults {
    fn new(crash_at: Option<u64>) -> Self {
        let shared = Shared { crash_at, state: Mutex::default(), dead: Notify::new() };
        Self { shared: Arc::new(shared) }
    }

    /// Never stops; counts.
    pub fn counting() -> Self {
        Self::new(None)
    }

    /// Stops the world at the point with this number; the first is 0.
    pub fn crash_at(point: u64) -> Self {
        Self::new(Some(point))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many points were passed.
    pub fn passed(&self) -> u64 {
        self.state().passed
    }

    /// How often each point of each method was reached.
    pub fn hits(&self) -> BTreeMap<(&'static str, Side), u64> {
        self.state().hits.clone()
    }

    /// Where the world stopped.
    pub fn died_at(&self) -> Option<(&'static str, Side)> {
        self.state().died_at
    }

    /// Returns when the world has stopped.
    pub async fn dead(&self) {
        loop {
            let notified = self.shared.dead.notified();
            if self.state().dead {
                return;
            }
            notified.await;
        }
    }

    /// Passes a point, or never returns.
    pub async fn point(&self, method: &'static str, side: Side) {
        let stop = {
            let mut state = self.state();
            if !state.dead {
                *state.hits.entry((method, side)).or_default() += 1;
                if self.shared.crash_at == Some(state.passed) {
                    state.dead = true;
                    state.died_at = Some((method, side));
                }
                state.passed += 1;
            }
            state.dead
        };
        if stop {
            self.shared.dead.notify_waiters();
            pending::<()>().await;
        }
    }
}
