//! `tables`: every plug-in folder has its `mod` line, its table line and its contract; every
//! connector does what is promised of its protocol, on the proof that the lab can give.

use std::ops::Range;
use std::path::Path;

use crate::report::Report;
use crate::source::blank;
use crate::tree::Tree;
use crate::{Result, cases, promises};

/// A crate whose folders are plug-ins.
struct Plugins {
    krate: &'static str,
    /// The static in `lib.rs` that lists them.
    table: &'static str,
    /// What proves one of them.
    proof: Proof,
    /// Folders that several plug-ins share.
    shared: &'static [&'static str],
}

/// What proves a plug-in.
#[derive(Clone, Copy)]
enum Proof {
    /// A contract suite of `hawser-testkit`, by the name of its macro.
    Contract(&'static str),
    /// A suite of its own: tests in its folder or in the crate's `tests/`.
    OwnTests,
}

static PLUGINS: &[Plugins] = &[
    Plugins {
        krate: "hawser-connect",
        table: "CONNECTORS",
        proof: Proof::Contract("connector_contract!"),
        shared: &["shared", "node", "library", "layers", "properties"],
    },
    Plugins {
        krate: "hawser-provider",
        table: "PROVIDERS",
        proof: Proof::Contract("provider_contract!"),
        shared: &["shared"],
    },
    Plugins {
        krate: "hawser-store",
        table: "STORES",
        proof: Proof::Contract("store_contract!"),
        shared: &["shared", "transfer"],
    },
    Plugins { krate: "hawser-front", table: "FRONTS", proof: Proof::OwnTests, shared: &["shared"] },
];

/// The names of all tables.
pub(crate) const NAMES: [&str; 4] = ["CONNECTORS", "PROVIDERS", "STORES", "FRONTS"];

/// Runs the check on the tree.
pub(crate) fn check(tree: &Tree) -> Result<Report> {
    let mut report = Report::default();
    let folders = folders(tree, &mut report.problems)?;
    let promises = promises::check(tree, &mut report.problems)?;
    let cases = match tree.root.join("docs/cases.md").exists() {
        true => cases::check(tree, &mut report.problems)?,
        false => 0,
    };
    report.scope = format!(
        "{folders} plug-ins in {} crates, {promises} protocols, {cases} cases",
        PLUGINS.len()
    );
    Ok(report)
}

/// Checks the folders of all plug-ins; answers how many there are.
fn folders(tree: &Tree, problems: &mut Vec<String>) -> Result<usize> {
    let mut folders = 0;
    for plugins in PLUGINS {
        folders += plugins.check(tree, problems)?;
    }
    Ok(folders)
}

impl Plugins {
    /// Checks every folder; answers how many there are.
    fn check(&self, tree: &Tree, problems: &mut Vec<String>) -> Result<usize> {
        let src = format!("crates/{}/src", self.krate);
        let lib = format!("{src}/lib.rs");
        let folders = tree.folders(&src)?;
        let names: Vec<_> = folders
            .iter()
            .filter_map(|folder| folder.file_name()?.to_str())
            .filter(|name| !self.shared.contains(name))
            .collect();
        if names.is_empty() {
            return Ok(0);
        }
        let code = blank(&tree.read(&lib)?);
        let table = body(&code, self.table);
        if table.is_none() {
            problems.push(format!("{lib}: no static {} that lists the folders", self.table));
        }
        for name in &names {
            if !has_mod(&code, name) {
                problems.push(format!("{lib}: no line `mod {name};` for {src}/{name}/"));
            }
            let listed = table.as_ref().is_some_and(|range| mentions(&code[range.clone()], name));
            if table.is_some() && !listed {
                problems.push(format!("{lib}: {} has no line for {src}/{name}/", self.table));
            }
            if !self.is_proven(tree, &src, name)? {
                let missing = match self.proof {
                    Proof::Contract(suite) => format!("{suite}(…)"),
                    Proof::OwnTests => "tests of its own".to_owned(),
                };
                problems.push(format!("{src}/{name}/: no {missing} in it, nor in tests/"));
            }
        }
        Ok(names.len())
    }

    /// True when the proof stands in the folder, or in a file of `tests/` that names the folder.
    fn is_proven(&self, tree: &Tree, src: &str, name: &str) -> Result<bool> {
        let proves = |path: &Path, code: &str| match self.proof {
            Proof::Contract(suite) => code.contains(suite),
            Proof::OwnTests => {
                let own_file = path.ends_with("tests.rs")
                    || path.components().any(|c| c.as_os_str() == "tests");
                (own_file || code.contains("#[cfg(test)]"))
                    && (code.contains("#[test]") || code.contains("#[tokio::test"))
            }
        };
        for path in tree.rust_files(format!("{src}/{name}"))? {
            if proves(&path, &blank(&tree.read(&path)?)) {
                return Ok(true);
            }
        }
        for path in tree.rust_files(format!("crates/{}/tests", self.krate))? {
            let code = blank(&tree.read(&path)?);
            let named = path.file_stem().is_some_and(|stem| stem == name) || mentions(&code, name);
            if named && proves(&path, &code) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Where the value of a static or const of this name stands in blanked code.
pub(crate) fn body(code: &str, name: &str) -> Option<Range<usize>> {
    let keyword = |word| format!("{word} {name}:");
    let at = ["static", "const"].iter().find_map(|word| code.find(&keyword(word)))?;
    let start = at + code[at..].find('=')? + 1;
    let mut depth = 0usize;
    for (offset, byte) in code[start..].bytes().enumerate() {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => depth = depth.saturating_sub(1),
            b';' if depth == 0 => return Some(start..start + offset),
            _ => {}
        }
    }
    None
}

fn has_mod(code: &str, name: &str) -> bool {
    code.lines().any(|line| {
        let line = line.trim().strip_suffix(';').unwrap_or("");
        let mut words = line.split_whitespace().rev();
        words.next() == Some(name) && words.next() == Some("mod")
    })
}

/// True when the code has `name::` as a path of its own.
fn mentions(code: &str, name: &str) -> bool {
    let path = format!("{name}::");
    code.match_indices(&path)
        .any(|(at, _)| !code[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const LIB: &str = "mod nbd;\npub static CONNECTORS: &[&dyn Connector] = &[&nbd::Nbd];\n";

    /// What is found in a `hawser-connect` of these files.
    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join("crates/hawser-connect").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let tree = Tree { root: folder.path().into() };
        let mut problems = Vec::new();
        folders(&tree, &mut problems).unwrap();
        problems
    }

    #[test]
    fn a_registered_and_proven_folder_passes() {
        let tests = ("src/nbd/tests.rs", "hawser_testkit::connector_contract!(rig());");
        let found = problems(&[("src/lib.rs", LIB), ("src/nbd/mod.rs", ""), tests]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn the_contract_may_stand_in_the_tests_of_the_crate() {
        let tests = ("tests/nbd.rs", "connector_contract!(rig());");
        let found = problems(&[("src/lib.rs", LIB), ("src/nbd/mod.rs", ""), tests]);
        assert_eq!(found, Vec::<String>::new());

        let other = ("tests/aoe.rs", "connector_contract!(rig());");
        assert_eq!(problems(&[("src/lib.rs", LIB), ("src/nbd/mod.rs", ""), other]).len(), 1);
    }

    #[test]
    fn what_is_missing_is_named() {
        let lib = "static CONNECTORS: &[u8] = &[\n    // &nbd::Nbd,\n];\n";
        let found =
            problems(&[("src/lib.rs", lib), ("src/nbd/mod.rs", "// connector_contract!()")]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("mod nbd;"));
        assert!(found[1].contains("CONNECTORS has no line"));
        assert!(found[2].contains("no connector_contract!"));
    }

    #[test]
    fn a_missing_table_is_one_problem_and_shared_folders_need_none() {
        let proof = ("src/nbd/mod.rs", "connector_contract!(rig());");
        let found = problems(&[("src/lib.rs", "mod nbd;"), proof, ("src/shared/mod.rs", "")]);
        assert_eq!(
            found,
            ["crates/hawser-connect/src/lib.rs: no static CONNECTORS that lists the folders"]
        );
    }
}
