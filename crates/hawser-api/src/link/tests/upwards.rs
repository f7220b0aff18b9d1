//! What a node asks of its control half, across links that come and go.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hawser_core::port::Upstream;
use hawser_core::port::upstream::Fact;
use hawser_core::{Error, Kind, Outcome};
use tempfile::TempDir;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::fake::FakeNode;
use super::fake_control::*;
use crate::link::{
    Destination, DialOptions, Dialler, Hub, NodeChange, Reception, UpstreamClient, listen_for_nodes,
};

fn quick() -> DialOptions {
    DialOptions {
        first_wait: Duration::from_millis(2),
        longest_wait: Duration::from_millis(10),
        ..DialOptions::default()
    }
}

/// A node `n1` and its control half, over a Unix socket.
struct Rig {
    hub: Hub,
    upstream: UpstreamClient,
    stop_node: watch::Sender<bool>,
    dialling: JoinHandle<()>,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
    _folder: TempDir,
}

fn listen(socket: &Path, hub: &Hub, upstream: Option<Arc<dyn Upstream>>) -> Server {
    use std::os::unix::fs::MetadataExt;
    let me = std::fs::metadata(socket.parent().unwrap()).unwrap().uid();
    let (stop, down) = watch::channel(false);
    let reception = Reception { hub: hub.clone(), upstream };
    let listener = UnixListener::bind(socket).unwrap();
    let serving = tokio::spawn(listen_for_nodes(listener, reception, BTreeSet::from([me]), down));
    Server { stop, serving }
}

struct Server {
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

async fn rig(control: Option<Arc<FakeControl>>) -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("link.sock");
    let hub = Hub::default();
    let mut changes = hub.subscribe();
    let Server { stop, serving } =
        listen(&socket, &hub, control.map(|control| -> Arc<dyn Upstream> { control }));
    let dialler = Dialler::new(FakeNode::new("n1"), quick());
    let upstream = dialler.upstream();
    let (stop_node, node_down) = watch::channel(false);
    let dialling = tokio::spawn(dialler.run(Destination::Unix(socket), node_down));
    assert!(matches!(changes.recv().await.unwrap(), NodeChange::Came(_)));
    Rig { hub, upstream, stop_node, dialling, stop, serving, _folder: folder }
}

#[tokio::test]
async fn what_a_node_asks_and_tells_arrives_and_is_answered() {
    let control = FakeControl::new();
    let rig = rig(Some(control.clone())).await;

    assert_eq!(rig.upstream.grant(&claim("n1", true)).await.unwrap(), grant());
    for fact in facts() {
        rig.upstream.report(&report("n1", fact)).await.unwrap();
    }
    rig.upstream.release(&volume(), &"n1".parse().unwrap()).await.unwrap();

    let mut expected = vec![format!("grant {:?}", claim("n1", true))];
    expected.extend(facts().map(|fact| format!("report {:?}", report("n1", fact))));
    expected.push(format!("release {} n1", volume()));
    assert_eq!(*control.seen.lock().unwrap(), expected);
}

#[tokio::test]
async fn the_secrets_of_a_grant_arrive_and_are_never_shown() {
    let rig = rig(Some(FakeControl::new())).await;

    let granted = rig.upstream.grant(&claim("n1", false)).await.unwrap();

    assert_eq!(granted.info.secrets["auth_password"].expose(), "hunter2");
    assert!(!format!("{granted:?} {:?}", rig.upstream).contains("hunter2"));
    assert!(!serde_json::to_string(&granted).unwrap().contains("hunter2"));
}

#[tokio::test]
async fn an_error_of_the_control_half_arrives_as_it_is() {
    let control = FakeControl::new();
    let rig = rig(Some(control.clone())).await;
    *control.fail.lock().unwrap() =
        Some(|| Error::new(Kind::Precondition, "it is published elsewhere").context("granting v1"));

    let error = rig.upstream.grant(&claim("n1", true)).await.unwrap_err();

    assert_eq!((error.kind(), error.outcome()), (Kind::Precondition, Outcome::Nothing));
    assert_eq!(error.chain(), ["granting v1", "it is published elsewhere"]);
}

#[tokio::test]
async fn a_node_speaks_for_itself_alone() {
    let control = FakeControl::new();
    let rig = rig(Some(control.clone())).await;
    let other = "n2".parse().unwrap();

    for error in [
        rig.upstream.grant(&claim("n2", true)).await.map(drop).unwrap_err(),
        rig.upstream.report(&report("n2", Fact::Formatted)).await.unwrap_err(),
        rig.upstream.release(&volume(), &other).await.unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.outcome()), (Kind::Denied, Outcome::Nothing));
        assert!(error.to_string().contains("n1") && error.to_string().contains("n2"), "{error}");
    }
    assert!(control.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_control_half_that_has_nothing_for_nodes_says_so() {
    let rig = rig(None).await;

    let error = rig.upstream.grant(&claim("n1", true)).await.unwrap_err();

    assert_eq!((error.kind(), error.outcome()), (Kind::Unsupported, Outcome::Nothing));
}

#[tokio::test(start_paused = true)]
async fn without_a_link_a_call_waits_a_little_and_changes_nothing() {
    let dialler = Dialler::new(FakeNode::new("n1"), DialOptions::default());
    let upstream = dialler.upstream();
    let began = tokio::time::Instant::now();

    let error = upstream.report(&report("n1", Fact::Detached)).await.unwrap_err();

    assert_eq!((error.kind(), error.outcome()), (Kind::Unavailable, Outcome::Nothing));
    assert_eq!(began.elapsed().as_secs(), 3);
    let (_keep, down) = watch::channel(false);
    let connect = || async { Err::<UnixStream, _>(std::io::Error::other("nobody there")) };
    tokio::spawn(dialler.run_with(connect, down));
    let error = upstream.grant(&claim("n1", true)).await.map(drop).unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (Kind::Unavailable, Outcome::Nothing));
    assert!(error.to_string().contains("nobody there"), "{error}");
}

#[tokio::test]
async fn a_call_that_comes_a_little_early_waits_for_the_link() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("link.sock");
    let dialler = Dialler::new(FakeNode::new("n1"), quick());
    let upstream = dialler.upstream();
    let (_keep, down) = watch::channel(false);
    tokio::spawn(dialler.run(Destination::Unix(socket.clone()), down));
    let early = tokio::spawn(async move { upstream.grant(&claim("n1", true)).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!early.is_finished());

    let _server = listen(&socket, &Hub::default(), Some(FakeControl::new()));

    assert_eq!(early.await.unwrap().unwrap(), grant());
}

#[tokio::test]
async fn a_link_lost_during_a_call_leaves_changes_unknown_and_the_work_goes_on() {
    let control = FakeControl::new();
    let rig = rig(Some(control.clone())).await;
    control.gate.send_replace(false);
    let ask = |publish| {
        let upstream = rig.upstream.clone();
        tokio::spawn(async move { upstream.grant(&claim("n1", publish)).await.map(drop) })
    };
    let (publishes, reads) = (ask(true), ask(false));
    let told = tokio::spawn({
        let upstream = rig.upstream.clone();
        async move { upstream.report(&report("n1", Fact::Formatted)).await }
    });
    let released = tokio::spawn({
        let upstream = rig.upstream.clone();
        async move { upstream.release(&volume(), &"n1".parse().unwrap()).await }
    });
    control.wait_seen(4).await;

    rig.hub.disconnect_all();

    for change in [publishes, told, released] {
        let error = change.await.unwrap().unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (Kind::Unavailable, Outcome::Unknown));
        assert!(error.to_string().contains("link to the control half was lost"), "{error}");
    }
    let error = reads.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (Kind::Unavailable, Outcome::Nothing));
    // Shut-down waits for the work that was begun for nodes, although their link is gone.
    rig.stop.send_replace(true);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!rig.serving.is_finished());
    control.gate.send_replace(true);
    rig.serving.await.unwrap();
    assert_eq!(*control.finished.borrow(), 4);
}

#[tokio::test]
async fn calls_get_through_while_the_link_flaps() {
    let control = FakeControl::new();
    let rig = rig(Some(control.clone())).await;
    let flapping = tokio::spawn({
        let hub = rig.hub.clone();
        async move {
            for _ in 0..40 {
                tokio::time::sleep(Duration::from_millis(5)).await;
                hub.disconnect_all();
            }
        }
    });

    let mut answered = 0;
    while !flapping.is_finished() {
        match rig.upstream.report(&report("n1", Fact::Formatted)).await {
            Ok(()) => answered += 1,
            Err(error) => assert_eq!(error.kind(), Kind::Unavailable, "{error:?}"),
        }
    }

    assert!(answered > 10, "only {answered} got through");
    assert!(control.seen.lock().unwrap().len() >= answered);
    // The last cut may reach the node after this call went out, and then it takes one more.
    if let Err(error) = rig.upstream.grant(&claim("n1", true)).await {
        assert_eq!(error.kind(), Kind::Unavailable, "{error:?}");
        rig.upstream.grant(&claim("n1", true)).await.expect("the link is back");
    }
}

#[tokio::test]
async fn after_the_node_stopped_a_call_fails_at_once() {
    let rig = rig(Some(FakeControl::new())).await;
    rig.stop_node.send_replace(true);
    rig.dialling.await.unwrap();
    let began = std::time::Instant::now();

    let error = rig.upstream.grant(&claim("n1", false)).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("stopping"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(1));
    rig.stop.send_replace(true);
    rig.serving.await.unwrap();
}
