//! What can be typed: the client commands and the options that all commands share.

pub mod group;
pub mod library;
pub mod node;
pub mod snapshot;
pub mod volume;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use hawser_api::Endpoint;

use super::context::WaitFor;
use super::output::Format;
use super::parse;

/// Options that every command takes, before or after it.
#[derive(Args, Clone, Debug)]
pub struct Global {
    /// The folder that holds everything of one instance: store, default pool, socket.
    #[arg(long, global = true, env = "HAWSER_STATE_DIR", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,

    /// The server to talk to, where it is not the one of --state-dir: unix:PATH, http://HOST:PORT or
    /// https://HOST:PORT.
    #[arg(long, global = true, env = "HAWSER_SERVER", value_name = "URL", value_parser = parse::server)]
    pub server: Option<Endpoint>,

    /// A file with the token that says who is calling; needed over TCP.
    #[arg(long, global = true, env = "HAWSER_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// A PEM file with the certificates to trust; needed for an https server.
    #[arg(long, global = true, env = "HAWSER_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,

    /// How results are printed.
    #[arg(
        id = "output",
        short = 'o',
        long = "output",
        global = true,
        value_enum,
        default_value = "table",
        value_name = "FORMAT"
    )]
    pub output: Format,

    /// Wait at most so long for a change, such as 30s; without it, until it is done.
    #[arg(long, global = true, value_name = "DURATION", value_parser = parse::duration, conflicts_with = "no_wait")]
    pub wait: Option<Duration>,

    /// Do not wait: print the operation as soon as it has begun.
    #[arg(long, global = true)]
    pub no_wait: bool,

    /// Print only what was asked for; lists become bare names.
    #[arg(short, long, global = true)]
    pub quiet: bool,

    /// Say more in the log; twice for everything.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

impl Global {
    /// How long changes are waited for.
    pub fn wait_for(&self) -> WaitFor {
        match (self.no_wait, self.wait) {
            (true, _) => WaitFor::Nothing,
            (false, Some(limit)) => WaitFor::AtMost(limit),
            (false, None) => WaitFor::Done,
        }
    }
}

/// The client commands; the binary flattens them into its own.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Make, look at, change and remove volumes.
    #[command(
        subcommand,
        visible_alias = "vol",
        after_help = "Examples:\n  hawser volume create data --size 2GiB --fs ext4\n  hawser volume list"
    )]
    Volume(volume::VolumeCommand),

    /// Take, look at, restore and remove snapshots.
    #[command(
        subcommand,
        visible_alias = "snap",
        after_help = "Examples:\n  hawser snapshot create s1 --volume data\n  hawser snapshot restore s1 data2"
    )]
    Snapshot(snapshot::SnapshotCommand),

    /// Look at the classes that volumes can be made in.
    #[command(
        subcommand,
        after_help = "Examples:\n  hawser class list\n  hawser class show default"
    )]
    Class(node::ClassCommand),

    /// Make this host a node of a server; or look at the nodes that volumes can be used on.
    #[command(
        after_help = "Examples:\n  hawser node list\n  hawser node --server unix:/var/lib/hawser/hawser.sock --node-id node-1\n  hawser node --alone --library /run/hawser/library.sock"
    )]
    Node(node::NodeArgs),

    /// Look at, wait for and cancel running changes.
    #[command(
        subcommand,
        visible_alias = "op",
        after_help = "Examples:\n  hawser operation list --state running\n  hawser operation wait op-01k5zzzzzzzzzzzzzzzzzzzzzz"
    )]
    Operation(node::OperationCommand),

    /// Show a volume in a folder: publishes, attaches and formats it where that is needed.
    #[command(
        after_help = "Examples:\n  hawser mount data /srv/data\n  hawser mount data ./here --read-only\n  hawser mount data /srv/data -o noatime,nodev --output json"
    )]
    Mount(node::MountArgs),

    /// Take a volume out of a folder, or out of all of them; with the last one it leaves the node.
    #[command(
        visible_alias = "umount",
        after_help = "Examples:\n  hawser unmount data\n  hawser unmount data /srv/data --node host-a"
    )]
    Unmount(node::UnmountArgs),

    /// Find devices, mounts, files and records that do not belong together, and repair what is safe.
    #[command(
        after_help = "Examples:\n  hawser doctor\n  hawser doctor --fix\n  hawser doctor --local -o json"
    )]
    Doctor(node::DoctorArgs),

    /// Print what happened, or what happens from now on.
    #[command(
        after_help = "Examples:\n  hawser events\n  hawser events --follow -o json\n  hawser events --follow --after 120"
    )]
    Events(node::EventsArgs),

    /// Print what this host tells a storage system of itself, as JSON; needs no server.
    #[command(
        after_help = "Examples:\n  hawser properties\n  hawser properties --multipath --ip 10.0.0.5"
    )]
    Properties(library::PropertiesArgs),

    /// Make a volume usable on this host: connection info in, device out, as JSON; needs no server.
    #[command(
        after_help = "Examples:\n  hawser connect --file info.json\n  hawser connect --file - --multipath -q"
    )]
    Connect(Box<library::ConnectArgs>),

    /// Take a volume from this host, after what is cached was written out; needs no server.
    #[command(
        after_help = "Examples:\n  hawser disconnect --volume vol-7\n  hawser disconnect --file info.json --force"
    )]
    Disconnect(library::DisconnectArgs),

    /// Make this host see the new size of a volume that has grown; needs no server.
    #[command(after_help = "Examples:\n  hawser extend --volume vol-7")]
    Extend(library::VolumeArgs),

    /// Print where a volume is on this host now; needs no server.
    #[command(
        after_help = "Examples:\n  hawser lookup --volume vol-7\n  hawser lookup --volume vol-7 -q"
    )]
    Lookup(library::VolumeArgs),

    /// List the protocols, and what this host lacks for each and how to get it.
    #[command(after_help = "Examples:\n  hawser connectors\n  hawser connectors --markdown")]
    Connectors(library::ConnectorsArgs),
}
