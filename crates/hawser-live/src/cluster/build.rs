//! Builds programs from modules that the Go module proxy gives.
//!
//! A module that is not meant to be installed by its name is built from a copy: without the work
//! file of its repository, and with a version of every module that its `go.mod` takes from a folder
//! beside it. Checksums are those of Go's checksum database; nothing here turns that off.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::error::{Attempt, ClusterError, Result};
use super::place::Place;
use super::program::{Need, check, end, of_machine, run};
use super::say;
use super::versions::{Item, ItemKind, Module};
use crate::process;

/// What is used of the machine, Go aside.
const NEEDS: &[Need] = &[("cp", "coreutils")];

/// How long fetching one module may take.
const FETCH_LIMIT: Duration = Duration::from_secs(600);

/// How long a build may take: Kubernetes takes 10 minutes on two processors.
const BUILD_LIMIT: Duration = Duration::from_secs(3600);

/// Makes what is asked for of one module and puts it into its place, by whoever holds the right to.
pub(super) fn build(place: &Place, module: &Module, items: &[&Item]) -> Result<()> {
    let names: Vec<&str> = items.iter().map(|item| item.name.as_str()).collect();
    let names = names.join(" ");
    let go = place.go.clone().ok_or_else(|| ClusterError::NoGo { name: names.clone() })?;
    check(NEEDS)?;
    let begun = Instant::now();
    say(&format!("building {names} of {} {}", module.path, module.version));
    let work = place.work("go")?;
    let go = Go { program: go, folder: work.clone() };
    let source = go.fetch(module, &names)?;
    let copy = work.join("source");
    let mut cp = of_machine("cp");
    cp.args(["--recursive", "--no-preserve=mode"]).arg(&source).arg(&copy);
    run("copying the module", &mut cp, FETCH_LIMIT)?;
    let out = work.join("out");
    fs::create_dir(&out).attempt(|| format!("making {}", out.display()))?;
    let of = |kind| items.iter().filter(move |item| item.kind == kind);
    for item in of(ItemKind::Files) {
        let (from, to) = (copy.join(&item.source), out.join(&item.name));
        fs::rename(&from, &to).attempt(|| format!("taking {} of {}", item.source, module.path))?;
    }
    let programs: Vec<&Item> = of(ItemKind::Program).copied().collect();
    if !programs.is_empty() {
        go.prepare(module, &copy)?;
        go.build(module, &programs, &copy, &out)?;
    }
    for item in items {
        let (from, to) = (out.join(&item.name), place.part(module, item));
        let folder = to.parent().unwrap_or(&to);
        fs::create_dir_all(folder).attempt(|| format!("making {}", folder.display()))?;
        fs::rename(&from, &to).attempt(|| format!("moving {}", from.display()))?;
    }
    super::place::remove(&work)?;
    say(&format!("{names} took {} s", begun.elapsed().as_secs()));
    Ok(())
}

/// The Go of this machine.
struct Go {
    program: PathBuf,
    folder: PathBuf,
}

impl Go {
    /// A command of Go in a folder, set up as the user has it, but for where modules come from.
    fn command(&self, folder: &Path) -> Command {
        let mut command = process::command(&self.program);
        command.current_dir(folder).env("GOWORK", "off").env("CGO_ENABLED", "0");
        // Its copy has no repository to say a version of, and may write its own go.mod.
        command.env("GOFLAGS", "-mod=mod -buildvcs=false");
        command
    }

    /// The same, with the module proxy and nothing else.
    fn with_proxy(&self, folder: &Path) -> Result<Command> {
        let mut asked = self.command(folder);
        let proxies = run("go env", asked.args(["env", "GOPROXY"]), FETCH_LIMIT)?;
        let mut command = self.command(folder);
        command.env("GOPROXY", only_proxies(proxies.trim()));
        Ok(command)
    }

    /// Fetches a module; answers the folder that has it.
    fn fetch(&self, module: &Module, name: &str) -> Result<PathBuf> {
        let version = format!("{}@{}", module.path, module.version);
        let mut command = self.with_proxy(&self.folder)?;
        command.args(["mod", "download", "-json", &version]);
        let done = end(&format!("fetching {version}"), &mut command, &[], FETCH_LIMIT)?;
        let answer: Value = serde_json::from_str(&done.stdout).unwrap_or_default();
        if let Some(folder) = answer["Dir"].as_str().filter(|_| done.status.success()) {
            return Ok(folder.into());
        }
        Err(ClusterError::NotServed {
            name: name.to_owned(),
            module: module.path.clone(),
            version: module.version.clone(),
            answer: one_line(answer["Error"].as_str().unwrap_or(&done.stderr)),
        })
    }

    /// Makes a copy stand alone.
    fn prepare(&self, module: &Module, copy: &Path) -> Result<()> {
        for name in ["go.work", "go.work.sum"] {
            super::place::remove(&copy.join(name))?;
        }
        let mut shown = self.command(copy);
        let shown = run("reading go.mod", shown.args(["mod", "edit", "-json"]), FETCH_LIMIT)?;
        let shown = serde_json::from_str(&shown);
        let what = || format!("go.mod of {}", module.path);
        let shown: Value = shown.map_err(|source| ClusterError::Json { what: what(), source })?;
        let others = beside(&shown);
        if others.is_empty() {
            return Ok(());
        }
        let mut edit = self.command(copy);
        edit.args(["mod", "edit"]);
        for other in others {
            let Some(version) = &module.local else {
                return Err(ClusterError::Local { module: module.path.clone(), other });
            };
            edit.arg(format!("-replace={other}={other}@{version}"));
        }
        run("writing go.mod", &mut edit, FETCH_LIMIT).map(drop)
    }

    fn build(&self, module: &Module, items: &[&Item], copy: &Path, out: &Path) -> Result<()> {
        let mut flags = vec!["-s".to_owned(), "-w".to_owned()];
        flags.extend(module.stamps.iter().map(|(name, value)| format!("-X {name}={value}")));
        let mut command = self.with_proxy(copy)?;
        command.args(["build", "-trimpath", "-ldflags", &flags.join(" "), "-o"]);
        // With a slash: several programs go into a folder, each by the name of its package.
        command.arg(format!("{}/", out.display()));
        command.args(items.iter().map(|item| &item.source));
        let names: Vec<&str> = items.iter().map(|item| item.name.as_str()).collect();
        run(&format!("building {}", names.join(" ")), &mut command, BUILD_LIMIT).map(drop)
    }
}

/// What Go says on several lines.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A setting of Go without the word that lets it go past the proxies to the repositories.
fn only_proxies(setting: &str) -> String {
    let words: Vec<&str> =
        setting.split([',', '|']).filter(|word| !word.is_empty() && *word != "direct").collect();
    if words.is_empty() { "off".to_owned() } else { words.join(",") }
}

/// The modules that a `go.mod`, as Go shows it, takes from folders beside it.
fn beside(shown: &Value) -> Vec<String> {
    let replaced = shown["Replace"].as_array().into_iter().flatten();
    let local = replaced
        .filter(|entry| entry["New"]["Path"].as_str().is_some_and(|path| path.starts_with('.')));
    local.filter_map(|entry| entry["Old"]["Path"].as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_is_fetched_past_the_proxies() {
        assert_eq!(only_proxies("https://a.example,direct"), "https://a.example");
        assert_eq!(
            only_proxies("https://a.example|https://b.example"),
            "https://a.example,https://b.example"
        );
        assert_eq!(only_proxies("direct"), "off");
    }

    #[test]
    fn only_modules_from_folders_beside_it_are_given_another_place() {
        let shown = json!({ "Replace": [
            { "Old": { "Path": "k8s.io/api" }, "New": { "Path": "./staging/src/k8s.io/api" } },
            { "Old": { "Path": "example.org/a" }, "New": { "Path": "example.org/b", "Version": "v1" } },
        ]});
        assert_eq!(beside(&shown), ["k8s.io/api"]);
        assert!(beside(&json!({})).is_empty());
    }
}
