//! A test that cannot run here says so, and why.

use std::io::Write;
use std::panic::Location;

/// Notes that the test which runs on this thread is skipped; the caller returns after it.
///
/// The line goes straight to standard error: libtest captures what `print!` and `eprint!` write and
/// drops it when a test passes, and a skipped test passes. `cargo xtask test` collects these lines
/// and counts such tests as skipped.
#[track_caller]
pub fn skip(reason: impl AsRef<str>) {
    let place = Location::caller();
    let thread = std::thread::current();
    // With one test thread libtest runs tests on the main thread, which does not know their names.
    let name = match thread.name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => format!("{}@{}", place.file(), place.line()),
    };
    let line = line(&name, reason.as_ref());
    // Nobody can be told when standard error is closed, and the test is skipped all the same.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Says a line that belongs to the result of a test run, such as a count of what was tried. Goes
/// straight to standard error, like [`skip`], so that it is seen when the test passes.
pub fn say(line: &str) {
    let _ = std::io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// One line, whatever the reason holds: the reader splits at line ends.
fn line(name: &str, reason: &str) -> String {
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("skipped: {name}: {reason}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_of_several_lines_becomes_one() {
        assert_eq!(line("loop_a", "needs\n  root"), "skipped: loop_a: needs root\n");
    }
}
