//! A running cluster, and what a test does with it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::control::{Plan, Spec};
use super::error::{Attempt, Result};
use super::kubectl::unwrap;
use super::namespace::Namespace;
use super::node::Node;
use super::pki::{Pki, Subject};
use super::ports::Ports;
use super::process::Process;
use super::program::run;
use super::{Image, Kubectl, Options, Request, leftovers, node_name, requests};

/// How long a part may take to end when it is asked to. The server closes open watches one by one,
/// which took 70 s.
const STOP_LIMIT: Duration = Duration::from_secs(90);

/// How long loading an image may take.
const LOAD_LIMIT: Duration = Duration::from_secs(120);

/// A part of a cluster that a test can stop and start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Where the server keeps everything.
    Etcd,
    /// The API server.
    Server,
    /// The controller-manager.
    Controllers,
    /// The scheduler.
    Scheduler,
    /// The container runtime of a node, counted from 1.
    Containerd(u8),
    /// The kubelet of a node, counted from 1.
    Kubelet(u8),
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Etcd => f.write_str("etcd"),
            Self::Server => f.write_str("kube-apiserver"),
            Self::Controllers => f.write_str("kube-controller-manager"),
            Self::Scheduler => f.write_str("kube-scheduler"),
            Self::Containerd(node) => write!(f, "containerd-{}", node_name(*node)),
            Self::Kubelet(node) => write!(f, "kubelet-{}", node_name(*node)),
        }
    }
}

/// A cluster. It ends when this is dropped, whatever happened to the test: its processes, mounts,
/// cgroups, network devices and files go.
pub struct Cluster {
    pub(super) options: Options,
    pub(super) ports: Ports,
    /// What was built for it, by name.
    pub(super) programs: BTreeMap<String, PathBuf>,
    pub(super) debian: PathBuf,
    /// The folder of the run on the machine.
    pub(super) folder: PathBuf,
    /// The same in the namespaces.
    pub(super) place: PathBuf,
    pub(super) pki: Pki,
    pub(super) kubectl: Kubectl,
    /// Running and stopped parts, in the order in which they were started.
    pub(super) parts: Vec<(Part, Spec, Option<Process>)>,
    pub(super) nodes: Vec<Node>,
    pub(super) namespace: Option<Namespace>,
    /// Some message has shown the logs already.
    pub(super) told: AtomicBool,
    /// Names, networks and the folder are ours while this is held.
    pub(super) slot: File,
}

impl Cluster {
    /// kubectl with every right.
    pub fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// The kubeconfig with every right, as a file of the machine.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubectl.config
    }

    /// A user with a kubeconfig of its own, and no rights but those that the test gives it.
    #[track_caller]
    pub fn user(&self, name: &str, group: Option<&str>) -> Kubectl {
        let subject = Subject::client(name, group);
        let file = format!("user-{}.kubeconfig", name.replace([':', '/'], "-"));
        let config = unwrap(self.write_kubeconfig(&file, subject));
        Kubectl { config, ..self.kubectl.clone() }
    }

    pub(super) fn write_kubeconfig(&self, file: &str, subject: Subject<'_>) -> Result<PathBuf> {
        let path = self.folder.join(file);
        let config = self.pki.kubeconfig(&self.server(), subject)?;
        fs::write(&path, config.to_string()).attempt(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    /// The address of the server.
    pub fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.server)
    }

    /// The address of etcd, which asks nobody who they are.
    pub fn etcd(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.etcd)
    }

    /// The folder of the run on the machine; a test may put files there, and all of it goes with the
    /// cluster.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A file or folder of the run, as programs in the cluster see it.
    pub fn inside(&self, name: impl AsRef<Path>) -> PathBuf {
        self.place.join(name)
    }

    /// Where the machine sees a path of the cluster, together with what is mounted there.
    #[track_caller]
    pub fn seen(&self, path: impl AsRef<Path>) -> PathBuf {
        self.live().seen(path.as_ref())
    }

    /// The folder of a node's kubelet, as programs in the cluster see it: what is `/var/lib/kubelet`
    /// elsewhere.
    pub fn kubelet_folder(&self, node: u8) -> PathBuf {
        self.place.join(node_name(node)).join("kubelet")
    }

    /// How many nodes it has.
    pub fn node_count(&self) -> u8 {
        self.options.nodes
    }

    /// A program that the options asked for.
    #[track_caller]
    pub fn program(&self, name: &str) -> &Path {
        let found = self.programs.get(name);
        found.unwrap_or_else(|| panic!("the options of this cluster ask for no program {name:?}"))
    }

    /// A command that runs in the cluster's namespaces, as a daemon of a node would.
    #[track_caller]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        self.live().command(program)
    }

    /// Starts a command of [`Cluster::command`] that stays in the foreground.
    #[track_caller]
    pub fn start_process(&self, name: &str, command: &mut Command) -> Process {
        unwrap(Process::start(name, command, &self.folder))
    }

    /// Gives an image to every node.
    #[track_caller]
    pub fn load(&self, image: &Image) {
        unwrap(self.try_load(image));
    }

    pub(super) fn try_load(&self, image: &Image) -> Result<()> {
        let file = image.name().replace(['/', ':'], "-");
        let packed = image.pack(&self.folder, &file)?;
        let ctr = super::control::debian_program(&self.debian, "ctr");
        for node in &self.nodes {
            let mut command = self.live().command(&ctr);
            command.args(["--address", &node.runtime_socket(&self.plan())]);
            command.args(["--namespace", "k8s.io", "images", "import"]);
            command.arg(self.inside(format!("{file}.tar")));
            run(&format!("loading {}", image.name()), &mut command, LOAD_LIMIT)?;
        }
        fs::remove_file(&packed).attempt(|| format!("removing {}", packed.display()))
    }

    /// Every request that the server answered so far; needs [`Options::audit`].
    ///
    /// # Panics
    ///
    /// When the options of the cluster did not ask for it.
    #[track_caller]
    pub fn requests(&self) -> Vec<Request> {
        assert!(self.options.audit, "the options of this cluster ask for no audit log");
        let log = fs::read(self.folder.join("audit.log")).unwrap_or_default();
        requests::parse(&String::from_utf8_lossy(&log))
    }

    /// What volumes have left in the cluster by now: loop devices over its files, and mounts below
    /// the folders of its kubelets other than those that every pod has.
    pub fn volume_traces(&self) -> Vec<String> {
        let table = self.namespace.as_ref().map(Namespace::mount_table).unwrap_or_default();
        let mounts = self
            .nodes
            .iter()
            .flat_map(|node| leftovers::mounts_below(&table, &self.kubelet_folder(node.number)));
        let mounts = mounts.filter(|mount| !mount.contains("/volumes/kubernetes.io~projected/"));
        let loops = leftovers::loops(&self.folder, &self.place);
        let loops = loops
            .iter()
            .map(|found| format!("{} over {}", found.device.display(), found.file.display()));
        mounts.chain(loops).collect()
    }

    /// Asks a part to end, and waits until it did.
    #[track_caller]
    pub fn stop(&mut self, part: Part) {
        let mut process = self.take(part);
        unwrap(process.stop(STOP_LIMIT));
    }

    /// Kills a part as a crash would.
    #[track_caller]
    pub fn kill(&mut self, part: Part) {
        self.take(part).kill();
    }

    /// Starts a part that was stopped or killed, and waits until it answers.
    #[track_caller]
    pub fn start_part(&mut self, part: Part) {
        unwrap(self.try_start_part(part));
    }

    /// A running part.
    ///
    /// # Panics
    ///
    /// When the cluster has no such part, or it was stopped.
    #[track_caller]
    pub fn part(&mut self, part: Part) -> &mut Process {
        let found = self.parts.iter_mut().find(|(other, ..)| *other == part);
        let process = found.and_then(|(_, _, process)| process.as_mut());
        process.unwrap_or_else(|| panic!("this cluster runs no {part}"))
    }

    #[track_caller]
    fn take(&mut self, part: Part) -> Process {
        let found = self.parts.iter_mut().find(|(other, ..)| *other == part);
        let process = found.and_then(|(_, _, process)| process.take());
        process.unwrap_or_else(|| panic!("this cluster runs no {part}"))
    }

    /// An error when a part has ended that was not told to.
    pub(super) fn check(&mut self) -> Result<()> {
        self.parts
            .iter_mut()
            .filter_map(|(_, _, process)| process.as_mut())
            .try_for_each(Process::check)
    }

    pub(super) fn plan(&self) -> Plan<'_> {
        Plan {
            options: &self.options,
            ports: &self.ports,
            place: &self.place,
            programs: &self.programs,
            debian: &self.debian,
        }
    }

    #[track_caller]
    pub(super) fn live(&self) -> &Namespace {
        self.namespace.as_ref().expect("a cluster has its namespaces until it ends")
    }
}
