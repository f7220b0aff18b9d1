//! Storage that is on the nodes themselves, used by a control half elsewhere.
//!
//! A class of this provider is a class of the same name on every node that has it, with the storage
//! of another provider behind it: `of = "local"`, and the other settings are that provider's own. It
//! makes nothing by itself: each call goes over the node link to the node that has the volume, which
//! is where the volume's place says. Without that node nothing can be done with the volume, and the
//! answer is `Kind::Unavailable`.
//!
//! What a class can do follows from the type and settings of the storage behind it, not from the
//! nodes that happen to be connected.

mod ask;
mod error;
mod placement;
mod provider;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use hawser_core::Result;
use hawser_core::class::Ability;
use hawser_core::name::ClassName;
use hawser_core::port::connector::Maturity;
use hawser_core::port::provider::ProviderInfo;
use hawser_core::port::{Nodes, Provider};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::SettingsError;
use crate::{Deps, Outline, ProviderType};

static INFO: ProviderInfo = ProviderInfo {
    name: "on_nodes",
    maturity: Maturity::Stable,
    summary: "storage on the nodes themselves, such as local pools, used from elsewhere",
};

/// What a class of provider `on_nodes` may say.
#[derive(Deserialize)]
struct Settings {
    /// The provider that the class has on the nodes.
    of: String,
    /// The settings that it has there.
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// The kind of storage; [`ProviderType::open`] gives a class that asks its nodes.
pub struct OnNodes;

#[async_trait]
impl ProviderType for OnNodes {
    fn info(&self) -> &'static ProviderInfo {
        &INFO
    }

    async fn open(&self, settings: Map<String, Value>, deps: &Deps) -> Result<Arc<dyn Provider>> {
        let Settings { of, rest } = crate::parse_settings(INFO.name, settings)?;
        let kind = crate::find(&of)?;
        let provider = kind.info().name;
        let outline = kind.outline(&rest)?.ok_or(SettingsError::NotOnNodes { provider })?;
        let class = deps.class.clone();
        let no_nodes = || SettingsError::NoNodes { class: class.to_string() };
        let nodes = deps.nodes.clone().ok_or_else(no_nodes)?;
        Ok(Arc::new(NodePools { class, nodes, outline }))
    }
}

/// One class whose storage is on the nodes.
struct NodePools {
    class: ClassName,
    nodes: Arc<dyn Nodes>,
    outline: Outline,
}

impl NodePools {
    fn can(&self, ability: Ability) -> bool {
        self.outline.abilities.contains(&ability)
    }
}
