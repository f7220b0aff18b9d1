//! Builds what goes into a guest, with the cargo that runs the lab.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use super::Lab;
use super::error::{Attempt, LabError, Result};
use crate::lab::suites::Suite;
use crate::process;

/// How a bench is built.
#[derive(Clone, Copy, Debug)]
pub enum Build {
    /// Optimized, as a release is: for figures.
    Shipped,
    /// As tests are, which takes a fraction of the time: to see whether it runs.
    Quick,
}

/// What was built.
#[derive(Debug)]
pub(super) struct Built {
    /// The program that is tested.
    pub(super) hawser: PathBuf,
    /// Test executables by the name of their file.
    pub(super) tests: BTreeMap<String, PathBuf>,
    /// Examples by their name.
    pub(super) examples: BTreeMap<String, PathBuf>,
}

/// Builds the program, the test files of these suites and the examples they use.
pub(super) async fn build(lab: &Lab, suites: &[&Suite]) -> Result<Built> {
    let tests: Vec<&str> = suites.iter().map(|suite| suite.test).collect();
    let examples: BTreeSet<&str> =
        suites.iter().flat_map(|suite| suite.examples).copied().collect();
    let programs = run(lab, &["build", "--workspace", "--bin", "hawser"]).await?;
    let mut words = vec!["test", "--workspace", "--no-run"];
    words.extend(tests.iter().flat_map(|test| ["--test", test]));
    let messages = if tests.is_empty() { String::new() } else { run(lab, &words).await? };
    let found = executables(&messages, "test");
    let mut words = vec!["build", "--workspace"];
    words.extend(examples.iter().flat_map(|example| ["--example", example]));
    let messages = if examples.is_empty() { String::new() } else { run(lab, &words).await? };
    let examples = executables(&messages, "example");
    let not_built = |name: &str| LabError::NotBuilt { name: name.to_owned() };
    if let Some(missing) = tests.iter().find(|test| !found.contains_key(**test)) {
        return Err(not_built(missing));
    }
    let hawser = executables(&programs, "bin").remove("hawser");
    Ok(Built { hawser: hawser.ok_or_else(|| not_built("hawser"))?, tests: found, examples })
}

/// Builds the program and a bench: as they are shipped and measured, or as tests are built.
pub(super) async fn build_bench(lab: &Lab, bench: &str, how: Build) -> Result<Built> {
    let profile = match how {
        Build::Shipped => "release",
        Build::Quick => "dev",
    };
    let words = ["build", "--profile", profile, "--workspace", "--bin", "hawser"];
    let programs = run(lab, &words).await?;
    let words = ["bench", "--profile", profile, "--workspace", "--no-run", "--bench", bench];
    let found = executables(&run(lab, &words).await?, "bench");
    let not_built = |name: &str| LabError::NotBuilt { name: name.to_owned() };
    if !found.contains_key(bench) {
        return Err(not_built(bench));
    }
    let hawser = executables(&programs, "bin").remove("hawser");
    Ok(Built {
        hawser: hawser.ok_or_else(|| not_built("hawser"))?,
        tests: found,
        examples: BTreeMap::new(),
    })
}

/// Runs cargo; its words for people go to standard error, what it built is answered.
async fn run(lab: &Lab, words: &[&str]) -> Result<String> {
    let mut command = process::command(&lab.cargo);
    command.current_dir(&lab.repo).args(words);
    command.args(["--locked", "--message-format", "json-render-diagnostics"]);
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let what = format!("cargo {}", words.join(" "));
    let mut command = tokio::process::Command::from(command);
    let child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn();
    let child = child.attempt(|| format!("starting {what}"))?;
    let output = child.wait_with_output().await.attempt(|| format!("waiting for {what}"))?;
    if !output.status.success() {
        let status = output.status.to_string();
        return Err(LabError::Step { what, status, tail: String::new() });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The executables of one kind in cargo's messages, by the name of their target.
fn executables(messages: &str, kind: &str) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    for line in messages.lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        let target = &message["target"];
        let of_kind =
            target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|k| k == kind));
        let (Some(name), Some(path)) = (target["name"].as_str(), message["executable"].as_str())
        else {
            continue;
        };
        if of_kind {
            found.insert(name.to_owned(), Path::new(path).to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_found_by_kind_and_name_and_libraries_are_passed_over() {
        let messages = r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"a"},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["test"],"name":"vm_a"},"executable":"/t/deps/vm_a-1"}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"hawser"},"executable":"/t/hawser"}
{"reason":"build-finished","success":true}
"#;
        let tests = executables(messages, "test");
        assert_eq!(tests, BTreeMap::from([("vm_a".into(), "/t/deps/vm_a-1".into())]));
        assert_eq!(executables(messages, "bin")["hawser"], Path::new("/t/hawser"));
    }
}
