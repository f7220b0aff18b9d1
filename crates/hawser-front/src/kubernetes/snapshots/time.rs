//! Moments, as the objects have them.

use hawser_core::Timestamp;
use prost_types::Timestamp as Wire;

/// Nanoseconds since 1970; those of now when nothing is said.
pub(super) fn nanoseconds(at: Option<&Wire>) -> i64 {
    at.and_then(exact).unwrap_or_else(|| {
        let now = Timestamp::now().as_nanosecond();
        i64::try_from(now).unwrap_or(i64::MAX)
    })
}

/// Nanoseconds since 1970, where there are so many.
pub(super) fn exact(at: &Wire) -> Option<i64> {
    at.seconds.checked_mul(1_000_000_000)?.checked_add(i64::from(at.nanos))
}

/// A moment to the second, as all objects have it; now when nothing is said.
pub(super) fn instant(at: Option<&Wire>) -> String {
    let said = at.and_then(|at| Timestamp::from_second(at.seconds).ok());
    moment(said.unwrap_or_else(Timestamp::now))
}

/// A moment to the second.
pub(super) fn moment(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}
