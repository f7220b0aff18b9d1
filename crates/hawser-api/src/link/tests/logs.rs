//! What reaches the log.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hawser_core::port::{Nodes, Upstream};
use hawser_core::{Error, Kind};
use tokio::sync::watch;
use tracing_subscriber::fmt::MakeWriter;

use super::certificates::{Authority, CONTROL, Flaw};
use super::fake::*;
use super::fake_control::*;
use crate::link::{
    Destination, DialOptions, Dialler, Hub, NodeChange, Reception, TlsListener, TlsTarget,
};

/// A log that is kept.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl io::Write for Kept {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Kept {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

// One thread, so that every task writes to this log.
#[tokio::test(flavor = "current_thread")]
async fn no_secret_is_in_any_log_at_any_level() {
    let kept = Kept::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(kept.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = |side: &str, name: &str| {
        authority.files(&folder.path().join(side), &[name], Flaw::None, &authority)
    };
    let any = "127.0.0.1:0".parse().unwrap();
    let listener = TlsListener::bind(any, files("control", CONTROL)).await.unwrap();
    let port = listener.address().unwrap().port();
    let (hub, control) = (Hub::default(), FakeControl::new());
    let mut changes = hub.subscribe();
    let (stop, down) = watch::channel(false);
    let reception = Reception { hub: hub.clone(), upstream: Some(control.clone()) };
    let serving = tokio::spawn(listener.serve(reception, down));
    let node = FakeNode::new("n1");
    let dialler = Dialler::new(node.clone(), DialOptions::default());
    let upstream = dialler.upstream();
    let target = TlsTarget::open("127.0.0.1", port, Some(CONTROL), files("node", "n1")).await;
    let (stop_node, node_down) = watch::channel(false);
    let destination = Destination::Tls(Box::new(target.unwrap()));
    let dialling = tokio::spawn(dialler.run(destination, node_down));
    let came = tokio::time::timeout(Duration::from_secs(10), changes.recv()).await;
    assert!(matches!(came.unwrap().unwrap(), NodeChange::Came(_)));

    let remote = hub.get(&"n1".parse().unwrap()).await.unwrap();
    remote.attach(&attach_work()).await.unwrap();
    upstream.grant(&claim("n1", true)).await.unwrap();
    let refuse: fn() -> Error = || Error::new(Kind::Internal, "broken");
    *node.fail.lock().unwrap() = Some(refuse);
    *control.fail.lock().unwrap() = Some(refuse);
    remote.attach(&attach_work()).await.unwrap_err();
    upstream.grant(&claim("n1", true)).await.unwrap_err();
    stop_node.send_replace(true);
    dialling.await.unwrap();
    stop.send_replace(true);
    serving.await.unwrap();

    let log = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
    // Any line of the link: whether one is heard of depends on tests beside this one, which have no log.
    assert!(log.contains("hawser_api::link"), "nothing was heard: {log}");
    assert!(!log.contains("hunter2"), "{log}");
}
