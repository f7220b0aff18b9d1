//! What volumes have left in the end, wherever they could: objects, records, files, mounts.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::hawser::POOL;
use super::objects::name;
use super::pods::state;
use super::waits::SOON;
use super::{Driver, NAMESPACE};
use crate::cluster::Cluster;

/// How often it is looked again.
const PAUSE: Duration = Duration::from_secs(1);

/// Objects that go with the last claim.
const KINDS: [&str; 3] = ["persistentvolumeclaim", "persistentvolume", "volumeattachment"];

/// The same where there are snapshots.
const SNAPSHOT_KINDS: [&str; 4] = [
    "volumesnapshot",
    "volumesnapshotcontent",
    "volumegroupsnapshot",
    "volumegroupsnapshotcontent",
];

/// The label of Secrets that are records of the store.
const SECRET_RECORDS: &str = "hawser.storage/record=true";

/// Where the host's attachments are written down, as programs in the cluster see it.
const ATTACHMENTS: &str = "/run/hawser/attachments";

impl Driver {
    /// Waits until nothing is left of any volume.
    ///
    /// # Panics
    ///
    /// When something stays, with all of it.
    #[track_caller]
    pub fn assert_nothing_left(&self, cluster: &Cluster) {
        let begun = Instant::now();
        loop {
            let left = self.left(cluster);
            if left.is_empty() {
                return;
            }
            assert!(begun.elapsed() < SOON, "left after {SOON:?}: {left:#?}");
            std::thread::sleep(PAUSE);
        }
    }

    /// Everything of volumes that is there now, as lines.
    #[track_caller]
    pub fn left(&self, cluster: &Cluster) -> Vec<String> {
        let mut left = objects(cluster);
        left.extend(records(cluster));
        left.extend(secret_records(cluster));
        left.extend(self.volumes(cluster).iter().map(|id| format!("{id} as hawser lists it")));
        left.extend(self.snapshots(cluster).iter().map(|id| format!("{id} as hawser lists it")));
        left.extend(pool(cluster).iter().map(|file| format!("{file} in the pool")));
        let attachments = entries(&cluster.seen(ATTACHMENTS));
        let attachments = attachments.iter().filter(|file| file.ends_with(".json"));
        left.extend(attachments.map(|file| format!("{file} of the attachments")));
        let traces = cluster.volume_traces();
        left.extend(traces.into_iter().filter(|trace| !self.own_traces.contains(trace)));
        left
    }

    /// The ids of all volumes, as the program lists them.
    #[track_caller]
    pub fn volumes(&self, cluster: &Cluster) -> BTreeSet<String> {
        ids(&self.hawser(cluster, &["volume", "list", "-o", "json"]))
    }

    /// The ids of all snapshots, as the program lists them.
    #[track_caller]
    pub fn snapshots(&self, cluster: &Cluster) -> BTreeSet<String> {
        ids(&self.hawser(cluster, &["snapshot", "list", "-o", "json"]))
    }
}

#[track_caller]
fn objects(cluster: &Cluster) -> Vec<String> {
    let snapshots = if cluster.options.snapshots { &SNAPSHOT_KINDS[..] } else { &[] };
    let kinds = KINDS.iter().chain(snapshots);
    let each = kinds.flat_map(|kind| {
        let found = cluster.kubectl().list(kind);
        found.iter().map(|object| shown(kind, object)).collect::<Vec<_>>()
    });
    each.collect()
}

/// An object with what keeps it, when it is being deleted.
fn shown(kind: &str, object: &Value) -> String {
    let metadata = &object["metadata"];
    let mut line = format!("{kind} {}", name(object));
    if metadata["deletionTimestamp"].is_string() {
        line.push_str(&format!(", which waits for {}", metadata["finalizers"]));
    }
    line
}

/// Records of the store in the cluster. That of a node stays as long as the node is known.
#[track_caller]
fn records(cluster: &Cluster) -> Vec<String> {
    let args = ["get", "records.hawser.storage", &format!("--namespace={NAMESPACE}")];
    let mut list = cluster.kubectl().json(&args);
    let items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
    let keys = items.iter().map(|record| record["spec"]["key"].as_str().unwrap_or_default());
    // What the store writes to learn how far its watches are is no record.
    let ours = keys.filter(|key| !key.starts_with("node/") && *key != "tick");
    ours.map(|key| format!("record {key}")).collect()
}

/// The same of records that are secret.
#[track_caller]
fn secret_records(cluster: &Cluster) -> Vec<String> {
    let namespace = format!("--namespace={NAMESPACE}");
    let label = format!("--selector={SECRET_RECORDS}");
    let list = cluster.kubectl().json(&["get", "secrets", &namespace, &label]);
    let items = list["items"].as_array().into_iter().flatten();
    let names = items.map(name).filter(|name| !name.ends_with("--tick"));
    names.map(|name| format!("record {name}, which is secret")).collect()
}

/// Volumes and snapshots that the pools of all nodes hold, and what is half made or half removed.
pub fn pool(cluster: &Cluster) -> BTreeSet<String> {
    (1..=cluster.node_count()).flat_map(|number| pool_of(cluster, number)).collect()
}

/// The same of one node.
pub fn pool_of(cluster: &Cluster, number: u8) -> BTreeSet<String> {
    let pool = cluster.folder().join(state(number)).join(POOL);
    let each = ["volumes", "snapshots", "staging"].into_iter();
    let all = each.flat_map(|shelf| {
        let files = entries(&pool.join(shelf));
        files.into_iter().map(move |file| format!("{shelf}/{file}"))
    });
    all.collect()
}

fn entries(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The ids in a list that the program printed.
#[track_caller]
fn ids(said: &str) -> BTreeSet<String> {
    let list: Value = serde_json::from_str(said).unwrap_or_else(|error| panic!("{error}: {said}"));
    let items = list["items"].as_array().into_iter().flatten();
    items.filter_map(|item| item["id"].as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_that_cannot_go_says_what_keeps_it() {
        let metadata = json!({ "name": "a", "finalizers": ["b"], "deletionTimestamp": "now" });
        let line = shown("persistentvolume", &json!({ "metadata": metadata }));
        assert_eq!(line, "persistentvolume a, which waits for [\"b\"]");
        let plain = json!({ "metadata": { "name": "a", "finalizers": ["b"] } });
        assert_eq!(shown("persistentvolume", &plain), "persistentvolume a");
    }

    #[test]
    fn ids_are_read_from_a_list() {
        let said = r#"{"items":[{"id":"vol-1"},{"id":"vol-2"}]}"#;
        assert_eq!(ids(said), BTreeSet::from(["vol-1".to_owned(), "vol-2".to_owned()]));
        assert!(ids(r#"{"items":[]}"#).is_empty());
    }
}
