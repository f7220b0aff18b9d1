//! Classes, nodes, operations, mounts, the doctor and events.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use hawser_core::id::OperationId;
use hawser_core::name::{ClassName, NodeId};
use hawser_core::operation::OperationState;
use hawser_core::volume::VolumeRef;

use super::super::output::Format;
use super::super::parse;

/// What can be done with classes.
#[derive(Clone, Debug, Subcommand)]
pub enum ClassCommand {
    /// List classes, with the room they have.
    #[command(visible_alias = "ls", after_help = "Examples:\n  hawser class list -o json")]
    List,
    /// Show everything about one class, with its capacity.
    #[command(
        after_help = "Examples:\n  hawser class show default\n  hawser class show disks --place node=host-a"
    )]
    Show {
        /// Its name.
        name: ClassName,
        /// The room at this place alone; may be given several times, for all that a place says.
        #[arg(long = "place", value_name = "KEY=VALUE", value_parser = parse::pair)]
        place: Vec<(String, String)>,
    },
}

/// `hawser node`: with a word, a question about nodes; without one, this host becomes a node.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct NodeArgs {
    /// What is asked.
    #[command(subcommand)]
    pub command: Option<NodeCommand>,
    /// The name of this node; the host name unless given.
    #[arg(long, value_name = "NAME")]
    pub node_id: Option<NodeId>,
    /// Serve the host library to programs of this user on this Unix socket.
    #[arg(long, value_name = "PATH")]
    pub library: Option<PathBuf>,
    /// Dial no server: only serve the library.
    #[arg(long, requires = "library")]
    pub alone: bool,
}

/// What can be done with nodes.
#[derive(Clone, Debug, Subcommand)]
pub enum NodeCommand {
    /// List all nodes that were ever seen.
    #[command(visible_alias = "ls", after_help = "Examples:\n  hawser node list")]
    List,
}

/// What can be done with operations.
#[derive(Clone, Debug, Subcommand)]
pub enum OperationCommand {
    /// List operations, newest first.
    #[command(
        visible_alias = "ls",
        after_help = "Examples:\n  hawser operation list\n  hawser operation list --state running --limit 10"
    )]
    List(OperationListArgs),
    /// Show one operation.
    #[command(after_help = "Examples:\n  hawser operation show op-01k5zzzzzzzzzzzzzzzzzzzzzz")]
    Show {
        /// Its id.
        id: OperationId,
    },
    /// Wait until an operation is done; exit code 1 if it fails.
    #[command(
        after_help = "Examples:\n  hawser operation wait op-01k5zzzzzzzzzzzzzzzzzzzzzz --wait 60s"
    )]
    Wait {
        /// Its id.
        id: OperationId,
    },
    /// Ask an operation to stop and take back what it did, where that is safe.
    #[command(after_help = "Examples:\n  hawser operation cancel op-01k5zzzzzzzzzzzzzzzzzzzzzz")]
    Cancel {
        /// Its id.
        id: OperationId,
    },
}

/// `operation list`
#[derive(Args, Clone, Debug)]
pub struct OperationListArgs {
    /// Only in this state.
    #[arg(long, value_enum)]
    pub state: Option<StateArg>,
    /// Only of the volume or snapshot with this id.
    #[arg(long, value_name = "ID")]
    pub subject: Option<String>,
    /// At most so many.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
}

/// A state as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StateArg {
    /// At work.
    Running,
    /// Its outcome is not known yet.
    Waiting,
    /// Done.
    Succeeded,
    /// Failed, and taken back.
    Failed,
}

impl From<StateArg> for OperationState {
    fn from(state: StateArg) -> Self {
        match state {
            StateArg::Running => Self::Running,
            StateArg::Waiting => Self::Waiting,
            StateArg::Succeeded => Self::Succeeded,
            StateArg::Failed => Self::Failed,
        }
    }
}

/// `mount`
#[derive(Args, Clone, Debug)]
pub struct MountArgs {
    /// The volume: name or id.
    #[arg(value_parser = parse::volume)]
    pub volume: VolumeRef,
    /// The folder; made if it is missing.
    #[arg(value_name = "DIR")]
    pub target: PathBuf,
    /// On which node; this host when left out.
    #[arg(long)]
    pub node: Option<NodeId>,
    /// Without the right to write.
    #[arg(long)]
    pub read_only: bool,
    /// Options for the mount, with commas between them.
    #[arg(short = 'o', long = "options", value_name = "FLAGS", value_delimiter = ',')]
    pub flags: Vec<String>,
    /// How results are printed.
    // Takes the place of the option that all commands share, because -o means the mount's own here.
    #[arg(id = "output", long = "output", value_enum, value_name = "FORMAT")]
    pub output: Option<Format>,
}

/// `unmount`
#[derive(Args, Clone, Debug)]
pub struct UnmountArgs {
    /// The volume: name or id.
    #[arg(value_parser = parse::volume)]
    pub volume: VolumeRef,
    /// The folder; all of the node's when left out.
    #[arg(value_name = "DIR")]
    pub target: Option<PathBuf>,
    /// On which node; this host when left out.
    #[arg(long)]
    pub node: Option<NodeId>,
}

/// `doctor`
#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// Repair what is provably ours and provably unused.
    #[arg(long)]
    pub fix: bool,
    /// Look at this host only, without a server; so it is anyway on a host that has none.
    #[arg(long)]
    pub local: bool,
}

/// `events`
#[derive(Args, Clone, Debug)]
pub struct EventsArgs {
    /// Go on with what happens from now on, until Ctrl-C.
    #[arg(short, long)]
    pub follow: bool,
    /// Only what came after the event with this number.
    #[arg(long, value_name = "NUMBER")]
    pub after: Option<u64>,
}
