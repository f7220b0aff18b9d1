//! What can go wrong in this front end itself.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hawser_core::{Classify, Kind};

/// Why a request or a listener was refused before the engine saw it.
#[derive(Debug, thiserror::Error)]
pub enum RestError {
    /// No such path.
    #[error("there is nothing at {path}: GET /v1/openapi.json lists what there is")]
    NoRoute {
        /// The path, cut where it is long.
        path: String,
    },
    /// The path is there, the method is not.
    #[error("{method} is not possible at {path}")]
    NoMethod {
        /// The method.
        method: String,
        /// The path, cut where it is long.
        path: String,
    },
    /// A path that is not UTF-8.
    #[error("reading the path of the request: {why}")]
    Path {
        /// What is wrong with it.
        why: String,
    },
    /// A query that cannot be read.
    #[error("reading the query of the request: {why}")]
    Query {
        /// What is wrong with it.
        why: String,
    },
    /// A body that is not the expected JSON.
    #[error("reading the body of the request: {why}")]
    Body {
        /// What is wrong with it, with line and column.
        why: String,
    },
    /// A body of another kind.
    #[error("the body of the request must be JSON: send it with content-type application/json")]
    MediaType,
    /// A body above the limit.
    #[error("the body of the request is larger than {most} bytes")]
    TooLarge {
        /// The limit.
        most: usize,
    },
    /// A body that does not arrive.
    #[error("the body of the request did not arrive within {} s", limit.as_secs())]
    Slow {
        /// The limit.
        limit: Duration,
    },
    /// The caller went away, or did not speak HTTP.
    #[error("the body of the request broke off")]
    BrokenBody {
        /// How.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No token or a wrong one.
    #[error("this server needs its token: send it as `authorization: Bearer TOKEN`")]
    Unauthenticated,
    /// A local user who may not use the socket.
    #[error("the user with id {uid} may not use this socket: run as root or as the server's user")]
    Stranger {
        /// Who.
        uid: u32,
    },
    /// A request whose way in is not known.
    #[error("the caller of this request is not known")]
    Unknown,
    /// A handler that broke.
    #[error("handling the request panicked: {message}")]
    Panicked {
        /// What it said.
        message: String,
    },
    /// The publication is not there.
    #[error("volume {volume} is not published to node {node}")]
    NotPublished {
        /// Which volume.
        volume: String,
        /// Which node.
        node: String,
    },
    /// The operations' metrics could not be written.
    #[error("writing the metrics")]
    Metrics(#[source] std::fmt::Error),
    /// Another server is there.
    #[error("another server listens on {}; stop it first, or use another state folder", path.display())]
    Taken {
        /// The socket.
        path: PathBuf,
    },
    /// Something that is no socket is there.
    #[error("{} is there and is not a socket; it is left alone", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The socket cannot be made.
    #[error("making the socket {}", path.display())]
    Socket {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The address cannot be used.
    #[error("listening on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// TCP without a token.
    #[error("listening on {address} needs a token, of visible ASCII characters")]
    NoToken {
        /// The address.
        address: SocketAddr,
    },
    /// A certificate or key that cannot be read.
    #[error("reading the certificate and key for TLS")]
    Pem(#[source] rustls_pki_types::pem::Error),
    /// A certificate and key that cannot be used together.
    #[error("using the certificate and key for TLS")]
    Tls(#[source] rustls::Error),
}

impl Classify for RestError {
    fn kind(&self) -> Kind {
        match self {
            Self::NoRoute { .. } | Self::NotPublished { .. } => Kind::NotFound,
            Self::NoMethod { .. }
            | Self::Path { .. }
            | Self::Query { .. }
            | Self::Body { .. }
            | Self::MediaType
            | Self::BrokenBody { .. }
            | Self::NoToken { .. }
            | Self::Pem(_)
            | Self::Tls(_) => Kind::Invalid,
            Self::TooLarge { .. } => Kind::OutOfRange,
            Self::Slow { .. } => Kind::Timeout,
            Self::Unauthenticated => Kind::Unauthenticated,
            Self::Stranger { .. } | Self::Unknown => Kind::Denied,
            Self::Panicked { .. } | Self::Metrics(_) => Kind::Internal,
            Self::Taken { .. } => Kind::Busy,
            Self::NotASocket { .. } => Kind::Precondition,
            Self::Socket { .. } | Self::Listen { .. } => Kind::Unavailable,
        }
    }
}

/// The start of a text that came from outside, so that an answer stays small.
pub(super) fn cut(text: &str) -> String {
    const MOST: usize = 300;
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
