//! The objects, and how they came to be what they are.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::answer::Refusal;
use super::call::{Call, Seen, Target};
use super::fault::{Cut, Rule};
use super::known::{GROUPS, StatusPart};
use super::name::Key;

pub(super) struct State {
    pub(super) objects: BTreeMap<Key, Value>,
    pub(super) revision: u64,
    pub(super) history: Vec<Change>,
    /// What is older than this revision is forgotten.
    pub(super) compacted: u64,
    /// The rest of lists that were asked for in pages, and their revisions.
    pub(super) pages: HashMap<String, (Vec<Value>, u64)>,
    /// The versions of the groups; one that is not here has all versions.
    pub(super) groups: BTreeMap<String, Vec<String>>,
    pub(super) faults: Vec<Rule>,
    pub(super) requests: Vec<Seen>,
    pub(super) held: bool,
    pub(super) cuts: u64,
    pub(super) cut: Cut,
    pub(super) bookmarks: u64,
    /// The collections that are watched now.
    pub(super) watched: Vec<String>,
    named: u64,
}

/// One change of one object.
pub(super) struct Change {
    pub(super) revision: u64,
    pub(super) key: Key,
    pub(super) before: Option<Value>,
    pub(super) after: Option<Value>,
}

impl State {
    pub(super) fn new() -> Self {
        let owned = |versions: &[&str]| versions.iter().map(|version| (*version).into()).collect();
        Self {
            objects: BTreeMap::new(),
            revision: 100,
            history: Vec::new(),
            compacted: 0,
            pages: HashMap::new(),
            groups: GROUPS.iter().map(|(name, list)| ((*name).into(), owned(list))).collect(),
            faults: Vec::new(),
            requests: Vec::new(),
            held: false,
            cuts: 0,
            cut: Cut::End,
            bookmarks: 0,
            watched: Vec::new(),
            named: 0,
        }
    }

    /// What a request is for, if there is such a resource.
    pub(super) fn target(&self, call: &Call) -> Result<Target, Refusal> {
        let target = Target::parse(&call.seen.path).ok_or(Refusal::Page)?;
        let absent = self
            .groups
            .get(&target.group)
            .is_some_and(|versions| !versions.contains(&target.version));
        let known = target.known();
        let misplaced = known.is_some_and(|known| match (known.namespaced, &target.namespace) {
            (false, Some(_)) => true,
            (true, None) => target.name.is_some(),
            (false, None) | (true, Some(_)) => false,
        });
        let partless = match target.subresource {
            None => false,
            Some(_) if !target.is_status() => true,
            Some(_) => known.is_some_and(|known| known.status == StatusPart::Missing),
        };
        match absent || misplaced || partless {
            true => Err(Refusal::Page),
            false => Ok(target),
        }
    }

    /// A number that was not given before, for the names of things.
    pub(super) fn number(&mut self) -> u64 {
        self.named += 1;
        self.named
    }

    /// Keeps an object as it is, but for its revision.
    pub(super) fn store(&mut self, key: Key, mut object: Value) -> Value {
        // Others write, too.
        self.revision += 3;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let before = self.objects.insert(key.clone(), object.clone());
        let after = Some(object.clone());
        self.history.push(Change { revision: self.revision, key, before, after });
        object
    }

    pub(super) fn remove(&mut self, key: &Key) {
        if let Some(before) = self.objects.remove(key) {
            self.revision += 3;
            let change = Change {
                revision: self.revision,
                key: key.clone(),
                before: Some(before),
                after: None,
            };
            self.history.push(change);
        }
    }

    /// Fills in what every object has from its beginning.
    pub(super) fn begin(&mut self, object: &mut Value) {
        let number = self.number();
        let metadata = &mut object["metadata"];
        if metadata["uid"].is_null() {
            metadata["uid"] = json!(format!("00000000-0000-4000-8000-{number:012}"));
        }
        if metadata["creationTimestamp"].is_null() {
            metadata["creationTimestamp"] = now();
        }
    }

    /// Marks an object for removal, or removes it if nothing holds it; answers what it was last.
    pub(super) fn finish(&mut self, key: &Key) -> Option<Value> {
        let mut object = self.objects.get(key)?.clone();
        if finalizers(&object).is_empty() {
            self.remove(key);
            return Some(object);
        }
        if !is_deleting(&object) {
            object["metadata"]["deletionTimestamp"] = now();
            object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
            object = self.store(key.clone(), object);
        }
        Some(object)
    }

    pub(super) fn compact(&mut self) {
        self.compacted = self.revision + 1;
        self.revision += 2;
        self.pages.clear();
    }
}

pub(super) fn now() -> Value {
    json!(Time(Timestamp::now()))
}

pub(super) fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

pub(super) fn finalizers(object: &Value) -> &[Value] {
    object["metadata"]["finalizers"].as_array().map_or(&[], Vec::as_slice)
}
