//! Sizes, ages and texts for people.

use hawser_core::{ByteSize, Timestamp};

/// The units of [`size`], largest first.
const UNITS: [(&str, u64); 5] =
    [("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// A size in its largest unit, with one decimal where it does not come out even.
pub(super) fn size(size: ByteSize) -> String {
    let bytes = size.get();
    for (unit, factor) in UNITS {
        if bytes >= factor {
            if bytes.is_multiple_of(factor) {
                return format!("{}{unit}", bytes / factor);
            }
            return format!("{:.1}{unit}", bytes as f64 / factor as f64);
        }
    }
    format!("{bytes}B")
}

/// How long ago, in one unit; the future counts as now, because clocks differ.
pub(super) fn age(now: Timestamp, then: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(then.as_second()).max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A text that cannot steer the terminal it is printed on.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// `yes` or `no`.
pub(super) fn yes(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

/// `a=1,b=2`, or a dash.
pub(super) fn pairs<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    or_dash(pairs.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(","))
}

/// The text, or a dash where there is none, so that every column can be cut out.
pub(super) fn or_dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}
