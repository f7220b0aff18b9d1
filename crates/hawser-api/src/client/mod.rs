//! The REST client: the `Control` port over HTTP/1.1, on a Unix socket or TCP, with TLS and a token.
//!
//! Small on purpose: it is started with every command of the command line. Connections are kept for
//! the next call; TLS is set up only for `https`. A change whose connection is lost is
//! `Kind::Unavailable` with `Outcome::Unknown`, and may be repeated, because every change of the API
//! is idempotent.

mod call;
mod control;
mod endpoint;
mod error;
mod pool;
mod sse;

use std::sync::{Arc, OnceLock};

use hawser_core::Result;
use hawser_core::secret::Secret;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

pub use endpoint::Endpoint;
pub use error::ClientError;

use pool::Pool;

/// A server, as a `Control`.
pub struct RestClient {
    endpoint: Endpoint,
    token: Option<Secret>,
    roots: RootCertStore,
    tls: OnceLock<Arc<ClientConfig>>,
    pool: Pool,
}

impl RestClient {
    /// A client of the server at `endpoint`; connects with the first call.
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            token: None,
            roots: RootCertStore::empty(),
            tls: OnceLock::new(),
            pool: Pool::default(),
        }
    }

    /// Says who is calling, by the token the server was given; needed over TCP.
    #[must_use]
    pub fn with_token(mut self, token: Secret) -> Self {
        self.token = Some(token);
        self
    }

    /// Trusts servers whose certificate is in, or was signed by one in, this PEM text; needed for
    /// `https`. `Kind::Invalid` when there is no certificate in it.
    pub fn with_roots(mut self, pem: &[u8]) -> Result<Self> {
        let mut count = 0;
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|source| ClientError::Pem { source })?;
            self.roots.add(certificate).map_err(|source| ClientError::Root { source })?;
            count += 1;
        }
        if count == 0 {
            return Err(ClientError::NoRoots.into());
        }
        Ok(self)
    }

    /// Where the server is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, ClientError> {
        if let Some(config) = self.tls.get() {
            return Ok(config.clone());
        }
        if self.roots.is_empty() {
            return Err(ClientError::NoRoots);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|source| ClientError::Root { source })?
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        Ok(self.tls.get_or_init(|| Arc::new(config)).clone())
    }
}

impl std::fmt::Debug for RestClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RestClient").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
