//! What can go wrong between a client and a server.

use std::io;
use std::time::Duration;

use hawser_core::{Classify, Kind, Outcome};

/// Why a call did not come back with the server's own answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Not an address of a server.
    #[error(
        "{text:?} is not the address of a server: write unix:PATH, http://HOST:PORT or https://HOST:PORT"
    )]
    Endpoint {
        /// What was given.
        text: String,
    },
    /// A file that should hold certificates does not.
    #[error("reading the certificates to trust")]
    Pem {
        /// Where it broke.
        source: rustls_pki_types::pem::Error,
    },
    /// A certificate that cannot be used.
    #[error("using the certificates to trust")]
    Root {
        /// Why not.
        source: rustls::Error,
    },
    /// `https` without anything to check the server's certificate by.
    #[error(
        "an https server needs a certificate to trust: give the server's certificate, or that of its authority, as a PEM file"
    )]
    NoRoots,
    /// Nobody listens there, or the way is blocked.
    #[error(
        "connecting to the server at {at}: is the server running? start it with `hawser up`, or say where it is with --server"
    )]
    Connect {
        /// Where it tried.
        at: String,
        /// What the system said.
        source: io::Error,
    },
    /// The socket is there, and this user may not use it.
    #[error(
        "connecting to the server at {at}: this user may not use that socket; run as root or as the user who started the server"
    )]
    NotAllowed {
        /// Where it tried.
        at: String,
        /// What the system said.
        source: io::Error,
    },
    /// The server at the other end of TLS is not the expected one, or none.
    #[error("agreeing on TLS with the server at {at}")]
    Tls {
        /// Where it tried.
        at: String,
        /// What broke.
        source: io::Error,
    },
    /// A request that HTTP cannot express, such as a token with a line break.
    #[error("writing the request {what}")]
    Request {
        /// Method and path.
        what: String,
        /// Why not.
        source: http::Error,
    },
    /// The connection ended before the answer.
    #[error("the connection to {at} was lost before the answer to {what} came{}", repeat(*change))]
    Lost {
        /// Where.
        at: String,
        /// Method and path.
        what: String,
        /// Whether the call changes something.
        change: bool,
        /// How it ended.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No answer in time.
    #[error("{at} did not answer {what} within {} s{}", waited.as_secs(), repeat(*change))]
    Late {
        /// Where.
        at: String,
        /// Method and path.
        what: String,
        /// Whether the call changes something.
        change: bool,
        /// How long it waited.
        waited: Duration,
    },
    /// More than a client is willing to hold.
    #[error("the answer of {at} to {what} is larger than {most} bytes")]
    TooLarge {
        /// Where.
        at: String,
        /// Method and path.
        what: String,
        /// The limit.
        most: usize,
        /// Whether the call changes something.
        change: bool,
    },
    /// Not what this version of the client understands.
    #[error("the answer of {at} to {what} is not one this version of hawser understands")]
    Malformed {
        /// Where.
        at: String,
        /// Method and path.
        what: String,
        /// Whether the call changes something.
        change: bool,
        /// What was unexpected.
        source: serde_json::Error,
    },
    /// An error that no Hawser server wrote: a proxy, or another program on that port.
    #[error("{at} answered {what} with status {status} and no explanation: is it a hawser server?")]
    Foreign {
        /// Where.
        at: String,
        /// Method and path.
        what: String,
        /// Whether the call changes something.
        change: bool,
        /// The status.
        status: u16,
    },
}

fn repeat(change: bool) -> &'static str {
    if change { "; it may have been done: repeat the command to find out" } else { "" }
}

impl Classify for ClientError {
    fn kind(&self) -> Kind {
        match self {
            Self::Endpoint { .. }
            | Self::Pem { .. }
            | Self::Root { .. }
            | Self::NoRoots
            | Self::Request { .. } => Kind::Invalid,
            Self::NotAllowed { .. } => Kind::Denied,
            Self::Connect { .. }
            | Self::Tls { .. }
            | Self::Lost { .. }
            | Self::TooLarge { .. }
            | Self::Malformed { .. }
            | Self::Foreign { .. } => Kind::Unavailable,
            Self::Late { .. } => Kind::Timeout,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Lost { change, .. }
            | Self::Late { change, .. }
            | Self::TooLarge { change, .. }
            | Self::Malformed { change, .. }
            | Self::Foreign { change, .. } => {
                if *change {
                    Outcome::Unknown
                } else {
                    Outcome::Nothing
                }
            }
            Self::Endpoint { .. }
            | Self::Pem { .. }
            | Self::Root { .. }
            | Self::NoRoots
            | Self::Connect { .. }
            | Self::NotAllowed { .. }
            | Self::Tls { .. }
            | Self::Request { .. } => Outcome::Nothing,
        }
    }
}
