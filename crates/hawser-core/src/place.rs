//! Where something is: for storage that only some nodes can reach.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name::NodeId;

/// Pairs such as `node = host-a` or `zone = b`. A volume at a place is reached from the nodes whose
/// topology has all of its pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Place(BTreeMap<String, String>);

impl Place {
    /// The key under which every node is a place of its own.
    pub const NODE: &'static str = "node";

    /// A place with these pairs.
    pub fn new(pairs: BTreeMap<String, String>) -> Self {
        Self(pairs)
    }

    /// One node alone.
    pub fn node(id: &NodeId) -> Self {
        Self(BTreeMap::from([(Self::NODE.to_owned(), id.to_string())]))
    }

    /// The pairs, in the order of their keys.
    pub fn pairs(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// The node that the place names, where it names one.
    pub fn node_id(&self) -> Option<NodeId> {
        self.0.get(Self::NODE)?.parse().ok()
    }

    /// True when whoever is at `other` can reach what is here.
    pub fn is_reached_from(&self, other: &Self) -> bool {
        self.0.iter().all(|(key, value)| other.0.get(key) == Some(value))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.pad("anywhere");
        }
        let pairs: Vec<_> = self.0.iter().map(|(key, value)| format!("{key}={value}")).collect();
        f.pad(&pairs.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(pairs: &[(&str, &str)]) -> Place {
        Place::new(pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect())
    }

    #[test]
    fn a_place_is_reached_from_where_all_of_its_pairs_hold() {
        let node = place(&[("node", "a"), ("zone", "b")]);

        assert!(place(&[]).is_reached_from(&node));
        assert!(place(&[("zone", "b")]).is_reached_from(&node));
        assert!(!place(&[("zone", "c")]).is_reached_from(&node));
        assert!(!place(&[("rack", "1")]).is_reached_from(&node));
    }

    #[test]
    fn a_node_is_a_place() {
        let id: NodeId = "host-a".parse().unwrap();

        assert_eq!(Place::node(&id).node_id(), Some(id));
        assert_eq!(place(&[("node", "A B")]).node_id(), None);
    }
}
