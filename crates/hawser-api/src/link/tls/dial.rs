//! Dialling a control half on another machine.

use std::fmt;
use std::io;
use std::time::Duration;

use hawser_core::Result;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::error::TlsError;
use super::files::{Material, Rotating, TlsFiles};

/// For TCP and TLS together: a control half that needs longer is not there.
const DIAL_LIMIT: Duration = Duration::from_secs(10);

/// A control half on another machine, and what this node shows it.
pub struct TlsTarget {
    host: String,
    port: u16,
    name: ServerName<'static>,
    tls: Rotating<ClientConfig>,
}

impl fmt::Debug for TlsTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, name, .. } = self;
        write!(f, "TlsTarget({host}:{port} as {})", name.to_str())
    }
}

impl TlsTarget {
    /// The control half at `host` and `port`, whose certificate must have the name `name`, or
    /// `host` where none is given. Reads the files once; `Kind::Invalid` when they cannot be used.
    pub async fn open(host: &str, port: u16, name: Option<&str>, files: TlsFiles) -> Result<Self> {
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let expected = name.unwrap_or(&host);
        let malformed = |_| TlsError::ServerName { name: expected.chars().take(128).collect() };
        let name = ServerName::try_from(expected).map_err(malformed)?.to_owned();
        let tls = Rotating::open(files, Material::into_client).await?;
        Ok(Self { host, port, name, tls })
    }

    /// One more connection, on which TLS has checked the control half.
    pub(in super::super) async fn connect(&self) -> io::Result<TlsStream<TcpStream>> {
        let connecting = async {
            let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
            // Frames are written whole; waiting to fill a packet only adds delay.
            stream.set_nodelay(true)?;
            let connector = TlsConnector::from(self.tls.current().await);
            connector.connect(self.name.clone(), stream).await
        };
        let late =
            || io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {DIAL_LIMIT:?}"));
        tokio::time::timeout(DIAL_LIMIT, connecting).await.unwrap_or_else(|_| Err(late()))
    }
}
