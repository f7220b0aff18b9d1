//! Parameters of classes, and what a caller may change later.

use std::collections::BTreeMap;

use hawser_core::name::Labels;

use crate::csi::error::{CsiError, cut};

/// What the sidecars add by themselves; always taken.
const SIDECAR: &str = "csi.storage.k8s.io/";
/// What stands before the name of a label.
const LABEL: &str = "label.";
/// The parameter that names a class.
const CLASS: &str = "class";

/// The parameters of a new volume, sorted by whom they are for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::csi) struct Parameters {
    /// The class, where one is named.
    pub(in crate::csi) class: Option<String>,
    /// What the sidecars say of the claim, as labels.
    pub(in crate::csi) labels: BTreeMap<String, String>,
    /// The provider's own; it refuses those that it does not know.
    pub(in crate::csi) rest: BTreeMap<String, String>,
}

impl Parameters {
    /// Sorts them.
    pub(in crate::csi) fn read(given: BTreeMap<String, String>) -> Self {
        let mut sorted = Self::default();
        for (key, value) in given {
            if key == CLASS {
                sorted.class = Some(value);
            } else if let Some(word) = key.strip_prefix(SIDECAR) {
                sorted.labels.extend(label(word, value));
            } else {
                sorted.rest.insert(key, value);
            }
        }
        sorted
    }
}

/// The labels of parameters that can hold nothing else: those of a snapshot. `Kind::Invalid` for
/// other keys.
pub(in crate::csi) fn labels_of(given: BTreeMap<String, String>) -> Result<Labels, CsiError> {
    let mut labels = BTreeMap::new();
    for (key, value) in given {
        if let Some(word) = key.strip_prefix(SIDECAR) {
            labels.extend(label(word, value));
        } else {
            let (name, value) = free_label("parameters", &key, value)?;
            labels.insert(name, value);
        }
    }
    checked("parameters", labels)
}

/// The labels that a caller sets on a volume. `Kind::Invalid` for keys that nobody can change.
pub(in crate::csi) fn mutable_labels(given: BTreeMap<String, String>) -> Result<Labels, CsiError> {
    let mut labels = BTreeMap::new();
    for (key, value) in given {
        // The resizer adds the names of the claim, which the volume has already.
        if !key.starts_with(SIDECAR) {
            let (name, value) = free_label("mutable_parameters", &key, value)?;
            labels.insert(name, value);
        }
    }
    checked("mutable_parameters", labels)
}

fn free_label(field: &'static str, key: &str, value: String) -> Result<(String, String), CsiError> {
    match key.strip_prefix(LABEL).filter(|name| !name.is_empty()) {
        Some(name) => Ok((name.to_owned(), value)),
        None => Err(CsiError::UnknownKey { field, key: cut(key), known: "label.NAME" }),
    }
}

/// `pvc/name` of the sidecars is `csi.storage.k8s.io/pvc.name` here: a label has one slash. What is
/// no label is dropped.
fn label(word: &str, value: String) -> Option<(String, String)> {
    let key = format!("{SIDECAR}{}", word.replace('/', "."));
    let pair = BTreeMap::from([(key, value)]);
    Labels::try_from(pair.clone()).ok()?;
    pair.into_iter().next()
}

fn checked(field: &'static str, labels: BTreeMap<String, String>) -> Result<Labels, CsiError> {
    let bad = |key: &String, value: &String| {
        Labels::try_from(BTreeMap::from([(key.clone(), value.clone())])).is_err()
    };
    if let Some((key, _)) = labels.iter().find(|(key, value)| bad(key, value)) {
        return Err(CsiError::UnknownKey { field, key: cut(key), known: "labels by their rules" });
    }
    Labels::try_from(labels).map_err(|_| CsiError::UnknownKey {
        field,
        key: "label".to_owned(),
        known: "64 labels at most",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    #[test]
    fn parameters_go_to_whom_they_are_for() {
        let long = "x".repeat(200);
        let sorted = Parameters::read(map(&[
            ("class", "gold"),
            ("type", "ssd"),
            ("csi.storage.k8s.io/pvc/name", "data"),
            ("csi.storage.k8s.io/pv/name", "pv\n1"),
            (&format!("csi.storage.k8s.io/{long}"), "x"),
        ]));

        assert_eq!(sorted.class.as_deref(), Some("gold"));
        assert_eq!(sorted.rest, map(&[("type", "ssd")]));
        assert_eq!(sorted.labels, map(&[("csi.storage.k8s.io/pvc.name", "data")]));
    }

    #[test]
    fn only_labels_can_be_changed() {
        let labels =
            mutable_labels(map(&[("label.team", "db"), ("csi.storage.k8s.io/pvc/name", "x")]));
        assert_eq!(labels.unwrap().iter().collect::<Vec<_>>(), [("team", "db")]);

        for bad in ["XXX_FakeKey", "label.", "iops", "label.a b", "label.a/b/c"] {
            assert!(mutable_labels(map(&[(bad, "1")])).is_err(), "{bad}");
        }
        assert!(mutable_labels(map(&[("label.a", "two\nlines")])).is_err());
        let many: BTreeMap<_, _> =
            (0..65).map(|n| (format!("label.n{n}"), String::new())).collect();
        assert!(mutable_labels(many).is_err());
    }

    #[test]
    fn a_snapshot_has_labels_and_no_other_parameters() {
        let labels = labels_of(map(&[
            ("csi.storage.k8s.io/volumesnapshot/name", "s"),
            ("label.keep", "yes"),
        ]))
        .unwrap();

        assert_eq!(labels.get("csi.storage.k8s.io/volumesnapshot.name"), Some("s"));
        assert_eq!(labels.get("keep"), Some("yes"));
        assert!(labels_of(map(&[("deep", "1")])).is_err());
    }
}
