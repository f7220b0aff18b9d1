//! What can be typed: the client commands of the front end, and the program's own.

use clap::{Parser, Subcommand};

use hawser_front::cli::{self, Global, generate};

use crate::csi::CsiArgs;
use crate::settings::SettingsFlags;
use crate::store::StoreCommand;

/// Brings volumes from any storage system to any Linux host, for any orchestrator.
#[derive(Parser)]
#[command(
    name = "hawser",
    version,
    propagate_version = true,
    after_help = "Start here:\n  hawser demo    the whole life of a volume on this machine, in seconds\n  hawser up      a service that stays, with one local class\n"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Own(Own),
    #[command(flatten)]
    Client(cli::Command),
}

/// What the program does itself.
#[derive(Subcommand)]
pub(crate) enum Own {
    /// Show the whole life of a volume on this machine, in seconds; cleans up
    #[command(after_help = "Examples:\n  hawser demo")]
    Demo,
    /// Run everything here: the server, this machine as a node, a local class
    #[command(
        after_help = "Examples:\n  hawser up\n  hawser up --state-dir /srv/hawser --listen 127.0.0.1:7780 --token-file /etc/hawser/token"
    )]
    Up(SettingsFlags),
    /// Run the control half as a service; nodes dial in with `hawser node`
    #[command(after_help = "Examples:\n  hawser serve --config /etc/hawser/hawser.toml")]
    Serve(SettingsFlags),
    /// Run the CSI driver, whole or one half of it
    #[command(
        after_help = "Examples:\n  hawser csi --endpoint unix:///run/csi.sock --node-id node-1 --state-dir /srv/hawser\n  hawser csi --mode controller --kubernetes --store kubernetes: --endpoint unix:///csi/csi.sock --link-listen 0.0.0.0:7781 …\n  hawser csi --mode node --link-server hawser-controller:7781 --endpoint unix:///csi/csi.sock …"
    )]
    Csi(Box<CsiArgs>),
    /// Move the records out of a store or into one; the server must not run
    #[command(
        subcommand,
        after_help = "Examples:\n  hawser store export > records.jsonl\n  hawser store import records.jsonl"
    )]
    Store(StoreCommand),
    /// Print the completion script of a shell
    Completions(generate::CompletionsArgs),
    /// Print a manual page, or write all of them
    Man(generate::ManArgs),
}
