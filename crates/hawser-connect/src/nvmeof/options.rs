//! How a controller is set up: timeouts, queues, digests, and the keys that prove both ends.

use hawser_core::secret::{Secret, Secrets};
use serde_json::{Map, Value};

use crate::shared::error::AttachError;
use crate::shared::fields::{Fields, invalid};
use crate::shared::nvme_host;

/// How a controller is set up.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    pub(super) host_nqn: Option<String>,
    pub(super) host_id: Option<String>,
    pub(super) io_queues: Option<u64>,
    pub(super) queue_size: Option<u64>,
    pub(super) loss_limit: Option<i64>,
    pub(super) reconnect_delay: Option<u64>,
    pub(super) keep_alive: Option<u64>,
    pub(super) fast_fail: Option<i64>,
    pub(super) header_digest: bool,
    pub(super) data_digest: bool,
    /// Proves this host to the target.
    pub(super) host_key: Option<Secret>,
    /// Proves the target to this host.
    pub(super) target_key: Option<Secret>,
}

impl Options {
    /// Reads and checks them.
    pub(super) fn read(
        fields: &Fields,
        raw: &Map<String, Value>,
        secrets: &Secrets,
    ) -> Result<Self, AttachError> {
        let asks_tls = fields.flag("tls")?.unwrap_or(false)
            || fields.text("tls_psk_identity")?.is_some()
            || secrets.contains_key("tls_psk");
        if asks_tls {
            return Err(invalid(
                "tls",
                "is not supported, and the volume is not used in the clear",
            ));
        }
        let host_nqn = fields.text("host_nqn")?.map(str::trim).filter(|nqn| !nqn.is_empty());
        if host_nqn.is_some_and(|nqn| !nvme_host::is_nqn(nqn)) {
            return Err(invalid(
                "host_nqn",
                "must be an NVMe qualified name (nqn.…) without commas",
            ));
        }
        let host_id = fields.text("host_id")?.filter(|id| !id.trim().is_empty());
        let host_id = host_id
            .map(|id| {
                uuid::Uuid::parse_str(id.trim()).map_err(|_| invalid("host_id", "must be a UUID"))
            })
            .transpose()?;
        Ok(Self {
            host_nqn: host_nqn.map(str::to_owned),
            host_id: host_id.map(|id| id.to_string()),
            io_queues: fields.number("nr_io_queues", 1..=4096)?,
            queue_size: fields.number("queue_size", 16..=1024)?,
            loss_limit: signed(raw, "ctrl_loss_tmo")?,
            reconnect_delay: fields.number("reconnect_delay", 1..=3600)?,
            keep_alive: fields.number("keep_alive_tmo", 1..=3600)?,
            fast_fail: signed(raw, "fast_io_fail_tmo")?,
            header_digest: fields.flag("hdr_digest")?.unwrap_or(false),
            data_digest: fields.flag("data_digest")?.unwrap_or(false),
            host_key: key(secrets, ["dhchap_secret", "dhchap_key"])?,
            target_key: key(secrets, ["dhchap_ctrl_secret", "dhchap_ctrl_key"])?,
        })
    }
}

/// Seconds; -1 means for ever.
fn signed(raw: &Map<String, Value>, field: &str) -> Result<Option<i64>, AttachError> {
    let number = match raw.get(field) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(number)) => number.as_i64(),
        Some(Value::String(text)) if text.trim() == "off" => Some(-1),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => None,
    };
    match number.filter(|number| (-1..=i64::from(i32::MAX)).contains(number)) {
        Some(number) => Ok(Some(number)),
        None => Err(invalid(field, "must be a number of seconds, or -1 for ever")),
    }
}

/// A key of DH-HMAC-CHAP. The kernel writes one of another form into its log, so none gets there.
fn key(secrets: &Secrets, names: [&str; 2]) -> Result<Option<Secret>, AttachError> {
    let [name, other] = names;
    let key = match (secrets.get(name), secrets.get(other)) {
        (Some(a), Some(b)) if a != b => return Err(invalid(name, "disagrees with its other name")),
        (Some(key), _) | (None, Some(key)) => key,
        (None, None) => return Ok(None),
    };
    let trimmed = key.expose().trim();
    if !is_key(trimmed) {
        return Err(invalid(name, "must be a key of the form DHHC-1:NN:BASE64:"));
    }
    Ok(Some(Secret::new(trimmed)))
}

/// `DHHC-1:00:BASE64:` with 32, 48 or 64 bytes of key and 4 of check sum.
fn is_key(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    let &["DHHC-1", hash, encoded, ""] = parts.as_slice() else { return false };
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    matches!(hash, "00" | "01" | "02" | "03")
        && matches!(encoded.len(), 48 | 72 | 92)
        && encoded.chars().all(legal)
}
