//! A node that joins with the startup taint gets no pods until our drivers are there: the taint is
//! taken off once its kubelet lists them.
//!
//! Not before: a pod that is scheduled to a node whose kubelet does not know the driver fails, and a
//! node whose limit of volumes is not known yet gets too many.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::objects::{CsiNode, Key, Node, Object, Taint};
use super::office::Office;
use super::queue::{Next, Queue};
use super::table::Changed;

/// How many nodes are worked on at once.
const WORKERS: usize = 4;

/// How long to wait for what the watch has not told yet.
const AGAIN: Duration = Duration::from_secs(1);

/// Takes the startup taint off nodes.
pub(super) struct Taints {
    office: Arc<Office>,
    taint: String,
    queue: Queue<Key>,
}

impl Taints {
    pub(super) fn new(office: Arc<Office>, taint: String) -> Arc<Self> {
        Arc::new(Self { office, taint, queue: Queue::default() })
    }

    /// A node has changed.
    pub(super) fn heard_node(&self, changed: &Changed<Node>) {
        if changed.now.as_deref().is_some_and(|node| has_taint(node, &self.taint)) {
            self.queue.add(changed.key.clone());
        }
    }

    /// The drivers of a node have changed.
    pub(super) fn heard_csi_node(&self, changed: &Changed<CsiNode>) {
        let node = self.office.tables.nodes.get(&changed.key);
        if changed.now.is_some() && node.is_some_and(|node| has_taint(&node, &self.taint)) {
            self.queue.add(changed.key.clone());
        }
    }

    /// Works until it is told to stop.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let this = self.clone();
        let work = move |key| this.clone().work(key);
        self.queue.run(WORKERS, stop, work).await;
    }

    async fn work(self: Arc<Self>, key: Key) -> Next {
        let tables = &self.office.tables;
        let Some((node, csi_node)) = tables.nodes.get(&key).zip(tables.csi_nodes.get(&key)) else {
            return Next::Done;
        };
        let drivers: Vec<_> = self.office.drivers.iter().map(|driver| driver.name()).collect();
        if !has_taint(&node, &self.taint) || !is_ready(&node, &csi_node, &drivers) {
            return Next::Done;
        }
        match self.office.cluster.patch(&key, &without(&node, &self.taint)).await {
            Ok(node) => {
                info!(node.name = key.name, taint = self.taint, "the node has its drivers");
                tables.nodes.tell(node);
                Next::Done
            }
            Err(error) if error.is_absent() => Next::Done,
            Err(error) if error.is_conflict() => Next::After(AGAIN),
            Err(error) => {
                let reason = error.sentence();
                warn!(node.name = key.name, taint = self.taint, reason, "the taint stays");
                Next::Retry
            }
        }
    }
}

fn has_taint(node: &Node, taint: &str) -> bool {
    node.spec.taints.iter().any(|there| there.key == taint)
}

/// Whether the kubelet of this node lists all drivers.
fn is_ready(node: &Node, csi_node: &CsiNode, drivers: &[&str]) -> bool {
    // What an earlier node of this name has left lists the drivers that were there.
    let owners = csi_node.metadata.owner_references.as_deref().unwrap_or_default();
    let of_this = owners.is_empty() || owners.iter().any(|owner| owner.uid == node.uid());
    of_this && drivers.iter().all(|driver| csi_node.driver(driver).is_some())
}

/// The other taints of a node as they were read: others add and remove some, too, so it must not
/// have changed since.
fn without(node: &Node, taint: &str) -> Value {
    let others: Vec<&Taint> = node.spec.taints.iter().filter(|there| there.key != taint).collect();
    json!({
        "metadata": { "resourceVersion": node.metadata.resource_version },
        "spec": { "taints": others },
    })
}
