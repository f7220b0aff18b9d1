//! What a driver hears of the class and of the objects of a snapshot.

use std::collections::BTreeMap;

use super::super::error::ClusterError;
use super::super::names::RESERVED;

/// Reserved keys that classes may have; they are for the sidecar and not for the driver.
const KNOWN: [&str; 8] = [
    "snapshotter-secret-name",
    "snapshotter-secret-namespace",
    "snapshotter-list-secret-name",
    "snapshotter-list-secret-namespace",
    "group-snapshotter-secret-name",
    "group-snapshotter-secret-namespace",
    "group-snapshotter-get-secret-name",
    "group-snapshotter-get-secret-namespace",
];

/// The parameters of a class for the driver, and what the snapshot is called in the cluster.
/// `Wrong` for a reserved key that nobody knows: it was meant to do something.
pub(super) fn for_driver(
    class: &BTreeMap<String, String>,
    told: [(&str, &str); 3],
) -> Result<BTreeMap<String, String>, ClusterError> {
    let mut all = BTreeMap::new();
    for (key, value) in class {
        match key.strip_prefix(RESERVED) {
            None => drop(all.insert(key.clone(), value.clone())),
            Some(word) if KNOWN.contains(&word) => {}
            Some(_) => {
                let message = format!("the class has the parameter {key}, which nobody knows");
                return Err(ClusterError::Wrong(message));
            }
        }
    }
    all.extend(told.map(|(word, value)| (format!("{RESERVED}{word}"), value.to_owned())));
    Ok(all)
}
