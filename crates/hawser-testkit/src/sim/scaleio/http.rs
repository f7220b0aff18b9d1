//! As much of HTTPS as a gateway needs: one request and one answer per connection.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

/// Larger requests than this nobody sends.
const MOST: usize = 64 << 10;

/// A caller that says nothing is not waited for longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// One request.
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    /// User and password of basic authentication.
    pub(super) who: Option<(String, String)>,
    pub(super) is_json: bool,
    pub(super) body: Value,
}

/// One answer.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: String,
}

/// A certificate for 127.0.0.1 that signs itself, and what serves with it; made once.
struct Identity {
    pem: String,
    config: Arc<ServerConfig>,
}

fn identity() -> &'static Identity {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    IDENTITY.get_or_init(|| {
        let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])
            .expect("a certificate for an address");
        let key = PrivateKeyDer::Pkcs8(pair.signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has the default versions")
            .with_no_client_auth()
            .with_single_cert(vec![pair.cert.der().clone()], key)
            .expect("key and certificate are a pair");
        Identity { pem: pair.cert.pem(), config: Arc::new(config) }
    })
}

/// The certificate, as PEM.
pub(super) fn certificate() -> &'static str {
    &identity().pem
}

/// A connection.
pub(super) struct Stream(StreamOwned<ServerConnection, TcpStream>);

impl Stream {
    pub(super) fn accept(stream: TcpStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let server = ServerConnection::new(identity().config.clone()).map_err(io::Error::other)?;
        Ok(Self(StreamOwned::new(server, stream)))
    }

    /// Reads one request to its end.
    pub(super) fn read(&mut self) -> io::Result<Request> {
        let mut text = Vec::new();
        let head = loop {
            if let Some(end) = text.windows(4).position(|part| part == b"\r\n\r\n") {
                break String::from_utf8_lossy(&text[..end]).into_owned();
            }
            self.more(&mut text)?;
        };
        let mut lines = head.lines();
        let first: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
        let [method, path, _] = first.as_slice() else { return Err(malformed()) };
        let headers: Vec<(String, &str)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim()))
            .collect();
        let header = |name: &str| headers.iter().find(|(key, _)| key == name).map(|(_, v)| *v);
        let length = header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        let begin = head.len() + 4;
        while text.len() < begin + length {
            self.more(&mut text)?;
        }
        let who = header("authorization").and_then(|text| text.strip_prefix("Basic "));
        let who = who.and_then(|text| BASE64_STANDARD.decode(text).ok()).and_then(|bytes| {
            let text = String::from_utf8(bytes).ok()?;
            let (user, password) = text.split_once(':')?;
            Some((user.to_owned(), password.to_owned()))
        });
        let kind = header("content-type").unwrap_or_default();
        Ok(Request {
            method: (*method).to_owned(),
            path: (*path).to_owned(),
            who,
            is_json: kind.starts_with("application/json"),
            body: serde_json::from_slice(&text[begin..begin + length]).unwrap_or(Value::Null),
        })
    }

    fn more(&mut self, text: &mut Vec<u8>) -> io::Result<()> {
        let mut part = [0; 4096];
        let count = self.0.read(&mut part)?;
        if count == 0 || text.len() + count > MOST {
            return Err(malformed());
        }
        text.extend_from_slice(&part[..count]);
        Ok(())
    }

    /// Writes bytes as they are and ends the connection.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)?;
        self.0.conn.send_close_notify();
        self.0.flush()
    }

    /// Answers and ends the connection.
    pub(super) fn answer(&mut self, reply: &Reply) -> io::Result<()> {
        let Reply { status, body } = reply;
        let text = format!(
            "HTTP/1.1 {status} -\r\ncontent-type: application/json\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.write(text.as_bytes())
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "no request")
}

/// Undoes one round of percent escapes.
pub(super) fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = match (first, tail) {
            (b'%', [high, low, ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).unwrap_or_default();
                u8::from_str_radix(digits, 16).ok()
            }
            _ => None,
        };
        match code {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
