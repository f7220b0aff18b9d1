//! `test`: runs `cargo test`, shows its output, and sums up every test binary in one last line.
//!
//! A test that cannot run here says so with `hawser_testkit::skip`, which writes
//! `skipped: NAME: REASON` past libtest's capture. libtest counts such a test as passed; we do not.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use crate::Result;
use crate::process::program;
use crate::tree::Tree;

/// How long output is read on once cargo has ended: what a failed test left running may hold its
/// streams open for ever.
const AFTER_THE_END: Duration = Duration::from_secs(5);

/// What is heard of a run.
enum Heard {
    Line(String),
    End(std::io::Result<ExitStatus>),
}

/// What the tests came to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Summary {
    passed: usize,
    failed: usize,
    /// Tests that were switched off with an attribute; they print no reason.
    ignored: usize,
    /// Tests that said why they did not run.
    skipped: Vec<String>,
    /// Names in `skipped` of the test binary that runs now: one test may skip in two places.
    skipped_here: BTreeSet<String>,
}

/// Runs the tests that the arguments name, all of them by default; false when one failed.
pub(crate) fn run(tree: &Tree, args: &[&str]) -> Result<bool> {
    let args = if args.is_empty() { &["--workspace"] } else { args };
    let mut cargo = program("cargo");
    cargo.current_dir(&tree.root).args(["test", "--no-fail-fast"]).args(args);
    let (mut summary, status) = listen(cargo)?;
    summary.close(status);
    print!("{}", summary.render());
    Ok(status.success() && summary.failed == 0)
}

/// Runs cargo, shows its output and reads it.
fn listen(mut cargo: Command) -> Result<(Summary, ExitStatus)> {
    let mut child = cargo
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("running cargo test: {e}"))?;
    let (sender, heard) = mpsc::channel();
    let stdout = child.stdout.take().ok_or("cargo has no stdout")?;
    let stderr = child.stderr.take().ok_or("cargo has no stderr")?;
    forward(stdout, std::io::stdout(), sender.clone());
    forward(stderr, std::io::stderr(), sender.clone());
    // Nobody joins these threads: they end with their streams, or with this process.
    thread::spawn(move || sender.send(Heard::End(child.wait())));

    let mut summary = Summary::default();
    let mut status = None;
    loop {
        let wait = if status.is_some() { AFTER_THE_END } else { Duration::MAX };
        match heard.recv_timeout(wait) {
            Ok(Heard::Line(line)) => summary.read(&line),
            Ok(Heard::End(end)) => status = Some(end),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                eprintln!("a process that a test started still runs, and holds the output open");
                break;
            }
        }
    }
    let status = status
        .ok_or("cargo test was not waited for")?
        .map_err(|e| format!("waiting for cargo test: {e}"))?;
    Ok((summary, status))
}

/// Copies lines to one of our own streams and to the reader.
fn forward(
    from: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
    sender: Sender<Heard>,
) {
    thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n') {
            let Ok(line) = line else { return };
            // Nobody may be looking any more; the tests go on and are counted.
            let _ = to.write_all(&line).and_then(|()| to.write_all(b"\n"));
            if sender.send(Heard::Line(String::from_utf8_lossy(&line).into_owned())).is_err() {
                return;
            }
        }
    });
}

impl Summary {
    /// Takes one line of output into account.
    fn read(&mut self, line: &str) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            for part in counts.split(['.', ';']) {
                let mut words = part.split_whitespace();
                let (Some(count), Some(what)) = (words.next(), words.next()) else { continue };
                let Ok(count) = count.parse::<usize>() else { continue };
                match what {
                    "passed" => self.passed += count,
                    "failed" => self.failed += count,
                    "ignored" => self.ignored += count,
                    _ => {}
                }
            }
        } else if let Some(note) = line.strip_prefix("skipped: ") {
            let name = note.split(": ").next().unwrap_or(note);
            if self.skipped_here.insert(name.to_owned()) {
                self.skipped.push(note.to_owned());
            }
        } else if is_next_binary(line) {
            self.skipped_here.clear();
        }
    }

    /// Takes the end of cargo into account: a binary that died has printed no result.
    fn close(&mut self, status: ExitStatus) {
        if !status.success() && self.failed == 0 {
            self.failed = 1;
        }
        self.passed = self.passed.saturating_sub(self.skipped.len());
    }

    fn render(&self) -> String {
        let mut text = String::from("\n");
        if !self.skipped.is_empty() {
            text.push_str("not run here:\n");
        }
        for note in &self.skipped {
            text.push_str(&format!("  {note}\n"));
        }
        if self.ignored > 0 {
            text.push_str(&format!("  {} tests with #[ignore], without a reason\n", self.ignored));
        }
        let skipped = self.skipped.len() + self.ignored;
        text.push_str(&format!(
            "{} passed, {} failed, {skipped} skipped\n",
            self.passed, self.failed
        ));
        text
    }
}

/// True for the line in which cargo names the binary that it starts next.
fn is_next_binary(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("Running ") || line.starts_with("Doc-tests ")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn summary(lines: &str, code: i32) -> Summary {
        let mut summary = Summary::default();
        for line in lines.lines() {
            summary.read(line);
        }
        summary.close(ExitStatus::from_raw(code << 8));
        summary
    }

    #[test]
    fn the_results_of_all_binaries_are_summed_up() {
        let summary = summary(
            "     Running unittests src/lib.rs (target/debug/deps/a)\n\
             test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.50s\n\
             test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 10.00s\n",
            101,
        );
        assert_eq!((summary.passed, summary.failed, summary.ignored), (7, 3, 1));
        assert!(summary.render().ends_with("\n7 passed, 3 failed, 1 skipped\n"));
    }

    #[test]
    fn a_skipped_test_is_not_passed_and_its_reason_is_shown() {
        let summary = summary(
            "     Running tests/a.rs (x)\nskipped: loop_a: needs root\nskipped: loop_a: needs root\n\
             test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n\
             \x20    Running tests/b.rs (x)\nskipped: loop_a: needs root\n\
             test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n",
            0,
        );
        let text = summary.render();
        assert!(text.contains("  loop_a: needs root\n"), "{text}");
        assert!(text.ends_with("2 passed, 0 failed, 2 skipped\n"), "{text}");
    }

    #[test]
    fn what_a_test_left_running_holds_up_nobody() {
        let mut cargo = program("sh");
        cargo.args(["-c", "sleep 60 & echo 'test result: ok. 3 passed; 0 failed'; exit 7"]);

        let (summary, status) = listen(cargo).expect("a run");

        assert_eq!((summary.passed, status.code()), (3, Some(7)));
    }

    #[test]
    fn a_binary_that_dies_without_a_result_is_a_failure() {
        assert_eq!(summary("test a ... ", 101).failed, 1);
    }
}
