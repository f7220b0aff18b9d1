//! Where volumes are asked for, and which nodes reach them.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const DRIVER: &str = "csi.hawser.storage";
const NODE: &str = "topology.hawser.storage/node";
const ZONE: &str = "topology.hawser.storage/zone";

fn csi_node(name: &str, keys: &[&str]) -> Arc<CsiNode> {
    let drivers = json!([{ "name": DRIVER, "nodeID": name, "topologyKeys": keys }]);
    let object = json!({ "metadata": { "name": name }, "spec": { "drivers": drivers } });
    Arc::new(serde_json::from_value(object).unwrap())
}

fn node(name: &str, labels: Value) -> Arc<Node> {
    let object = json!({ "metadata": { "name": name, "labels": labels } });
    Arc::new(serde_json::from_value(object).unwrap())
}

/// Two nodes in zone `a`, one in zone `b`, each a place of its own.
fn cluster() -> (Vec<Arc<CsiNode>>, Vec<Arc<Node>>) {
    let at = |(name, zone): (&str, &str)| {
        (csi_node(name, &[NODE, ZONE]), node(name, json!({ NODE: name, ZONE: zone, "other": "x" })))
    };
    [("n1", "a"), ("n2", "a"), ("n3", "b")].into_iter().map(at).unzip()
}

fn class(allowed: Value) -> StorageClass {
    let object = json!({ "metadata": { "name": "fast" }, "allowedTopologies": allowed });
    serde_json::from_value(object).unwrap()
}

/// A class with one term, which allows these values of labels.
fn allowing(pairs: &[(&str, &[&str])]) -> StorageClass {
    let expressions: Vec<_> =
        pairs.iter().map(|(key, values)| json!({ "key": key, "values": values })).collect();
    class(json!([{ "matchLabelExpressions": expressions }]))
}

fn place(pairs: &[(&str, &str)]) -> Topology {
    let segments = pairs.iter().map(|(key, value)| ((*key).into(), (*value).into()));
    Topology { segments: segments.collect() }
}

fn immediate(class: &StorageClass, claim: &str) -> TopologyRequirement {
    requirements(DRIVER, class, None, claim).unwrap().unwrap()
}

fn at_first(class: &StorageClass) -> Result<TopologyRequirement, ClusterError> {
    let (csi_nodes, nodes) = cluster();
    let selected = Some((&*csi_nodes[0], &*nodes[0]));
    Ok(requirements(DRIVER, class, selected, "data")?.unwrap())
}

fn problem(answer: Result<impl std::fmt::Debug, ClusterError>) -> String {
    let error = answer.unwrap_err();
    let kind = match error {
        ClusterError::NotYet(_) => "not yet",
        ClusterError::Wrong(_) => "wrong",
        ClusterError::Api { .. }
        | ClusterError::Driver(_)
        | ClusterError::NoNode(_)
        | ClusterError::NotLeading => "else",
    };
    format!("{kind}: {error}")
}

#[test]
fn a_volume_is_wanted_on_the_selected_node_and_nowhere_else() {
    let wanted = at_first(&class(json!(null))).unwrap();

    assert_eq!(wanted.requisite, [place(&[(NODE, "n1"), (ZONE, "a")])]);
    assert_eq!(wanted.preferred, wanted.requisite);
}

#[test]
fn a_node_that_is_not_fully_known_is_waited_for() {
    let at = |csi_node: &CsiNode, node: &Node| {
        problem(requirements(DRIVER, &class(json!([])), Some((csi_node, node)), "data"))
    };
    let bare = node("n1", json!({}));

    let nowhere: CsiNode = serde_json::from_value(json!({ "metadata": { "name": "n1" } })).unwrap();
    let words = at(&nowhere, &bare);
    assert_eq!(words, "not yet: node n1 does not have driver csi.hawser.storage yet");
    let words = at(&csi_node("n1", &[NODE]), &bare);
    assert!(
        words.starts_with("not yet: node n1 does not have the label topology.hawser"),
        "{words}"
    );
    let words = at(&csi_node("n1", &[]), &bare);
    assert!(words.starts_with("not yet: driver csi.hawser.storage has not told"), "{words}");
}

#[test]
fn a_selected_node_must_be_one_that_the_class_allows() {
    for allowed in [
        allowing(&[(ZONE, &["b", "a"])]),
        allowing(&[(ZONE, &["a"]), (NODE, &["n1", "n2"])]),
        class(json!([
            { "matchLabelExpressions": [{ "key": ZONE, "values": ["z"] }] },
            { "matchLabelExpressions": [{ "key": ZONE, "values": ["a"] }] },
        ])),
    ] {
        let wanted = at_first(&allowed).unwrap();
        assert_eq!(wanted.requisite, [place(&[(NODE, "n1"), (ZONE, "a")])], "{allowed:?}");
    }
    for forbidden in [
        allowing(&[(ZONE, &["b"])]),
        allowing(&[(ZONE, &["a"]), (NODE, &["n2"])]),
        // A label of the node that is none of the driver's.
        allowing(&[("other", &["x"])]),
        allowing(&[]),
    ] {
        let words = problem(at_first(&forbidden));
        assert!(words.starts_with("wrong: storage class fast does not allow node n1"), "{words}");
    }
}

/// A megabyte for each claim, in a cluster of a thousand nodes.
#[test]
fn a_class_that_names_no_places_asks_for_none_whatever_nodes_there_are() {
    for unnamed in [class(json!([])), class(json!([{ "matchLabelExpressions": [] }]))] {
        assert_eq!(requirements(DRIVER, &unnamed, None, "data").unwrap(), None);
    }
}

#[test]
fn places_of_a_class_are_wanted_in_an_order_of_the_claims_own() {
    let named = allowing(&[(NODE, &["n1", "n2", "n3"])]);
    let firsts = |claims: [&str; 3]| {
        claims.map(|claim| immediate(&named, claim).preferred[0].segments[NODE].clone())
    };

    let (data, log) = (
        firsts(["data-web-0", "data-web-1", "data-web-2"]),
        firsts(["log-web-0", "log-web-1", "log-web-2"]),
    );

    assert_eq!(data, log, "the claims of a member of a set are in one place");
    assert_eq!(BTreeSet::from(data).len(), 3, "and its members are not");
    let all = ["n1", "n2", "n3"].map(|node| place(&[(NODE, node)]));
    assert_eq!(immediate(&named, "data").requisite, all);
}

#[test]
fn places_that_a_class_names_are_wanted_whatever_nodes_there_are() {
    let two_by_two = allowing(&[(ZONE, &["a", "z"]), (NODE, &["n1", "n9"])]);

    let wanted = immediate(&two_by_two, "data");

    let all = [("n1", "a"), ("n1", "z"), ("n9", "a"), ("n9", "z")];
    assert_eq!(wanted.requisite, all.map(|(node, zone)| place(&[(NODE, node), (ZONE, zone)])));
    let twice = json!({ "matchLabelExpressions": [{ "key": ZONE, "values": ["b", "b"] }] });
    let wanted = immediate(&class(json!([twice, twice])), "data");
    assert_eq!(wanted.requisite, [place(&[(ZONE, "b")])]);
}

#[test]
fn a_node_without_its_labels_is_no_place_yet() {
    let csi_nodes = [csi_node("n1", &[NODE])];

    assert!(segments(DRIVER, &csi_nodes, &[node("n1", json!({}))]).is_empty());
}

/// The sum is that of Go's `hash/fnv`, so that a change over to the sidecars goes on in turn.
#[test]
fn the_turn_of_a_claim_is_that_of_the_sidecars() {
    assert_eq!(hash(""), 2_166_136_261);
    assert_eq!(hash("a"), 0x050c_5d7e);
    assert_eq!(hash("foobar"), 0x31f0_b262);
    assert_eq!(turn("data-web-2"), hash("web").wrapping_add(2));
    assert_eq!(turn("web-2"), hash("web").wrapping_add(2));
    assert_eq!(turn("data"), hash("data"));
    assert_eq!(turn("data-x"), hash("data-x"));
    assert_eq!(turn("-7"), hash("").wrapping_add(7));
}

#[test]
fn nodes_that_reach_a_volume_have_all_labels_of_one_of_its_places() {
    let places = [place(&[(ZONE, "a"), (NODE, "n1")]), place(&[]), place(&[(ZONE, "b")])];

    let affinity = serde_json::to_value(affinity(&places)).unwrap();

    let is = |key: &str, value: &str| json!({ "key": key, "operator": "In", "values": [value] });
    let terms = json!([
        { "matchExpressions": [is(NODE, "n1"), is(ZONE, "a")] },
        { "matchExpressions": [is(ZONE, "b")] },
    ]);
    assert_eq!(affinity, json!({ "required": { "nodeSelectorTerms": terms } }));
}

#[test]
fn a_volume_without_places_is_reached_by_all_nodes() {
    assert_eq!(affinity(&[]), None);
    assert_eq!(affinity(&[place(&[])]), None);
}

fn terms() -> impl Strategy<Value = Vec<TopologyTerm>> {
    let values = proptest::collection::btree_set("[a-c]", 1..3);
    let term = proptest::collection::btree_map("[k-m]", values, 1..3);
    let json = |term: BTreeMap<String, BTreeSet<String>>| {
        let expressions: Vec<_> =
            term.iter().map(|(key, values)| json!({ "key": key, "values": values })).collect();
        serde_json::from_value(json!({ "matchLabelExpressions": expressions })).unwrap()
    };
    proptest::collection::vec(term.prop_map(json), 1..4)
}

proptest! {
    /// What a class allows is the same for a node that was chosen and for places that are listed.
    #[test]
    fn a_place_is_allowed_if_and_only_if_it_has_the_labels_of_an_expanded_one(
        allowed in terms(),
        place in proptest::collection::btree_map("[k-m]", "[a-c]", 0..4),
    ) {
        let listed = expanded(&allowed);
        let within = |other: &Segment| other.iter().all(|(key, value)| place.get(key) == Some(value));

        prop_assert_eq!(allows(&allowed, &place), listed.iter().any(within));
    }

    /// Whatever the claim is called: no place is lost, none comes twice, and retries ask the same.
    #[test]
    fn the_preferred_places_are_the_requisite_ones_in_turn(
        allowed in terms(),
        claim in "[a-z0-9-]{0,20}",
    ) {
        let class = StorageClass { allowed_topologies: allowed, ..StorageClass::default() };

        let wanted = requirements(DRIVER, &class, None, &claim).unwrap().unwrap();

        let start = wanted.requisite.iter().position(|place| *place == wanted.preferred[0]).unwrap();
        let (after, from) = wanted.requisite.split_at(start);
        prop_assert_eq!(&[from, after].concat(), &wanted.preferred);
        let again = requirements(DRIVER, &class, None, &claim).unwrap().unwrap();
        prop_assert_eq!(again, wanted);
    }
}
