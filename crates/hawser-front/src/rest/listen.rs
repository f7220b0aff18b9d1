//! Where the API listens: a Unix socket, and TCP with a token.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hawser_core::Result;
use hawser_core::secret::Secret;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::error::RestError;
use crate::shared::SocketFile;

/// A place where the API is reached, bound and not served yet.
pub struct Listener(pub(super) Socket);

pub(super) enum Socket {
    Unix { listener: UnixListener, group: Option<u32>, file: SocketFile },
    Tcp { listener: std::net::TcpListener, token: Arc<Secret>, tls: Option<TlsAcceptor> },
}

/// A certificate and its key.
#[derive(Clone)]
pub struct Tls(Arc<ServerConfig>);

impl Tls {
    /// Reads a chain of certificates and a private key, both PEM. `Kind::Invalid` when they cannot be
    /// used.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self> {
        let chain = CertificateDer::pem_slice_iter(certificates)
            .collect::<Result<Vec<_>, _>>()
            .map_err(RestError::Pem)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(RestError::Pem)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(RestError::Tls)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(RestError::Tls)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

impl Listener {
    /// A Unix socket for root, the server's own user and, if given, the members of a group. A socket
    /// file on which nobody listens is replaced. Called at start-up: it looks at files.
    ///
    /// `Kind::Busy` when another server listens there, `Kind::Precondition` when something that is no
    /// socket is there.
    pub fn unix(path: &Path, group: Option<u32>) -> Result<Self> {
        let broken = |source| RestError::Socket { path: path.to_owned(), source };
        if path.as_os_str().len() > LONGEST_PATH {
            let why = "the kernel allows at most 107 bytes; use a shorter state folder";
            return Err(broken(io::Error::new(io::ErrorKind::InvalidInput, why)).into());
        }
        ensure_free(path)?;
        // Bound under another name and renamed when its mode is right: nobody ever sees it open.
        let hidden = hidden(path);
        let _ = fs::remove_file(&hidden);
        let listener = UnixListener::bind(&hidden).map_err(broken)?;
        let made = prepare(&hidden, group).and_then(|()| fs::rename(&hidden, path));
        if let Err(source) = made {
            let _ = fs::remove_file(&hidden);
            return Err(broken(source).into());
        }
        listener.set_nonblocking(true).map_err(broken)?;
        let file = SocketFile::new(path).map_err(broken)?;
        Ok(Self(Socket::Unix { listener, group, file }))
    }

    /// A TCP port for whoever has the token; with TLS where a certificate is given.
    ///
    /// `Kind::Invalid` without a token, `Kind::Unavailable` when the address cannot be used.
    pub fn tcp(address: SocketAddr, token: Secret, tls: Option<Tls>) -> Result<Self> {
        let text = token.expose();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(RestError::NoToken { address }.into());
        }
        let broken = |source| RestError::Listen { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(broken)?;
        listener.set_nonblocking(true).map_err(broken)?;
        let tls = tls.map(|Tls(config)| TlsAcceptor::from(config));
        Ok(Self(Socket::Tcp { listener, token: Arc::new(token), tls }))
    }

    /// The TCP address, with the port the system chose when 0 was asked for.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.0 {
            Socket::Unix { .. } => None,
            Socket::Tcp { listener, .. } => listener.local_addr().ok(),
        }
    }
}

/// `sun_path` has 108 bytes, the last of which is NUL. A longer one could be made by renaming, and
/// nobody could connect to it.
const LONGEST_PATH: usize = 107;

/// A short name next to the socket.
fn hidden(path: &Path) -> PathBuf {
    path.with_file_name(format!(".{}", std::process::id()))
}

fn prepare(path: &Path, group: Option<u32>) -> io::Result<()> {
    let mode = if group.is_some() { 0o660 } else { 0o600 };
    chown(path, None, group)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

fn ensure_free(path: &Path) -> Result<(), RestError> {
    let broken = |source| RestError::Socket { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Ok(there) if !there.file_type().is_socket() => {
            Err(RestError::NotASocket { path: path.to_owned() })
        }
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => Err(RestError::Taken { path: path.to_owned() }),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(broken(error)),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(broken(error)),
    }
}
