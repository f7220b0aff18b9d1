//! `deny.toml`: the rules for what we build on. The syntax is cargo-deny's, so that tool reads the
//! same file; we read the parts that need no advisory list from the network.

use serde::Deserialize;

use crate::Result;
use crate::tree::Tree;

/// The whole file.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Config {
    /// What is looked at.
    pub(crate) graph: GraphConfig,
    /// Which licences are fine.
    pub(super) licenses: Licences,
    /// Which crates, and how often.
    pub(super) bans: Bans,
    /// From where.
    pub(super) sources: Sources,
    /// The file itself: reasons may stand in comments.
    #[serde(skip)]
    pub(super) text: String,
}

/// What is looked at.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct GraphConfig {
    /// The targets Hawser is built for.
    pub(crate) targets: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Licences {
    /// SPDX ids.
    pub(super) allow: Vec<String>,
    /// Licences that are fine for one crate alone.
    #[serde(default)]
    pub(super) exceptions: Vec<LicenceException>,
}

#[derive(Debug, Deserialize)]
pub(super) struct LicenceException {
    /// Which crate.
    #[serde(rename = "crate")]
    pub(super) name: String,
    /// SPDX ids.
    pub(super) allow: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Bans {
    /// Must say `deny`.
    pub(super) multiple_versions: String,
    /// Crates we do without.
    #[serde(default)]
    pub(super) deny: Vec<Named>,
    /// Old versions that we cannot avoid yet, as `name@version`.
    #[serde(default)]
    pub(super) skip: Vec<Named>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Named {
    /// Which crate.
    #[serde(rename = "crate")]
    pub(super) name: String,
    /// Why.
    pub(super) reason: Option<String>,
    /// Crates that may use a banned one all the same; ours may not.
    #[serde(default)]
    pub(super) wrappers: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Sources {
    /// Index addresses.
    pub(super) allow_registry: Vec<String>,
}

impl Config {
    /// Reads the file of the repository.
    pub(crate) fn load(tree: &Tree) -> Result<Self> {
        Self::parse(&tree.read("deny.toml")?)
    }

    /// Reads a text.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let config: Self = toml::from_str(text).map_err(|e| format!("reading deny.toml: {e}"))?;
        Ok(Self { text: text.to_owned(), ..config })
    }

    /// True when the line that names this crate has a comment on it or directly above it.
    pub(super) fn has_comment(&self, name: &str) -> bool {
        let quoted = format!("\"{name}\"");
        let mut above = "";
        for line in self.text.lines() {
            if line.contains(&quoted) {
                return line.contains('#') || above.trim_start().starts_with('#');
            }
            above = line;
        }
        false
    }
}
