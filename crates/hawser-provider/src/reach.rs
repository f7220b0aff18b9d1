//! Whether a node is where somebody wants a volume to be.

use std::collections::BTreeMap;

use hawser_core::name::NodeId;
use hawser_core::place::Place;

/// True when whoever is at `wanted` reaches what is on this node alone. A place that names a node is
/// that node; any other is where all of its pairs hold, by what the node says of itself.
pub(crate) fn is_at(wanted: &Place, node: &NodeId, topology: &BTreeMap<String, String>) -> bool {
    match wanted.pairs().get(Place::NODE) {
        Some(named) => named == node.as_str(),
        None => wanted.pairs().iter().all(|(key, value)| topology.get(key) == Some(value)),
    }
}

/// Places for people, the better ones first.
pub(crate) fn listed(places: &[Place]) -> String {
    places.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(pairs: &[(&str, &str)]) -> Place {
        Place::new(pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect())
    }

    #[test]
    fn a_node_is_where_its_name_or_all_of_the_pairs_say() {
        let node: NodeId = "host-a".parse().unwrap();
        let topology = BTreeMap::from([("zone".into(), "b".into()), ("rack".into(), "7".into())]);
        let at = |pairs| is_at(&place(pairs), &node, &topology);

        assert!(at(&[]));
        assert!(at(&[("node", "host-a")]));
        assert!(at(&[("node", "host-a"), ("zone", "moved since")]));
        assert!(at(&[("zone", "b"), ("rack", "7")]));
        assert!(!at(&[("node", "host-b"), ("zone", "b")]));
        assert!(!at(&[("zone", "b"), ("rack", "8")]));
        assert!(!at(&[("room", "1")]));
    }
}
