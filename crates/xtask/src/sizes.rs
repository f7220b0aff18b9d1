//! `sizes`: files and functions that have grown too long.

use std::path::{Path, PathBuf};

use crate::Result;
use crate::generated;
use crate::report::Report;
use crate::source::{Function, blank, functions, without_tests};
use crate::tree::Tree;

/// No file is longer than this, without its tests.
const LONGEST_FILE: usize = 600;
/// No function should be longer than this.
const LONGEST_FUNCTION: usize = 60;
/// How many of the longest files are shown.
const SHOWN: usize = 10;

/// One measured file.
struct Measured {
    path: PathBuf,
    lines: usize,
    long: Vec<Function>,
}

/// Runs the check on the tree.
pub(crate) fn check(tree: &Tree) -> Result<Report> {
    let mut measured = Vec::new();
    for path in tree.rust_files("crates")? {
        if !is_test_file(&path) && !generated::is_generated(&path) {
            measured.push(measure(path.clone(), &tree.read(&path)?));
        }
    }
    Ok(judge(measured))
}

/// True for files that hold nothing but tests.
fn is_test_file(path: &Path) -> bool {
    path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests")
}

fn measure(path: PathBuf, text: &str) -> Measured {
    let (code, lines) = without_tests(&blank(text));
    let long = functions(&code).into_iter().filter(|f| f.length > LONGEST_FUNCTION).collect();
    Measured { path, lines, long }
}

fn judge(mut measured: Vec<Measured>) -> Report {
    measured.sort_by(|a, b| b.lines.cmp(&a.lines).then_with(|| a.path.cmp(&b.path)));
    let total: usize = measured.iter().map(|file| file.lines).sum();
    let mut report = Report {
        scope: format!("{} files, {total} lines without tests", measured.len()),
        ..Report::default()
    };
    for file in measured.iter().take(SHOWN) {
        report.notes.push(format!("{:>5}  {}", file.lines, file.path.display()));
    }
    for file in measured.iter().filter(|file| file.lines > LONGEST_FILE) {
        let (path, lines) = (file.path.display(), file.lines);
        report.problems.push(format!("{path}: {lines} lines, {LONGEST_FILE} are the limit"));
    }
    let mut count = 0;
    for file in &measured {
        for function in &file.long {
            count += 1;
            report.warnings.push(format!(
                "{}:{}: fn {} has {} lines",
                file.path.display(),
                function.line,
                function.name,
                function.length
            ));
        }
    }
    report.notes.push(format!("{count} functions over {LONGEST_FUNCTION} lines"));
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_do_not_count() {
        let text = format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{\n{}}}\n", "// x\n".repeat(700));

        assert_eq!(measure("a.rs".into(), &text).lines, 1);
        assert!(is_test_file(Path::new("crates/a/src/b/tests.rs")));
        assert!(is_test_file(Path::new("crates/a/tests/b.rs")));
        assert!(!is_test_file(Path::new("crates/a/src/contests.rs")));
    }

    #[test]
    fn a_file_over_the_limit_fails_and_a_long_function_warns() {
        let long = measure("long.rs".into(), &"// x\n".repeat(601));
        let function = format!("fn f() {{\n{}}}\n", "    x();\n".repeat(60));

        let report = judge(vec![measure("f.rs".into(), &function), long]);

        assert_eq!(report.problems, ["long.rs: 601 lines, 600 are the limit"]);
        assert_eq!(report.warnings, ["f.rs:1: fn f has 62 lines"]);
        assert!(judge(vec![measure("a.rs".into(), &"// x\n".repeat(600))]).is_clean());
    }

    #[test]
    fn the_ten_longest_are_shown_longest_first() {
        let files = (1..=12).map(|n| measure(format!("{n}.rs").into(), &"\n".repeat(n))).collect();

        let notes = judge(files).notes;

        assert_eq!(notes.len(), SHOWN + 1);
        assert_eq!(notes[0], "   12  12.rs");
        assert_eq!(notes[9], "    3  3.rs");
    }
}
