//! One request to the gateway and its answer.
//!
//! It runs on a worker with a small runtime of its own: names that do not resolve block nobody, and
//! a request that was begun comes to its end even when whoever asked is gone, with the lock of the
//! volume held until then. So no request is answered behind the back of the next one.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use hawser_core::port::registry::LockGuard;
use hawser_core::secret::Secret;
use http::{HeaderValue, Method, Request, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

/// How long a gateway may take to accept a connection, and to agree on keys.
const DIAL_LIMIT: Duration = Duration::from_secs(5);

/// No answer that counts is larger.
const LARGEST_ANSWER: usize = 64 << 10;

/// Where to.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) host: String,
    pub(super) port: u16,
    /// Both, as they stand in an address.
    pub(super) at: String,
    pub(super) tls: Arc<ClientConfig>,
}

/// A request.
#[derive(Clone)]
pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) user: String,
    /// A password, or a token that stands for it.
    pub(super) secret: Secret,
    pub(super) body: Option<String>,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// Nobody listens.
    Refused,
    /// Nobody took the connection within this time.
    Silent(Duration),
    /// There is no way there.
    Unreachable(String),
    /// It was asked and did not answer in time; it may have done it.
    Unanswered,
    /// It was asked and hung up, or answered no HTTP; it may have done it.
    Garbled,
}

/// Asks. The guard is dropped when the exchange is over, whoever waits for it.
pub(super) async fn ask(
    server: Server,
    ask: Ask,
    guard: Arc<dyn LockGuard>,
    limit: Duration,
) -> Result<Said, Failed> {
    let exchange = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let said = match runtime {
            Ok(runtime) => runtime.block_on(exchange(&server, ask, limit)),
            Err(error) => Err(Failed::Unreachable(error.to_string())),
        };
        drop(guard);
        said
    };
    tokio::task::spawn_blocking(exchange).await.unwrap_or(Err(Failed::Garbled))
}

async fn exchange(server: &Server, ask: Ask, limit: Duration) -> Result<Said, Failed> {
    let end = Instant::now() + limit;
    let dial = DIAL_LIMIT.min(limit);
    let request = request(server, ask)?;
    let stream = timeout(dial, connect(server)).await.map_err(|_| Failed::Silent(dial))??;
    let (mut sender, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(unreachable)?;
    // It ends with the runtime; what goes wrong there is seen by the sender.
    tokio::spawn(async move {
        let _ = driver.await;
    });
    let answer = async {
        let answer = sender.send_request(request).await.ok()?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), LARGEST_ANSWER).collect().await.ok()?;
        Some(Said { status, body: body.to_bytes().to_vec() })
    };
    let left = end.saturating_duration_since(Instant::now());
    match timeout(left, answer).await {
        Ok(answer) => answer.ok_or(Failed::Garbled),
        Err(_) => Err(Failed::Unanswered),
    }
}

fn request(server: &Server, ask: Ask) -> Result<Request<Full<Bytes>>, Failed> {
    let login = BASE64_STANDARD.encode(format!("{}:{}", ask.user, ask.secret.expose()));
    let mut login = HeaderValue::try_from(format!("Basic {login}")).map_err(unreachable)?;
    login.set_sensitive(true);
    let request = Request::builder()
        .method(ask.method)
        .uri(ask.path)
        .header(header::HOST, &server.at)
        .header(header::AUTHORIZATION, login)
        .header(header::ACCEPT, "application/json")
        .header(header::CONNECTION, "close");
    let request = match &ask.body {
        Some(_) => request.header(header::CONTENT_TYPE, "application/json"),
        None => request,
    };
    request.body(Full::from(ask.body.unwrap_or_default())).map_err(unreachable)
}

async fn connect(server: &Server) -> Result<tokio_rustls::client::TlsStream<TcpStream>, Failed> {
    let name = ServerName::try_from(server.host.clone()).map_err(unreachable)?;
    let stream = TcpStream::connect((server.host.as_str(), server.port)).await;
    let stream = stream.map_err(|error| {
        if error.kind() == io::ErrorKind::ConnectionRefused {
            Failed::Refused
        } else if error.kind() == io::ErrorKind::TimedOut {
            Failed::Silent(DIAL_LIMIT)
        } else {
            unreachable(error)
        }
    })?;
    // Requests are small and whole; waiting to fill a packet only adds delay.
    stream.set_nodelay(true).map_err(unreachable)?;
    TlsConnector::from(server.tls.clone()).connect(name, stream).await.map_err(unreachable)
}

fn unreachable(error: impl std::fmt::Display) -> Failed {
    Failed::Unreachable(error.to_string())
}
