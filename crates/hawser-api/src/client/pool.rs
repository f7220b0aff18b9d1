//! Connections: made when needed, kept for the next call.

use std::io;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::error::ClientError;
use super::{Endpoint, RestClient};

/// More idle connections than this are closed; a command needs one, a service a few.
const MOST_IDLE: usize = 8;

/// A server that does not even accept within this time is not there.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// One connection and the task that drives it; the task ends with it.
pub(super) struct Connection {
    pub(super) sender: SendRequest<Full<Bytes>>,
    task: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The connections that wait for the next call.
#[derive(Default)]
pub(super) struct Pool(Mutex<Vec<Connection>>);

impl Pool {
    /// A connection that was alive a moment ago.
    pub(super) async fn take(&self) -> Option<Connection> {
        loop {
            let mut connection = self.lock().pop()?;
            if connection.sender.ready().await.is_ok() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection whose answer was read to the end.
    pub(super) fn put(&self, connection: Connection) {
        let mut idle = self.lock();
        if idle.len() < MOST_IDLE && !connection.sender.is_closed() {
            idle.push(connection);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        // A panic between push and pop cannot leave the list half changed.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl RestClient {
    /// A new connection to the server.
    pub(super) async fn connect(&self) -> Result<Connection, ClientError> {
        let at = || self.endpoint().to_string();
        let stream = match tokio::time::timeout(CONNECT_LIMIT, self.open()).await {
            Ok(stream) => stream?,
            Err(_) => {
                let source = io::Error::new(io::ErrorKind::TimedOut, "no answer within 10 s");
                return Err(ClientError::Connect { at: at(), source });
            }
        };
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(|source| {
            ClientError::Connect { at: at(), source: io::Error::other(source) }
        })?;
        let task = tokio::spawn(async move {
            // Whoever waits for an answer on this connection sees the same error there.
            let _ = driver.await;
        });
        Ok(Connection { sender, task })
    }

    async fn open(&self) -> Result<Box<dyn Stream>, ClientError> {
        let at = || self.endpoint().to_string();
        match self.endpoint() {
            Endpoint::Unix(path) => match UnixStream::connect(path).await {
                Ok(stream) => Ok(Box::new(stream)),
                Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                    Err(ClientError::NotAllowed { at: at(), source })
                }
                Err(source) => Err(ClientError::Connect { at: at(), source }),
            },
            Endpoint::Http(host, port) => Ok(Box::new(self.tcp(host, *port).await?)),
            Endpoint::Https(host, port) => {
                let connector = TlsConnector::from(self.tls()?);
                let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                let name =
                    ServerName::try_from(bare).map_err(|_| ClientError::Endpoint { text: at() })?;
                let stream = self.tcp(host, *port).await?;
                let stream = connector
                    .connect(name, stream)
                    .await
                    .map_err(|source| ClientError::Tls { at: at(), source })?;
                Ok(Box::new(stream))
            }
        }
    }

    async fn tcp(&self, host: &str, port: u16) -> Result<TcpStream, ClientError> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let connected = TcpStream::connect((bare, port)).await;
        let refuse = |source| ClientError::Connect { at: self.endpoint().to_string(), source };
        let stream = connected.map_err(refuse)?;
        // Requests are small and whole; waiting to fill a packet only adds delay.
        stream.set_nodelay(true).map_err(refuse)?;
        Ok(stream)
    }
}
