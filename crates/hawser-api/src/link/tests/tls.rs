//! Links over TCP: who is let in, who is not, and what strangers can do.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hawser_core::Kind;
use hawser_core::port::{Node, Nodes, Upstream};
use rustls::version::TLS12;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::certificates::{Authority, CONTROL, Flaw, put};
use super::fake::*;
use super::fake_control::*;
use crate::link::{
    Destination, DialOptions, Dialler, Hub, NodeChange, Reception, TlsFiles, TlsLimits,
    TlsListener, TlsTarget, UpstreamClient,
};

const SOON: Duration = Duration::from_secs(10);

/// A control half that listens on loopback.
struct Server {
    folder: TempDir,
    authority: Authority,
    files: TlsFiles,
    address: SocketAddr,
    hub: Hub,
    changes: broadcast::Receiver<NodeChange>,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

async fn server_with(limits: TlsLimits) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = authority.files(&folder.path().join("control"), &[CONTROL], Flaw::None, &authority);
    let listener = TlsListener::bind("127.0.0.1:0".parse().unwrap(), files.clone()).await.unwrap();
    let address = listener.address().unwrap();
    let hub = Hub::default();
    let changes = hub.subscribe();
    let upstream: Arc<dyn Upstream> = FakeControl::new();
    let reception = Reception { hub: hub.clone(), upstream: Some(upstream) };
    let (stop, down) = watch::channel(false);
    let serving = tokio::spawn(listener.with_limits(limits).serve(reception, down));
    Server { folder, authority, files, address, hub, changes, stop, serving }
}

async fn server() -> Server {
    server_with(TlsLimits::default()).await
}

/// A node that dials until it is dropped.
struct Dialling {
    upstream: UpstreamClient,
    node: Arc<FakeNode>,
    _stop: watch::Sender<bool>,
}

impl Server {
    /// Files of a node with these names.
    fn node_files(&self, names: &[&str]) -> TlsFiles {
        self.flawed(names, Flaw::None)
    }

    fn flawed(&self, names: &[&str], flaw: Flaw) -> TlsFiles {
        self.authority.files(&self.folder.path().join("node"), names, flaw, &self.authority)
    }

    async fn target(&self, files: TlsFiles) -> TlsTarget {
        let host = self.address.ip().to_string();
        TlsTarget::open(&host, self.address.port(), Some(CONTROL), files).await.unwrap()
    }

    async fn dial(&self, id: &str, files: TlsFiles) -> Dialling {
        let options = DialOptions {
            first_wait: Duration::from_millis(5),
            upstream_wait: Duration::from_millis(300),
            ..DialOptions::default()
        };
        let node = FakeNode::new(id);
        let dialler = Dialler::new(node.clone(), options);
        let upstream = dialler.upstream();
        let (stop, down) = watch::channel(false);
        let target = self.target(files).await;
        tokio::spawn(dialler.run(Destination::Tls(Box::new(target)), down));
        Dialling { upstream, node, _stop: stop }
    }

    async fn comes(&mut self, id: &str) {
        let came = timeout(SOON, self.changes.recv()).await.expect("it comes").unwrap();
        assert_eq!(came, NodeChange::Came(id.parse().unwrap()));
    }

    /// A node that dials with these files hears this word, and gets no link. Now and then a
    /// connection is reset before its last words are read.
    async fn refuses(&self, id: &str, files: TlsFiles, word: &str) {
        let dialling = self.dial(id, files).await;
        let mut said = String::new();
        let heard = timeout(SOON, async {
            while !said.contains(word) {
                let error = dialling.upstream.grant(&claim(id, false)).await.unwrap_err();
                assert_eq!(error.kind(), Kind::Unavailable);
                assert!(self.hub.ids().await.unwrap().is_empty());
                said = error.sentence();
            }
        });
        assert!(heard.await.is_ok(), "heard {said:?} and not {word:?}");
    }
}

#[tokio::test]
async fn a_node_of_the_authority_is_taken_in_and_calls_go_both_ways() {
    let mut server = server().await;
    let dialling = server.dial("n1", server.node_files(&["n1"])).await;
    server.comes("n1").await;

    let node = server.hub.get(&"n1".parse().unwrap()).await.unwrap();
    node.attach(&attach_work()).await.unwrap();
    let granted = dialling.upstream.grant(&claim("n1", true)).await.unwrap();

    assert_eq!(dialling.node.works.lock().unwrap()[0], attach_work(), "with its secrets");
    assert_eq!(granted, grant(), "with its secrets");
    // More than one TLS record, and more than one chunk of the reader.
    let mut large = mount_work();
    large.flags = vec!["x".repeat(1 << 20)];
    node.mount(&large).await.unwrap();
    assert!(dialling.node.seen.lock().unwrap()[1].contains(&large.flags[0]));
    server.stop.send_replace(true);
    timeout(SOON, server.serving).await.expect("it stops").unwrap();
}

/// CVE-2021-36779: a port with rights over nodes that asks nobody who they are.
#[tokio::test]
async fn a_certificate_that_is_not_valid_is_refused() {
    let server = server().await;
    let stranger = Authority::new();
    let folder = server.folder.path().join("stranger");
    let foreign = stranger.files(&folder, &["n1"], Flaw::None, &server.authority);

    for (what, files) in [
        ("another authority", foreign),
        ("expired", server.flawed(&["n1"], Flaw::Expired)),
        ("not yet valid", server.flawed(&["n1"], Flaw::NotYet)),
        ("for servers only", server.flawed(&["n1"], Flaw::ServerOnly)),
    ] {
        println!("{what}");
        server.refuses("n1", files, "alert").await;
    }
}

#[tokio::test]
async fn a_node_must_be_one_that_its_certificate_names() {
    let server = server().await;

    for names in [&["n2"][..], &["n2.node.hawser"], &[CONTROL], &[]] {
        println!("{names:?}");
        server.refuses("n1", server.node_files(names), "not one of node n1").await;
    }
}

#[tokio::test]
async fn one_certificate_for_all_nodes_speaks_for_each_of_them() {
    let mut server = server().await;
    let files = server.node_files(&["*.node.hawser"]);
    let _one = server.dial("n1", files.clone()).await;
    server.comes("n1").await;

    let two = server.dial("rack-7.n2.example", files).await;
    server.comes("rack-7.n2.example").await;

    let error = two.upstream.grant(&claim("n1", true)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Denied, "each link is that of one node");
}

#[tokio::test]
async fn a_control_half_that_is_not_the_right_one_gets_nothing() {
    let server = server().await;
    let files = server.node_files(&["n1"]);
    let other = Authority::new();
    let mistrusting =
        server.authority.files(&server.folder.path().join("m"), &["n1"], Flaw::None, &other);
    let port = server.address.port();
    let dial = |name: Option<&'static str>, files: TlsFiles| async move {
        let target = TlsTarget::open("127.0.0.1", port, name, files).await.unwrap();
        target.connect().await.map(drop)
    };

    dial(Some(CONTROL), files.clone()).await.expect("the right one");
    for (what, name, files) in [
        ("another name", Some("other.test"), files.clone()),
        ("its address is not in its certificate", None, files),
        ("another authority", Some(CONTROL), mistrusting),
    ] {
        let error = dial(name, files).await.expect_err(what);
        assert!(error.to_string().contains("certificate"), "{what}: {error}");
    }
    assert!(server.hub.ids().await.unwrap().is_empty());
}

/// Connects with a configuration of its own; answers what the server said before it closed.
async fn knock(server: &Server, config: ClientConfig) -> std::io::Result<Vec<u8>> {
    let stream = TcpStream::connect(server.address).await?;
    let name = ServerName::try_from(CONTROL).unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let record = FakeNode::new("n1").describe().await.unwrap();
    let hello = serde_json::json!({ "hello": { "version": 1, "role": "node", "node": record } });
    let _ = stream.write_all(format!("{hello}\n").as_bytes()).await;
    let mut said = Vec::new();
    timeout(SOON, stream.read_to_end(&mut said)).await.expect("it closes")?;
    Ok(said)
}

fn trusting(server: &Server) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(server.authority.pem().as_bytes()).unwrap();
    roots.add(root).unwrap();
    roots
}

fn crypto() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// CVE-2021-36779: a port with rights over nodes that asks nobody who they are.
#[tokio::test]
async fn without_a_certificate_not_a_word_is_said() {
    let server = server().await;
    let config = ClientConfig::builder_with_provider(crypto())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(trusting(&server))
        .with_no_client_auth();

    assert!(knock(&server, config).await.is_err());
    assert!(server.hub.ids().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_old_version_of_tls_is_refused() {
    let server = server().await;
    let (certificate, key) = server.authority.sign(&["n1"], Flaw::None);
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let key = rustls_pki_types::PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let config = ClientConfig::builder_with_provider(crypto())
        .with_protocol_versions(&[&TLS12])
        .unwrap()
        .with_root_certificates(trusting(&server))
        .with_client_auth_cert(chain, key)
        .unwrap();

    assert!(knock(&server, config).await.is_err());
    assert!(server.hub.ids().await.unwrap().is_empty());
}

/// CVE-2021-36779: a port with rights over nodes that asks nobody who they are.
#[tokio::test]
async fn plain_tcp_is_never_served() {
    let server = server().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();

    stream.write_all(b"{\"hello\":{\"version\":1,\"role\":\"node\"}}\n").await.unwrap();

    let mut said = Vec::new();
    let _ = timeout(SOON, stream.read_to_end(&mut said)).await.expect("it closes");
    assert!(!said.windows(5).any(|part| part == b"hello"), "{said:?}");
}

#[tokio::test]
async fn a_stranger_who_says_nothing_is_sent_away_after_a_while() {
    let limits = TlsLimits { handshake: Duration::from_millis(100), ..TlsLimits::default() };
    let server = server_with(limits).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();

    let mut said = Vec::new();
    let read = timeout(SOON, stream.read_to_end(&mut said)).await.expect("it closes");

    assert!(read.is_err() || said.is_empty());
}

#[tokio::test]
async fn a_crowd_of_strangers_does_not_keep_a_node_out() {
    let limits =
        TlsLimits { handshake: Duration::from_secs(600), handshakes: 4, ..TlsLimits::default() };
    let mut server = server_with(limits).await;
    let mut crowd = Vec::new();
    for _ in 0..16 {
        crowd.push(TcpStream::connect(server.address).await.unwrap());
    }

    let _node = server.dial("n1", server.node_files(&["n1"])).await;
    server.comes("n1").await;

    let mut said = Vec::new();
    let first = timeout(SOON, crowd[0].read_to_end(&mut said)).await;
    assert!(first.is_ok(), "whoever waited longest has gone");
}

#[tokio::test]
async fn more_nodes_than_the_limit_are_refused() {
    let limits = TlsLimits { connections: 1, ..TlsLimits::default() };
    let mut server = server_with(limits).await;
    let files = server.node_files(&["*.node.hawser"]);
    let _one = server.dial("n1", files.clone()).await;
    server.comes("n1").await;

    let two = server.dial("n2", files).await;

    assert!(two.upstream.grant(&claim("n2", false)).await.is_err());
    assert_eq!(server.hub.ids().await.unwrap(), ["n1".parse().unwrap()]);
}

#[tokio::test]
async fn new_certificates_are_used_from_the_next_connection_on() {
    let mut server = server().await;
    let files = server.node_files(&["n1"]);
    let dialling = server.dial("n1", files.clone()).await;
    server.comes("n1").await;
    let next = Authority::new();

    // One after the other, as a person would: in between key and certificate do not belong together.
    for (side, names) in [(&server.files, &[CONTROL]), (&files, &["n1"])] {
        let (certificate, key) = next.sign(names, Flaw::None);
        put(&side.authority, &next.pem());
        put(&side.certificate, &certificate);
        // Somebody looks at the files just now.
        let _ = TcpStream::connect(server.address).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        put(&side.key, &key);
    }
    server.hub.disconnect_all();

    assert_eq!(
        timeout(SOON, server.changes.recv()).await.unwrap().unwrap(),
        NodeChange::Went("n1".parse().unwrap())
    );
    server.comes("n1").await;
    dialling.upstream.grant(&claim("n1", false)).await.expect("over the new certificates");
    let old = server.authority.files(&server.folder.path().join("old"), &["n2"], Flaw::None, &next);
    let late = server.dial("n2", old).await;
    assert!(late.upstream.grant(&claim("n2", false)).await.is_err(), "the old authority is gone");
}

#[tokio::test]
async fn files_that_cannot_be_used_leave_the_earlier_ones_in_use() {
    let mut server = server().await;
    let files = server.node_files(&["n1"]);
    put(&server.files.certificate, "no certificate");
    std::fs::remove_file(&server.files.key).unwrap();

    let _node = server.dial("n1", files).await;

    server.comes("n1").await;
}

/// PEM, with something else inside.
const NO_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";

#[tokio::test]
async fn files_that_cannot_be_used_at_the_start_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let good =
        |name: &str| authority.files(&folder.path().join(name), &["n"], Flaw::None, &authority);
    let other = good("other");
    let with = |name: &str, spoil: &dyn Fn(&mut TlsFiles)| {
        let mut files = good(name);
        spoil(&mut files);
        files
    };
    let missing = |path: &Path| path.with_file_name("missing");

    for (files, word) in [
        (with("a", &|files| files.key = other.key.clone()), "tls.key"),
        (with("b", &|files| files.certificate = missing(&files.certificate)), "missing"),
        (with("c", &|files| put(&files.authority, "")), "ca.crt"),
        (with("d", &|files| put(&files.key, "")), "tls.key"),
        (with("e", &|files| put(&files.certificate, NO_CERTIFICATE)), "tls.crt"),
    ] {
        let server = TlsListener::bind("127.0.0.1:0".parse().unwrap(), files.clone()).await;
        let client = TlsTarget::open("localhost", 1, None, files).await;
        for error in [server.err().expect("unusable"), client.expect_err("unusable")] {
            assert_eq!(error.kind(), Kind::Invalid, "{error:?}");
            assert!(error.sentence().contains(word), "{error:?}");
        }
    }
    let named = TlsTarget::open("a b", 1, None, good("f")).await.expect_err("no name");
    assert_eq!(named.kind(), Kind::Invalid);
}
