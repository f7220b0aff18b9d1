//! Why the settings of a class are refused.

use hawser_core::{Classify, Kind};

/// Why the settings of a class are refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error("there is no provider {name:?}: choose one of {known}")]
    UnknownProvider { name: String, known: String },
    #[error("reading the settings of a class of provider {provider}")]
    Malformed { provider: &'static str, source: serde_json::Error },
}

impl Classify for SettingsError {
    fn kind(&self) -> Kind {
        match self {
            Self::UnknownProvider { .. } | Self::Malformed { .. } => Kind::Invalid,
        }
    }
}
