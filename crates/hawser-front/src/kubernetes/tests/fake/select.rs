//! Which objects a caller wants: by namespace, labels and fields.

use std::collections::BTreeMap;

use kube::core::{Expression, Selector, SelectorExt};
use serde_json::Value;

use super::answer::Refusal;
use super::call::{Call, Target};
use super::name::Key;

/// The objects of one collection that a list or a watch is about.
pub(super) struct Selection {
    group: String,
    plural: String,
    namespace: Option<String>,
    labels: Selector,
    fields: Vec<Field>,
}

/// One requirement on a field.
struct Field {
    /// Where it is, as a JSON pointer.
    pointer: String,
    value: String,
    equal: bool,
}

impl Selection {
    pub(super) fn new(target: &Target, call: &Call) -> Result<Self, Refusal> {
        let labels = split(call.option("labelSelector"))
            .into_iter()
            .map(|text| {
                expression(text).ok_or_else(|| Refusal::bad_request("unable to parse requirement"))
            })
            .collect::<Result<Selector, _>>()?;
        let fields = split(call.option("fieldSelector"))
            .into_iter()
            .map(|text| field(target, text))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            group: target.group.clone(),
            plural: target.plural.clone(),
            namespace: target.namespace.clone(),
            labels,
            fields,
        })
    }

    /// Whether a key is one of the collection, whatever its object is like.
    pub(super) fn covers(&self, key: &Key) -> bool {
        self.group == key.group
            && self.plural == key.plural
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace)
    }

    pub(super) fn fits(&self, object: &Value) -> bool {
        let labels: BTreeMap<String, String> =
            serde_json::from_value(object["metadata"]["labels"].clone()).unwrap_or_default();
        let is = |field: &Field| {
            let value = object.pointer(&field.pointer).and_then(Value::as_str).unwrap_or_default();
            (value == field.value) == field.equal
        };
        self.labels.matches(&labels) && self.fields.iter().all(is)
    }
}

/// The parts between commas, but for those in parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let parts = text.split(move |c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    });
    parts.map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn expression(text: &str) -> Option<Expression> {
    if let Some(key) = text.strip_prefix('!') {
        return Some(Expression::DoesNotExist(key.trim().into()));
    }
    if let Some(listed) = text.strip_suffix(')') {
        let (left, values) = listed.split_once('(')?;
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        let (key, operator) = left.trim().rsplit_once(' ')?;
        return match operator {
            "in" => Some(Expression::In(key.trim().into(), values)),
            "notin" => Some(Expression::NotIn(key.trim().into(), values)),
            _ => None,
        };
    }
    Some(match comparison(text) {
        Some((key, value, true)) => Expression::Equal(key.into(), value.into()),
        Some((key, value, false)) => Expression::NotEqual(key.into(), value.into()),
        None => Expression::Exists(text.into()),
    })
}

/// The two sides of `=`, `==` or `!=`, and whether they are to be equal.
fn comparison(text: &str) -> Option<(&str, &str, bool)> {
    let (sides, equal) = match text.split_once("!=") {
        Some(sides) => (sides, false),
        None => (text.split_once("==").or_else(|| text.split_once('='))?, true),
    };
    Some((sides.0.trim(), sides.1.trim(), equal))
}

fn field(target: &Target, text: &str) -> Result<Field, Refusal> {
    let refused = || Refusal::bad_request(&format!("field label not supported: {text}"));
    let (path, value, equal) = comparison(text).ok_or_else(refused)?;
    let own: &[&str] = match (target.group.as_str(), target.plural.as_str()) {
        ("", "pods") => &["spec.nodeName", "status.phase"],
        ("", "secrets") => &["type"],
        ("", "events") => {
            &["involvedObject.kind", "involvedObject.name", "involvedObject.uid", "reason", "type"]
        }
        _ => &[],
    };
    let common = ["metadata.name", "metadata.namespace"];
    match common.contains(&path) || own.contains(&path) {
        true => Ok(Field {
            pointer: format!("/{}", path.replace('.', "/")),
            value: value.to_owned(),
            equal,
        }),
        false => Err(refused()),
    }
}
