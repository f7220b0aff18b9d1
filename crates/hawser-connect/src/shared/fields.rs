//! The data of a connection info, field by field: whatever is wrong is refused by the field's name.

use std::ops::RangeInclusive;

use hawser_core::attach::Identity;
use hawser_core::connection::ConnectionInfo;
use hawser_core::error::Error;
use serde_json::{Map, Value};

use super::data::Number;
use super::error::AttachError;

/// The fields in snake case, aliases resolved. A field that is null counts as missing.
#[derive(Debug)]
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// The fields of a connection info.
    pub(crate) fn of(info: &ConnectionInfo) -> Result<Self, AttachError> {
        match info.parse() {
            Ok(fields) => Ok(Self(fields)),
            Err(error) => Err(AttachError::Invalid { why: Error::from(error).sentence() }),
        }
    }

    fn get(&self, name: &str) -> Option<&Value> {
        #[cfg(test)]
        ASKED.with_borrow_mut(|asked| asked.insert(name.to_owned()));
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// A text without control characters.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, AttachError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) if !text.chars().any(char::is_control) => Ok(Some(text)),
            Some(Value::String(_)) => Err(invalid(name, "must not have control characters")),
            Some(Value::Null | Value::Bool(_) | Value::Number(_)) => {
                Err(invalid(name, "must be a text"))
            }
            Some(Value::Array(_) | Value::Object(_)) => Err(invalid(name, "must be a text")),
        }
    }

    /// A text that must be there; it may be empty.
    pub(crate) fn need_text(&self, name: &str) -> Result<&str, AttachError> {
        self.text(name)?.ok_or_else(|| invalid(name, "is missing"))
    }

    /// A text of several lines that must be there; of control characters it may have line ends and
    /// tabs.
    pub(crate) fn lines(&self, name: &str) -> Result<&str, AttachError> {
        let odd = |c: char| c.is_control() && !['\n', '\r', '\t'].contains(&c);
        match self.get(name) {
            Some(Value::String(text)) if !text.chars().any(odd) => Ok(text),
            Some(Value::String(_)) => Err(invalid(name, "must not have control characters")),
            Some(_) => Err(invalid(name, "must be a text")),
            None => Err(invalid(name, "is missing")),
        }
    }

    /// A number within bounds, which may come as a text.
    pub(crate) fn number(
        &self,
        name: &str,
        bounds: RangeInclusive<u64>,
    ) -> Result<Option<u64>, AttachError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = serde_json::from_value::<Number>(value.clone());
        match number {
            Ok(Number(number)) if bounds.contains(&number) => Ok(Some(number)),
            Ok(_) | Err(_) => {
                let (low, high) = (bounds.start(), bounds.end());
                Err(invalid(name, &format!("must be a number from {low} to {high}")))
            }
        }
    }

    /// A number that must be there.
    pub(crate) fn need_number(
        &self,
        name: &str,
        bounds: RangeInclusive<u64>,
    ) -> Result<u64, AttachError> {
        self.number(name, bounds)?.ok_or_else(|| invalid(name, "is missing"))
    }

    /// True or false, which may come as a text.
    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, AttachError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(Some(true)),
            Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(Some(false)),
            Some(_) => Err(invalid(name, "must be true or false")),
        }
    }

    /// An object's fields; nothing when it is missing.
    pub(crate) fn object(&self, name: &str) -> Result<Option<Self>, AttachError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(Self(fields.clone()))),
            Some(_) => Err(invalid(name, "must be an object")),
        }
    }

    /// The names of the fields that have a value.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name.as_str())
    }

    /// A list of pairs, each of a text and a number, which may come as a text.
    pub(crate) fn pairs(&self, name: &str) -> Result<Vec<(String, u64)>, AttachError> {
        let Some(value) = self.get(name) else { return Ok(Vec::new()) };
        let pairs = serde_json::from_value::<Vec<(String, Number)>>(value.clone());
        let pairs = pairs.map_err(|_| invalid(name, "must be a list of pairs"))?;
        Ok(pairs.into_iter().map(|(text, Number(number))| (text, number)).collect())
    }

    /// Texts, one or a list.
    pub(crate) fn texts(&self, name: &str) -> Result<Vec<String>, AttachError> {
        let one = |value: &Value| match value.as_str() {
            Some(text) if !text.chars().any(char::is_control) => Ok(text.to_owned()),
            Some(_) | None => Err(invalid(name, "must be a text or a list of texts")),
        };
        match self.get(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => list.iter().map(one).collect(),
            Some(value) => Ok(vec![one(value)?]),
        }
    }

    /// Numbers within bounds, one or a list, each of which may come as a text.
    pub(crate) fn numbers(
        &self,
        name: &str,
        bounds: RangeInclusive<u64>,
    ) -> Result<Vec<u64>, AttachError> {
        let one = |value: &Value| match serde_json::from_value::<Number>(value.clone()) {
            Ok(Number(number)) if bounds.contains(&number) => Ok(number),
            Ok(_) | Err(_) => {
                let (low, high) = (bounds.start(), bounds.end());
                Err(invalid(name, &format!("must be numbers from {low} to {high}")))
            }
        };
        match self.get(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => list.iter().map(one).collect(),
            Some(value) => Ok(vec![one(value)?]),
        }
    }

    /// What `access_mode` says: true for `ro`, false for `rw`.
    pub(crate) fn read_only(&self) -> Result<Option<bool>, AttachError> {
        match self.text("access_mode")? {
            None => Ok(None),
            Some("rw") => Ok(Some(false)),
            Some("ro") => Ok(Some(true)),
            Some(_) => Err(invalid("access_mode", "must be rw or ro")),
        }
    }

    /// The volume's id, where the caller gave one: visible characters only, as it becomes part of
    /// names. Numbers count as texts.
    pub(crate) fn volume_id(&self) -> Result<Option<String>, AttachError> {
        let id = match self.get("volume_id") {
            Some(Value::Number(number)) => number.to_string(),
            Some(_) => self.text("volume_id")?.unwrap_or_default().to_owned(),
            None => return Ok(None),
        };
        if id.is_empty() || id.len() > 255 {
            return Err(invalid("volume_id", "must have 1 to 255 bytes"));
        }
        Ok(Some(id))
    }

    /// Every identity that the device must have: `identity` of the envelope, and the field `wwn`.
    pub(crate) fn expected(&self, info: &ConnectionInfo) -> Result<Vec<Identity>, AttachError> {
        let wwn = self.text("wwn")?.filter(|wwn| !wwn.is_empty());
        let wwn = wwn.map(|wwn| Identity::new("wwid", wwn));
        Ok(info.identity.iter().cloned().chain(wwn).collect())
    }
}

#[cfg(test)]
thread_local! {
    /// Every field that was asked for: a connector must count what it reads.
    pub(crate) static ASKED: std::cell::RefCell<std::collections::BTreeSet<String>> =
        const { std::cell::RefCell::new(std::collections::BTreeSet::new()) };
}

/// A refusal that names the field.
pub(crate) fn invalid(field: &str, why: &str) -> AttachError {
    AttachError::Invalid { why: format!("{field} {why}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn fields(data: Value) -> Fields {
        let info = serde_json::from_value(json!({ "driver_volume_type": "x", "data": data }));
        Fields::of(&info.unwrap()).unwrap()
    }

    #[test]
    fn whatever_is_wrong_is_told_with_the_fields_name() {
        let wrong = fields(json!({
            "a": 7, "b": "x", "c": "perhaps", "d": [], "e": 70000, "f": "x\ny", "g": ["x", 1],
            "access_mode": "wr", "volume_id": "",
        }));

        for (name, result) in [
            ("a", wrong.text("a").map(drop)),
            ("b", wrong.number("b", 0..=9).map(drop)),
            ("c", wrong.flag("c").map(drop)),
            ("d", wrong.object("d").map(drop)),
            ("e", wrong.number("e", 1..=65535).map(drop)),
            ("f", wrong.text("f").map(drop)),
            ("g", wrong.texts("g").map(drop)),
            ("h", wrong.need_text("h").map(drop)),
            ("i", wrong.need_number("i", 0..=1).map(drop)),
            ("access_mode", wrong.read_only().map(drop)),
            ("volume_id", wrong.volume_id().map(drop)),
        ] {
            let said = result.unwrap_err().to_string();
            assert!(said.contains(&format!(": {name} ")), "{name}: {said}");
        }
    }

    #[test]
    fn both_spellings_texts_and_nulls_are_read() {
        let read = fields(json!({ "targetPort": "0x10", "readOnly": "True", "x": null, "y": "z" }));

        assert_eq!(read.number("target_port", 0..=99).unwrap(), Some(16));
        assert_eq!(read.flag("read_only").unwrap(), Some(true));
        assert_eq!(read.text("x").unwrap(), None);
        assert_eq!(read.texts("y").unwrap(), ["z"]);
    }

    proptest! {
        #[test]
        fn any_value_is_read_or_refused(text in "\\PC{0,20}", number: i64) {
            for value in [json!(text), json!(number), json!([text]), json!({ "a": number })] {
                let read = fields(json!({ "a": value }));
                let _ = (read.text("a"), read.number("a", 0..=9), read.flag("a"), read.texts("a"));
            }
        }
    }
}
