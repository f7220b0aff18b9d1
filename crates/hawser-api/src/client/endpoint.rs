//! Where a server is: `unix:/run/hawser.sock`, `http://host:port`, `https://host:port`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::error::ClientError;

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A socket on this machine.
    Unix(PathBuf),
    /// A host and port, in the clear.
    Http(String, u16),
    /// A host and port, with TLS.
    Https(String, u16),
}

/// What a server listens on when its address names no port.
const DEFAULT_PORT: u16 = 8170;

impl FromStr for Endpoint {
    type Err = ClientError;

    /// Reads `unix:PATH`, `unix://PATH`, a plain absolute path, `http://HOST[:PORT]` or
    /// `https://HOST[:PORT]`.
    fn from_str(text: &str) -> Result<Self, ClientError> {
        let malformed = || ClientError::Endpoint { text: text.chars().take(128).collect() };
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            let fits = !path.is_empty() && !path.contains('\0');
            return fits.then(|| Self::Unix(PathBuf::from(path))).ok_or_else(malformed);
        }
        if text.starts_with('/') && !text.contains('\0') {
            return Ok(Self::Unix(PathBuf::from(text)));
        }
        let uri: http::Uri = text.parse().map_err(|_| malformed())?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(malformed)?;
        let plain = matches!(uri.path(), "" | "/") && uri.query().is_none();
        let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        if !plain || has_user {
            return Err(malformed());
        }
        let (host, port) = (host.to_owned(), uri.port_u16().unwrap_or(DEFAULT_PORT));
        match uri.scheme_str() {
            Some("http") => Ok(Self::Http(host, port)),
            Some("https") => Ok(Self::Https(host, port)),
            Some(_) | None => Err(malformed()),
        }
    }
}

impl Endpoint {
    /// The `Host` header; a socket has no name of its own.
    pub(super) fn authority(&self) -> String {
        match self {
            Self::Unix(_) => "localhost".to_owned(),
            Self::Http(host, port) | Self::Https(host, port) => format!("{host}:{port}"),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Http(host, port) => write!(f, "http://{host}:{port}"),
            Self::Https(host, port) => write!(f, "https://{host}:{port}"),
        }
    }
}
