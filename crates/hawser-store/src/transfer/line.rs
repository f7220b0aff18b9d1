//! One line of an export, in both directions.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hawser_core::port::store::Key;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::error::LineError;
use crate::{LARGEST_VALUE, SECRETS};

/// The version of the line format that this build writes and reads.
pub(super) const EXPORT_VERSION: u64 = 1;

/// Longer lines are refused before they are read whole: the largest value in base64 with the
/// longest key takes 11 MiB.
pub(super) const LONGEST_LINE: usize = 16 << 20;

/// The first line.
#[derive(Serialize, Deserialize)]
struct Header<'a> {
    hawser_store_export: u64,
    /// Who wrote it, for people.
    #[serde(borrow, default)]
    hawser: Option<std::borrow::Cow<'a, str>>,
}

/// Every other line: a record, or as the last one the number of records.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// The bytes as they are, where they are JSON on one line.
    #[serde(
        borrow,
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    value: Option<&'a RawValue>,
    /// The bytes where they are anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    records: Option<u64>,
}

/// `null` is a value like any other, not an absent one.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// What a line says.
#[derive(Debug)]
pub(super) enum Line {
    /// A record.
    Record(Key, Bytes),
    /// The end, and how many records there were.
    End(u64),
}

/// True for keys that are never exported.
pub(super) fn is_secret(key: &Key) -> bool {
    key.as_str().starts_with(SECRETS)
}

/// The first line of an export, with its line end.
pub(super) fn header() -> Vec<u8> {
    let hawser = Some(env!("CARGO_PKG_VERSION").into());
    encode(&Header { hawser_store_export: EXPORT_VERSION, hawser })
}

/// The line of a record, with its line end.
pub(super) fn record(key: &Key, value: &[u8]) -> Vec<u8> {
    let raw = one_line_json(value);
    let base64 = if raw.is_none() { Some(STANDARD.encode(value)) } else { None };
    let key = Some(key.as_str().to_owned());
    encode(&Fields { key, value: raw, base64, records: None })
}

/// The last line, with its line end.
pub(super) fn end(records: u64) -> Vec<u8> {
    encode(&Fields { records: Some(records), ..Fields::default() })
}

fn encode(line: &impl Serialize) -> Vec<u8> {
    let mut bytes =
        serde_json::to_vec(line).expect("the fields of a line are strings, numbers and raw JSON");
    bytes.push(b'\n');
    bytes
}

/// The value as JSON that can stand in a line and be read back byte for byte.
fn one_line_json(value: &[u8]) -> Option<&RawValue> {
    let raw: &RawValue = serde_json::from_slice(value).ok()?;
    let exact = raw.get().len() == value.len() && !value.iter().any(|b| b"\r\n".contains(b));
    exact.then_some(raw)
}

/// Checks the first line.
pub(super) fn parse_header(line: &[u8]) -> Result<(), LineError> {
    let header: Header<'_> = serde_json::from_slice(line).map_err(|_| LineError::NoHeader)?;
    let found = header.hawser_store_export;
    if found == EXPORT_VERSION {
        Ok(())
    } else {
        Err(LineError::Newer { found, known: EXPORT_VERSION })
    }
}

/// Reads any other line.
pub(super) fn parse(line: &[u8]) -> Result<Line, LineError> {
    let fields: Fields<'_> = serde_json::from_slice(line).map_err(LineError::Malformed)?;
    let (key, value) = match fields {
        Fields { key: None, value: None, base64: None, records: Some(count) } => {
            return Ok(Line::End(count));
        }
        Fields { key: Some(key), value: Some(raw), base64: None, records: None } => {
            (parse_key(key)?, raw.get().as_bytes().to_vec())
        }
        Fields { key: Some(key), value: None, base64: Some(text), records: None } => {
            let key = parse_key(key)?;
            let value =
                STANDARD.decode(text).map_err(|error| LineError::Base64(key.clone(), error))?;
            (key, value)
        }
        Fields { .. } => return Err(LineError::Shape),
    };
    if value.len() > LARGEST_VALUE {
        return Err(LineError::TooLarge(key));
    }
    Ok(Line::Record(key, value.into()))
}

fn parse_key(text: String) -> Result<Key, LineError> {
    let key: Key = text.try_into().map_err(LineError::Key)?;
    if is_secret(&key) { Err(LineError::Secret(key)) } else { Ok(key) }
}
