//! The control plane: what each of its parts is started with.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::options::{Data, Limits, Options};
use super::ports::Ports;

/// How a part is started.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    /// Where it finds programs besides those of the machine.
    pub(super) path: Option<PathBuf>,
}

/// What all parts of a cluster are made from.
pub(super) struct Plan<'a> {
    pub(super) options: &'a Options,
    pub(super) ports: &'a Ports,
    /// The folder of the run as the namespaces see it.
    pub(super) place: &'a Path,
    /// What was built, by name.
    pub(super) programs: &'a BTreeMap<String, PathBuf>,
    /// The unpacked packages of Debian.
    pub(super) debian: &'a Path,
}

/// The files that the server reads besides certificates: name and content.
pub(super) fn files() -> Vec<(&'static str, Value)> {
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        // Each request once, when it is answered.
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [{ "level": "Metadata" }],
    });
    vec![("audit-policy.json", policy)]
}

impl Plan<'_> {
    /// A file of the run, as the namespaces see it.
    pub(super) fn inside(&self, name: &str) -> String {
        self.place.join(name).display().to_string()
    }

    /// A program that was built.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.programs.get(name).cloned().unwrap_or_else(|| name.into())
    }

    pub(super) fn etcd(&self) -> Spec {
        let data = match self.options.data {
            Data::Disk => self.inside("etcd"),
            Data::Memory => "/run/etcd".to_owned(),
        };
        let client = format!("http://127.0.0.1:{}", self.ports.etcd);
        let peer = format!("http://127.0.0.1:{}", self.ports.etcd_peer);
        let args = vec![
            format!("--data-dir={data}"),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--quota-backend-bytes=8589934592".into(),
            "--auto-compaction-mode=periodic".into(),
            "--auto-compaction-retention=1h".into(),
            "--log-level=warn".into(),
        ];
        Spec { program: debian_program(self.debian, "etcd"), args, path: None }
    }

    pub(super) fn server(&self) -> Spec {
        let file = |flag: &str, name: &str| format!("--{flag}={}", self.inside(name));
        let mut args = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.ports.etcd),
            "--bind-address=127.0.0.1".into(),
            "--advertise-address=127.0.0.1".into(),
            // It would refuse to announce an address of loopback.
            "--endpoint-reconciler-type=none".into(),
            format!("--secure-port={}", self.ports.server),
            file("tls-cert-file", "server.crt"),
            file("tls-private-key-file", "server.key"),
            file("client-ca-file", "ca.crt"),
            file("kubelet-client-certificate", "server-kubelet.crt"),
            file("kubelet-client-key", "server-kubelet.key"),
            file("kubelet-certificate-authority", "ca.crt"),
            // Nodes say another address than the one that kubelet listens on.
            "--kubelet-preferred-address-types=Hostname".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            file("service-account-key-file", "sa.pub"),
            file("service-account-signing-key-file", "sa.key"),
            "--service-cluster-ip-range=10.96.0.0/16".into(),
            "--authorization-mode=Node,RBAC".into(),
            "--allow-privileged=true".into(),
            // Without these the controllers complain for ever.
            file("requestheader-client-ca-file", "ca.crt"),
            "--requestheader-allowed-names=front-proxy-client".into(),
            "--requestheader-username-headers=X-Remote-User".into(),
            "--requestheader-group-headers=X-Remote-Group".into(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
        ];
        if self.options.audit {
            args.push(file("audit-policy-file", "audit-policy.json"));
            args.push(file("audit-log-path", "audit.log"));
        }
        args.extend(self.gates());
        args.extend(self.options.server_args.iter().cloned());
        Spec { program: self.program("kube-apiserver"), args, path: None }
    }

    pub(super) fn controllers(&self) -> Spec {
        let file = |flag: &str, name: &str| format!("--{flag}={}", self.inside(name));
        let mut args = self.client("controllers", self.ports.controllers);
        args.extend([
            "--use-service-account-credentials=true".into(),
            file("service-account-private-key-file", "sa.key"),
            file("root-ca-file", "ca.crt"),
            file("cluster-signing-cert-file", "ca.crt"),
            file("cluster-signing-key-file", "ca.key"),
        ]);
        args.extend(self.options.controller_args.iter().cloned());
        Spec { program: self.program("kube-controller-manager"), args, path: None }
    }

    pub(super) fn scheduler(&self) -> Spec {
        let args = self.client("scheduler", self.ports.scheduler);
        Spec { program: self.program("kube-scheduler"), args, path: None }
    }

    /// What the two clients of the control plane have in common.
    fn client(&self, name: &str, port: u16) -> Vec<String> {
        let config = self.inside(&format!("{name}.kubeconfig"));
        let mut args = vec![
            format!("--kubeconfig={config}"),
            format!("--authentication-kubeconfig={config}"),
            format!("--authorization-kubeconfig={config}"),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={port}"),
            "--leader-elect=false".into(),
        ];
        match self.options.limits {
            Limits::Stock => {}
            Limits::Raised => {
                args.extend(["--kube-api-qps=1000", "--kube-api-burst=1000"].map(str::to_owned));
            }
        }
        args.extend(self.gates());
        args
    }

    fn gates(&self) -> Option<String> {
        let gates = &self.options.gates;
        (!gates.is_empty()).then(|| format!("--feature-gates={}", gates.join(",")))
    }
}

/// A program in unpacked packages, wherever this Debian has it.
pub(super) fn debian_program(root: &Path, name: &str) -> PathBuf {
    let places = ["usr/bin", "usr/sbin", "bin", "sbin"].map(|place| root.join(place).join(name));
    let [first, ..] = &places;
    places.iter().find(|path| path.is_file()).unwrap_or(first).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn controllers(options: &Options) -> String {
        let ports = Ports::free().unwrap();
        let (place, programs) = (Path::new("/run/cluster0"), BTreeMap::new());
        let plan = Plan { options, ports: &ports, place, programs: &programs, debian: place };
        plan.controllers().args.join(" ")
    }

    #[test]
    fn limits_are_those_of_kubernetes_unless_they_are_raised() {
        assert!(!controllers(&Options::control()).contains("--kube-api-qps"));
        let raised = controllers(&Options::control().limits(Limits::Raised).gate("A=true"));
        assert!(raised.contains("--kube-api-qps=1000"), "{raised}");
        assert!(raised.contains("--feature-gates=A=true"), "{raised}");
        assert!(raised.contains("--kubeconfig=/run/cluster0/controllers.kubeconfig"), "{raised}");
    }
}
