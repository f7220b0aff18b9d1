//! `words`: texts that do not belong in the tree.
//!
//! A path of somebody's machine, a private package mirror, a merge marker, a promise without an
//! issue number, a test that is switched off in silence.

use std::path::Path;

use crate::Result;
use crate::report::Report;
use crate::source::{blank, line_of};
use crate::tree::Tree;

/// A text that is refused, and why. Written in two halves, so that this file passes its own check.
struct Refused {
    text: &'static str,
    why: &'static str,
}

static REFUSED: &[Refused] = &[
    Refused { text: concat!("/wo", "rk/"), why: "a path of one machine" },
    Refused { text: concat!("/ho", "me/"), why: "a path of one machine" },
    Refused { text: concat!("/Us", "ers/"), why: "a path of one machine" },
    Refused { text: concat!("sparse", "+http"), why: "a package registry of one site" },
    Refused { text: concat!("arti", "factory"), why: "a package registry of one site" },
    Refused { text: concat!("[sou", "rce.crates-io]"), why: "a package registry of one site" },
    Refused { text: concat!("<<<<", "<<< "), why: "a merge marker" },
    Refused { text: concat!(">>>>", ">>> "), why: "a merge marker" },
];

/// Words for work left undone; each needs the number of an issue: `(#123)`.
static PROMISES: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Files that quote what they must not say elsewhere: none of our own words, but fixed texts.
static LEFT_OUT: [&str; 2] = ["LICENSE", "Cargo.lock"];

/// Runs the check on the tree.
pub(crate) fn check(tree: &Tree) -> Result<Report> {
    let mut report = Report::default();
    let mut looked = 0;
    for path in tree.files()? {
        if LEFT_OUT.iter().any(|name| path == Path::new(name)) {
            continue;
        }
        // Captured samples may hold any bytes.
        let Ok(text) = tree.read(&path) else { continue };
        looked += 1;
        report.problems.extend(find(&path, &text));
    }
    report.scope = format!("{looked} files");
    Ok(report)
}

/// What does not belong in a text, as `path:line: why`.
fn find(path: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut say =
            |what: String| found.push(format!("{}:{}: {what}", path.display(), index + 1));
        for refused in REFUSED {
            if starts_somewhere(line, refused.text) {
                say(format!("{:?} is {}", refused.text, refused.why));
            }
        }
        for promise in PROMISES {
            if bare_promise(line, promise) {
                say(format!("{promise} needs the number of an issue: {promise}(#123)"));
            }
        }
    }
    if path.extension().is_some_and(|extension| extension == "rs") {
        let code = blank(text);
        for (at, _) in code.match_indices("#[ignore") {
            let (path, line) = (path.display(), line_of(&code, at));
            found.push(format!(
                "{path}:{line}: a test says why it is skipped with hawser_testkit::skip, \
                 never with #[ignore]"
            ));
        }
    }
    found
}

/// True when the text stands in the line and does not continue a longer path or word.
fn starts_somewhere(line: &str, text: &str) -> bool {
    line.match_indices(text).any(|(at, _)| {
        !text.starts_with('/')
            || !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-}>*$~".contains(c))
    })
}

fn bare_promise(line: &str, promise: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(promise).any(|(at, _)| {
        let after = &line[at + promise.len()..];
        let inside = line[..at].ends_with(is_word) || after.starts_with(is_word);
        let numbered = after.strip_prefix("(#").and_then(|rest| rest.split_once(')')).is_some_and(
            |(digits, _)| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()),
        );
        !inside && !numbered
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        find(Path::new(path), text).len()
    }

    #[test]
    fn paths_of_a_machine_are_found_and_longer_paths_are_not() {
        let (bad, prefix) = (REFUSED[0].text, "/srv");
        assert_eq!(
            find(Path::new("a.md"), &format!("x\nsee {bad}x"))[0].split(": ").next(),
            Some("a.md:2")
        );
        assert_eq!(count("a.md", &format!("see {prefix}{bad}x")), 0);
    }

    #[test]
    fn promises_need_an_issue() {
        for promise in PROMISES {
            assert_eq!(count("a.rs", &format!("// {promise}: later")), 1);
            assert_eq!(count("a.rs", &format!("// {promise}(#x): later")), 1);
            assert_eq!(count("a.rs", &format!("// {promise}(#12): later")), 0);
            assert_eq!(count("a.rs", &format!("let MY_{promise}S = 1;")), 0);
        }
    }

    #[test]
    fn switched_off_tests_are_found_in_code_only() {
        assert_eq!(count("a.rs", "#[ignore = \"slow\"]\nfn a() {}"), 1);
        assert_eq!(count("a.rs", "// never #[ignore]"), 0);
        assert_eq!(count("a.md", "never `#[ignore]`"), 0);
    }
}
