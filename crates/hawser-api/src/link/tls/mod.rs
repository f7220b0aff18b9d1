//! The node link over TCP, with mutual TLS: both sides show a certificate of one authority.
//!
//! TLS 1.3 with rustls and ring. Certificates are read from PEM files and read again when the files
//! change, so that whatever rotates them (cert-manager, a Secret, a person) need not restart
//! anything. Sessions are not resumed: every connection proves anew that its certificate is valid
//! now. There is no way to have the link over TCP without TLS.

mod certificate;
mod dial;
mod doorway;
mod error;
mod files;
mod listen;

pub(super) use certificate::NodeCertificate;
pub use dial::TlsTarget;
pub use error::TlsError;
pub use files::TlsFiles;
pub use listen::{TlsLimits, TlsListener};

/// What both sides call the protocol inside TLS, so that a connection made for another service with
/// the same certificates is never taken for a link.
const PROTOCOL: &[u8] = b"hawser-link";
