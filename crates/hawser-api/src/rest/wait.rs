//! How long a caller waits for a change: `?wait=10s`.

use std::time::Duration;

use hawser_core::{Classify, Kind};

/// How long a change waits when the caller does not say.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(30);

/// The longest wait of one request; proxies and people give up around there.
pub const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// Why a text is no waiting time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// Not a number with a known unit.
    #[error("wait {0:?} is not a time: write 10s, 500ms, 2m or a number of seconds")]
    Malformed(String),
    /// Longer than one request may last.
    #[error("wait {0:?} is longer than 10 minutes: ask for the operation again instead")]
    TooLong(String),
}

impl Classify for WaitError {
    fn kind(&self) -> Kind {
        match self {
            Self::Malformed(_) => Kind::Invalid,
            Self::TooLong(_) => Kind::OutOfRange,
        }
    }
}

/// Reads `10s`, `500ms`, `2m` or a number of seconds.
pub fn parse(text: &str) -> Result<Duration, WaitError> {
    let shown = || text.chars().take(32).collect::<String>();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit_in_millis: u64 = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" | "min" => 60_000,
        _ => return Err(WaitError::Malformed(shown())),
    };
    if number.is_empty() {
        return Err(WaitError::Malformed(shown()));
    }
    // Only digits are left, so the one way to fail is too many of them.
    let number: u64 = number.parse().map_err(|_| WaitError::TooLong(shown()))?;
    let wait = number.checked_mul(unit_in_millis).map(Duration::from_millis);
    wait.filter(|wait| *wait <= LONGEST_WAIT).ok_or_else(|| WaitError::TooLong(shown()))
}

/// The text for a time, at most [`LONGEST_WAIT`]; [`parse`] reads it back to the millisecond.
pub fn text(wait: Duration) -> String {
    format!("{}ms", wait.min(LONGEST_WAIT).as_millis())
}
