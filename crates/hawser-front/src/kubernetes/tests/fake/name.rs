//! The names of objects.

use serde_json::Value;

/// Where an object is kept. All versions of a group see the same objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) group: String,
    pub(super) plural: String,
    /// Empty for what belongs to the cluster.
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Key {
    /// The key of an object that tests hand in: its resource is told by its kind.
    pub(super) fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let api_version = object["apiVersion"].as_str().expect("an apiVersion");
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Self {
            group: group.to_owned(),
            plural: plural(object["kind"].as_str().expect("a kind")),
            namespace: text(&object["metadata"]["namespace"]),
            name: object["metadata"]["name"].as_str().expect("a name").to_owned(),
        }
    }

    /// `persistentvolumes/pv-1`, `persistentvolumeclaims/ns/claim`: how tests name objects.
    pub(super) fn short(&self) -> String {
        match self.namespace.is_empty() {
            true => format!("{}/{}", self.plural, self.name),
            false => format!("{}/{}/{}", self.plural, self.namespace, self.name),
        }
    }
}

fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if kind.ends_with('s') => format!("{kind}es"),
        None => format!("{kind}s"),
    }
}

/// A subdomain of RFC 1123, as the names of nearly all resources must be.
pub(super) fn is_legal(name: &str) -> bool {
    let is_edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = |label: &str| {
        label.starts_with(is_edge)
            && label.ends_with(is_edge)
            && label.chars().all(|c| is_edge(c) || c == '-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}
