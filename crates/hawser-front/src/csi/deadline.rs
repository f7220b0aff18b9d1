//! How long a call may take.

use std::time::Duration;

use tonic::metadata::MetadataMap;

/// The longest wait for a change. The kubelet waits for two minutes, sidecars for less.
const LONGEST: Duration = Duration::from_secs(100);

/// For work on this host, which goes on when its caller has left: a caller that is always in a hurry
/// must get there in the end, too.
pub(super) const HOST: Duration = LONGEST;

/// The time of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deadline {
    /// For the work: what is not done by then is answered as pending.
    pub(super) work: Duration,
    /// For the answer: work that does not keep its own time is answered as pending, too.
    pub(super) answer: Duration,
}

impl Deadline {
    /// The time that the caller gives, less what the way back takes.
    pub(super) fn of(metadata: &MetadataMap) -> Self {
        let given = metadata.get("grpc-timeout").and_then(|value| value.to_str().ok());
        Self::within(given.and_then(read).unwrap_or(Duration::MAX))
    }

    fn within(given: Duration) -> Self {
        let margin = (given / 10).clamp(Duration::from_millis(20), Duration::from_secs(1));
        let work = given.saturating_sub(margin).min(LONGEST);
        Self { work, answer: work + margin / 2 }
    }
}

/// At most eight digits and a unit, as gRPC writes it over HTTP/2.
fn read(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back()?;
    let digits = &text[..text.len() - unit.len_utf8()];
    if digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        'H' => Duration::from_secs(count * 3600),
        'M' => Duration::from_secs(count * 60),
        'S' => Duration::from_secs(count),
        'm' => Duration::from_millis(count),
        'u' => Duration::from_micros(count),
        'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_unit_is_read() {
        for (text, wanted) in [
            ("2M", Duration::from_secs(120)),
            ("1H", Duration::from_secs(3600)),
            ("10S", Duration::from_secs(10)),
            ("1500m", Duration::from_millis(1500)),
            ("99999999u", Duration::from_micros(99_999_999)),
            ("7n", Duration::from_nanos(7)),
        ] {
            assert_eq!(read(text), Some(wanted), "{text}");
        }
        for text in ["", "S", "10", "10s", "-1S", "999999999S", "1.5S", "١S"] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_work_ends_before_the_answer_and_the_answer_before_the_caller_gives_up() {
        for seconds in [1, 10, 60] {
            let given = Duration::from_secs(seconds);
            let Deadline { work, answer } = Deadline::within(given);
            assert!(work < answer && answer < given && work * 2 > given, "{given:?}");
        }
        let unlimited = Deadline::of(&MetadataMap::new());
        assert_eq!(unlimited.work, LONGEST);
        assert_eq!(Deadline::within(Duration::from_millis(5)).work, Duration::ZERO);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC*") {
            let _ = read(&text);
        }
    }
}
