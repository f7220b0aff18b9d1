//! The frames of a link: what one line can say.

use std::fmt;

use hawser_core::node::NodeRecord;
use hawser_core::operation::Failure;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::error::LinkError;

/// The newest version of the protocol that this build speaks.
pub const VERSION: u32 = 1;

/// The oldest version of the protocol that this build speaks.
pub const OLDEST_VERSION: u32 = 1;

/// A longer reason for a farewell is cut: it is for one line of a log.
const LONGEST_REASON: usize = 512;

/// What one side of a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The node half: answers the calls of the node port.
    Node,
    /// The control half: keeps the link for as long as both live, and sends work down it.
    Control,
    /// A program on the host that sends calls of its own and leaves when it likes.
    Caller,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Node => "node",
            Self::Control => "control half",
            Self::Caller => "caller",
        })
    }
}

/// A span of protocol versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The first one.
    pub oldest: u32,
    /// The last one.
    pub newest: u32,
}

impl Versions {
    /// What this build speaks.
    pub const OURS: Self = Self { oldest: OLDEST_VERSION, newest: VERSION };

    /// The newest version that both speak.
    pub fn shared(self, other: Self) -> Option<u32> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.oldest == self.newest {
            return write!(f, "version {}", self.newest);
        }
        write!(f, "versions {} to {}", self.oldest, self.newest)
    }
}

/// The first frame of either side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The newest protocol version that the sender speaks.
    pub version: u32,
    /// The oldest one; the same as `version` when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<u32>,
    /// What the sender is.
    pub role: Role,
    /// Who the sender is, when it is a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeRecord>,
    /// Grows with each connection that a node makes; of two, the larger one counts.
    #[serde(default)]
    pub connection: u64,
}

impl Hello {
    /// The hello of this build in a role that is not a node.
    pub(super) fn plain(role: Role) -> Self {
        Self { version: VERSION, oldest: Some(OLDEST_VERSION), role, node: None, connection: 0 }
    }

    /// The hello of a node.
    pub(super) fn of_node(record: NodeRecord, connection: u64) -> Self {
        Self { node: Some(record), connection, ..Self::plain(Role::Node) }
    }

    /// Which versions the sender speaks.
    pub fn versions(&self) -> Versions {
        Versions { oldest: self.oldest.unwrap_or(self.version), newest: self.version }
    }
}

/// Why a side ends the link; the last frame it sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bye {
    /// In plain words.
    pub(super) reason: String,
    /// True when a newer connection of the same node took over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) replaced: bool,
}

impl Bye {
    /// A farewell that says what `error` says.
    pub(super) fn because(error: &LinkError) -> Self {
        Self { reason: error.to_string(), replaced: matches!(error, LinkError::Replaced) }
    }
}

impl From<Bye> for LinkError {
    fn from(bye: Bye) -> Self {
        if bye.replaced {
            return Self::Replaced;
        }
        let reason = bye.reason.chars().filter(|c| !c.is_control()).take(LONGEST_REASON).collect();
        Self::Refused { reason }
    }
}

/// One line of a link, read.
///
/// Params and results stay text until the method is known, so that a frame costs no more memory
/// than its own length.
pub(super) enum Frame {
    /// Who the sender is.
    Hello(Box<Hello>),
    /// A call.
    Request {
        /// The sender's own number for it.
        id: u64,
        /// Which method.
        method: String,
        /// What for.
        params: Option<Box<RawValue>>,
    },
    /// The answer to the call with that number.
    Answer {
        /// The receiver's own number.
        id: u64,
        /// What came of it.
        result: Result<Box<RawValue>, Failure>,
    },
    /// Asks for a sign of life.
    Ping(u64),
    /// Gives one.
    Pong,
    /// The sender ends the link.
    Bye(Bye),
}

/// Every field that any frame has; which are there says which frame it is.
#[derive(Deserialize)]
struct Fields {
    hello: Option<Box<RawValue>>,
    id: Option<u64>,
    method: Option<String>,
    params: Option<Box<RawValue>>,
    // A result may be null, which is not the same as no result.
    #[serde(default, deserialize_with = "present")]
    ok: Option<Box<RawValue>>,
    error: Option<Failure>,
    ping: Option<u64>,
    pong: Option<u64>,
    bye: Option<Bye>,
}

fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(from).map(Some)
}

impl Frame {
    /// Reads one line. What is wrong is said without repeating the line, which may hold secrets.
    pub(super) fn parse(line: &[u8]) -> Result<Self, LinkError> {
        let malformed = |reason| LinkError::Malformed { reason };
        let text = std::str::from_utf8(line).map_err(|_| malformed("it is not UTF-8"))?;
        // serde would take an array for a struct as well.
        if !text.trim_start().starts_with('{') {
            return Err(malformed("it is not a JSON object"));
        }
        let fields: Fields = serde_json::from_str(text)
            .map_err(|_| malformed("it is not JSON, or a field has another type"))?;
        match fields {
            Fields { hello: Some(hello), .. } => parse_hello(&hello),
            Fields { bye: Some(bye), .. } => Ok(Self::Bye(bye)),
            Fields { ping: Some(number), .. } => Ok(Self::Ping(number)),
            Fields { pong: Some(_), .. } => Ok(Self::Pong),
            Fields {
                id: Some(id), method: Some(method), params, ok: None, error: None, ..
            } => Ok(Self::Request { id, method, params }),
            Fields { id: Some(id), method: None, ok: Some(ok), error: None, .. } => {
                Ok(Self::Answer { id, result: Ok(ok) })
            }
            Fields { id: Some(id), method: None, ok: None, error: Some(failure), .. } => {
                Ok(Self::Answer { id, result: Err(failure) })
            }
            Fields { .. } => Err(malformed(
                "it needs id and method, id and ok, id and error, hello, ping, pong or bye",
            )),
        }
    }
}

/// The part of a hello that every version has.
#[derive(Deserialize)]
struct HelloVersions {
    version: u32,
    oldest: Option<u32>,
}

/// The versions are looked at first: a newer hello may have a shape that this build cannot read, and
/// is to be refused for its version, not for its shape.
fn parse_hello(hello: &RawValue) -> Result<Frame, LinkError> {
    let malformed = |_| LinkError::Malformed { reason: "its hello is not readable" };
    let said: HelloVersions = serde_json::from_str(hello.get()).map_err(malformed)?;
    let theirs = Versions { oldest: said.oldest.unwrap_or(said.version), newest: said.version };
    if Versions::OURS.shared(theirs).is_none() {
        return Err(LinkError::Version { ours: Versions::OURS, theirs });
    }
    serde_json::from_str(hello.get()).map(Frame::Hello).map_err(malformed)
}

/// A frame to write. Has no `Debug`: params may hold secrets.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Written<'a> {
    /// Who we are.
    Hello {
        /// Ourselves.
        hello: &'a Hello,
    },
    /// A call of ours.
    Request {
        /// Our number for it.
        id: u64,
        /// Which method.
        method: &'a str,
        /// What for.
        params: &'a RawValue,
    },
    /// What came of a call of theirs.
    Ok {
        /// Their number for it.
        id: u64,
        /// The result.
        ok: &'a RawValue,
    },
    /// Why a call of theirs failed.
    Error {
        /// Their number for it.
        id: u64,
        /// Why.
        error: &'a Failure,
    },
    /// Asks for a sign of life.
    Ping {
        /// Comes back in the pong.
        ping: u64,
    },
    /// Gives one.
    Pong {
        /// The number of the ping.
        pong: u64,
    },
    /// Ends the link.
    Bye {
        /// Why.
        bye: &'a Bye,
    },
}
