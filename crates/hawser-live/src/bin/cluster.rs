//! `cluster`: builds what the tests of Kubernetes run, and shows a cluster. See `docs/cluster.md`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use hawser_live::cluster::{Cluster, Options, Place, Result, chain};
use hawser_live::process::command;
use tokio::signal::unix::{SignalKind, signal};

/// A real Kubernetes for tests, built once and kept in a cache.
#[derive(Parser)]
#[command(name = "cluster")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the programs that are missing; everything that a cluster needs when none is named.
    Build {
        /// Names of lab/cluster.versions.
        names: Vec<String>,
    },
    /// Show what can be built, and where it is.
    List,
    /// Start a cluster and get a shell beside it, with kubectl; the cluster ends with the shell.
    Shell {
        /// How many nodes it has.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=2))]
        nodes: u8,
        /// With the resource definitions of volume snapshots.
        #[arg(long)]
        snapshots: bool,
    },
    /// Start an API server, run a command beside it, and end both. The command finds the kubeconfig of
    /// an administrator in HAWSER_CLUSTER_KUBECONFIG; its exit code is the answer.
    Run {
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Remove what no line of lab/cluster.versions asks for any more.
    Clean {
        /// Remove the rest too.
        #[arg(long)]
        all: bool,
    },
}

/// What every cluster needs; sidecars are asked for by name.
const WHOLE: [&str; 6] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kubectl",
    "snapshot-crds",
];

fn main() -> ExitCode {
    match act(Args::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("cluster: {}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

fn act(command: Command) -> Result<ExitCode> {
    let place = Place::of_environment();
    match command {
        Command::Build { names } => {
            let whole = names.is_empty();
            let names: Vec<&str> =
                if whole { WHOLE.to_vec() } else { names.iter().map(String::as_str).collect() };
            let found = place.programs(&names)?;
            for path in found.values() {
                println!("{}", path.display());
            }
            if whole {
                println!("{}", place.debian()?.display());
            }
        }
        Command::List => {
            for (name, path) in place.all()? {
                let state = if path.exists() { "built" } else { "not built" };
                println!("{name:<28} {state:<10} {}", path.display());
            }
        }
        Command::Shell { nodes, snapshots } => shell(&place, nodes, snapshots)?,
        Command::Run { command } => return run(&place, &command),
        Command::Clean { all } => place.clean(all)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn run(place: &Place, words: &[OsString]) -> Result<ExitCode> {
    let cluster = Cluster::start_at(place, Options::server())?;
    let mut asked = command(&words[0]);
    asked.args(&words[1..]).env("HAWSER_CLUSTER_KUBECONFIG", cluster.kubeconfig());
    match asked.status() {
        Ok(status) if status.success() => Ok(ExitCode::SUCCESS),
        // It said itself what went wrong.
        Ok(_) => Ok(ExitCode::FAILURE),
        Err(error) => {
            eprintln!("cluster: {} cannot be started: {error}", words[0].display());
            Ok(ExitCode::FAILURE)
        }
    }
}

fn shell(place: &Place, nodes: u8, snapshots: bool) -> Result<()> {
    let mut options = if nodes == 0 { Options::control() } else { Options::nodes(nodes) };
    if snapshots {
        options = options.snapshots();
    }
    let kubectl = place.program("kubectl")?;
    let cluster = Cluster::start_at(place, options)?;
    println!("server   {}", cluster.server());
    println!("etcd     {}", cluster.etcd());
    println!("logs     {}/*.log", cluster.folder().display());
    let mut folders = vec![kubectl.parent().map(PathBuf::from).unwrap_or_default()];
    folders.extend(std::env::split_paths(&path()));
    let path = std::env::join_paths(folders).unwrap_or_default();
    let mut shell = command("/bin/sh");
    shell.env("PATH", path).env("KUBECONFIG", cluster.kubeconfig()).env("PS1", "cluster# ");
    // What interrupts a command in the shell is sent to us too, and must not end the cluster.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.and_then(|runtime| {
        let _inside = runtime.enter();
        let _interrupts = signal(SignalKind::interrupt())?;
        shell.status()
    });
    // However the shell ends, its user has seen why.
    if let Err(error) = ended {
        eprintln!("cluster: no shell: {error}");
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the program reads its settings, once")]
fn path() -> OsString {
    std::env::var_os("PATH").unwrap_or_default()
}
