//! Locks of the host, waited for no longer than a call may take.

use hawser_core::Outcome;
use hawser_core::error::{Error, Result};
use hawser_core::port::Host;
use hawser_core::port::kernel::LockMode;
use hawser_core::port::registry::LockGuard;

use super::error::AttachError;
use super::wait::Deadline;

/// Waits until nobody else works on something, whose lock has this name. Whoever holds it may hang
/// with a dead server; then nothing was done here, and the error says so.
pub(crate) async fn alone(
    host: &dyn Host,
    name: &str,
    what: &str,
    deadline: Deadline,
) -> Result<Box<dyn LockGuard>> {
    wait(host, name, LockMode::Exclusive, what, deadline).await
}

/// Waits until nobody is [`alone`] with something; others may be beside.
pub(crate) async fn beside(
    host: &dyn Host,
    name: &str,
    what: &str,
    deadline: Deadline,
) -> Result<Box<dyn LockGuard>> {
    wait(host, name, LockMode::Shared, what, deadline).await
}

async fn wait(
    host: &dyn Host,
    name: &str,
    mode: LockMode,
    what: &str,
    deadline: Deadline,
) -> Result<Box<dyn LockGuard>> {
    let lock = host.locks().lock(name, mode);
    match tokio::time::timeout(deadline.left(), lock).await {
        Ok(lock) => lock,
        Err(_) => {
            let attempt = format!("waiting for other work on {what}");
            let late = AttachError::Deadline { attempt, limit: deadline.limit() };
            Err(Error::from(late).with_outcome(Outcome::Nothing))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hawser_core::Kind;
    use hawser_testkit::fake_host::FakeHost;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_in_vain_is_told_that_nothing_was_done() {
        let host = FakeHost::new();
        let soon = || Deadline::after(Duration::from_secs(3));
        let held = alone(&host, "target-x", "x", soon()).await.unwrap();

        let error = alone(&host, "target-x", "x", soon()).await.err().expect("it is held");

        assert_eq!((error.kind(), error.outcome()), (Kind::Timeout, Outcome::Nothing), "{error:?}");
        assert!(error.sentence().contains("other work on x"), "{error:?}");
        drop(held);
        assert!(alone(&host, "target-x", "x", soon()).await.is_ok());
    }
}
