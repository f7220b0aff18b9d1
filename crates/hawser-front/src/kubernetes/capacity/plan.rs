//! Which objects there should be, and which of them are due.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::kubernetes::names::DRIVER_LABEL;
use crate::kubernetes::objects::{Capacity, CsiNode, Key, Node, Object, StorageClass, Volume};
use crate::kubernetes::topology::{self, Segment};

/// What one object is about: a class of a driver, in one place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Pair {
    pub(super) driver: String,
    pub(super) class: String,
    /// `None` for nodes that are chosen in a way in which places never are.
    pub(super) segment: Option<Segment>,
}

impl Pair {
    /// What an object is about.
    pub(super) fn of(object: &Capacity) -> Self {
        let plain =
            object.node_topology.as_ref().filter(|nodes| nodes.match_expressions.is_empty());
        Self {
            driver: object.labels().get(DRIVER_LABEL).cloned().unwrap_or_default(),
            class: object.storage_class_name.clone(),
            segment: plain.map(|nodes| nodes.match_labels.clone()),
        }
    }

    /// What its object is called. Always the same, so that two processes, one of which believes to
    /// lead still, make one object. Long enough that no two pairs share it.
    pub(super) fn object_name(&self) -> String {
        let mut hash = Sha256::new();
        let labels = self.segment.iter().flatten().flat_map(|(key, value)| [key, value]);
        for part in [&self.driver, &self.class].into_iter().chain(labels) {
            // None of these can hold a zero.
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        let short: String =
            hash.finalize().iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        format!("csisc-{short}")
    }
}

/// Every pair of a place and a class whose volumes wait until their pod has a node: nobody asks how
/// much room the others have.
pub(super) fn pairs(
    drivers: &[&str],
    classes: &[Arc<StorageClass>],
    csi_nodes: &[Arc<CsiNode>],
    nodes: &[Arc<Node>],
) -> BTreeSet<Pair> {
    let mut pairs = BTreeSet::new();
    for driver in drivers {
        let ours = |class: &&Arc<StorageClass>| class.provisioner == *driver;
        let waiting = |class: &&Arc<StorageClass>| ours(class) && class.waits_for_consumer();
        let waiting: Vec<_> = classes.iter().filter(waiting).collect();
        if waiting.is_empty() {
            continue;
        }
        for segment in topology::segments(driver, csi_nodes, nodes) {
            pairs.extend(waiting.iter().map(|class| Pair {
                driver: (*driver).to_owned(),
                class: class.name().to_owned(),
                segment: Some(segment.clone()),
            }));
        }
    }
    pairs
}

/// Where room has changed since it was last asked for.
#[derive(Debug, Default)]
pub(super) struct Touched {
    classes: BTreeSet<(String, String)>,
    /// One label of a place is enough: to ask about a few places more does no harm.
    places: BTreeSet<(String, String, String)>,
    pairs: BTreeSet<Pair>,
}

impl Touched {
    /// A class may have more room now, or less, in all places.
    pub(super) fn class(&mut self, driver: &str, class: &str) {
        self.classes.insert((driver.to_owned(), class.to_owned()));
    }

    /// One object is not as it was left.
    pub(super) fn pair(&mut self, pair: Pair) {
        self.pairs.insert(pair);
    }

    /// A volume has come, grown or gone: where it is, all classes may have other room now, because
    /// they may share it. Where it is not said, its class has.
    pub(super) fn volume(&mut self, driver: &str, volume: &Volume) {
        let terms =
            volume.spec.node_affinity.iter().flat_map(|at| &at.required.node_selector_terms);
        let mut placed = false;
        for first in terms.filter_map(|term| term.match_expressions.first()) {
            for value in &first.values {
                self.places.insert((driver.to_owned(), first.key.clone(), value.clone()));
                placed = true;
            }
        }
        if let (false, Some(class)) = (placed, &volume.spec.storage_class_name) {
            self.class(driver, class);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.classes.is_empty() && self.places.is_empty() && self.pairs.is_empty()
    }

    fn has(&self, pair: &Pair) -> bool {
        let at = |(key, value): (&String, &String)| {
            self.places.contains(&(pair.driver.clone(), key.clone(), value.clone()))
        };
        self.pairs.contains(pair)
            || self.classes.contains(&(pair.driver.clone(), pair.class.clone()))
            || !self.places.is_empty() && pair.segment.iter().flatten().any(at)
    }
}

/// Which objects there should be and which there are.
#[derive(Debug, Default)]
pub(super) struct Plan {
    wanted: BTreeSet<Pair>,
    there: BTreeMap<Pair, Vec<Key>>,
}

impl Plan {
    pub(super) fn new(wanted: BTreeSet<Pair>, objects: &[Arc<Capacity>]) -> Self {
        let mut there: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for object in objects {
            there.entry(Pair::of(object)).or_default().push(object.key());
        }
        Self { wanted, there }
    }

    /// True when there should be an object for it.
    pub(super) fn wants(&self, pair: &Pair) -> bool {
        self.wanted.contains(pair)
    }

    /// The objects that there were when it was made.
    pub(super) fn objects(&self, pair: &Pair) -> &[Key] {
        self.there.get(pair).map(Vec::as_slice).unwrap_or_default()
    }

    /// Those with something to do: what is missing, too many or touched; with `all`, whatever is
    /// wanted.
    pub(super) fn due(&self, all: bool, touched: &Touched) -> Vec<Pair> {
        let due = |pair: &&Pair| all || self.objects(pair).len() != 1 || touched.has(pair);
        let gone = self.there.keys().filter(|pair| !self.wants(pair));
        self.wanted.iter().filter(due).chain(gone).cloned().collect()
    }
}
