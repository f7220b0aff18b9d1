//! Certificates in files, and TLS configurations that follow them.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hawser_core::Error;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::PROTOCOL;
use super::error::TlsError;

/// The PEM files of one side of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Its certificate, with those between it and the authority.
    pub certificate: PathBuf,
    /// The private key of that certificate.
    pub key: PathBuf,
    /// The authority that the other side's certificate must come from; several may stand in it, as
    /// while one is replaced by the next.
    pub authority: PathBuf,
}

/// What the files hold.
pub(super) struct Material {
    files: TlsFiles,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: Arc<RootCertStore>,
}

impl TlsFiles {
    async fn read(&self) -> Result<Material, TlsError> {
        let chain = read_certificates(&self.certificate).await?;
        let text = read(&self.key).await?;
        let key = PrivateKeyDer::from_pem_slice(&text).map_err(|source| TlsError::Pem {
            path: self.key.clone(),
            what: "a private key",
            source,
        })?;
        let mut roots = RootCertStore::empty();
        for root in read_certificates(&self.authority).await? {
            let path = || self.authority.clone();
            roots.add(root).map_err(|source| TlsError::Authority { path: path(), source })?;
        }
        Ok(Material { files: self.clone(), chain, key, roots: Arc::new(roots) })
    }

    async fn stamps(&self) -> Stamps {
        [
            Stamp::of(&self.certificate).await,
            Stamp::of(&self.key).await,
            Stamp::of(&self.authority).await,
        ]
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |source| TlsError::Read { path: path.to_owned(), source };
    tokio::fs::read(path).await.map_err(failed)
}

async fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(path).await?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let malformed = |source| TlsError::Pem { path: path.to_owned(), what: "certificates", source };
    let certificates = certificates.map_err(malformed)?;
    if certificates.is_empty() {
        return Err(TlsError::NoCertificate { path: path.to_owned() });
    }
    Ok(certificates)
}

impl Material {
    fn unusable(&self) -> impl Fn(rustls::Error) -> TlsError + use<> {
        let TlsFiles { certificate, key, .. } = self.files.clone();
        move |source| TlsError::Unusable {
            certificate: certificate.clone(),
            key: key.clone(),
            source,
        }
    }

    /// For the side that listens: demands a certificate.
    pub(super) fn into_server(self) -> Result<ServerConfig, TlsError> {
        let unusable = self.unusable();
        let verifier = WebPkiClientVerifier::builder_with_provider(self.roots, crypto());
        let path = self.files.authority;
        let verifier = verifier.build().map_err(|source| TlsError::Verifier { path, source })?;
        let mut config = ServerConfig::builder_with_provider(crypto())
            .with_protocol_versions(&[&TLS13])
            .map_err(&unusable)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain, self.key)
            .map_err(&unusable)?;
        // A resumed session would bring back the certificate it began with, even an expired one.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(config)
    }

    /// For the side that dials: shows its own certificate.
    pub(super) fn into_client(self) -> Result<ClientConfig, TlsError> {
        let unusable = self.unusable();
        let mut config = ClientConfig::builder_with_provider(crypto())
            .with_protocol_versions(&[&TLS13])
            .map_err(&unusable)?
            .with_root_certificates(self.roots)
            .with_client_auth_cert(self.chain, self.key)
            .map_err(&unusable)?;
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(config)
    }
}

fn crypto() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Tells one content of a file from the next: files that are replaced get another inode, files that
/// are written another time of change.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

/// Of certificate, key and authority; `None` where there is no such file.
type Stamps = [Option<Stamp>; 3];

impl Stamp {
    async fn of(path: &Path) -> Option<Self> {
        let there = tokio::fs::metadata(path).await.ok()?;
        Some(Self {
            inode: (there.dev(), there.ino()),
            size: there.size(),
            changed: (there.ctime(), there.ctime_nsec()),
        })
    }
}

/// A TLS configuration that follows its files.
pub(super) struct Rotating<C> {
    files: TlsFiles,
    build: fn(Material) -> Result<C, TlsError>,
    latest: Mutex<Latest<C>>,
}

struct Latest<C> {
    /// What the files were when they were last tried.
    tried: Stamps,
    /// Of the last files that could be used.
    config: Arc<C>,
}

impl<C> Rotating<C> {
    /// Reads the files; what is wrong with them is an error now, and only a warning later.
    pub(super) async fn open(
        files: TlsFiles,
        build: fn(Material) -> Result<C, TlsError>,
    ) -> Result<Self, TlsError> {
        // First the stamps: a change while the files are read is then seen at the next look.
        let tried = files.stamps().await;
        let config = Arc::new(build(files.read().await?)?);
        Ok(Self { files, build, latest: Mutex::new(Latest { tried, config }) })
    }

    /// The configuration by the files as they are now. While they cannot be used, as in the middle
    /// of a rotation, that of the files before.
    pub(super) async fn current(&self) -> Arc<C> {
        let stamps = self.files.stamps().await;
        if self.latest().tried == stamps {
            return Arc::clone(&self.latest().config);
        }
        let built = self.files.read().await.and_then(self.build);
        let mut latest = self.latest();
        latest.tried = stamps;
        match built {
            Ok(config) => {
                tracing::info!(
                    certificate = %self.files.certificate.display(),
                    "the certificates of the node link were read again"
                );
                latest.config = Arc::new(config);
            }
            Err(error) => tracing::warn!(
                error = %Error::from(error).sentence(),
                "new certificates of the node link cannot be used; the earlier ones stay"
            ),
        }
        Arc::clone(&latest.config)
    }

    fn latest(&self) -> MutexGuard<'_, Latest<C>> {
        // Nothing in the critical sections can panic half-way.
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
