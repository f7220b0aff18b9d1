//! Records as objects: what is written, and what is read from an answer, a list or a watch.
//!
//! Only the fields that are used have a place here: a store of many thousand records reads all of
//! them at start, and the bookkeeping of the API server is larger than most of them.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hawser_core::port::store::{Key, KeyError, Revision};
use serde::{Deserialize, Serialize};

use super::name::{TICK, object_name};
use super::resource::{Resource, SECRET_LABEL};

/// The largest value: what a Secret may hold, and what fits below etcd's limit of 1.5 MiB for a
/// request when it is written in base64.
pub(super) const LARGEST_OBJECT: usize = 1 << 20;

/// The most that the text of a value may take as JSON; anything that is longer is written in base64,
/// which takes 1.33 bytes for each, whatever they are.
const LONGEST_TEXT: usize = 1_400_000;

/// Annotations of a Secret, which has no other place for them.
const KEY: &str = "hawser.storage/key";
const REPLACES: &str = "hawser.storage/replaces";

/// The type of the Secrets, for people who look at them.
const SECRET_TYPE: &str = "hawser.storage/record";

/// An object on its way to the API server.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: WrittenMetadata<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<WrittenSpec<'a>>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    secret_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<WrittenData>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMetadata<'a> {
    name: &'a str,
    /// The compare-and-set: the API server refuses any other.
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<&'static str, &'static str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<&'static str, &'a str>,
}

#[derive(Serialize)]
struct WrittenSpec<'a> {
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replaces: Option<&'a str>,
}

#[derive(Serialize)]
struct WrittenData {
    value: String,
}

/// The object of a key; with `replaces` it takes the place of the one that has this revision.
///
/// The revision is also part of the content: the API server answers a write that changes nothing
/// without writing it, so two callers who put the same value over the same revision would both win.
pub(super) fn record(key: &Key, value: &[u8], replaces: Option<Revision>) -> Vec<u8> {
    let replaces = replaces.map(|revision| revision.0.to_string());
    written(Resource::of(key), &object_name(key), key.as_str(), value, replaces.as_deref())
}

/// The object that is written to see its change come past: see [`super::level`].
pub(super) fn tick(resource: Resource, target: Revision) -> Vec<u8> {
    written(resource, TICK, "tick", target.0.to_string().as_bytes(), None)
}

fn written(
    resource: Resource,
    name: &str,
    key: &str,
    value: &[u8],
    replaces: Option<&str>,
) -> Vec<u8> {
    let (api_version, kind) = resource.kind();
    let mut object = Written {
        api_version,
        kind,
        metadata: WrittenMetadata { name, resource_version: replaces, ..Default::default() },
        ..Written::default()
    };
    match resource {
        Resource::Records => {
            let text = std::str::from_utf8(value).ok().filter(|text| fits_as_text(text));
            let bytes = text.is_none().then(|| STANDARD.encode(value));
            object.spec = Some(WrittenSpec { key, value: text, bytes, replaces });
        }
        Resource::Secrets => {
            object.metadata.labels.insert(SECRET_LABEL, "true");
            object.metadata.annotations.insert(KEY, key);
            if let Some(replaces) = replaces {
                object.metadata.annotations.insert(REPLACES, replaces);
            }
            object.secret_type = Some(SECRET_TYPE);
            object.data = Some(WrittenData { value: STANDARD.encode(value) });
        }
    }
    serde_json::to_vec(&object).expect("texts and maps of texts are always JSON")
}

/// True when the API server can store the text as JSON, in which it writes some characters as six.
fn fits_as_text(text: &str) -> bool {
    let length = |c: char| match c {
        '"' | '\\' | '\n' | '\r' | '\t' => 2,
        '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\u{0}'..='\u{1f}' | '\u{7f}' => 6,
        _ => c.len_utf8(),
    };
    text.len() * 6 <= LONGEST_TEXT || text.chars().map(length).sum::<usize>() <= LONGEST_TEXT
}

/// An object as the API server shows it.
#[derive(Clone, Deserialize)]
pub(super) struct Object {
    metadata: Metadata,
    #[serde(default)]
    spec: Option<Spec>,
    #[serde(default)]
    data: Option<Data>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    labels: Option<Labels>,
    #[serde(default)]
    annotations: Option<Annotations>,
}

#[derive(Clone, Deserialize)]
struct Labels {
    #[serde(default, rename = "hawser.storage/record")]
    record: Option<String>,
}

#[derive(Clone, Deserialize)]
struct Annotations {
    #[serde(default, rename = "hawser.storage/key")]
    key: Option<String>,
}

#[derive(Clone, Deserialize)]
struct Spec {
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    value: Option<String>,
    #[serde(default)]
    bytes: Option<String>,
}

#[derive(Clone, Deserialize)]
struct Data {
    #[serde(default)]
    value: Option<String>,
}

/// One page of a list.
#[derive(Deserialize)]
pub(super) struct Page {
    pub(super) metadata: PageMetadata,
    #[serde(default)]
    pub(super) items: Vec<Object>,
}

/// Where a page belongs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageMetadata {
    #[serde(default)]
    pub(super) resource_version: String,
    /// The token for the next page; nothing on the last.
    #[serde(default, rename = "continue")]
    pub(super) next: Option<String>,
}

/// What an object turned out to be.
#[derive(Debug)]
pub(super) enum Content {
    /// A record of the store.
    Record(Key, Bytes),
    /// The object of a key, but nobody can say which value it has.
    Unreadable(Key, ObjectError),
    /// The object that is written only to be seen.
    Tick,
    /// An object that no key has.
    Foreign(ObjectError),
}

/// Why an object is not a record.
#[derive(Debug, thiserror::Error)]
pub(super) enum ObjectError {
    #[error("its revision {0:?} is not a number")]
    Revision(String),
    #[error("it has no label {SECRET_LABEL}")]
    NoLabel,
    #[error("it names no key")]
    NoKey,
    #[error("it names a key that is none")]
    Key(#[source] KeyError),
    #[error("it names the key {key}, whose object is {wanted}")]
    OtherName { key: Key, wanted: String },
    #[error("it has no value")]
    NoValue,
    #[error("its value is not base64")]
    Base64(#[source] base64::DecodeError),
}

/// A revision as the API server writes it.
pub(super) fn revision(text: &str) -> Result<Revision, ObjectError> {
    text.parse().map(Revision).map_err(|_| ObjectError::Revision(text.into()))
}

impl Object {
    pub(super) fn name(&self) -> &str {
        &self.metadata.name
    }

    /// The last change of the object; in the event of a removal, the removal.
    pub(super) fn revision(&self) -> Result<Revision, ObjectError> {
        revision(&self.metadata.resource_version)
    }

    /// What it holds.
    pub(super) fn content(self, resource: Resource) -> Content {
        let name = self.metadata.name;
        if name == TICK {
            return Content::Tick;
        }
        let (key, value) = match resource {
            Resource::Records => {
                let Some(spec) = self.spec else { return Content::Foreign(ObjectError::NoKey) };
                let value = match (spec.value, spec.bytes) {
                    (Some(text), _) => Ok(Bytes::from(text.into_boxed_str().into_boxed_bytes())),
                    (None, Some(bytes)) => decoded(&bytes),
                    (None, None) => Err(ObjectError::NoValue),
                };
                (spec.key, value)
            }
            Resource::Secrets => {
                // The watch sees labelled ones only; one that it does not see is none of ours.
                let label = self.metadata.labels.and_then(|labels| labels.record);
                if label.as_deref() != Some("true") {
                    return Content::Foreign(ObjectError::NoLabel);
                }
                let value = self.data.and_then(|data| data.value).ok_or(ObjectError::NoValue);
                let key = self.metadata.annotations.and_then(|annotations| annotations.key);
                (key, value.and_then(|value| decoded(&value)))
            }
        };
        let key = match key.ok_or(ObjectError::NoKey).and_then(|key| named(key, &name)) {
            Ok(key) => key,
            Err(error) => return Content::Foreign(error),
        };
        match value {
            Ok(value) => Content::Record(key, value),
            Err(error) => Content::Unreadable(key, error),
        }
    }
}

fn decoded(text: &str) -> Result<Bytes, ObjectError> {
    STANDARD.decode(text).map(Bytes::from).map_err(ObjectError::Base64)
}

/// The key that an object of this name says it holds.
fn named(key: String, name: &str) -> Result<Key, ObjectError> {
    let key: Key = key.parse().map_err(ObjectError::Key)?;
    let wanted = object_name(&key);
    if wanted == name { Ok(key) } else { Err(ObjectError::OtherName { key, wanted }) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn key(text: &str) -> Key {
        text.parse().expect("a legal key")
    }

    /// The object as the API server would show it.
    fn shown(object: &[u8]) -> Value {
        let mut object: Value = serde_json::from_slice(object).expect("JSON");
        object["metadata"]["resourceVersion"] = json!("41");
        object
    }

    fn content(resource: Resource, object: Value) -> Content {
        serde_json::from_value::<Object>(object).expect("an object").content(resource)
    }

    #[test]
    fn text_is_written_as_text_and_anything_else_in_base64() {
        let text = shown(&record(&key("volume/a"), br#"{"size":1}"#, None));
        assert_eq!(text["spec"], json!({ "key": "volume/a", "value": "{\"size\":1}" }));
        assert_eq!(text["metadata"]["name"], "volume.a");

        let bytes = shown(&record(&key("blob"), &[0xff, 0], None));
        assert_eq!(bytes["spec"], json!({ "key": "blob", "bytes": "/wA=" }));
    }

    #[test]
    fn a_secret_has_its_value_nowhere_but_in_its_data() {
        let object = shown(&record(&key("secret/chap"), b"hidden", Some(Revision(7))));

        assert_eq!(object["kind"], "Secret");
        assert_eq!(object["metadata"]["labels"], json!({ SECRET_LABEL: "true" }));
        assert_eq!(object["metadata"]["annotations"][KEY], "secret/chap");
        assert_eq!(object["data"], json!({ "value": "aGlkZGVu" }));
        assert!(object.get("spec").is_none() && !object.to_string().contains("hidden"));
    }

    #[test]
    fn a_replacement_says_what_it_replaces_so_that_it_is_never_the_same() {
        let first = shown(&record(&key("a"), b"x", None));
        let again = serde_json::from_slice::<Value>(&record(&key("a"), b"x", Some(Revision(41))));
        let again = again.expect("JSON");

        assert_eq!(again["metadata"]["resourceVersion"], "41");
        assert_eq!(again["spec"]["replaces"], "41");
        assert_ne!(again["spec"], first["spec"]);
    }

    #[test]
    fn the_largest_values_stay_below_the_limit_of_etcd_whatever_they_hold() {
        for value in ["\u{1}", "<", "\"", "x", "\u{2028}", "ü"] {
            let value = value.repeat(LARGEST_OBJECT / value.len());
            let object = shown(&record(&key("a"), value.as_bytes(), None));
            // As Go writes it.
            let stored = object.to_string().replace('<', "\\u003c").replace('\u{2028}', "\\u2028");
            assert!(stored.len() < 1_500_000, "{} bytes", stored.len());
            let Content::Record(_, found) = content(Resource::Records, object) else { panic!() };
            assert!(found == value);
        }
    }

    #[test]
    fn what_is_no_record_is_told_apart_from_a_record_that_cannot_be_read() {
        let record = |name: &str, spec: Value| {
            let metadata = json!({ "name": name, "resourceVersion": "1" });
            content(Resource::Records, json!({ "metadata": metadata, "spec": spec }))
        };

        let foreign = [
            record("a", json!({})),
            record("a", json!({ "key": "a b", "value": "x" })),
            record("a", json!({ "key": "b", "value": "x" })),
        ];
        assert!(foreign.iter().all(|found| matches!(found, Content::Foreign(_))), "{foreign:?}");
        let unreadable =
            [record("a", json!({ "key": "a" })), record("a", json!({ "key": "a", "bytes": "?" }))];
        let is_unreadable = |found: &Content| matches!(found, Content::Unreadable(..));
        assert!(unreadable.iter().all(is_unreadable), "{unreadable:?}");
        let bare = json!({ "metadata": { "name": "hawser.secret.a", "resourceVersion": "1" } });
        assert!(matches!(content(Resource::Secrets, bare), Content::Foreign(ObjectError::NoLabel)));
    }

    #[test]
    fn a_tick_is_no_record() {
        for resource in Resource::ALL {
            let object = shown(&tick(resource, Revision(5)));
            assert!(matches!(content(resource, object), Content::Tick));
        }
        assert_ne!(tick(Resource::Records, Revision(5)), tick(Resource::Records, Revision(6)));
    }

    #[test]
    fn a_revision_that_is_no_number_is_refused() {
        assert!(revision("12").is_ok_and(|found| found == Revision(12)));
        assert!(matches!(revision("a1"), Err(ObjectError::Revision(_))));
        assert!(matches!(revision(""), Err(ObjectError::Revision(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_come_back_whole(bytes in proptest::collection::vec(any::<u8>(), 0..300), text in "\\PC{0,80}") {
            for value in [bytes.as_slice(), text.as_bytes()] {
                for name in ["volume/a", "secret/a"] {
                    let key = key(name);
                    let object = shown(&record(&key, value, None));
                    match content(Resource::of(&key), object) {
                        Content::Record(found, back) => {
                            prop_assert_eq!(found, key);
                            prop_assert_eq!(back.as_ref(), value);
                        }
                        other @ (Content::Unreadable(..) | Content::Tick | Content::Foreign(_)) => {
                            prop_assert!(false, "{:?}", other);
                        }
                    }
                }
            }
        }
    }
}
