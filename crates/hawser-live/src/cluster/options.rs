//! What a test wants of its cluster.

/// How fast the controller-manager and the scheduler may ask the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limits {
    /// As Kubernetes ships them: 20 requests per second for the controller-manager.
    #[default]
    Stock,
    /// 1000 per second, so that something else is what takes the time.
    Raised,
}

/// Where etcd keeps its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Data {
    /// On the disk of the cache.
    #[default]
    Disk,
    /// In memory: what is measured is not the disk then.
    Memory,
}

/// A cluster to start; made by one of the three functions, and changed by the others.
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) controllers: bool,
    pub(super) nodes: u8,
    pub(super) limits: Limits,
    pub(super) data: Data,
    pub(super) audit: bool,
    pub(super) snapshots: bool,
    pub(super) gates: Vec<String>,
    pub(super) server_args: Vec<String>,
    pub(super) controller_args: Vec<String>,
    pub(super) programs: Vec<String>,
}

impl Options {
    /// etcd and the API server alone: for what keeps its records there.
    pub fn server() -> Self {
        Self {
            controllers: false,
            nodes: 0,
            limits: Limits::default(),
            data: Data::default(),
            audit: false,
            snapshots: false,
            gates: Vec::new(),
            server_args: Vec::new(),
            controller_args: Vec::new(),
            programs: Vec::new(),
        }
    }

    /// With the controller-manager and the scheduler, without a node: claims are bound, pods wait.
    pub fn control() -> Self {
        Self { controllers: true, ..Self::server() }
    }

    /// With one or two nodes that run pods.
    ///
    /// # Panics
    ///
    /// With any other number: a machine has one kernel, and two nodes are enough to move a volume.
    #[track_caller]
    pub fn nodes(count: u8) -> Self {
        assert!((1..=2).contains(&count), "a cluster has one or two nodes, not {count}");
        Self { nodes: count, ..Self::control() }
    }

    /// How fast the controllers may ask.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Where etcd keeps its data.
    pub fn data(mut self, data: Data) -> Self {
        self.data = data;
        self
    }

    /// The server writes down every request: `Cluster::requests` has them.
    pub fn audit(mut self) -> Self {
        self.audit = true;
        self
    }

    /// With the resource definitions of volume snapshots.
    pub fn snapshots(mut self) -> Self {
        self.snapshots = true;
        self
    }

    /// A feature gate of every part of Kubernetes, as `Name=true`. Mutating admission policies need
    /// none: they are stable and on in 1.36.
    pub fn gate(mut self, gate: &str) -> Self {
        self.gates.push(gate.to_owned());
        self
    }

    /// An argument of the API server.
    pub fn server_arg(mut self, arg: &str) -> Self {
        self.server_args.push(arg.to_owned());
        self
    }

    /// An argument of the controller-manager.
    pub fn controller_arg(mut self, arg: &str) -> Self {
        self.controller_args.push(arg.to_owned());
        self
    }

    /// A program of `lab/cluster.versions` that the test starts by itself: it is built before the
    /// cluster starts, and one that cannot be had is a failure at once.
    pub fn program(mut self, name: &str) -> Self {
        self.programs.push(name.to_owned());
        self
    }

    /// Everything that has to be built for it.
    pub(super) fn needed(&self) -> Vec<&str> {
        let mut names = vec!["kube-apiserver", "kubectl"];
        if self.controllers {
            names.extend(["kube-controller-manager", "kube-scheduler"]);
        }
        if self.nodes > 0 {
            names.push("kubelet");
        }
        if self.snapshots {
            names.push("snapshot-crds");
        }
        names.extend(self.programs.iter().map(String::as_str));
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_alone_waits_for_no_other_program() {
        assert_eq!(Options::server().needed(), ["kube-apiserver", "kubectl"]);
        let nodes = Options::nodes(1).program("csi-provisioner");
        assert!(nodes.needed().contains(&"kubelet"));
        assert!(nodes.needed().contains(&"csi-provisioner"));
        assert!(!nodes.needed().contains(&"csi-attacher"));
    }
}
