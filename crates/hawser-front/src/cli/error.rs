//! Why a command failed, and what to do next.

use hawser_core::id::OperationId;
use hawser_core::{Error, Kind, Outcome, Reason};

use super::context::Exit;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The server, or this host, said no.
    #[error("{}", .0.sentence())]
    Refused(Error),
    /// The command line can be read but not be meant.
    #[error("{0}")]
    Usage(String),
    /// Something to be deleted is not there.
    #[error("{what} does not exist")]
    Missing {
        /// A volume or a snapshot, by name.
        what: String,
    },
    /// `--wait` passed.
    #[error("operation {0} is not done yet; it goes on")]
    StillRunning(OperationId),
    /// Ctrl-C while a change was under way.
    #[error("interrupted; {0}")]
    Interrupted(String),
    /// The volume was found not to work.
    #[error("{what} is not healthy: {why}")]
    Unhealthy {
        /// Which.
        what: String,
        /// In the words of whoever looked.
        why: String,
    },
    /// The doctor left something as it was.
    #[error("{0} things do not belong together")]
    Findings(usize),
    /// Printing failed.
    #[error("writing the result: {0}")]
    Output(std::io::Error),
    /// A result that JSON cannot say.
    #[error("writing the result as JSON: {0}")]
    Json(serde_json::Error),
    /// A result that YAML cannot say.
    #[error("writing the result as YAML: {0}")]
    Yaml(serde_norway::Error),
}

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl CliError {
    /// What the shell gets.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            // Whoever read the output has seen enough: `hawser volume list | head -1`.
            Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Done,
            Self::Output(_)
            | Self::Refused(_)
            | Self::Missing { .. }
            | Self::StillRunning(_)
            | Self::Interrupted(_)
            | Self::Unhealthy { .. }
            | Self::Findings(_)
            | Self::Json(_)
            | Self::Yaml(_) => Exit::Failed,
        }
    }

    /// What a caller can do about it, for programs.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Refused(error) => error.kind(),
            Self::Usage(_) => Kind::Invalid,
            Self::Missing { .. } => Kind::NotFound,
            Self::StillRunning(_) => Kind::Timeout,
            Self::Interrupted(_) => Kind::Unavailable,
            Self::Unhealthy { .. } | Self::Findings(_) => Kind::Precondition,
            Self::Output(_) | Self::Json(_) | Self::Yaml(_) => Kind::Internal,
        }
    }

    /// The word of the host library, where it has one.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Refused(error) => error.reason(),
            Self::Usage(_) => Some(Reason::InvalidParameters),
            Self::Missing { .. }
            | Self::StillRunning(_)
            | Self::Interrupted(_)
            | Self::Unhealthy { .. }
            | Self::Findings(_)
            | Self::Output(_)
            | Self::Json(_)
            | Self::Yaml(_) => None,
        }
    }

    /// What is known about the world.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Refused(error) => error.outcome(),
            Self::StillRunning(_) | Self::Interrupted(_) => Outcome::Unknown,
            Self::Usage(_)
            | Self::Missing { .. }
            | Self::Unhealthy { .. }
            | Self::Findings(_)
            | Self::Output(_)
            | Self::Json(_)
            | Self::Yaml(_) => Outcome::Nothing,
        }
    }

    /// Every line, outermost first.
    pub fn messages(&self) -> Vec<String> {
        match self {
            Self::Refused(error) => error.chain(),
            Self::Usage(_)
            | Self::Missing { .. }
            | Self::StillRunning(_)
            | Self::Interrupted(_)
            | Self::Unhealthy { .. }
            | Self::Findings(_)
            | Self::Output(_)
            | Self::Json(_)
            | Self::Yaml(_) => vec![self.to_string()],
        }
    }

    /// What to do next.
    pub fn hint(&self) -> String {
        match self {
            Self::Refused(error) if error.is_unknown() => {
                "whether it happened is not known yet: the server finds out and goes on; look with `hawser operation list`, or repeat the command".to_owned()
            }
            Self::Refused(error) => match error.reason() {
                Some(reason) => by_reason(reason).to_owned(),
                None => by_kind(error.kind()).to_owned(),
            },
            Self::Usage(_) => "`hawser help` lists the commands, and --help after each explains it".to_owned(),
            Self::Missing { .. } => {
                "look with `hawser volume list` and `hawser snapshot list`; with --ignore-missing this is no error".to_owned()
            }
            Self::StillRunning(id) => format!("wait for it with `hawser operation wait {id}`"),
            Self::Interrupted(_) => "repeating the same command joins what is under way".to_owned(),
            Self::Unhealthy { .. } => "`hawser doctor` looks for the cause".to_owned(),
            Self::Findings(_) => {
                "`hawser doctor --fix` repairs those that are marked fixable".to_owned()
            }
            Self::Output(_) | Self::Json(_) | Self::Yaml(_) => {
                "the command itself may be done; look at the object again".to_owned()
            }
        }
    }
}

/// What to do about a volume that did not come to this host or did not leave it.
fn by_reason(reason: Reason) -> &'static str {
    match reason {
        Reason::InvalidParameters => "correct the connection info or the options",
        Reason::UnsupportedProtocol => {
            "`hawser connectors` lists the protocols and their platforms"
        }
        Reason::ToolOrModuleMissing | Reason::MultipathUnavailable | Reason::NoHba => {
            "`hawser connectors` says what this host lacks and how to get it"
        }
        Reason::AuthFailed | Reason::WrongKey => {
            "check the name and the secret at the storage system"
        }
        Reason::TargetUnreachable | Reason::PortalRefused | Reason::PortalTimeout => {
            "check the network and the storage system, then repeat the command"
        }
        Reason::TargetNotFound | Reason::LunNotFound => {
            "check at the storage system that the volume is exported to this host; `hawser properties` shows its names"
        }
        Reason::IdentityMismatch => {
            "do not use the device: check at the storage system which volume is exported here"
        }
        Reason::DeviceReadOnly => {
            "ask for --read-only, or let the storage system export it for writing"
        }
        Reason::DeviceBusy => {
            "unmount it and end the programs that use it, then repeat the command"
        }
        Reason::FlushFailed => {
            "bring the storage system back and repeat the command; --force gives the unwritten data up"
        }
        Reason::DataLost => "check the volume's content: what was cached did not reach it",
        Reason::NotRemoved | Reason::HostTimeout | Reason::Several => {
            "repeat the command; `hawser doctor` shows what is left"
        }
        Reason::PathsDown => "bring all paths back, then repeat the command",
        Reason::EncryptionUnsupported => "only block volumes can be encrypted or reserved",
        Reason::Reserved => {
            "detach it on the other host, or use --preempt if that host must not write any more"
        }
    }
}

fn by_kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Invalid => "correct the request; --help after the command shows examples",
        Kind::NotFound => {
            "check the name with `hawser volume list`, `snapshot list` or `class list`"
        }
        Kind::Exists => "choose another name, or ask for exactly what is there",
        Kind::Busy => "another operation holds it: look with `hawser operation list`, and repeat",
        Kind::Precondition => "change its state first: `hawser volume show` tells who uses it",
        Kind::OutOfRange => "choose another size; `hawser class show` tells what fits",
        Kind::NoSpace => "free room or use another class: `hawser class list` shows the room",
        Kind::Unauthenticated => "say who you are with --token-file",
        Kind::Denied => "ask as the user the server runs as, or with a token that may do this",
        Kind::Unsupported => "`hawser class list` shows what each class can do",
        Kind::Unavailable => "repeat the command when what it names can be reached",
        Kind::Timeout => "repeat the command; it joins what is under way",
        Kind::Internal => "this is a fault of Hawser: the server's log has the details",
    }
}
