//! Counts the results of a test executable as its output goes by.

use std::collections::BTreeSet;

/// What one guest said so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// A line that has not ended yet.
    open: Vec<u8>,
    passed: usize,
    failed: usize,
    ignored: usize,
    skipped: BTreeSet<String>,
}

/// What a suite came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Tests that ran and passed.
    pub(super) passed: usize,
    /// Tests that failed, or whole suites that did not end.
    pub(super) failed: usize,
    /// Tests that did not run, each as `NAME: REASON`.
    pub(super) skipped: Vec<String>,
}

impl Tally {
    /// Takes a piece of output; answers the lines that it completes.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<String> {
        self.open.extend_from_slice(bytes);
        let Some(end) = self.open.iter().rposition(|byte| *byte == b'\n') else {
            return Vec::new();
        };
        let whole: Vec<u8> = self.open.drain(..=end).collect();
        let whole = String::from_utf8_lossy(&whole).into_owned();
        let lines: Vec<String> = whole.lines().map(str::to_owned).collect();
        for line in &lines {
            self.read(line);
        }
        lines
    }

    /// What stands in the last line, which has not ended: the name of the test that runs.
    pub(super) fn open_line(&self) -> String {
        String::from_utf8_lossy(&self.open).into_owned()
    }

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
        // libtest writes the name of a test before it runs, so the note may stand behind it.
        } else if let Some((_, note)) = line.split_once("skipped: ") {
            self.skipped.insert(note.to_owned());
        }
    }

    /// The counts of a guest whose executable ended with this code.
    fn counts(&self, code: i32) -> Counts {
        let mut skipped: Vec<String> = self.skipped.iter().cloned().collect();
        skipped.extend((0..self.ignored).map(|_| "a test with #[ignore]".to_owned()));
        // An executable that died has printed no result.
        let failed = if code != 0 { self.failed.max(1) } else { self.failed };
        Counts { passed: self.passed.saturating_sub(self.skipped.len()), failed, skipped }
    }
}

/// The counts of a suite: a test that ran in several guests passed when it did in each.
pub(super) fn join(guests: &[(Tally, i32)]) -> Counts {
    let counts: Vec<Counts> = guests.iter().map(|(tally, code)| tally.counts(*code)).collect();
    let skipped = counts.iter().flat_map(|counts| &counts.skipped).cloned();
    Counts {
        passed: counts.iter().map(|counts| counts.passed).min().unwrap_or_default(),
        failed: counts.iter().map(|counts| counts.failed).max().unwrap_or_default(),
        skipped: skipped.collect::<BTreeSet<_>>().into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(text: &str) -> Tally {
        let mut tally = Tally::default();
        // In small pieces, as a serial port delivers them.
        for piece in text.as_bytes().chunks(7) {
            tally.take(piece);
        }
        tally
    }

    #[test]
    fn results_are_counted_whatever_pieces_they_come_in() {
        let tally = tally("test a ... ok\ntest result: FAILED. 3 passed; 2 failed; 0 ignored\n");
        let counts = join(&[(tally, 101)]);
        assert_eq!((counts.passed, counts.failed), (3, 2));
    }

    #[test]
    fn a_skipped_test_is_not_passed() {
        let tally =
            tally("test a ... skipped: a: no card\nok\ntest result: ok. 3 passed; 0 failed;\n");
        let counts = join(&[(tally, 0)]);
        assert_eq!((counts.passed, counts.failed), (2, 0));
        assert_eq!(counts.skipped, ["a: no card"]);
    }

    #[test]
    fn an_executable_that_dies_without_a_result_has_failed() {
        assert_eq!(join(&[(tally("test a ... "), 134)]).failed, 1);
    }

    #[test]
    fn the_test_that_was_running_is_known() {
        assert_eq!(tally("x\ntest login_hangs ... ").open_line(), "test login_hangs ... ");
    }

    #[test]
    fn a_test_of_two_guests_passes_when_it_passes_in_both() {
        let one = tally("test result: ok. 2 passed; 0 failed;\n");
        let two = tally("test result: FAILED. 1 passed; 1 failed;\n");
        let counts = join(&[(one, 0), (two, 101)]);
        assert_eq!((counts.passed, counts.failed), (1, 1));
    }
}
