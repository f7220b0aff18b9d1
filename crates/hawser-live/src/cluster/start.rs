//! How a cluster begins.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::control::{self, Spec};
use super::error::{Attempt, ClusterError, Result};
use super::kubectl::unwrap;
use super::namespace::{self, Namespace};
use super::node::{self, Node};
use super::pki::{Pki, Subject};
use super::place::{Place, remove};
use super::ports::{self, Ports};
use super::process::Process;
use super::program::{PATH, check};
use super::{Cluster, Kubectl, Object, Options, Part, leftovers, node_name, say};

/// How many clusters a machine may have side by side; another one waits.
const SLOTS: u8 = 8;

/// How often a cluster that waits looks whether another one has ended.
const SLOT_PAUSE: Duration = Duration::from_millis(500);

/// How long a part may take until it answers, on a machine that does other things too.
const START_LIMIT: Duration = Duration::from_secs(120);

/// How often a part is asked whether it answers.
const START_PAUSE: Duration = Duration::from_millis(100);

impl Cluster {
    /// Starts a cluster where the environment says; see [`Cluster::start_at`].
    ///
    /// # Panics
    ///
    /// When it cannot be had here: with what is missing, or which part failed and the end of its log.
    #[track_caller]
    pub fn start(options: Options) -> Self {
        unwrap(Self::start_at(&Place::of_environment(), options))
    }

    /// Builds what is missing, starts every part and waits until they answer and every node is ready.
    pub fn start_at(place: &Place, options: Options) -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err(ClusterError::NotRoot);
        }
        check(namespace::NEEDS)?;
        let programs = place.programs(&options.needed())?;
        let debian = place.debian()?;
        let begun = Instant::now();
        let (number, slot) = slot(place)?;
        let folder = place.cache.join("run").join(number.to_string());
        clear(number, &folder)?;
        let pki = Pki::make(&folder)?;
        // Until everything listens: another cluster could be given the same ports.
        let ports_lock = place.lock("ports", "another cluster is starting; waiting for it")?;
        let kubectl = Kubectl {
            program: programs["kubectl"].clone(),
            config: folder.join("admin.kubeconfig"),
            home: folder.clone(),
        };
        let mut cluster = Self {
            options,
            ports: Ports::free()?,
            programs,
            debian,
            place: format!("/run/cluster{number}").into(),
            folder,
            pki,
            kubectl,
            parts: Vec::new(),
            nodes: Vec::new(),
            namespace: None,
            told: AtomicBool::new(false),
            slot,
        };
        // From here on a failure drops the cluster, which takes away what there is of it.
        for node in 1..=cluster.options.nodes {
            cluster.nodes.push(Node::make(number, node)?);
        }
        cluster.write_files()?;
        let script = place.repo.join("lab/cluster.init");
        let inside = cluster.place.display().to_string();
        cluster.namespace = Some(Namespace::start(&script, &cluster.folder, &inside)?);
        cluster.start_control()?;
        cluster.start_nodes()?;
        drop(ports_lock);
        say(&format!("{} nodes after {:.1} s", cluster.nodes.len(), begun.elapsed().as_secs_f64()));
        Ok(cluster)
    }

    fn write_files(&self) -> Result<()> {
        let names: Vec<String> = self.nodes.iter().map(|node| node_name(node.number)).collect();
        let write = |file: &str, text: &str| {
            let path = self.folder.join(file);
            fs::write(&path, text).attempt(|| format!("writing {}", path.display()))
        };
        write("hosts", &format!("127.0.0.1 localhost {}\n", names.join(" ")))?;
        for (file, content) in control::files() {
            write(file, &content.to_string())?;
        }
        let serves = ["127.0.0.1", "10.96.0.1", "localhost", "kubernetes.default.svc"];
        let server = Subject { name: "kube-apiserver", group: None, serves: &serves };
        self.pki.issue_to("server", server)?;
        let admins = Some("system:masters");
        self.pki
            .issue_to("server-kubelet", Subject::client("kube-apiserver-kubelet-client", admins))?;
        let controllers = Subject::client("system:kube-controller-manager", None);
        self.write_kubeconfig("admin.kubeconfig", Subject::client("admin", admins))?;
        self.write_kubeconfig("controllers.kubeconfig", controllers)?;
        self.write_kubeconfig(
            "scheduler.kubeconfig",
            Subject::client("system:kube-scheduler", None),
        )?;
        for (node, name) in self.nodes.iter().zip(&names) {
            let user = format!("system:node:{name}");
            let subject = Subject::client(&user, Some("system:nodes"));
            self.write_kubeconfig(&format!("{name}.kubeconfig"), subject)?;
            node.write_files(&self.plan(), &self.pki, &self.folder)?;
        }
        Ok(())
    }

    fn start_control(&mut self) -> Result<()> {
        let plan = self.plan();
        let (etcd, server) = (plan.etcd(), plan.server());
        let (controllers, scheduler) = (plan.controllers(), plan.scheduler());
        let runtime = |node: &Node| (Part::Containerd(node.number), node.containerd(&plan));
        let runtimes: Vec<(Part, Spec)> = self.nodes.iter().map(runtime).collect();
        self.add(Part::Etcd, etcd)?;
        self.wait_part(Part::Etcd)?;
        self.add(Part::Server, server)?;
        // While the server reads and fills its store.
        for (part, spec) in runtimes {
            self.add(part, spec)?;
        }
        self.wait_part(Part::Server)?;
        if self.options.snapshots {
            let folder = self.programs["snapshot-crds"].display().to_string();
            self.kubectl.try_ok(&["apply", "--server-side", "-k", &folder], &[])?;
            self.wait_snapshot_kinds()?;
        }
        if self.options.controllers {
            self.add(Part::Controllers, controllers)?;
            self.add(Part::Scheduler, scheduler)?;
            self.wait_part(Part::Controllers)?;
            self.wait_part(Part::Scheduler)?;
            // Pods are refused before it is there.
            let account = Object::within("default", "serviceaccount", "default");
            let there = |account: &serde_json::Value| !account.is_null();
            self.try_wait("service account of the controllers", &account, START_LIMIT, there)?;
        }
        Ok(())
    }

    /// The server tells of kinds some time after it has taken their definitions, and until then nobody can
    /// make an object of them by name.
    fn wait_snapshot_kinds(&mut self) -> Result<()> {
        let kinds = [
            ("snapshot.storage.k8s.io", "volumesnapshotcontents.snapshot.storage.k8s.io"),
            ("groupsnapshot.storage.k8s.io", "volumegroupsnapshots.groupsnapshot.storage.k8s.io"),
        ];
        self.try_wait_for("kinds of snapshots", START_LIMIT, START_PAUSE, |cluster| {
            kinds.iter().all(|(group, kind)| {
                let args = ["api-resources", "-o", "name", "--api-group", group];
                let listed = cluster.kubectl.try_ok(&args, &[]);
                listed.is_ok_and(|listed| listed.lines().any(|line| line == *kind))
            })
        })
    }

    fn start_nodes(&mut self) -> Result<()> {
        if self.nodes.is_empty() {
            return Ok(());
        }
        for number in 1..=self.options.nodes {
            self.wait_part(Part::Containerd(number))?;
        }
        for image in node::images(&self.debian)? {
            self.try_load(&image)?;
        }
        let plan = self.plan();
        let specs: Result<Vec<(Part, Spec)>> = self
            .nodes
            .iter()
            .map(|node| Ok((Part::Kubelet(node.number), node.kubelet(&plan)?)))
            .collect();
        for (part, spec) in specs? {
            self.add(part, spec)?;
        }
        for number in 1..=self.options.nodes {
            self.wait_part(Part::Kubelet(number))?;
        }
        Ok(())
    }

    fn add(&mut self, part: Part, spec: Spec) -> Result<()> {
        let process = self.spawn(part, &spec)?;
        self.parts.push((part, spec, Some(process)));
        Ok(())
    }

    fn spawn(&self, part: Part, spec: &Spec) -> Result<Process> {
        let mut command = self.live().command(&spec.program);
        command.args(&spec.args).env("HOME", &self.place);
        if let Some(path) = &spec.path {
            command.env("PATH", format!("{}:{PATH}", path.display()));
        }
        Process::start(&part.to_string(), &mut command, &self.folder)
    }

    pub(super) fn try_start_part(&mut self, part: Part) -> Result<()> {
        let place =
            self.parts.iter().position(|(other, _, process)| *other == part && process.is_none());
        let place = place.unwrap_or_else(|| panic!("no {part} of this cluster was stopped"));
        let spec = self.parts[place].1.clone();
        self.parts[place].2 = Some(self.spawn(part, &spec)?);
        self.wait_part(part)
    }

    /// Waits until a part answers.
    fn wait_part(&mut self, part: Part) -> Result<()> {
        let Ports { etcd, controllers, scheduler, .. } = self.ports;
        let what = format!("{part} that answers");
        let listens = |cluster: &mut Self, port| {
            cluster.try_wait_for(&what, START_LIMIT, START_PAUSE, |_| ports::answers(port))
        };
        match part {
            Part::Etcd => listens(self, etcd),
            Part::Controllers => listens(self, controllers),
            Part::Scheduler => listens(self, scheduler),
            Part::Server => self.try_wait_for(&what, START_LIMIT, START_PAUSE, |cluster| {
                ports::answers(cluster.ports.server)
                    && cluster.kubectl.try_ok(&["get", "--raw", "/readyz"], &[]).is_ok()
            }),
            Part::Containerd(number) => {
                let socket = self.place.join(node_name(number)).join("containerd.sock");
                let socket = self.live().seen(&socket);
                self.try_wait_for(&what, START_LIMIT, START_PAUSE, |_| {
                    UnixStream::connect(&socket).is_ok()
                })
            }
            Part::Kubelet(number) => {
                let node = Object::new("node", &node_name(number));
                let what = format!("{node} that is ready");
                self.try_wait(&what, &node, START_LIMIT, is_ready).map(drop)
            }
        }
    }
}

/// Takes names, networks and a folder that no other cluster of this cache has; waits for them.
fn slot(place: &Place) -> Result<(u8, File)> {
    let mut waits = false;
    loop {
        for number in 0..SLOTS {
            if let Some(lock) = place.try_lock(&format!("slot-{number}"))? {
                return Ok((number, lock));
            }
        }
        if !waits {
            say(&format!("{SLOTS} clusters run on this machine; waiting for one of them"));
            waits = true;
        }
        // Whichever ends first: the kernel can wait for one lock, not for any of several.
        std::thread::sleep(SLOT_PAUSE);
    }
}

/// Removes what a killed run of this number left, and makes its folder.
fn clear(slot: u8, folder: &Path) -> Result<()> {
    for left in node::clear(slot) {
        say(&format!("left of a killed run: {left}"));
    }
    for found in leftovers::loops(folder, folder) {
        say(&format!("{} is left of a killed run", found.device.display()));
        leftovers::detach(&found.device);
    }
    remove(folder)?;
    fs::create_dir_all(folder).attempt(|| format!("making {}", folder.display()))
}

/// True for a node that takes pods.
fn is_ready(node: &serde_json::Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
    ready.any(|condition| condition["status"] == "True")
}
