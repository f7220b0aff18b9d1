//! What the gateway answers.

use hawser_core::secret::Secret;
use serde::Deserialize;

use super::data::is_id;

/// What the gateway says when it does not do what it was asked.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Complaint {
    #[serde(default)]
    pub(super) message: String,
    pub(super) error_code: i64,
}

impl Complaint {
    /// `None` when it is none of the gateway's.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }
}

/// Which volume has a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// The one of this id.
    Volume(String),
    /// None has it.
    Nothing,
}

impl Named {
    /// Reads an answer; `None` when it makes no sense: that is no word about any volume.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let id = serde_json::from_slice::<Option<String>>(body).ok()?.unwrap_or_default();
        if id.is_empty() {
            return Some(Self::Nothing);
        }
        is_id(&id).then(|| Self::Volume(id.to_ascii_lowercase()))
    }
}

/// The token that a login got.
pub(super) fn token(body: &[u8]) -> Option<Secret> {
    let token = serde_json::from_slice::<String>(body).ok()?;
    (!token.is_empty()).then(|| Secret::new(token))
}

#[cfg(test)]
hawser_testkit::fuzz_corpus!(corpus, "scaleio_gateway", |bytes| {
    match Named::read(bytes) {
        Some(Named::Volume(id)) => assert!(is_id(&id), "{id:?}"),
        Some(Named::Nothing) => {
            assert!([&b"null"[..], b"\"\""].contains(&bytes.trim_ascii()), "a volume was denied");
        }
        None => {}
    }
    let _ = (Complaint::read(bytes), token(bytes));
});
