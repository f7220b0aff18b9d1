//! `docs/cases.md`: every case of lost or leaked data names the tests that stage it, and they exist.

use std::collections::{BTreeMap, BTreeSet};

use crate::Result;
use crate::promises::all_suites;
use crate::source::blank;
use crate::tree::Tree;

const DOCUMENT: &str = "docs/cases.md";

/// The tests of the lab.
const TESTS: &str = "crates/hawser-live/tests";

/// How many cases there are.
const CASES: u32 = 28;

/// Checks every row; answers how many there are.
pub(crate) fn check(tree: &Tree, problems: &mut Vec<String>) -> Result<usize> {
    let text = tree.read(DOCUMENT)?;
    let staged = staged(&text);
    let (known, suites) = (test_names(tree)?, all_suites(tree)?);
    let wanted: BTreeSet<u32> = (1..=CASES).collect();
    for number in wanted.difference(&staged.keys().copied().collect()) {
        problems.push(format!("{DOCUMENT}: no row for case {number}"));
    }
    for (number, by) in &staged {
        let names = names(by);
        if names.is_empty() && by.split_whitespace().count() < 4 {
            problems.push(format!("{DOCUMENT}: case {number} names no test and no reason"));
        }
        for name in names.iter().filter(|name| !exists(name, &known, &suites)) {
            problems.push(format!("{DOCUMENT}: case {number} names {name:?}, which is no test"));
        }
    }
    Ok(staged.len())
}

/// The last cell of every numbered row.
fn staged(document: &str) -> BTreeMap<u32, String> {
    let row = |line: &str| {
        let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
        let number = inner.split('|').next()?.trim().parse().ok()?;
        Some((number, inner.rsplit('|').next()?.trim().to_owned()))
    };
    document.lines().filter_map(row).collect()
}

/// What stands between backticks and may be a test.
fn names(cell: &str) -> Vec<&str> {
    let quoted = cell.split('`').skip(1).step_by(2);
    let is_name = |word: &&str| {
        !word.is_empty()
            && word.contains('_')
            && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '…'))
    };
    quoted.filter(is_name).collect()
}

/// The test functions below `tests/`, by the first part of the path: a suite or a folder.
fn test_names(tree: &Tree) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let mut found = BTreeMap::<String, BTreeSet<String>>::new();
    for path in tree.rust_files(TESTS)? {
        let Ok(inner) = path.strip_prefix(TESTS) else { continue };
        let first = inner.components().next().and_then(|part| part.as_os_str().to_str());
        let suite = first.unwrap_or_default().trim_end_matches(".rs").to_owned();
        found.entry(suite).or_default().extend(functions(&blank(&tree.read(&path)?)));
    }
    Ok(found)
}

/// The names of functions that are tests.
fn functions(code: &str) -> Vec<String> {
    let mut attributed = false;
    let mut found = Vec::new();
    for line in code.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            attributed = true;
        } else if let Some(rest) = line.strip_prefix("fn ").or(line.strip_prefix("async fn "))
            && attributed
        {
            found.extend(rest.split('(').next().map(ToOwned::to_owned));
            attributed = false;
        }
    }
    found
}

/// True for a suite, a test of a suite and a test of any; `…` stands for any rest of the name.
fn exists(name: &str, tests: &BTreeMap<String, BTreeSet<String>>, suites: &[String]) -> bool {
    let fits = |wanted: &str, test: &String| match wanted.strip_suffix('…') {
        Some(begin) => test.starts_with(begin),
        None => test == wanted,
    };
    match name.split_once("::") {
        // A folder beside the suites holds tests that several of them share.
        Some((suite, test)) => tests
            .iter()
            .filter(|(place, _)| suite.starts_with(place.as_str()))
            .any(|(_, known)| known.iter().any(|known| fits(test, known))),
        None => {
            suites.iter().any(|suite| suite == name)
                || tests.values().flatten().any(|known| fits(name, known))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_cell_of_numbered_rows_is_what_counts() {
        let text =
            "| | goes wrong |\n|---|---|\n| 1 | `data_lost` | `vm_a::case_01_…`, by hand |\n";
        let staged = staged(text);
        assert_eq!(staged.len(), 1);
        assert_eq!(names(&staged[&1]), ["vm_a::case_01_…"]);
    }

    #[test]
    fn names_are_looked_for_where_they_say_they_are() {
        let code = "#[test]\nfn case_01_a() {}\nfn plain_x() {}\n#[tokio::test]\nasync fn b_c() {}";
        let tests = BTreeMap::from([
            ("vm_a".to_owned(), functions(code).into_iter().collect()),
            ("vm_n".to_owned(), BTreeSet::from(["shared_one".to_owned()])),
        ]);
        let suites = ["vm_a".to_owned()];
        for name in ["vm_a::case_01_…", "vm_a::b_c", "vm_a", "case_01_…", "vm_n_tcp::shared_one"]
        {
            assert!(exists(name, &tests, &suites), "{name}");
        }
        for name in ["vm_a::case_02_…", "vm_b::case_01_…", "vm_a::plain_x", "vm_b", "case_01_"]
        {
            assert!(!exists(name, &tests, &suites), "{name}");
        }
    }
}
