//! Whom a gateway's certificate is believed from.

use std::sync::Arc;

use hawser_core::error::Result;
use hawser_core::port::Host;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::data::Access;
use crate::shared::error::AttachError;
use crate::shared::fields::invalid;

/// Where distributions keep the certificates that a host trusts: Debian and Alpine, Fedora, SUSE.
const BUNDLES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

/// How to talk to a gateway.
pub(super) fn config(host: &dyn Host, access: &Access) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error.to_string()))?;
    let config = if access.verify {
        builder.with_root_certificates(roots(host, access)?).with_no_client_auth()
    } else {
        let verifier = Arc::new(Anyone(provider));
        builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
    };
    Ok(Arc::new(config))
}

fn unusable(why: &str) -> AttachError {
    AttachError::Unreachable { target: "the ScaleIO gateway".into(), why: why.to_owned() }
}

/// What the caller names, or what this host trusts.
fn roots(host: &dyn Host, access: &Access) -> Result<RootCertStore> {
    let text = match &access.roots {
        Some(path) => {
            let missing = || invalid("certificate_path", "names a file that is not there");
            host.files().read(path)?.ok_or_else(missing)?
        }
        None => bundle(host)?,
    };
    let roots = read(&text);
    if roots.is_empty() {
        let field = access.roots.as_ref().map_or("verify_certificate", |_| "certificate_path");
        let why = "leaves nobody to trust: there is no certificate in the file";
        return Err(invalid(field, why).into());
    }
    Ok(roots)
}

fn bundle(host: &dyn Host) -> Result<Vec<u8>> {
    for path in BUNDLES {
        if let Some(text) = host.files().read(path.as_ref())? {
            return Ok(text);
        }
    }
    Err(AttachError::Missing {
        what: "the list of certificates that this host trusts".into(),
        advice: "install ca-certificates, or name a file in certificate_path".into(),
    }
    .into())
}

/// The certificates of a PEM text. Bundles have some that nobody can use; the rest counts.
pub(super) fn read(text: &[u8]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text).flatten() {
        let _ = roots.add(certificate);
    }
    roots
}

/// Believes everyone, as was asked for.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
