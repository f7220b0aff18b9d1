//! What can go wrong on a node link.

use std::time::Duration;

use hawser_core::{Classify, Kind, Outcome};

use super::message::{Role, Versions};

/// Why a link could not be made, ended, or could not carry a call.
///
/// No variant holds anything that the other side wrote into params or secrets.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The transport failed while reading.
    #[error("reading from the node link")]
    Read(#[source] std::io::Error),
    /// The transport failed while writing.
    #[error("writing to the node link")]
    Write(#[source] std::io::Error),
    /// The other side ended the stream between two frames.
    #[error("the other side closed the node link")]
    Closed,
    /// The stream ended inside a frame.
    #[error("the node link ended in the middle of a frame")]
    CutOff,
    /// A line without an end.
    #[error("the other side sent a frame of more than {most} bytes")]
    FrameTooLong {
        /// The largest frame.
        most: usize,
    },
    /// A line that is not one of the frames.
    #[error("the other side sent a line that is no frame: {reason}")]
    Malformed {
        /// Which rule it breaks.
        reason: &'static str,
    },
    /// The first frame did not come in time.
    #[error("the other side did not say hello within {0:?}")]
    HelloLate(Duration),
    /// The first frame was another one.
    #[error("the other side sent something else before its hello")]
    HelloMissing,
    /// No version that both speak.
    #[error(
        "this side speaks {ours} of the node link and the other side {theirs}: bring both to releases that share a version"
    )]
    Version {
        /// What this side speaks.
        ours: Versions,
        /// What the other side speaks.
        theirs: Versions,
    },
    /// A peer that has no business on this link.
    #[error("this side of the node link is a {ours} and cannot serve a {theirs}")]
    Role {
        /// What this side is.
        ours: Role,
        /// What the other side says it is.
        theirs: Role,
    },
    /// A node that does not say who it is.
    #[error("the other side says it is a node but sent no node record")]
    RecordMissing,
    /// The other side said why it ends the link.
    #[error("the other side ended the node link: {reason}")]
    Refused {
        /// In its words, cut to one short line.
        reason: String,
    },
    /// A newer connection of the same node took its place.
    #[error("a newer connection of the same node took the place of this one")]
    Replaced,
    /// A node id that is taken by a newer connection or by a node in this process.
    #[error("node {node} is connected already, by {by}")]
    Taken {
        /// Which node.
        node: String,
        /// By what.
        by: &'static str,
    },
    /// No sign of life.
    #[error("the other side of the node link said nothing for {0:?}")]
    Silent(Duration),
    /// This side ended the link.
    #[error("this side closed the node link")]
    Stopped,
    /// A call or an answer that does not fit into a frame.
    #[error("{what} of {bytes} bytes does not fit into a link frame of {most} bytes")]
    TooLarge {
        /// A call or an answer, with its method.
        what: String,
        /// How large it is.
        bytes: usize,
        /// The largest frame.
        most: usize,
    },
    /// A value that JSON cannot say, such as a path that is not UTF-8.
    #[error("writing {what} as JSON")]
    Encode {
        /// A call or an answer, with its method.
        what: String,
        /// Why not.
        source: serde_json::Error,
    },
    /// An answer of another shape than the method has.
    #[error("the answer to {method} cannot be read")]
    AnswerShape {
        /// Which method.
        method: &'static str,
        /// Whether the call may have changed something.
        changes: bool,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Params of another shape than the method has.
    #[error("the params of {method} cannot be read")]
    Params {
        /// Which method.
        method: &'static str,
        /// What is wrong with them.
        source: serde_json::Error,
    },
    /// Secrets that are not an object of texts; their content is not repeated.
    #[error("the secrets of {method} must be an object of texts")]
    Secrets {
        /// Which method.
        method: &'static str,
    },
    /// An answer whose secrets are not an object of texts; their content is not repeated.
    #[error("the secrets in the answer to {method} are not an object of texts")]
    AnswerSecrets {
        /// Which method.
        method: &'static str,
        /// Whether the call may have changed something.
        changes: bool,
    },
    /// A method that no version of this side has.
    #[error(
        "there is no method {method:?} on the node link; docs/node-link.md lists those there are"
    )]
    UnknownMethod {
        /// As sent, cut where it is long.
        method: String,
    },
    /// Calls of the node port to a side that has no node behind it.
    #[error("this side of the node link is no node")]
    NoNode,
    /// The node has no library.
    #[error("this node serves no library calls")]
    NoLibrary,
    /// The node has no storage of its own.
    #[error("this node has no storage of its own")]
    NoPools,
    /// Calls of the upstream port to a side that does not answer them.
    #[error("this side of the node link answers no calls of nodes")]
    NoUpstream,
    /// A node that speaks for another one.
    #[error("node {from} speaks for itself alone, and asked {method} for node {named}")]
    OtherNode {
        /// Which method.
        method: &'static str,
        /// Whose link it is.
        from: String,
        /// Whom it named.
        named: String,
    },
    /// A node whose certificate does not name it.
    #[error(
        "the certificate of the other side is not one of node {node}: it needs the name {node} or {node}.node.hawser"
    )]
    NotNamed {
        /// Which node it says it is.
        node: String,
    },
    /// The TLS handshake did not come about.
    #[error("making a TLS connection")]
    Handshake(#[source] std::io::Error),
    /// More strangers at the door than there are places.
    #[error("too many connections are still in their TLS handshake")]
    Crowded,
    /// More nodes than there are places.
    #[error("{most} nodes are connected, which is the limit")]
    Full {
        /// The limit.
        most: usize,
    },
    /// The control half cannot be reached.
    #[error("dialling the control half")]
    Dial(#[source] std::io::Error),
    /// A call upwards while there is no link.
    #[error("there is no link to the control half, and none came within {waited:?}: {reason}")]
    NoControl {
        /// How long the call waited for one.
        waited: Duration,
        /// Why there is none.
        reason: String,
    },
    /// More work in flight than one link may have.
    #[error("too much is in flight on this link; wait for answers before sending more")]
    Overloaded,
    /// A call whose link went away.
    #[error("the link to {node} was lost during {method}: {reason}")]
    Lost {
        /// Which node, as far as it is known.
        node: String,
        /// Which method.
        method: &'static str,
        /// Why the link ended.
        reason: String,
        /// Whether the call may have changed something.
        unknown: bool,
    },
    /// The code of the side that was called panicked.
    #[error("the side that was called failed inside {method}; its log says more")]
    Panicked {
        /// Which method.
        method: &'static str,
        /// Whether the call may have changed something.
        changes: bool,
    },
    /// A node that nobody has heard of now.
    #[error("node {node} is not connected")]
    NotConnected {
        /// Which node.
        node: String,
    },
}

impl LinkError {
    /// True when one side simply left, in whichever way the transport reports that.
    pub(super) fn is_departure(&self) -> bool {
        // TLS calls an end without a farewell an unexpected one.
        use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let hung_up = |error: &std::io::Error| {
            matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
        };
        let broken = matches!(self, Self::Read(error) | Self::Write(error) if hung_up(error));
        broken || matches!(self, Self::Closed | Self::Stopped)
    }
}

impl Classify for LinkError {
    fn kind(&self) -> Kind {
        match self {
            Self::Read(_)
            | Self::Write(_)
            | Self::Closed
            | Self::CutOff
            | Self::HelloLate(_)
            | Self::Refused { .. }
            | Self::Replaced
            | Self::Silent(_)
            | Self::Stopped
            | Self::Lost { .. }
            | Self::Handshake(_)
            | Self::Crowded
            | Self::Full { .. }
            | Self::Dial(_)
            | Self::NoControl { .. }
            | Self::NotConnected { .. } => Kind::Unavailable,
            Self::FrameTooLong { .. }
            | Self::Malformed { .. }
            | Self::HelloMissing
            | Self::RecordMissing
            | Self::Params { .. }
            | Self::Secrets { .. }
            | Self::Encode { .. } => Kind::Invalid,
            Self::TooLarge { .. } => Kind::OutOfRange,
            Self::Version { .. }
            | Self::UnknownMethod { .. }
            | Self::NoNode
            | Self::NoLibrary
            | Self::NoUpstream => Kind::Unsupported,
            // As when it has some, and not those of the class.
            Self::NoPools => Kind::Precondition,
            Self::Role { .. } | Self::OtherNode { .. } | Self::NotNamed { .. } => Kind::Denied,
            Self::Taken { .. } => Kind::Exists,
            Self::Overloaded => Kind::Busy,
            Self::AnswerShape { .. } | Self::AnswerSecrets { .. } | Self::Panicked { .. } => {
                Kind::Internal
            }
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Lost { unknown: true, .. }
            | Self::AnswerShape { changes: true, .. }
            | Self::AnswerSecrets { changes: true, .. }
            | Self::Panicked { changes: true, .. } => Outcome::Unknown,
            Self::Lost { unknown: false, .. }
            | Self::AnswerShape { changes: false, .. }
            | Self::AnswerSecrets { changes: false, .. }
            | Self::Panicked { changes: false, .. }
            | Self::Read(_)
            | Self::Write(_)
            | Self::Closed
            | Self::CutOff
            | Self::FrameTooLong { .. }
            | Self::Malformed { .. }
            | Self::HelloLate(_)
            | Self::HelloMissing
            | Self::Version { .. }
            | Self::Role { .. }
            | Self::RecordMissing
            | Self::Refused { .. }
            | Self::Replaced
            | Self::Taken { .. }
            | Self::Silent(_)
            | Self::Stopped
            | Self::TooLarge { .. }
            | Self::Encode { .. }
            | Self::Params { .. }
            | Self::Secrets { .. }
            | Self::UnknownMethod { .. }
            | Self::NoNode
            | Self::NoLibrary
            | Self::NoPools
            | Self::NoUpstream
            | Self::OtherNode { .. }
            | Self::NotNamed { .. }
            | Self::Handshake(_)
            | Self::Crowded
            | Self::Full { .. }
            | Self::Dial(_)
            | Self::NoControl { .. }
            | Self::Overloaded
            | Self::NotConnected { .. } => Outcome::Nothing,
        }
    }
}
