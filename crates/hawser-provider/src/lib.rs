//! Storage systems behind the [`Provider`] port: one folder each, one line each in [`PROVIDERS`].
//!
//! A new one is a folder, a `mod` line, a table line, and a `provider_contract!` line in its tests.
//! Its settings are its own: the section of a class comes here as raw values, and the provider
//! parses them into a struct that refuses what it does not know.

mod error;
pub mod local;
pub mod null;
pub mod on_nodes;
mod reach;

use std::sync::Arc;

use async_trait::async_trait;
use hawser_core::Result;
use hawser_core::class::Ability;
use hawser_core::id::{SnapshotId, VolumeId};
use hawser_core::name::{ClassName, NodeId};
use hawser_core::port::provider::ProviderInfo;
use hawser_core::port::{Host, Nodes, Provider};
use hawser_core::volume::Access;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::SettingsError;

/// Every storage system that is built in, in the order in which tables show them.
pub static PROVIDERS: [&dyn ProviderType; 3] = [&local::Local, &null::Null, &on_nodes::OnNodes];

/// One kind of storage system, before it is configured.
#[async_trait]
pub trait ProviderType: Sync {
    /// What it says of itself; `info().name` is the word in the settings.
    fn info(&self) -> &'static ProviderInfo;

    /// Makes a provider of it by the settings of a class: reads what the storage holds, changes
    /// nothing that exists. Settings that it does not know or cannot use are `Kind::Invalid`.
    async fn open(&self, settings: Map<String, Value>, deps: &Deps) -> Result<Arc<dyn Provider>>;

    /// What a class with these settings can do, for storage that is on a node itself and so cannot
    /// be opened by a control half elsewhere. `None` for storage that is reached over a network.
    /// Settings that it cannot use are `Kind::Invalid`.
    fn outline(&self, _settings: &Map<String, Value>) -> Result<Option<Outline>> {
        Ok(None)
    }
}

/// What a class can do on whichever node has it, known from its type and settings alone.
#[derive(Clone, Debug)]
pub struct Outline {
    /// What [`Provider::abilities`] answers there.
    pub abilities: Vec<Ability>,
    /// What [`Provider::default_access`] answers there.
    pub default_access: Access,
    /// [`Provider::handle`], which is a function of the id alone.
    pub handle: fn(&VolumeId) -> String,
    /// [`Snapshots::snapshot_handle`](hawser_core::port::provider::Snapshots::snapshot_handle),
    /// likewise.
    pub snapshot_handle: fn(&SnapshotId) -> String,
}

/// What a provider is given by the process it runs in.
#[derive(Clone)]
pub struct Deps {
    /// The machine whose files and devices it uses.
    pub host: Arc<dyn Host>,
    /// The node that this machine is, for classes whose volumes must be known to be there; `None`
    /// where there is one machine and nobody asks.
    pub node: Option<NodeId>,
    /// The name of the class that is opened, by which nodes know it too.
    pub class: ClassName,
    /// The nodes of the control half; `None` where there is none, as on a node itself.
    pub nodes: Option<Arc<dyn Nodes>>,
}

impl Deps {
    /// For a class on the machine of this process.
    pub fn new(class: ClassName, host: Arc<dyn Host>) -> Self {
        Self { host, node: None, class, nodes: None }
    }
}

/// The storage system of this name; `Kind::Invalid` with the names there are when there is none.
pub fn find(name: &str) -> Result<&'static dyn ProviderType> {
    PROVIDERS.into_iter().find(|provider| provider.info().name == name).ok_or_else(|| {
        let known = PROVIDERS.map(|provider| provider.info().name).join(", ");
        SettingsError::UnknownProvider { name: name.chars().take(64).collect(), known }.into()
    })
}

/// The settings of a class as the provider's own struct.
fn parse_settings<T: DeserializeOwned>(
    provider: &'static str,
    settings: Map<String, Value>,
) -> Result<T> {
    serde_json::from_value(Value::Object(settings))
        .map_err(|source| SettingsError::Malformed { provider, source }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_provider_is_found_by_its_own_name() {
        for provider in PROVIDERS {
            let found = find(provider.info().name).expect("in the table");

            assert_eq!(found.info().name, provider.info().name);
        }
    }

    #[test]
    fn an_unknown_provider_is_refused_with_the_known_ones() {
        let error = find("tape").err().expect("no such provider");

        assert_eq!(error.kind(), hawser_core::Kind::Invalid);
        assert!(error.to_string().contains("local"), "{error}");
    }
}
