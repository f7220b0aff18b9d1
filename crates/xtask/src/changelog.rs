//! `changelog`: one small file per unreleased change, so that branches never conflict.
//!
//! A note is `changelog.d/SUBJECT.KIND.md`; its text is one paragraph or a few. `--release` moves
//! all of them into CHANGELOG.md.

use std::fs;
use std::path::Path;

use crate::Result;
use crate::report::Report;
use crate::tree::Tree;

/// The kinds of notes, in the order of the changelog, with their headings.
static KINDS: [(&str, &str); 5] = [
    ("breaking", "Breaking"),
    ("security", "Security"),
    ("added", "Added"),
    ("changed", "Changed"),
    ("fixed", "Fixed"),
];

const FOLDER: &str = "changelog.d";
const CHANGELOG: &str = "CHANGELOG.md";
/// Above it stands the text of the file, below it the releases, newest first.
const MARK: &str = "<!-- releases -->";

/// One note.
#[derive(Debug, PartialEq, Eq)]
struct Note {
    file: String,
    kind: usize,
    text: String,
}

/// Checks the name and the text of every note.
pub(crate) fn check(tree: &Tree) -> Result<Report> {
    let (notes, problems) = notes(tree)?;
    Ok(Report { scope: format!("{} notes", notes.len()), problems, ..Report::default() })
}

/// Moves every note into the changelog, below a heading for this version.
pub(crate) fn release(tree: &Tree, version: &str) -> Result<bool> {
    let (notes, problems) = notes(tree)?;
    if let Some(problem) = problems.first() {
        return Err(problem.clone().into());
    }
    let changelog = tree.read(CHANGELOG)?;
    let changed = merged(&changelog, version, &notes)?;
    fs::write(tree.root.join(CHANGELOG), changed)
        .map_err(|e| format!("writing {CHANGELOG}: {e}"))?;
    for note in &notes {
        let path = tree.root.join(FOLDER).join(&note.file);
        fs::remove_file(&path).map_err(|e| format!("removing {}: {e}", path.display()))?;
    }
    println!("changelog: {} notes moved below {version}", notes.len());
    Ok(true)
}

fn notes(tree: &Tree) -> Result<(Vec<Note>, Vec<String>)> {
    let (mut notes, mut problems) = (Vec::new(), Vec::new());
    for path in tree.files()? {
        if path.parent() != Some(Path::new(FOLDER)) || path.ends_with("README.md") {
            continue;
        }
        let file = path.file_name().map(|f| f.to_string_lossy().into_owned()).unwrap_or_default();
        match note(&file, &tree.read(&path)?) {
            Ok(note) => notes.push(note),
            Err(problem) => problems.push(format!("{FOLDER}/{file}: {problem}")),
        }
    }
    Ok((notes, problems))
}

/// Reads one note.
fn note(file: &str, text: &str) -> Result<Note, String> {
    let words: Vec<_> = KINDS.iter().map(|(word, _)| *word).collect();
    let form = || format!("must be named SUBJECT.KIND.md, KIND one of {}", words.join(", "));
    let (subject, word) =
        file.strip_suffix(".md").and_then(|stem| stem.rsplit_once('.')).ok_or_else(form)?;
    let kind = words.iter().position(|known| *known == word).ok_or_else(form)?;
    if subject.is_empty() {
        return Err(form());
    }
    let text = text.trim();
    if text.is_empty() {
        return Err("is empty; say what changes for whoever uses Hawser".to_owned());
    }
    if text.lines().any(|line| line.starts_with('#')) {
        return Err(
            "is a paragraph below a heading of the changelog, and has none itself".to_owned()
        );
    }
    Ok(Note { file: file.to_owned(), kind, text: text.to_owned() })
}

/// The changelog with one more release.
fn merged(changelog: &str, version: &str, notes: &[Note]) -> Result<String> {
    let (head, releases) =
        changelog.split_once(MARK).ok_or_else(|| format!("{CHANGELOG} has no line {MARK}"))?;
    if changelog.lines().any(|line| line.trim() == format!("## {version}")) {
        return Err(format!("{CHANGELOG} has a release {version} already").into());
    }
    if notes.is_empty() {
        return Err(format!("{FOLDER} has no notes to release").into());
    }
    let mut release = format!("## {version}\n");
    for (index, (_, heading)) in KINDS.iter().enumerate() {
        let mut first = true;
        for note in notes.iter().filter(|note| note.kind == index) {
            if first {
                release.push_str(&format!("\n### {heading}\n\n"));
                first = false;
            }
            release.push_str(&format!("- {}\n", note.text.replace('\n', "\n  ")));
        }
    }
    Ok(format!("{head}{MARK}\n\n{release}{releases}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_by_name_and_bad_ones_refused() {
        assert_eq!(note("nbd.added.md", " NBD.\n").unwrap().text, "NBD.");
        for (file, text) in [
            ("nbd.md", "x"),
            ("nbd.new.md", "x"),
            (".added.md", "x"),
            ("nbd.added.txt", "x"),
            ("nbd.added.md", " \n"),
            ("nbd.added.md", "# NBD\n"),
        ] {
            assert!(note(file, text).is_err(), "{file} {text:?}");
        }
    }

    #[test]
    fn a_release_stands_on_top_with_its_kinds_in_order() {
        let notes = [note("b.fixed.md", "b\nmore").unwrap(), note("a.added.md", "a").unwrap()];
        let before = format!("# Changes\n\n{MARK}\n\n## 0.1.0\n");

        let after = merged(&before, "0.2.0", &notes).unwrap();

        let release = "## 0.2.0\n\n### Added\n\n- a\n\n### Fixed\n\n- b\n  more\n";
        assert_eq!(after, format!("# Changes\n\n{MARK}\n\n{release}\n\n## 0.1.0\n"));
        assert!(merged(&after, "0.2.0", &notes).is_err());
        assert!(merged(&before, "0.3.0", &[]).is_err());
    }
}
