//! Where a volume may be: what the driver is asked for, and which nodes then reach it.
//!
//! As external-provisioner with strict topology: a volume whose pod has a node is wanted on that
//! node, and nowhere else.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use hawser_api::csi::v1::{Topology, TopologyRequirement};

use super::error::ClusterError;
use super::objects::{
    CsiNode, Node, NodeAffinity, NodeSelector, NodeSelectorExpression, NodeSelectorTerm, Object,
    StorageClass, TopologyTerm,
};

/// The labels of nodes that tell one place from another.
pub(super) type Segment = BTreeMap<String, String>;

/// Where the driver shall make a volume, the best place first; `None` when there is nothing to say.
///
/// `selected` is where the first pod will run, when the class waits for it. A class that does not
/// wait asks for the places that it names, and for none otherwise, as external-provisioner does with
/// `--immediate-topology=false`: all places of a large cluster say as much, in a megabyte for each
/// claim, and the driver knows better where it has room. `claim` spreads volumes over the places that
/// a class names. By its name, those of one member of a StatefulSet come to one place, and those of
/// the next member to the next.
///
/// # Errors
///
/// [`ClusterError::NotYet`] when the driver has not told where the node is,
/// [`ClusterError::Wrong`] when the class does not allow the node.
pub(super) fn requirements(
    driver: &str,
    class: &StorageClass,
    selected: Option<(&CsiNode, &Node)>,
    claim: &str,
) -> Result<Option<TopologyRequirement>, ClusterError> {
    let allowed = &class.allowed_topologies;
    if let Some((csi_node, node)) = selected {
        let here = segment(driver, csi_node, node)?;
        if !allows(allowed, &here) {
            return Err(ClusterError::Wrong(format!(
                "storage class {} does not allow node {}: it is not in its allowedTopologies",
                class.name(),
                node.name(),
            )));
        }
        return Ok(Some(requirement(vec![here], 0)));
    }
    let wanted: Vec<_> = expanded(allowed).into_iter().collect();
    // Nothing is left of terms that name no labels; the driver then decides alone.
    Ok((!wanted.is_empty()).then(|| requirement(wanted, turn(claim))))
}

/// Where a node is, as a driver tells places apart.
///
/// # Errors
///
/// [`ClusterError::NotYet`] while the kubelet has not written all of it.
pub(super) fn segment(
    driver: &str,
    csi_node: &CsiNode,
    node: &Node,
) -> Result<Segment, ClusterError> {
    let name = node.name();
    let Some(registered) = csi_node.driver(driver) else {
        return Err(ClusterError::NotYet(format!("node {name} does not have driver {driver} yet")));
    };
    if registered.topology_keys.is_empty() {
        let problem = format!("driver {driver} has not told where node {name} is");
        return Err(ClusterError::NotYet(problem));
    }
    let labels = node.labels();
    let pair = |key: &String| match labels.get(key) {
        Some(value) => Ok((key.clone(), value.clone())),
        None => Err(ClusterError::NotYet(format!(
            "node {name} does not have the label {key} of driver {driver} yet"
        ))),
    };
    registered.topology_keys.iter().map(pair).collect()
}

/// All places where a driver is, each once. A node that is not fully known has none yet.
pub(super) fn segments(
    driver: &str,
    csi_nodes: &[Arc<CsiNode>],
    nodes: &[Arc<Node>],
) -> BTreeSet<Segment> {
    let nodes: HashMap<_, _> = nodes.iter().map(|node| (node.name(), node)).collect();
    let known = csi_nodes.iter().filter_map(|csi_node| {
        let node = nodes.get(csi_node.name())?;
        segment(driver, csi_node, node).ok()
    });
    known.collect()
}

/// Which nodes reach a volume that is in these places; `None` when all do.
pub(super) fn affinity(topologies: &[Topology]) -> Option<NodeAffinity> {
    let one = |(key, value): (&String, &String)| NodeSelectorExpression {
        key: key.clone(),
        operator: "In".to_owned(),
        values: vec![value.clone()],
    };
    let term = |place: &Topology| NodeSelectorTerm {
        match_expressions: place.segments.iter().map(one).collect(),
    };
    // A term without labels would match no node at all.
    let places = topologies.iter().filter(|place| !place.segments.is_empty());
    let terms: Vec<_> = places.map(term).collect();
    let required = NodeSelector { node_selector_terms: terms };
    (!required.node_selector_terms.is_empty()).then_some(NodeAffinity { required })
}

fn requirement(places: Vec<Segment>, first: u32) -> TopologyRequirement {
    let requisite: Vec<_> = places.into_iter().map(|segments| Topology { segments }).collect();
    let mut preferred = requisite.clone();
    preferred.rotate_left(first as usize % requisite.len().max(1));
    TopologyRequirement { requisite, preferred }
}

/// A class that names no places allows all. A place may have more labels than a class names.
fn allows(allowed: &[TopologyTerm], place: &Segment) -> bool {
    let meets = |term: &TopologyTerm| {
        let mut expressions = term.match_label_expressions.iter();
        !term.match_label_expressions.is_empty()
            && expressions.all(|wanted| {
                place.get(&wanted.key).is_some_and(|value| wanted.values.contains(value))
            })
    };
    allowed.is_empty() || allowed.iter().any(meets)
}

/// One place for each way to choose a value for every label of a term.
fn expanded(allowed: &[TopologyTerm]) -> BTreeSet<Segment> {
    let mut places = BTreeSet::new();
    for term in allowed {
        let mut combined = vec![Segment::new()];
        for expression in &term.match_label_expressions {
            let with = |place: Segment| {
                expression.values.iter().map(move |value| {
                    let mut place = place.clone();
                    place.insert(expression.key.clone(), value.clone());
                    place
                })
            };
            combined = combined.into_iter().flat_map(with).collect();
        }
        // A term without labels matches nothing, by the rules of the API.
        places.extend(combined.into_iter().filter(|place| !place.is_empty()));
    }
    places
}

/// Which place is the first for a claim.
///
/// `CLAIM-SET-3` is what StatefulSets call the claims of their members. All claims of a member count
/// from the name of the set, so that they come to one place: no pod could use them otherwise.
fn turn(claim: &str) -> u32 {
    let numbered = claim
        .rsplit_once('-')
        .and_then(|(before, number)| Some((before, number.parse::<u32>().ok()?)));
    let Some((before, number)) = numbered else { return hash(claim) };
    let set = before.rsplit_once('-').map_or(before, |(_, set)| set);
    hash(set).wrapping_add(number)
}

/// FNV-1 of 32 bits, as everywhere in Kubernetes for this; the numbers are those of its definition.
fn hash(text: &str) -> u32 {
    text.bytes().fold(2_166_136_261, |hash, byte| hash.wrapping_mul(16_777_619) ^ u32::from(byte))
}

#[cfg(test)]
mod tests;
