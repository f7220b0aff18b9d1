//! The connectors a node half may use, found by protocol.

use std::sync::Arc;

use hawser_core::connection::Protocol;
use hawser_core::port::Connector;

use super::error::NodeError;
use crate::layers::Layered;

/// The connectors of a build: the static table, or instances of one's own.
#[derive(Clone)]
pub struct Connectors(Vec<Held>);

#[derive(Clone)]
enum Held {
    Static(&'static dyn Connector),
    Shared(Arc<dyn Connector>),
}

impl Held {
    fn get(&self) -> &dyn Connector {
        match self {
            Self::Static(connector) => *connector,
            Self::Shared(connector) => connector.as_ref(),
        }
    }
}

impl From<&'static [&'static dyn Connector]> for Connectors {
    fn from(table: &'static [&'static dyn Connector]) -> Self {
        Self(table.iter().map(|connector| Held::Static(*connector)).collect())
    }
}

impl From<Vec<Arc<dyn Connector>>> for Connectors {
    fn from(connectors: Vec<Arc<dyn Connector>>) -> Self {
        Self(connectors.into_iter().map(Held::Shared).collect())
    }
}

impl Connectors {
    /// The connector that answers to this protocol, with reservation and encryption on top.
    pub(super) fn get(&self, protocol: &Protocol) -> Result<Layered<'_>, NodeError> {
        let found = self
            .0
            .iter()
            .map(Held::get)
            .find(|connector| {
                connector.info().protocols.iter().any(|name| Protocol::new(name) == *protocol)
            })
            .ok_or_else(|| NodeError::NoConnector { protocol: protocol.to_string() })?;
        Ok(Layered(found))
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &dyn Connector> {
        self.0.iter().map(Held::get)
    }
}
