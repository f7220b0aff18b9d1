//! Why certificates cannot be used.

use std::net::SocketAddr;
use std::path::PathBuf;

use hawser_core::{Classify, Kind};

/// Why a TLS link cannot be offered or dialled: mostly what is wrong with its files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that cannot be read.
    #[error("reading {}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file that is not PEM.
    #[error("{} is no PEM file with {what}", path.display())]
    Pem {
        /// Which file.
        path: PathBuf,
        /// What should be in it.
        what: &'static str,
        /// What is wrong with it.
        source: rustls_pki_types::pem::Error,
    },
    /// A PEM file without a certificate in it.
    #[error("there is no certificate in {}", path.display())]
    NoCertificate {
        /// Which file.
        path: PathBuf,
    },
    /// A certificate that cannot be an authority.
    #[error("trusting the certificates in {}", path.display())]
    Authority {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: rustls::Error,
    },
    /// A verifier of client certificates that cannot be made.
    #[error("checking certificates of nodes against {}", path.display())]
    Verifier {
        /// The file of the authority.
        path: PathBuf,
        /// Why not.
        source: rustls::server::VerifierBuilderError,
    },
    /// A certificate and a key that do not belong together, or that TLS cannot use.
    #[error("using the certificate {} with the key {}", certificate.display(), key.display())]
    Unusable {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// Why not.
        source: rustls::Error,
    },
    /// A name that no certificate can have.
    #[error("{name:?} is neither a DNS name nor an address")]
    ServerName {
        /// As given, cut where it is long.
        name: String,
    },
    /// An address that cannot be listened on.
    #[error("listening for nodes on {address}")]
    Listen {
        /// Which address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
}

impl Classify for TlsError {
    fn kind(&self) -> Kind {
        match self {
            Self::Read { .. }
            | Self::Pem { .. }
            | Self::NoCertificate { .. }
            | Self::Authority { .. }
            | Self::Verifier { .. }
            | Self::Unusable { .. }
            | Self::ServerName { .. } => Kind::Invalid,
            Self::Listen { .. } => Kind::Unavailable,
        }
    }
}
