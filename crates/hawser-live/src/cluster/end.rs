//! How a cluster ends: everything of it goes, by whatever way the test ended.

use std::fs;
use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::namespace::Namespace;
use super::place::remove;
use super::{Cluster, leftovers, say};

/// How long the kernel may take to take down what nobody uses any more.
const GONE_LIMIT: Duration = Duration::from_secs(15);

impl Cluster {
    /// Ends the cluster.
    ///
    /// # Panics
    ///
    /// When anything of it is left on the machine, with what it is.
    #[track_caller]
    pub fn end(mut self) {
        let left = self.tear_down();
        assert!(left.is_empty(), "left on the machine: {left:#?}");
    }

    /// Takes everything away; answers what could not be.
    fn tear_down(&mut self) -> Vec<String> {
        // The last ones first: a kubelet would start anew what it misses.
        for (_, _, process) in self.parts.iter_mut().rev() {
            if let Some(mut process) = process.take() {
                process.kill();
            }
        }
        let mut left = self.namespace.as_mut().map(Namespace::end).unwrap_or_default();
        // By their names in the namespace, as long as its mounts are there.
        let loops = leftovers::loops(&self.folder, &self.place);
        self.namespace = None;
        for found in loops {
            say(&format!("{} is left over {}", found.device.display(), found.file.display()));
            if !within(GONE_LIMIT, || leftovers::detach(&found.device)) {
                left.push(format!("loop device {}", found.device.display()));
            }
        }
        left.extend(self.nodes.iter().flat_map(|node| node.cgroup.remove()));
        let networks: Vec<Ipv4Addr> = self.nodes.iter().map(|node| node.network).collect();
        within(GONE_LIMIT, || leftovers::routes(&networks).is_empty());
        left.extend(leftovers::routes(&networks));
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mounts = leftovers::mounts_below(&table, &self.folder);
        left.extend(mounts.iter().map(|mount| format!("mount {mount}")));
        // Never through a mount: what is below it is not ours.
        if mounts.is_empty() && !within(GONE_LIMIT, || remove(&self.folder).is_ok()) {
            left.push(format!("folder {}", self.folder.display()));
        }
        left
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.told.load(Ordering::Relaxed) {
            say(&format!("the logs end so:\n{}", self.logs()));
        }
        for left in self.tear_down() {
            say(&format!("left on the machine: {left}"));
        }
        // Somebody else may have the names now.
        let _ = self.slot.unlock();
    }
}

/// Tries until it succeeds; false when the time is over.
fn within(limit: Duration, mut attempt: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !attempt() {
        if begun.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    true
}
