//! What a check found, and how it is shown.

/// The outcome of one check.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// What was looked at, in a few words: `13 crates, 24 edges`.
    pub(crate) scope: String,
    /// Lines for the reader that judge nothing.
    pub(crate) notes: Vec<String>,
    /// Should be better, does not fail.
    pub(crate) warnings: Vec<String>,
    /// Fails the check.
    pub(crate) problems: Vec<String>,
}

impl Report {
    /// True when nothing fails.
    pub(crate) fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// The report as lines: notes, warnings, problems, and the verdict last.
    pub(crate) fn render(&self, name: &str) -> String {
        let mut text = String::new();
        for note in &self.notes {
            text.push_str(&format!("{name}: {note}\n"));
        }
        for warning in &self.warnings {
            text.push_str(&format!("{name}: warning: {warning}\n"));
        }
        for problem in &self.problems {
            text.push_str(&format!("{name}: error: {problem}\n"));
        }
        let verdict = match self.problems.len() {
            0 => "ok".to_owned(),
            1 => "1 error".to_owned(),
            many => format!("{many} errors"),
        };
        text.push_str(&format!("{name}: {}: {verdict}\n", self.scope));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_do_not_fail_and_problems_do() {
        let mut report = Report { scope: "2 files".into(), ..Report::default() };
        report.warnings.push("long".into());
        assert!(report.is_clean());
        assert_eq!(report.render("sizes"), "sizes: warning: long\nsizes: 2 files: ok\n");

        report.problems.push("too long".into());
        assert!(!report.is_clean());
        assert!(report.render("sizes").ends_with("sizes: 2 files: 1 error\n"));
    }
}
