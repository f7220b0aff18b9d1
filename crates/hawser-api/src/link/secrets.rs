//! Secrets beside a connection info: the only place where they become text, and back.
//!
//! No type of the ports writes its secrets, so whoever sends some puts them beside the JSON of the
//! type, as an object of texts by the name of their field.

use std::collections::BTreeMap;

use hawser_core::connection::ConnectionInfo;
use hawser_core::secret::Secret;
use serde_json::value::RawValue;

use super::error::LinkError;

/// The secrets of an info, to be written beside it.
pub(super) fn beside(info: &ConnectionInfo) -> BTreeMap<&str, &str> {
    info.secrets.iter().map(|(field, secret)| (field.as_str(), secret.expose())).collect()
}

/// Puts what stood beside an info into it; `wrong` is the error when it is no object of texts.
pub(super) fn put_back(
    info: &mut ConnectionInfo,
    secrets: Option<&RawValue>,
    wrong: LinkError,
) -> Result<(), LinkError> {
    let Some(raw) = secrets else { return Ok(()) };
    // serde's own words would repeat the value that does not fit.
    let read: BTreeMap<String, Secret> = serde_json::from_str(raw.get()).map_err(|_| wrong)?;
    info.secrets.extend(read);
    Ok(())
}
