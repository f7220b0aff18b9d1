//! `layers`: the direction of dependencies, as ARCHITECTURE.md's table has it.
//!
//! Three rules: a crate uses only the crates of its row; what a row must never have does not come in
//! through others either; `cfg(feature)` stands on a `mod` line and its table line, nowhere else.

use crate::Result;
use crate::deps::config::Config;
use crate::graph::{Graph, Use};
use crate::report::Report;
use crate::source::{blank, line_of};
use crate::tables;
use crate::tree::Tree;

/// What one crate may use.
struct Layer {
    name: &'static str,
    /// Crates of this workspace, in the product.
    may_use: May,
    /// Further crates of this workspace, in tests only.
    tests_may_use: &'static [&'static str],
    /// Outside crates that must not come in, directly or through others.
    never: &'static [&'static str],
}

enum May {
    These(&'static [&'static str]),
    Everything,
}

const TRANSPORTS: &[&str] = &["axum", "hyper", "hyper-util", "rustls", "tonic", "tower-http"];

/// The table. `hawser-live` and the binaries meet everything; nothing meets them.
static LAYERS: &[Layer] = &[
    Layer {
        name: "hawser-core",
        may_use: May::These(&[]),
        tests_may_use: &[],
        never: &[
            "async-std",
            "axum",
            "http",
            "hyper",
            "mio",
            "nix",
            "redb",
            "reqwest",
            "rustix",
            "rustls",
            "smol",
            "tokio",
            "tonic",
        ],
    },
    Layer {
        name: "hawser-host",
        may_use: May::These(&["hawser-core"]),
        tests_may_use: &["hawser-testkit"],
        never: TRANSPORTS,
    },
    Layer {
        name: "hawser-connect",
        may_use: May::These(&["hawser-core", "hawser-host"]),
        tests_may_use: &["hawser-testkit"],
        never: &["redb"],
    },
    Layer {
        name: "hawser-provider",
        may_use: May::These(&["hawser-core", "hawser-host", "hawser-api"]),
        tests_may_use: &["hawser-testkit"],
        never: &["redb"],
    },
    Layer {
        name: "hawser-store",
        may_use: May::These(&["hawser-core"]),
        tests_may_use: &["hawser-testkit"],
        never: &["axum"],
    },
    Layer {
        name: "hawser-engine",
        may_use: May::These(&["hawser-core"]),
        tests_may_use: &["hawser-testkit"],
        never: &["axum", "hyper", "nix", "redb", "rustix", "rustls", "tonic"],
    },
    Layer {
        name: "hawser-api",
        may_use: May::These(&["hawser-core"]),
        tests_may_use: &["hawser-testkit"],
        never: &["redb"],
    },
    Layer {
        name: "hawser-front",
        may_use: May::These(&["hawser-core", "hawser-api"]),
        tests_may_use: &["hawser-testkit"],
        never: &["redb"],
    },
    Layer {
        name: "hawser",
        may_use: May::These(&[
            "hawser-core",
            "hawser-host",
            "hawser-connect",
            "hawser-provider",
            "hawser-store",
            "hawser-engine",
            "hawser-api",
            "hawser-front",
        ]),
        tests_may_use: &["hawser-testkit"],
        never: &[],
    },
    Layer {
        name: "hawser-testkit",
        may_use: May::These(&["hawser-core"]),
        tests_may_use: &[],
        never: &["redb", "axum"],
    },
    Layer { name: "hawser-live", may_use: May::Everything, tests_may_use: &[], never: &[] },
    Layer { name: "xtask", may_use: May::These(&[]), tests_may_use: &[], never: &[] },
];

/// Crates that nothing may use outside its tests (`hawser-live` aside, which is all tests).
const ONLY_FOR_TESTS: &[&str] = &["hawser-testkit", "hawser-live", "xtask"];

/// Parts of the standard library that the crate of words and ports must not touch.
const NO_IO: &[&str] = &["fs", "process", "net"];

/// Runs the check on the tree.
pub(crate) fn check(tree: &Tree) -> Result<Report> {
    let config = Config::load(tree)?;
    let graph = Graph::load(tree, &config.graph.targets)?;
    let mut report = Report::default();
    let edges = check_edges(&graph, &mut report.problems);

    for path in tree.rust_files("crates/hawser-core/src")? {
        let code = blank(&tree.read(&path)?);
        for (line, part) in std_parts(&code, NO_IO) {
            report.problems.push(format!(
                "{}:{line}: hawser-core does no I/O, and this is std::{part}",
                path.display()
            ));
        }
    }
    for (_, member) in graph.members() {
        for path in tree.rust_files(format!("crates/{}/src", member.name))? {
            let code = blank(&tree.read(&path)?);
            for line in stray_features(&code) {
                report.problems.push(format!(
                    "{}:{line}: cfg(feature) is allowed on a `mod` line and its table line only",
                    path.display()
                ));
            }
        }
    }
    report.scope = format!("{} crates, {edges} edges between them", graph.members().count());
    Ok(report)
}

/// Checks every edge between members, and what comes in from outside; answers how many edges.
fn check_edges(graph: &Graph, problems: &mut Vec<String>) -> usize {
    let mut edges = 0;
    for (index, package) in graph.members() {
        let Some(layer) = LAYERS.iter().find(|layer| layer.name == package.name) else {
            problems.push(format!(
                "{} is not in the table of layers (crates/xtask/src/layers.rs and ARCHITECTURE.md)",
                package.name
            ));
            continue;
        };
        for (to, kind) in &package.uses {
            let to = &graph.packages[*to];
            if to.member {
                edges += 1;
                problems.extend(layer.refuses(&to.name, *kind));
            }
        }
        for never in layer.never {
            if let Some(way) = graph.way(index, never) {
                let way = way.join(" -> ");
                problems.push(format!("{} must never have {never}: {way}", package.name));
            }
        }
    }
    edges
}

impl Layer {
    /// Why this crate may not use that one for that; `None` when it may.
    fn refuses(&self, to: &str, kind: Use) -> Option<String> {
        let allowed = match self.may_use {
            May::Everything => return None,
            May::These(allowed) => allowed,
        };
        let in_tests = kind == Use::Dev && self.tests_may_use.contains(&to);
        if allowed.contains(&to) || in_tests {
            return None;
        }
        let (name, what) = (self.name, if kind == Use::Dev { "in tests " } else { "" });
        Some(if ONLY_FOR_TESTS.contains(&to) && kind != Use::Dev {
            format!("{name} uses {to}, which is for tests only: make it a dev-dependency")
        } else {
            let list = if allowed.is_empty() { "nothing".to_owned() } else { allowed.join(", ") };
            format!("{name} uses {to}, but {what}it may use {list}")
        })
    }
}

/// Uses of parts of `std` in blanked code, as `std::fs` or inside `std::{…}`, with their lines.
fn std_parts<'p>(code: &str, parts: &[&'p str]) -> Vec<(usize, &'p str)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("std::") {
        if code[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
            continue;
        }
        let after = at + "std::".len();
        let words = match code[after..].trim_start().strip_prefix('{') {
            Some(group) => group_heads(group),
            None => vec![word(&code[after..])],
        };
        for head in words {
            found.extend(
                parts.iter().filter(|part| **part == head).map(|part| (line_of(code, at), *part)),
            );
        }
    }
    found
}

/// The first words of the members of a `use` group that was just opened.
fn group_heads(group: &str) -> Vec<&str> {
    let (mut heads, mut depth, mut at_head) = (Vec::new(), 1usize, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => at_head = true,
            c if at_head && !c.is_whitespace() => {
                heads.push(word(&group[at..]));
                at_head = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    heads
}

fn word(text: &str) -> &str {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// Lines of blanked code with a `cfg` on a feature that is neither on a `mod` line nor in a table.
fn stray_features(code: &str) -> Vec<usize> {
    let tables: Vec<_> = tables::NAMES.iter().filter_map(|name| tables::body(code, name)).collect();
    let mut stray = Vec::new();
    for (at, _) in code.match_indices("feature") {
        let line_start = code[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let before = &code[line_start..at];
        if !before.contains("cfg") {
            continue;
        }
        let attribute = before.trim_start().starts_with("#[cfg(");
        let next = code[at..]
            .lines()
            .skip(1)
            .map(str::trim)
            .find(|line| !line.is_empty() && !line.starts_with("#["))
            .unwrap_or("");
        let on_mod = next.ends_with(';')
            && next.split_whitespace().any(|word| word == "mod")
            && !next.contains('{');
        let in_table = tables.iter().any(|body| body.contains(&at));
        if !(attribute && (on_mod || in_table)) {
            stray.push(line_of(code, at));
        }
    }
    stray
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::sample::graph;

    fn problems(edges: &[(&str, &str, Use)]) -> Vec<String> {
        let names = [
            "hawser-core",
            "hawser-host",
            "hawser-engine",
            "hawser-testkit",
            "hawser-live",
            "xtask",
            "tokio",
            "a",
        ];
        let mut problems = Vec::new();
        check_edges(&graph(&names.map(|name| (name, "1.0.0", "MIT")), edges), &mut problems);
        problems
    }

    #[test]
    fn edges_of_the_table_pass() {
        let edges = [
            ("hawser-host", "hawser-core", Use::Normal),
            ("hawser-host", "tokio", Use::Normal),
            ("hawser-host", "hawser-testkit", Use::Dev),
            ("hawser-live", "hawser-engine", Use::Normal),
            ("hawser-live", "hawser-testkit", Use::Normal),
        ];
        assert_eq!(problems(&edges), Vec::<String>::new());
    }

    #[test]
    fn an_edge_that_the_table_lacks_is_named() {
        let found = problems(&[("hawser-engine", "hawser-host", Use::Normal)]);
        assert_eq!(found, ["hawser-engine uses hawser-host, but it may use hawser-core"]);
        assert_eq!(problems(&[("hawser-engine", "hawser-host", Use::Dev)]).len(), 1);
        assert_eq!(problems(&[("xtask", "hawser-core", Use::Normal)]).len(), 1);
    }

    #[test]
    fn the_testkit_is_a_dev_dependency_only() {
        let found = problems(&[("hawser-host", "hawser-testkit", Use::Normal)]);
        assert!(found[0].contains("make it a dev-dependency"), "{found:?}");
    }

    #[test]
    fn a_forbidden_crate_is_found_behind_another() {
        let found = problems(&[("hawser-core", "a", Use::Normal), ("a", "tokio", Use::Normal)]);
        assert_eq!(found, ["hawser-core must never have tokio: hawser-core -> a -> tokio"]);
        assert!(problems(&[("hawser-core", "tokio", Use::Dev)]).is_empty());
    }

    #[test]
    fn a_crate_without_a_row_is_refused() {
        let mut problems = Vec::new();
        check_edges(&graph(&[("hawser-new", "1.0.0", "MIT")], &[]), &mut problems);
        assert!(problems[0].contains("hawser-new is not in the table"), "{problems:?}");
    }

    #[test]
    fn every_way_to_name_a_part_of_std_is_found() {
        let code = "use std::fs;\nuse std::{fmt, net::{IpAddr}};\nstd::process::exit(1);\n";
        assert_eq!(std_parts(code, NO_IO), [(1, "fs"), (2, "net"), (3, "process")]);

        let fine = "use std::{fmt, collections::{fs}};\nuse mystd::fs;\nuse std::fmt::fs;\n";
        assert_eq!(std_parts(fine, NO_IO), []);
    }

    #[test]
    fn features_stand_on_mod_and_table_lines_only() {
        let fine = "#[cfg(feature = \"a\")]\nmod a;\npub static FRONTS: &[X] = &[\n    \
                    #[cfg(feature = \"a\")]\n    &a::A,\n];\n";
        assert_eq!(stray_features(&blank(fine)), Vec::<usize>::new());

        for stray in [
            "#[cfg(feature = \"a\")]\nfn f() {}\n",
            "fn f() { if cfg!(feature = \"a\") {} }\n",
            "#[cfg(feature = \"a\")]\nmod a {\n}\n",
            "#[cfg_attr(feature = \"a\", derive(X))]\nmod a;\n",
        ] {
            assert_eq!(stray_features(&blank(stray)), [1], "{stray}");
        }
    }
}
