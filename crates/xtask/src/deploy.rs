//! `deploy`: what the Helm chart repeats from elsewhere in the tree, it repeats exactly.
//!
//! Helm reads custom resource definitions from the chart's own folder and nowhere else, and a chart
//! says its version itself. What is rendered from the chart is compared by `make chart`, which needs
//! Helm.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::report::Report;
use crate::tree::Tree;

const ORIGINALS: &str = "deploy/crds";
const COPIES: &str = "deploy/helm/hawser/crds";
const CHART: &str = "deploy/helm/hawser/Chart.yaml";
const WORKSPACE: &str = "Cargo.toml";

/// Texts by their file names.
type Texts = BTreeMap<String, String>;

/// Runs the check on the tree.
pub(crate) fn check(tree: &Tree) -> Result<Report> {
    let files = tree.files()?;
    let originals = texts(tree, &files, ORIGINALS)?;
    let mut problems = differences(&originals, &texts(tree, &files, COPIES)?);
    problems.extend(versions(&tree.read(CHART)?, &tree.read(WORKSPACE)?));
    Ok(Report {
        scope: format!("{} resource definitions, 1 chart", originals.len()),
        problems,
        ..Report::default()
    })
}

/// The files directly in a folder.
fn texts(tree: &Tree, files: &[PathBuf], folder: &str) -> Result<Texts> {
    files
        .iter()
        .filter(|path| path.parent() == Some(Path::new(folder)))
        .filter_map(|path| Some((path.file_name()?.to_str()?.to_owned(), path)))
        .map(|(name, path)| Ok((name, tree.read(path)?)))
        .collect()
}

fn differences(originals: &Texts, copies: &Texts) -> Vec<String> {
    let changed = originals.iter().filter_map(|(name, text)| match copies.get(name) {
        Some(copy) if copy == text => None,
        Some(_) => Some(format!("{COPIES}/{name} is not what {ORIGINALS}/{name} is: copy it")),
        None => Some(format!("{COPIES} lacks {name} of {ORIGINALS}: copy it")),
    });
    let strange = copies
        .keys()
        .filter(|name| !originals.contains_key(*name))
        .map(|name| format!("{COPIES}/{name} has no original in {ORIGINALS}"));
    changed.chain(strange).collect()
}

/// Whether chart and application have the version of the workspace.
fn versions(chart: &str, workspace: &str) -> Vec<String> {
    let package = workspace.split("[workspace.package]").nth(1).unwrap_or_default();
    let wanted = value(package, "version", '=');
    ["version", "appVersion"]
        .into_iter()
        .filter(|key| wanted.is_none() || value(chart, key, ':') != wanted)
        .map(|key| {
            let wanted = wanted.unwrap_or("nothing");
            format!("{CHART}: {key} is not that of {WORKSPACE}, which says {wanted}")
        })
        .collect()
}

/// What the first line with this key says, without quotes.
fn value<'a>(text: &'a str, key: &str, separator: char) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(separator))
        .find(|(found, _)| found.trim_end() == key)
        .map(|(_, value)| value.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> Texts {
        files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn copies_that_differ_are_missing_or_have_no_original_are_found() {
        let originals = folder(&[("a.yaml", "a"), ("b.yaml", "b"), ("c.yaml", "c")]);
        let copies = folder(&[("a.yaml", "a"), ("b.yaml", "B"), ("d.yaml", "d")]);

        let found = differences(&originals, &copies);

        assert_eq!(found.len(), 3);
        assert!(found[0].contains("b.yaml is not what"), "{found:?}");
        assert!(found[1].contains("lacks c.yaml"), "{found:?}");
        assert!(found[2].contains("d.yaml has no original"), "{found:?}");
        assert_eq!(differences(&originals, &originals), Vec::<String>::new());
    }

    #[test]
    fn chart_and_application_have_the_version_of_the_workspace() {
        let workspace = "[workspace]\nversion = \"9\"\n[workspace.package]\nversion = \"1.2.3\"\n";
        let chart = "apiVersion: v2\nversion: 1.2.3\nappVersion: \"1.2.3\"\n";

        assert_eq!(versions(chart, workspace), Vec::<String>::new());
        assert_eq!(versions("apiVersion: v2\nversion: 1.2.4\n", workspace).len(), 2);
        assert_eq!(versions("version: x\nappVersion: x\n", "").len(), 2);
    }
}
