//! What a test waits for.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::control::Spec;
use super::error::{ClusterError, Result};
use super::kubectl::unwrap;
use super::process::Process;
use super::{Cluster, Object, Part, watch};

/// How much of each log is shown when something fails.
const SHOWN_LINES: usize = 8;

impl Cluster {
    /// Waits until an object is as the fact wants it, and answers it; the fact sees `null` where
    /// there is none.
    ///
    /// # Panics
    ///
    /// When it is not within the limit, or a part of the cluster ends: with what was waited for, what
    /// there was instead, and the end of every log.
    #[track_caller]
    pub fn wait(
        &mut self,
        what: &str,
        object: &Object,
        limit: Duration,
        fact: impl FnMut(&Value) -> bool,
    ) -> Value {
        unwrap(self.try_wait(what, object, limit, fact))
    }

    pub(super) fn try_wait(
        &mut self,
        what: &str,
        object: &Object,
        limit: Duration,
        fact: impl FnMut(&Value) -> bool,
    ) -> Result<Value> {
        let kubectl = self.kubectl.clone();
        match watch::wait(&kubectl, object, limit, fact, || self.check())? {
            Ok(found) => Ok(found),
            Err(last) => {
                let state = serde_json::to_string_pretty(&last.state).unwrap_or_default();
                let trouble =
                    last.trouble.map(|trouble| format!("\n{trouble}")).unwrap_or_default();
                let state = format!("{object} was {state}{trouble}\n{}", self.logs());
                Err(ClusterError::Waited { what: what.to_owned(), limit, state })
            }
        }
    }

    /// Waits for something else than an object, by looking again and again.
    pub(super) fn try_wait_for(
        &mut self,
        what: &str,
        limit: Duration,
        pause: Duration,
        mut fact: impl FnMut(&Self) -> bool,
    ) -> Result<()> {
        let begun = Instant::now();
        loop {
            self.check()?;
            if fact(self) {
                return Ok(());
            }
            if begun.elapsed() > limit {
                return Err(ClusterError::Waited { what: what.into(), limit, state: self.logs() });
            }
            std::thread::sleep(pause);
        }
    }

    /// The last lines of every log.
    pub fn logs(&self) -> String {
        self.told.store(true, Ordering::Relaxed);
        let of = |(part, _, process): &(Part, Spec, Option<Process>)| {
            let end = process.as_ref().map(|process| process.log_end(SHOWN_LINES));
            format!("--- {part}\n{}\n", end.unwrap_or_else(|| "(stopped)".into()))
        };
        self.parts.iter().map(of).collect()
    }
}
