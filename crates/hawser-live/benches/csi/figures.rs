//! Numbers as figures.

use hawser_live::report::{Figure, Report};

/// A figure that is better the larger it is, against the peer's.
pub(crate) fn at_least(
    report: &mut Report,
    name: &str,
    (ours, shown): (f64, String),
    (peer, peer_shown): (f64, String),
    bar: Option<f64>,
) {
    let ratio = ours / peer;
    let bar = bar.map(|bar| (format!(">={bar:.2}"), ratio >= bar));
    let figure = Figure { ours: shown, peer: Some(peer_shown), ratio: Some(ratio), bar };
    report.add(name, figure);
}

/// A figure that is better the smaller it is, against the peer's.
pub(crate) fn at_most(
    report: &mut Report,
    name: &str,
    (ours, shown): (f64, String),
    (peer, peer_shown): (f64, String),
    bar: Option<f64>,
) {
    let ratio = ours / peer;
    let bar = bar.map(|bar| (format!("<={bar:.2}"), ratio <= bar));
    let figure = Figure { ours: shown, peer: Some(peer_shown), ratio: Some(ratio), bar };
    report.add(name, figure);
}

/// The figure below which so much of all is: 0.5 for the middle.
pub(crate) fn part_of(figures: &[f64], part: f64) -> f64 {
    assert!(!figures.is_empty(), "a part of nothing");
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len() - 1;
    sorted[((last as f64) * part).round() as usize]
}

/// Names with their figures, in one word.
pub(crate) fn list(parts: &[(String, f64)], unit: &str) -> String {
    let parts: Vec<String> =
        parts.iter().map(|(name, figure)| format!("{name}:{figure:.1}{unit}")).collect();
    parts.join(",")
}
