//! An authority for tests, and certificates of it in files.

use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};

use crate::link::TlsFiles;

/// The name that the control half has in these tests; nothing resolves it.
pub(super) const CONTROL: &str = "control.test";

/// Signs certificates. All authorities have the same name, as one that imitates another would.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// What is unusual about a certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    None,
    Expired,
    NotYet,
    /// It may only be shown by the side that listens.
    ServerOnly,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "authority of the tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate and its key, as PEM.
    pub(super) fn sign(&self, names: &[&str], flaw: Flaw) -> (String, String) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, "a side of a link");
        match flaw {
            Flaw::None => {}
            Flaw::Expired => params.not_after = date_time_ymd(2020, 1, 1),
            Flaw::NotYet => params.not_before = date_time_ymd(4000, 1, 1),
            Flaw::ServerOnly => {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            }
        }
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    /// The files of a side whose certificate is signed here, and which trusts `trusted`.
    pub(super) fn files(
        &self,
        folder: &Path,
        names: &[&str],
        flaw: Flaw,
        trusted: &Authority,
    ) -> TlsFiles {
        std::fs::create_dir_all(folder).unwrap();
        let files = TlsFiles {
            certificate: folder.join("tls.crt"),
            key: folder.join("tls.key"),
            authority: folder.join("ca.crt"),
        };
        let (certificate, key) = self.sign(names, flaw);
        put(&files.certificate, &certificate);
        put(&files.key, &key);
        put(&files.authority, &trusted.pem());
        files
    }
}

/// Puts a file in the place of another, as whatever rotates certificates does.
pub(super) fn put(path: &Path, content: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, content).unwrap();
    std::fs::rename(new, path).unwrap();
}
