//! Places, as labels of nodes.

use std::collections::BTreeMap;

use hawser_api::csi::v1::{Topology, TopologyRequirement};
use hawser_core::place::Place;

use crate::csi::error::{CsiError, cut};

/// What stands before the pairs of a place in the labels of a node. Never changes: the kubelet does
/// not take a label back.
const PREFIX: &str = "topology.hawser.storage/";

/// A place as labels.
pub(in crate::csi) fn topology(place: &Place) -> Topology {
    let segments =
        place.pairs().iter().map(|(key, value)| (format!("{PREFIX}{key}"), value.clone()));
    Topology { segments: segments.collect() }
}

/// Labels as a place. `Kind::Invalid` for labels of somebody else.
pub(in crate::csi) fn place(topology: &Topology) -> Result<Place, CsiError> {
    let mut pairs = BTreeMap::new();
    for (key, value) in &topology.segments {
        let Some(pair) = key.strip_prefix(PREFIX).filter(|pair| !pair.is_empty()) else {
            return Err(CsiError::UnknownTopology { key: cut(key) });
        };
        pairs.insert(pair.to_owned(), value.clone());
    }
    Ok(Place::new(pairs))
}

/// Where a volume is to be reached from, the better places first; each once.
pub(in crate::csi) fn places(wanted: Option<&TopologyRequirement>) -> Result<Vec<Place>, CsiError> {
    let mut found: Vec<Place> = Vec::new();
    let Some(wanted) = wanted else { return Ok(found) };
    for topology in wanted.preferred.iter().chain(&wanted.requisite) {
        let place = place(topology)?;
        if !place.pairs().is_empty() && !found.contains(&place) {
            found.push(place);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Topology {
        let segments = pairs.iter().map(|(key, value)| ((*key).into(), (*value).into()));
        Topology { segments: segments.collect() }
    }

    #[test]
    fn a_place_survives_the_way_through_labels() {
        let there =
            labels(&[("topology.hawser.storage/node", "a"), ("topology.hawser.storage/zone", "z")]);

        assert_eq!(topology(&place(&there).unwrap()), there);
    }

    #[test]
    fn preferred_places_come_first_and_each_once() {
        let at = |node: &str| labels(&[("topology.hawser.storage/node", node)]);
        let wanted = TopologyRequirement {
            requisite: vec![at("a"), at("b"), at("c"), Topology::default()],
            preferred: vec![at("c"), at("a")],
        };

        let found = places(Some(&wanted)).unwrap();

        let nodes: Vec<_> = found.iter().map(|place| place.pairs()["node"].as_str()).collect();
        assert_eq!(nodes, ["c", "a", "b"]);
        assert!(places(None).unwrap().is_empty());
    }

    #[test]
    fn labels_of_others_are_refused() {
        for key in ["topology.kubernetes.io/zone", "topology.hawser.storage/", "", "node"] {
            assert!(place(&labels(&[(key, "x")])).is_err(), "{key:?}");
        }
    }
}
