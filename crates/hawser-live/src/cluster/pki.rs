//! Certificates of a cluster: one authority, EC keys, made anew for every run.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};
use serde_json::{Value, json};

use super::error::{Attempt, ClusterError, Result};

/// The authority of one cluster; its files are in one folder.
pub(super) struct Pki {
    folder: PathBuf,
    authority: CertifiedIssuer<'static, KeyPair>,
}

/// Whom a certificate is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    /// The user.
    pub(super) name: &'a str,
    /// The group, if it matters.
    pub(super) group: Option<&'a str>,
    /// Names and addresses under which it serves; none for a client.
    pub(super) serves: &'a [&'a str],
}

impl<'a> Subject<'a> {
    /// One that serves nothing.
    pub(super) fn client(name: &'a str, group: Option<&'a str>) -> Self {
        Self { name, group, serves: &[] }
    }
}

/// A certificate and its key as PEM.
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Pki {
    /// An authority, and the key pair that signs the tokens of service accounts.
    pub(super) fn make(folder: &Path) -> Result<Self> {
        let whose = |what: &str| {
            let whose = what.to_owned();
            move |source| ClusterError::Certificate { whose, source }
        };
        let names = CertificateParams::new(Vec::<String>::new());
        let mut params = names.map_err(whose("the authority"))?;
        params.distinguished_name = subject("cluster-ca", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().map_err(whose("the authority"))?;
        let key_pem = key.serialize_pem();
        let authority = CertifiedIssuer::self_signed(params, key);
        let authority = authority.map_err(whose("the authority"))?;
        let pki = Self { folder: folder.to_owned(), authority };
        pki.write("ca.crt", &pki.authority.pem())?;
        pki.write("ca.key", &key_pem)?;
        let tokens = KeyPair::generate().map_err(whose("service accounts"))?;
        pki.write("sa.key", &tokens.serialize_pem())?;
        pki.write("sa.pub", &tokens.public_key_pem())?;
        Ok(pki)
    }

    /// A certificate for somebody.
    pub(super) fn issue(&self, subject: Subject<'_>) -> Result<Pair> {
        let failed = |source| ClusterError::Certificate { whose: subject.name.to_owned(), source };
        let names: Vec<String> = subject.serves.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).map_err(failed)?;
        params.distinguished_name = self::subject(subject.name, subject.group);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if !subject.serves.is_empty() {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.authority).map_err(failed)?;
        Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// The same as `FILE.crt` and `FILE.key`.
    pub(super) fn issue_to(&self, file: &str, subject: Subject<'_>) -> Result<()> {
        let pair = self.issue(subject)?;
        self.write(&format!("{file}.crt"), &pair.certificate)?;
        self.write(&format!("{file}.key"), &pair.key)
    }

    /// A kubeconfig with everything in it, so that it can be used wherever the server can be
    /// reached. JSON, which is YAML too.
    pub(super) fn kubeconfig(&self, server: &str, subject: Subject<'_>) -> Result<Value> {
        let pair = self.issue(subject)?;
        Ok(json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "cluster", "cluster": {
                "server": server,
                "certificate-authority-data": STANDARD.encode(self.authority.pem()),
            }}],
            "users": [{ "name": subject.name, "user": {
                "client-certificate-data": STANDARD.encode(pair.certificate),
                "client-key-data": STANDARD.encode(pair.key),
            }}],
            "contexts": [{ "name": "cluster", "context": {
                "cluster": "cluster", "user": subject.name,
            }}],
            "current-context": "cluster",
        }))
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, text).attempt(|| format!("writing {}", path.display()))
    }
}

fn subject(name: &str, group: Option<&str>) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    if let Some(group) = group {
        subject.push(DnType::OrganizationName, group);
    }
    subject
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_carries_its_certificate_and_names_its_user() {
        let folder = tempfile::tempdir().unwrap();
        let pki = Pki::make(folder.path()).unwrap();
        let admin = Subject { name: "admin", group: Some("system:masters"), serves: &[] };

        let config = pki.kubeconfig("https://127.0.0.1:1", admin).unwrap();

        let user = &config["users"][0];
        assert_eq!(user["name"], "admin");
        let pem = STANDARD.decode(user["user"]["client-certificate-data"].as_str().unwrap());
        assert!(pem.unwrap().starts_with(b"-----BEGIN CERTIFICATE-----"));
        for name in ["ca.crt", "ca.key", "sa.key", "sa.pub"] {
            assert!(folder.path().join(name).is_file(), "{name}");
        }
    }
}
