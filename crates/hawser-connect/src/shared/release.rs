//! What every detach of a block device shares: flush first, then go on or stop as was asked for.

use std::path::Path;
use std::time::Duration;

use hawser_core::Change;
use hawser_core::attach::Detach;
use hawser_core::error::{Error, Result};
use hawser_core::port::Host;

use super::error::AttachError;
use super::wait::Deadline;

/// How long cached data may take to reach the storage.
pub(crate) const FLUSH_LIMIT: Duration = Duration::from_secs(60);

/// How much of its time a forced detach keeps for what comes after a flush that does not end.
const REST: Duration = Duration::from_secs(15);

/// What failed during one detach, and what that means to its caller:
///
/// | force | ignore_errors | a failure |
/// |---|---|---|
/// | no | any | ends the detach at once |
/// | yes | no | is remembered, and answered at the end |
/// | yes | yes | is logged |
pub(crate) struct Failures<'a> {
    detach: &'a Detach,
    met: Vec<Error>,
}

impl<'a> Failures<'a> {
    /// None yet.
    pub(crate) fn new(detach: &'a Detach) -> Self {
        Self { detach, met: Vec::new() }
    }

    /// Remembers a failure, or answers it at once.
    pub(crate) fn take(&mut self, failure: impl Into<Error>) -> Result<()> {
        if !self.detach.force {
            return Err(failure.into());
        }
        self.met.push(failure.into());
        Ok(())
    }

    /// Writes out what is cached for a device, through an opening of its own, which is closed
    /// afterwards. Past a failure this goes on only when forced, and then the data counts as lost.
    pub(crate) async fn flush(
        &mut self,
        host: &dyn Host,
        device: &Path,
        deadline: Deadline,
    ) -> Result<()> {
        let flushed = match host.disks().open(device).await {
            Ok(disk) => disk.flush(self.flush_limit(deadline)).await,
            Err(error) => Err(error),
        };
        let Err(source) = flushed else { return Ok(()) };
        let device = device.to_path_buf();
        if self.detach.force {
            self.take(AttachError::Lost { device, source })
        } else {
            self.take(AttachError::Flush { device, source })
        }
    }

    /// How long a flush may take. A forced detach goes on after it, and keeps time for that.
    fn flush_limit(&self, deadline: Deadline) -> Duration {
        let left = deadline.within(FLUSH_LIMIT).left();
        if self.detach.force { left - (left / 4).min(REST) } else { left }
    }

    /// True when nothing failed so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.met.is_empty()
    }

    /// The answer of a detach that ends here, whatever was asked for: what failed before is told too.
    pub(crate) fn end(mut self, what: &str, error: Error) -> Error {
        if self.met.is_empty() {
            return error;
        }
        self.met.push(error);
        AttachError::Several { what: what.to_owned(), failures: self.met }.into()
    }

    /// The answer of the whole detach.
    pub(crate) fn answer(mut self, what: &str) -> Result<Change<()>> {
        if self.met.is_empty() {
            return Ok(Change::Made(()));
        }
        let error = match self.met.len() {
            1 => self.met.remove(0),
            _ => AttachError::Several { what: what.to_owned(), failures: self.met }.into(),
        };
        if self.detach.ignore_errors {
            tracing::warn!(error = %error.sentence(), "detach went on past a failure, as asked");
            return Ok(Change::Made(()));
        }
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use hawser_core::Kind;

    use super::*;

    fn failure(text: &str) -> Error {
        Error::new(Kind::Unavailable, text)
    }

    #[test]
    fn without_force_the_first_failure_ends_it_whatever_is_ignored() {
        for ignore_errors in [false, true] {
            let detach = Detach { force: false, ignore_errors, ..Detach::default() };

            assert!(Failures::new(&detach).take(failure("one")).is_err());
        }
    }

    #[test]
    fn with_force_all_failures_are_told_at_the_end() {
        let detach = Detach { force: true, ..Detach::default() };
        let mut failures = Failures::new(&detach);
        failures.take(failure("one")).unwrap();
        failures.take(failure("two")).unwrap();

        let said = failures.answer("detaching v1").unwrap_err().sentence();

        assert!(said.contains("one") && said.contains("two"), "{said}");
    }

    #[test]
    fn what_ends_a_detach_is_no_success_whatever_is_ignored() {
        let detach = Detach { force: true, ignore_errors: true, ..Detach::default() };
        let mut failures = Failures::new(&detach);
        failures.take(failure("one")).unwrap();

        let said = failures.end("detaching v1", failure("in use")).sentence();

        assert!(said.contains("one") && said.contains("in use"), "{said}");
    }

    #[test]
    fn forced_and_ignored_failures_are_success() {
        let detach = Detach { force: true, ignore_errors: true, ..Detach::default() };
        let mut failures = Failures::new(&detach);
        failures.take(failure("one")).unwrap();

        assert_eq!(failures.answer("detaching v1").unwrap(), Change::Made(()));
    }
}
