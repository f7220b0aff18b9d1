//! The packages of the build and who uses whom, from `cargo metadata`.
//!
//! A small model of our own: checks are written and tested against it, not against cargo's output.

use std::collections::BTreeSet;
use std::path::PathBuf;

use cargo_metadata::{CargoOpt, DependencyKind, Metadata, MetadataCommand, PackageId};

use crate::Result;
use crate::process::program;
use crate::tree::Tree;

/// What a dependency is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    /// In the product.
    Normal,
    /// In tests and benches.
    Dev,
    /// In a build script.
    Build,
}

/// One package at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
    /// Where it comes from; `None` for members of the workspace and other paths.
    pub(crate) source: Option<String>,
    /// Its SPDX expression.
    pub(crate) licence: Option<String>,
    /// True for a crate of this workspace.
    pub(crate) member: bool,
    /// Its `Cargo.toml`.
    pub(crate) manifest: PathBuf,
    /// Whom it uses, as indexes of [`Graph::packages`].
    pub(crate) uses: Vec<(usize, Use)>,
}

/// Every package of the build.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// In the order of name and version.
    pub(crate) packages: Vec<Package>,
}

impl Graph {
    /// Asks cargo, with all features, for these targets only.
    pub(crate) fn load(tree: &Tree, targets: &[String]) -> Result<Self> {
        let mut options = vec!["--locked".to_owned()];
        options.extend(targets.iter().flat_map(|t| ["--filter-platform".to_owned(), t.clone()]));
        let metadata = MetadataCommand::new()
            .manifest_path(tree.root.join("Cargo.toml"))
            .features(CargoOpt::AllFeatures)
            .other_options(options)
            .exec()
            .map_err(|e| format!("running cargo metadata: {e}"))?;
        Self::from_metadata(&metadata, &built(tree, targets)?)
    }

    /// Reads cargo's answer; packages that are not built are left out.
    fn from_metadata(metadata: &Metadata, built: &Built) -> Result<Self> {
        let resolve = metadata.resolve.as_ref().ok_or("cargo metadata has no resolved graph")?;
        let is_built = |p: &&cargo_metadata::Package| {
            built.contains(&(p.name.to_string(), p.version.to_string()))
        };
        let mut listed: Vec<_> = metadata.packages.iter().filter(is_built).collect();
        listed.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));

        let index = |id: &PackageId| listed.iter().position(|package| package.id == *id);
        let mut packages = Vec::with_capacity(listed.len());
        for package in &listed {
            let node = resolve.nodes.iter().find(|node| node.id == package.id);
            let mut uses = BTreeSet::new();
            for dependency in node.into_iter().flat_map(|node| &node.deps) {
                let Some(to) = index(&dependency.pkg) else { continue };
                uses.extend(dependency.dep_kinds.iter().filter_map(|kind| {
                    Some((
                        to,
                        match kind.kind {
                            DependencyKind::Normal => Use::Normal,
                            DependencyKind::Development => Use::Dev,
                            DependencyKind::Build => Use::Build,
                            DependencyKind::Unknown => return None,
                        },
                    ))
                }));
            }
            packages.push(Package {
                name: package.name.to_string(),
                version: package.version.to_string(),
                source: package.source.as_ref().map(ToString::to_string),
                licence: package.license.clone(),
                member: metadata.workspace_members.contains(&package.id),
                manifest: package.manifest_path.clone().into(),
                uses: uses.into_iter().collect(),
            });
        }
        Ok(Self { packages })
    }

    /// The crates of this workspace.
    pub(crate) fn members(&self) -> impl Iterator<Item = (usize, &Package)> {
        self.packages.iter().enumerate().filter(|(_, package)| package.member)
    }

    /// The way from one package to the nearest one of a given name over normal edges, both ends
    /// included.
    pub(crate) fn way(&self, from: usize, to: &str) -> Option<Vec<&str>> {
        let mut ways = vec![vec![from]];
        let mut seen = BTreeSet::from([from]);
        while !ways.is_empty() {
            let mut longer = Vec::new();
            for way in &ways {
                let Some(last) = way.last() else { continue };
                for (next, _) in
                    self.packages[*last].uses.iter().filter(|(_, kind)| *kind == Use::Normal)
                {
                    let mut way = way.clone();
                    way.push(*next);
                    if self.packages[*next].name == to {
                        return Some(way.iter().map(|i| self.packages[*i].name.as_str()).collect());
                    }
                    if seen.insert(*next) {
                        longer.push(way);
                    }
                }
            }
            ways = longer;
        }
        None
    }
}

/// Names and versions.
type Built = BTreeSet<(String, String)>;

/// What is really built. `cargo metadata` also resolves optional dependencies that only a weak
/// feature (`dep?/feature`) mentions, which no build has; `cargo tree` does not.
fn built(tree: &Tree, targets: &[String]) -> Result<Built> {
    let mut cargo = program("cargo");
    cargo.current_dir(&tree.root).args(["tree", "--locked", "--workspace", "--all-features"]);
    cargo.args(["--edges", "normal,build,dev", "--prefix", "none", "--format", "{p}"]);
    cargo.args(targets.iter().flat_map(|target| ["--target", target.as_str()]));
    let output = cargo.output().map_err(|e| format!("running cargo tree: {e}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo tree failed: {}", said.trim()).into());
    }
    Ok(read_built(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads lines such as `serde v1.0.229 (proc-macro) (*)`.
fn read_built(text: &str) -> Built {
    text.lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once(' ')?;
            let version = rest.split(' ').next()?.strip_prefix('v')?;
            Some((name.to_owned(), version.to_owned()))
        })
        .collect()
}

/// A graph in a few words, for tests of the checks.
#[cfg(test)]
pub(crate) mod sample {
    use super::*;

    /// Packages as `(name, version, licence)`, `hawser*` and `xtask` being members; edges as
    /// `(from, to, use)` by name, the first of that name.
    pub(crate) fn graph(packages: &[(&str, &str, &str)], edges: &[(&str, &str, Use)]) -> Graph {
        let at = |name: &str| packages.iter().position(|(n, ..)| *n == name).unwrap();
        let build = |(index, (name, version, licence)): (usize, &(&str, &str, &str))| {
            let member = name.starts_with("hawser") || *name == "xtask";
            let registry = "registry+https://github.com/rust-lang/crates.io-index";
            Package {
                name: (*name).into(),
                version: (*version).into(),
                source: (!member).then(|| registry.into()),
                licence: (!licence.is_empty()).then(|| (*licence).into()),
                member,
                manifest: PathBuf::from(format!("crates/{name}/Cargo.toml")),
                uses: edges
                    .iter()
                    .filter(|(from, ..)| at(from) == index)
                    .map(|(_, to, kind)| (at(to), *kind))
                    .collect(),
            }
        };
        Graph { packages: packages.iter().enumerate().map(build).collect() }
    }

    #[test]
    fn the_way_follows_normal_edges_only() {
        let graph = graph(
            &[("hawser-core", "1", ""), ("a", "1", ""), ("b", "1", ""), ("tokio", "1", "")],
            &[
                ("hawser-core", "a", Use::Normal),
                ("a", "b", Use::Normal),
                ("b", "a", Use::Normal),
                ("hawser-core", "tokio", Use::Dev),
            ],
        );
        assert_eq!(graph.way(0, "b"), Some(vec!["hawser-core", "a", "b"]));
        assert_eq!(graph.way(0, "tokio"), None);
    }

    #[test]
    fn the_answer_of_cargo_is_read() {
        let metadata: Metadata =
            serde_json::from_str(include_str!("../testdata/metadata.json")).unwrap();

        let built = read_built(
            "hawser-core v0.1.0 (/src/crates/hawser-core)\nserde v1.0.229\n\n\
             hawser-testkit v0.1.0 (/src/crates/hawser-testkit) (*)\n",
        );

        let graph = Graph::from_metadata(&metadata, &built).unwrap();

        let names: Vec<_> = graph.packages.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["hawser-core", "hawser-testkit", "serde"]);
        let core = &graph.packages[0];
        assert!(core.member && core.source.is_none());
        assert_eq!(core.uses, [(1, Use::Dev), (2, Use::Normal)]);
        assert_eq!(graph.packages[2].licence.as_deref(), Some("MIT OR Apache-2.0"));
        assert!(!graph.packages[2].member);
    }
}
