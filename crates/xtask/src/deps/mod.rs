//! `deps`: licences, duplicates, sources and versions of everything we build on.

pub(crate) mod config;
mod versions;

use std::collections::{BTreeMap, BTreeSet};

use config::Config;
use spdx::{Expression, LicenseReq, ParseMode};

use crate::Result;
use crate::graph::{Graph, Package};
use crate::report::Report;
use crate::tree::Tree;

/// Runs the check on the tree.
pub(crate) fn check(tree: &Tree) -> Result<Report> {
    let config = Config::load(tree)?;
    let graph = Graph::load(tree, &config.graph.targets)?;
    let mut report = judge(&graph, &config);
    versions::check(tree, &graph, &mut report.problems)?;
    report.scope =
        format!("{} packages, {} of them ours", graph.packages.len(), graph.members().count());
    Ok(report)
}

/// Applies the rules to a graph.
fn judge(graph: &Graph, config: &Config) -> Report {
    let mut report = Report::default();
    check_licences(graph, config, &mut report);
    check_duplicates(graph, config, &mut report.problems);
    check_bans(graph, config, &mut report.problems);
    check_sources(graph, config, &mut report.problems);
    report
}

fn check_licences(graph: &Graph, config: &Config, report: &mut Report) {
    let mut used = BTreeSet::new();
    let mut exceptions_used = BTreeSet::new();
    for package in &graph.packages {
        let exception = config.licenses.exceptions.iter().find(|e| e.name == package.name);
        let extra: &[String] = exception.map_or(&[], |e| &e.allow);
        let expression = match licence(package) {
            Ok(expression) => expression,
            Err(problem) => {
                report.problems.push(problem);
                continue;
            }
        };
        let allowed = |list: &[String], req: &LicenseReq| list.contains(&req.to_string());
        for requirement in expression.requirements() {
            used.insert(requirement.req.to_string());
        }
        if expression.evaluate(|req| allowed(&config.licenses.allow, req)) {
            continue;
        }
        if expression.evaluate(|req| allowed(&config.licenses.allow, req) || allowed(extra, req)) {
            exceptions_used.insert(package.name.as_str());
            continue;
        }
        report.problems.push(format!(
            "{} {}: licence {expression} is not allowed in deny.toml",
            package.name, package.version
        ));
    }
    for exception in &config.licenses.exceptions {
        let name = exception.name.as_str();
        if !exceptions_used.contains(name) {
            report
                .problems
                .push(format!("deny.toml: the licence exception of {name} is not needed"));
        }
        if !config.has_comment(name) {
            report
                .problems
                .push(format!("deny.toml: the licence exception of {name} has no reason"));
        }
    }
    for allowed in config.licenses.allow.iter().filter(|id| !used.contains(*id)) {
        report.warnings.push(format!("deny.toml: nothing has the allowed licence {allowed}"));
    }
}

/// The licence of a package, or why there is none.
fn licence(package: &Package) -> Result<Expression, String> {
    let (name, version) = (&package.name, &package.version);
    let text = package
        .licence
        .as_deref()
        .ok_or_else(|| format!("{name} {version}: its manifest names no licence"))?;
    // Old manifests write `MIT/Apache-2.0`.
    Expression::parse_mode(text, ParseMode::LAX).map_err(|e| {
        format!("{name} {version}: licence {text:?} is no SPDX expression: {}", e.reason)
    })
}

fn check_duplicates(graph: &Graph, config: &Config, problems: &mut Vec<String>) {
    if config.bans.multiple_versions != "deny" {
        problems.push("deny.toml: bans.multiple-versions must be \"deny\"".to_owned());
    }
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in &graph.packages {
        versions.entry(&package.name).or_default().insert(&package.version);
    }
    let mut skipped: BTreeSet<(&str, &str)> = BTreeSet::new();
    for skip in &config.bans.skip {
        let Some((name, version)) = skip.name.split_once('@') else {
            problems.push(format!("deny.toml: bans.skip {:?} must be name@version", skip.name));
            continue;
        };
        let known = versions.get(name).is_some_and(|all| all.len() > 1 && all.contains(version));
        if !known {
            problems.push(format!("deny.toml: bans.skip {} is not needed", skip.name));
        }
        if skip.reason.as_deref().is_none_or(|reason| reason.trim().is_empty()) {
            problems.push(format!("deny.toml: bans.skip {} has no reason", skip.name));
        }
        skipped.insert((name, version));
    }
    for (name, all) in versions {
        let left: Vec<_> = all.iter().filter(|v| !skipped.contains(&(name, **v))).collect();
        if left.len() > 1 {
            let users = left.iter().map(|version| {
                format!("{version} (used by {})", users(graph, name, version).join(", "))
            });
            let users = users.collect::<Vec<_>>().join(" and ");
            problems.push(format!("{name} is built more than once: {users}"));
        }
    }
}

/// Who uses this version of a package directly.
fn users<'g>(graph: &'g Graph, name: &str, version: &str) -> Vec<&'g str> {
    let is_it = |index: usize| {
        graph.packages[index].name == name && graph.packages[index].version == version
    };
    let mut users: Vec<_> = graph
        .packages
        .iter()
        .filter(|package| package.uses.iter().any(|(to, _)| is_it(*to)))
        .map(|package| package.name.as_str())
        .collect();
    users.dedup();
    users
}

fn check_bans(graph: &Graph, config: &Config, problems: &mut Vec<String>) {
    for ban in &config.bans.deny {
        let Some(reason) = ban.reason.as_deref() else {
            problems.push(format!("deny.toml: bans.deny {} has no reason", ban.name));
            continue;
        };
        let mut needed = BTreeSet::new();
        for package in graph.packages.iter().filter(|package| package.name == ban.name) {
            let users = users(graph, &package.name, &package.version);
            let (allowed, strangers): (Vec<_>, Vec<_>) =
                users.into_iter().partition(|user| ban.wrappers.iter().any(|name| name == user));
            needed.extend(allowed.iter().copied());
            if allowed.is_empty() || !strangers.is_empty() {
                problems.push(format!(
                    "{} {} is banned, {reason}; used by {}",
                    package.name,
                    package.version,
                    strangers.join(", ")
                ));
            }
        }
        for wrapper in ban.wrappers.iter().filter(|name| !needed.contains(name.as_str())) {
            problems
                .push(format!("deny.toml: the wrapper {wrapper} of {} is not needed", ban.name));
        }
    }
}

fn check_sources(graph: &Graph, config: &Config, problems: &mut Vec<String>) {
    let allowed: Vec<_> =
        config.sources.allow_registry.iter().map(|url| format!("registry+{url}")).collect();
    for package in graph.packages.iter().filter(|package| !package.member) {
        let (name, version) = (&package.name, &package.version);
        match &package.source {
            Some(source) if allowed.contains(source) => {}
            Some(source) => {
                problems
                    .push(format!("{name} {version} comes from {source}, which is not allowed"));
            }
            None => problems.push(format!("{name} {version} is a path outside the workspace")),
        }
    }
}

#[cfg(test)]
mod tests;
