//! Versions stand in the workspace table and nowhere else.

use toml::Table;

use crate::Result;
use crate::graph::Graph;
use crate::tree::Tree;

const SECTIONS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// Checks the manifest of every member, and that every line of the workspace table is used.
pub(super) fn check(tree: &Tree, graph: &Graph, problems: &mut Vec<String>) -> Result<()> {
    let mut used = Vec::new();
    for (_, member) in graph.members() {
        let path = member.manifest.strip_prefix(&tree.root).unwrap_or(&member.manifest);
        let manifest: Table = toml::from_str(&tree.read(path)?)
            .map_err(|e| format!("reading {}: {e}", path.display()))?;
        for (name, inherited) in dependencies(&manifest) {
            if !inherited {
                problems.push(format!(
                    "{}: {name} must be `{name}.workspace = true`; versions stand in the root Cargo.toml",
                    path.display()
                ));
            }
            used.push(name);
        }
    }
    let root: Table = toml::from_str(&tree.read("Cargo.toml")?)
        .map_err(|e| format!("reading Cargo.toml: {e}"))?;
    let table =
        root.get("workspace").and_then(|w| w.get("dependencies")).and_then(|d| d.as_table());
    for name in table.into_iter().flat_map(|table| table.keys()) {
        if !used.contains(name) {
            problems.push(format!("Cargo.toml: no crate uses {name} of the workspace table"));
        }
    }
    Ok(())
}

/// Every dependency of a manifest, and whether it is taken from the workspace table.
fn dependencies(manifest: &Table) -> Vec<(String, bool)> {
    let targets = manifest.get("target").and_then(|t| t.as_table());
    let tables = std::iter::once(manifest)
        .chain(targets.into_iter().flat_map(|t| t.values()).filter_map(|t| t.as_table()));
    let mut found = Vec::new();
    for table in tables {
        for section in SECTIONS {
            let entries = table.get(section).and_then(|s| s.as_table());
            for (name, value) in entries.into_iter().flatten() {
                let inherited = value.get("workspace").and_then(|w| w.as_bool()) == Some(true);
                found.push((name.clone(), inherited));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_in_a_member_are_found_in_every_section() {
        let manifest = toml::from_str(
            "[dependencies]\na.workspace = true\nb = \"1\"\n[dev-dependencies]\nc = { version = \"1\" }\n\
             [target.'cfg(unix)'.dependencies]\nd = { path = \"../d\" }\n\
             [build-dependencies]\ne = { workspace = true, features = [\"x\"] }\n",
        )
        .unwrap();

        let mut found = dependencies(&manifest);
        found.sort();

        let expected = [("a", true), ("b", false), ("c", false), ("d", false), ("e", true)];
        assert_eq!(found, expected.map(|(name, inherited)| (name.to_owned(), inherited)));
    }
}
