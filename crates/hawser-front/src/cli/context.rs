//! What a command runs with: where the server is, how to print, how long to wait.

use std::cell::RefCell;
use std::io::Write;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hawser_core::id::OperationId;
use hawser_core::name::NodeId;
use hawser_core::port::{Control, Node};
use hawser_core::{Error, Kind, Result, Timestamp};

use super::output::Format;

/// Hands out the ports; asked only when a command needs one.
#[async_trait]
pub trait Backend: Send + Sync {
    /// The server that the settings name.
    async fn control(&self) -> Result<Arc<dyn Control>>;

    /// False when nobody named a server and this host has none, neither running nor stopped: it has
    /// the host library alone.
    fn has_server(&self) -> bool {
        true
    }

    /// The node half of this host, without any server; `Kind::Unsupported` where the program was
    /// built without it.
    async fn node(&self) -> Result<Arc<dyn Node>> {
        Err(Error::new(Kind::Unsupported, "this build cannot act on the host without a server"))
    }

    /// The node half of this host as the library has it: shared by all programs, of no server.
    async fn library(&self) -> Result<Arc<dyn Node>> {
        self.node().await
    }
}

/// How long a command waits for a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitFor {
    /// Until it is done.
    #[default]
    Done,
    /// At most so long; then the command fails and the operation goes on.
    AtMost(Duration),
    /// Not at all: the operation is printed as soon as it has begun.
    Nothing,
}

/// What is at the other end of the streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terminal {
    /// A person sees what goes to standard error: bars instead of lines.
    pub stderr: bool,
}

/// Resolves when the user wants out: Ctrl-C.
pub type Interrupt = Pin<Box<dyn Future<Output = ()>>>;

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0
    Done,
    /// 1
    Failed,
    /// 2
    Usage,
}

impl Exit {
    /// The number for the shell.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// What a command runs with.
pub struct Context<'a> {
    /// Where the ports come from.
    pub backend: &'a dyn Backend,
    /// How results are printed.
    pub format: Format,
    /// How long changes are waited for.
    pub wait: WaitFor,
    /// Print nothing but what was asked for; lists become bare names.
    pub quiet: bool,
    /// What is at the other end of the streams.
    pub terminal: Terminal,
    /// The time that ages are counted from.
    pub now: Timestamp,
    /// Where relative folders start.
    pub current_dir: PathBuf,
    /// This host, where it is known to be a node; preferred when no `--node` is given.
    pub this_node: Option<NodeId>,
    /// Where results go.
    pub out: RefCell<Box<dyn Write + 'a>>,
    /// Where everything else goes.
    pub err: RefCell<Box<dyn Write + 'a>>,
    /// Waits for Ctrl-C.
    pub interrupt: fn() -> Interrupt,
    pub(super) underway: RefCell<Underway>,
}

/// What a Ctrl-C leaves behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Underway {
    /// Nothing was asked for that changes anything.
    #[default]
    Nothing,
    /// A change was sent; the server may have begun it.
    Sent,
    /// This operation goes on.
    Operation(OperationId),
}

impl<'a> Context<'a> {
    /// A context as the options say, for a process: standard streams, the clock and Ctrl-C.
    pub fn new(global: &super::Global, backend: &'a dyn Backend) -> Self {
        use std::io::IsTerminal;
        Self {
            backend,
            format: global.output,
            wait: global.wait_for(),
            quiet: global.quiet,
            terminal: Terminal { stderr: std::io::stderr().is_terminal() },
            now: Timestamp::now(),
            current_dir: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
            this_node: None,
            out: RefCell::new(Box::new(std::io::stdout())),
            err: RefCell::new(Box::new(std::io::stderr())),
            interrupt: || {
                Box::pin(async {
                    // Without a handler Ctrl-C ends the process, which is also what is wanted.
                    if tokio::signal::ctrl_c().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                })
            },
            underway: RefCell::default(),
        }
    }
}
