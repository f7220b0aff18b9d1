//! Why the settings of a class are refused.

use hawser_core::{Classify, Kind};

/// Why the settings of a class are refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error("there is no provider {name:?}: choose one of {known}")]
    UnknownProvider { name: String, known: String },
    #[error("reading the settings of a class of provider {provider}")]
    Malformed { provider: &'static str, source: serde_json::Error },
    #[error("storage of provider {provider} is not on the nodes: open the class by itself")]
    NotOnNodes { provider: &'static str },
    #[error("class {class} is on the nodes, and this process has no nodes to reach it through")]
    NoNodes { class: String },
}

impl Classify for SettingsError {
    fn kind(&self) -> Kind {
        match self {
            Self::UnknownProvider { .. }
            | Self::Malformed { .. }
            | Self::NotOnNodes { .. }
            | Self::NoNodes { .. } => Kind::Invalid,
        }
    }
}
