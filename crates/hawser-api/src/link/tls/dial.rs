//! Dialling a control half on another machine.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hawser_core::Result;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::error::TlsError;
use super::files::{Material, Rotating, TlsFiles};

/// For the name, and for TCP and TLS together at each of its addresses: a control half that needs longer
/// is not there.
const DIAL_LIMIT: Duration = Duration::from_secs(5);

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

    /// One more connection, on which TLS has checked the control half. Every address of the host has
    /// its turn: one of a machine that is gone must not keep a node from the one that answers.
    pub(in super::super) async fn connect(&self) -> io::Result<TlsStream<TcpStream>> {
        let addresses = within(tokio::net::lookup_host((self.host.as_str(), self.port))).await?;
        first_that_answers(addresses, |address| self.dial(address)).await
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(address).await?;
        // Frames are written whole; waiting to fill a packet only adds delay.
        stream.set_nodelay(true)?;
        let connector = TlsConnector::from(self.tls.current().await);
        connector.connect(self.name.clone(), stream).await
    }
}

/// No `AsyncFn`: of a future that holds one over a reference the compiler cannot tell that it may be
/// spawned.
async fn first_that_answers<T, F: Future<Output = io::Result<T>>>(
    addresses: impl Iterator<Item = SocketAddr>,
    dial: impl Fn(SocketAddr) -> F,
) -> io::Result<T> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in addresses {
        match within(dial(address)).await {
            Ok(connection) => return Ok(connection),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

async fn within<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {DIAL_LIMIT:?}"));
    tokio::time::timeout(DIAL_LIMIT, work).await.map_err(late)?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses() -> [SocketAddr; 2] {
        [SocketAddr::from(([192, 0, 2, 1], 7781)), SocketAddr::from(([192, 0, 2, 2], 7781))]
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_is_silent_does_not_keep_from_the_next() {
        let [silent, alive] = addresses();
        let dial = |address| async move {
            if address == silent { std::future::pending().await } else { Ok(address) }
        };

        let reached = first_that_answers(addresses().into_iter(), dial).await;

        assert_eq!(reached.unwrap(), alive);
    }

    #[tokio::test]
    async fn the_last_failure_is_told() {
        let dial = |address: SocketAddr| async move {
            Err::<(), _>(io::Error::other(address.to_string()))
        };

        let failed = first_that_answers(addresses().into_iter(), dial).await;

        assert_eq!(failed.unwrap_err().to_string(), "192.0.2.2:7781");
    }
}
