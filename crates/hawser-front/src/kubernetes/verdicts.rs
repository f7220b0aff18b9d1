//! What drivers have said for good, so that they are not asked the same thing over and over.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::objects::Key;

/// How long what cannot be is let be, unless something else is asked for. That of the sidecars.
const PAUSE: Duration = Duration::from_secs(300);

/// The last answers of drivers about claims.
///
/// No answer, or one after which the driver may still be at work, is no verdict: then the same call
/// must be repeated, whatever the claim asks for by now. After a restart nothing is known, which is
/// the careful side.
#[derive(Default)]
pub(super) struct Verdicts {
    until: Mutex<HashMap<Key, Option<Instant>>>,
}

impl Verdicts {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Option<Instant>>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The driver has failed, and is not at work.
    pub(super) fn failed(&self, key: &Key) {
        self.lock().insert(key.clone(), None);
    }

    /// The driver has failed, will fail again, and is not at work. Answers the time until it is
    /// worth another try.
    pub(super) fn infeasible(&self, key: &Key) -> Duration {
        self.lock().insert(key.clone(), Some(Instant::now() + PAUSE));
        PAUSE
    }

    /// The driver has done it, or may be at work, or there is nothing to ask for any more.
    pub(super) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    /// True when the driver has failed and is not at work.
    pub(super) fn is_final(&self, key: &Key) -> bool {
        self.lock().contains_key(key)
    }

    /// The time until what cannot be is worth another try; `None` when it is now.
    pub(super) fn pause(&self, key: &Key) -> Option<Duration> {
        let until = (*self.lock().get(key)?)?;
        Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_is_let_be_for_a_while() {
        let verdicts = Verdicts::default();
        let key = Key::within("ns", "c");
        assert!(!verdicts.is_final(&key) && verdicts.pause(&key).is_none());

        let pause = verdicts.infeasible(&key);
        assert_eq!((verdicts.is_final(&key), verdicts.pause(&key)), (true, Some(pause)));
        tokio::time::advance(pause).await;
        assert_eq!((verdicts.is_final(&key), verdicts.pause(&key)), (true, None));

        verdicts.infeasible(&key);
        verdicts.failed(&key);
        assert_eq!((verdicts.is_final(&key), verdicts.pause(&key)), (true, None));
        verdicts.forget(&key);
        assert!(!verdicts.is_final(&key));
    }
}
