//! Figures as lines.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Every figure of a run.
#[derive(Default)]
pub struct Report {
    lines: Vec<String>,
}

/// One figure; what is `None` is shown as `-`.
#[derive(Default)]
pub struct Figure {
    /// What was found.
    pub ours: String,
    /// The same of whom it is compared with.
    pub peer: Option<String>,
    /// Ours by theirs.
    pub ratio: Option<f64>,
    /// The bar in words, and whether it was reached.
    pub bar: Option<(String, bool)>,
}

impl Report {
    /// Adds a figure and prints it.
    pub fn add(&mut self, name: &str, figure: Figure) {
        let Figure { ours, peer, ratio, bar } = figure;
        let peer = peer.unwrap_or_else(|| "-".into());
        let ratio = ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"));
        let (bar, verdict) = match bar {
            Some((bar, true)) => (bar, "ok"),
            Some((bar, false)) => (bar, "short"),
            None => ("-".into(), "-"),
        };
        let line =
            format!("bench {name}: ours={ours} peer={peer} ratio={ratio} bar={bar} {verdict}");
        println!("{line}");
        self.lines.push(line);
    }

    /// Adds a figure that has to stay at or below a bar.
    pub fn at_most(&mut self, name: &str, ours: f64, bar: f64, show: fn(f64) -> String) {
        let bar = Some((show(bar), ours <= bar));
        self.add(name, Figure { ours: show(ours), bar, ..Figure::default() });
    }

    /// Prints all figures as one block.
    pub fn print(&self) {
        println!("\n{}", self.lines.join("\n"));
    }
}

/// Seconds in milliseconds.
pub fn milliseconds(seconds: f64) -> String {
    format!("{:.2}ms", seconds * 1e3)
}

/// KiB in MiB.
pub fn mebibytes(kib: f64) -> String {
    format!("{:.1}MiB", kib / 1024.0)
}

/// The middle of several figures.
pub fn median(mut figures: Vec<f64>) -> f64 {
    assert!(!figures.is_empty(), "a median needs figures");
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// How many seconds something takes.
pub fn seconds(work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_secs_f64()
}

/// Says what the figures were found on.
pub fn say_machine(place: &Path) {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split(':').nth(1).unwrap_or_default().trim().to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!(
        "machine: {cores} x {}, memory {}, Linux {}, data in {}",
        field(&read("/proc/cpuinfo"), "model name"),
        field(&read("/proc/meminfo"), "MemTotal"),
        read("/proc/sys/kernel/osrelease").trim(),
        place.display(),
    );
    let load = read("/proc/loadavg");
    println!("load before: {}", load.split(' ').next().unwrap_or_default());
}

/// Lets what was just started or loaded come to rest.
pub async fn rest() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}
