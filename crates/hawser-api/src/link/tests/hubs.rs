//! The control half: who is connected, and what becomes of doubles and of the silent.

use std::sync::Arc;
use std::time::Duration;

use hawser_core::name::NodeId;
use hawser_core::port::{Node, Nodes};
use hawser_core::{Kind, Outcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::fake::*;
use crate::link::drive::KeepAlive;
use crate::link::serve::{Ended, Session};
use crate::link::tasks::Tasks;
use crate::link::uplink::Uplink;
use crate::link::{Hub, LinkError, NodeChange, NodeClient};

fn id(text: &str) -> NodeId {
    text.parse().unwrap()
}

struct Joined {
    hub: JoinHandle<Result<(), LinkError>>,
    node: JoinHandle<LinkError>,
}

/// Connects a node to a hub over a pair of sockets, with a connection number of its own.
fn join(hub: &Hub, node: &Arc<FakeNode>, connection: u64) -> Joined {
    let (near, far) = UnixStream::pair().unwrap();
    let hub = hub.clone();
    let node = node.clone() as Arc<dyn Node>;
    Joined {
        hub: tokio::spawn(async move { hub.accept(far).await }),
        node: tokio::spawn(async move {
            let (_keep, down) = watch::channel(false);
            let session = Session {
                node,
                tasks: Tasks::default(),
                keep_alive: KeepAlive::default(),
                uplink: Uplink::default(),
            };
            match session.run(near, connection, down).await {
                Ended::Never(error) | Ended::After(error) => error,
            }
        }),
    }
}

#[tokio::test]
async fn a_node_is_there_from_its_hello_to_its_end() {
    let hub = Hub::default();
    let mut changes = hub.subscribe();
    let node = FakeNode::new("n1");

    let joined = join(&hub, &node, 1);
    assert_eq!(changes.recv().await.unwrap(), NodeChange::Came(id("n1")));
    let remote = hub.get(&id("n1")).await.unwrap();
    assert_eq!(remote.attachments().await.unwrap(), vec![record()]);
    assert_eq!(hub.ids().await.unwrap(), [id("n1")]);

    joined.node.abort();
    assert_eq!(changes.recv().await.unwrap(), NodeChange::Went(id("n1")));
    joined.hub.await.unwrap().unwrap();
    let error = hub.get(&id("n1")).await.err().expect("gone");
    assert_eq!(error.kind(), Kind::Unavailable);
    let stale = remote.freeze(&publication()).await.unwrap_err();
    assert_eq!((stale.kind(), stale.outcome()), (Kind::Unavailable, Outcome::Nothing));
}

#[tokio::test]
async fn a_newer_connection_takes_over_and_the_older_one_is_told() {
    let hub = Hub::default();
    let mut changes = hub.subscribe();
    let (old, new) = (FakeNode::new("n1"), FakeNode::new("n1"));
    let first = join(&hub, &old, 5);
    changes.recv().await.unwrap();
    old.hold();
    let remote = hub.get(&id("n1")).await.unwrap();
    let in_flight = tokio::spawn(async move { remote.freeze(&publication()).await.unwrap_err() });
    old.wait_seen(1).await;

    let _second = join(&hub, &new, 6);
    assert_eq!(changes.recv().await.unwrap(), NodeChange::Came(id("n1")));

    assert!(in_flight.await.unwrap().is_unknown());
    assert!(matches!(first.node.await.unwrap(), LinkError::Replaced));
    assert!(matches!(first.hub.await.unwrap(), Err(LinkError::Replaced)));
    hub.get(&id("n1")).await.unwrap().thaw(&publication()).await.unwrap();
    assert_eq!(new.seen.lock().unwrap().len(), 1, "work goes to the newer one");
    assert!(changes.try_recv().is_err(), "the older one's end does not remove the newer");
}

#[tokio::test]
async fn an_older_connection_is_refused_unless_the_host_was_booted_since() {
    let hub = Hub::default();
    let mut changes = hub.subscribe();
    let node = FakeNode::new("n1");
    let _first = join(&hub, &node, 5);
    changes.recv().await.unwrap();

    let late = join(&hub, &FakeNode::new("n1"), 4);
    let error = late.node.await.unwrap();
    assert!(error.to_string().contains("node n1 is connected already"), "{error}");
    assert!(matches!(late.hub.await.unwrap(), Err(LinkError::Taken { .. })));

    let _booted = join(&hub, &FakeNode::booted("n1", "boot-2"), 4);
    assert_eq!(changes.recv().await.unwrap(), NodeChange::Came(id("n1")));
    let record = hub.get(&id("n1")).await.unwrap().describe().await.unwrap();
    assert_eq!(record.boot_id, "boot-2");
}

#[tokio::test]
async fn nodes_of_this_process_are_listed_and_cannot_be_pushed_out() {
    let hub = Hub::default();
    let mut changes = hub.subscribe();
    hub.add_local(id("here"), FakeNode::new("here"));
    let _there = join(&hub, &FakeNode::new("there"), 1);
    assert_eq!(changes.recv().await.unwrap(), NodeChange::Came(id("here")));
    assert_eq!(changes.recv().await.unwrap(), NodeChange::Came(id("there")));
    assert_eq!(hub.ids().await.unwrap(), [id("here"), id("there")]);

    let imposter = join(&hub, &FakeNode::new("here"), u64::MAX);
    assert!(matches!(imposter.hub.await.unwrap(), Err(LinkError::Taken { .. })));

    hub.remove_local(&id("there"));
    hub.remove_local(&id("here"));
    assert_eq!(changes.recv().await.unwrap(), NodeChange::Went(id("here")));
    assert_eq!(hub.ids().await.unwrap(), [id("there")]);
}

#[tokio::test]
async fn callers_are_sent_to_the_other_socket_and_nodes_without_a_record_away() {
    let hub = Hub::default();
    let (near, far) = UnixStream::pair().unwrap();
    let accepted = tokio::spawn(async move { hub.accept(far).await });
    let error = NodeClient::open(near).await.unwrap_err();
    assert_eq!(hawser_core::Classify::kind(&error), Kind::Denied);
    assert!(accepted.await.unwrap().is_err());

    let hub = Hub::default();
    let (mut near, far) = UnixStream::pair().unwrap();
    near.write_all(b"{\"hello\":{\"version\":1,\"role\":\"node\"}}\n").await.unwrap();
    assert!(matches!(hub.accept(far).await, Err(LinkError::RecordMissing)));
    let mut said = String::new();
    near.read_to_string(&mut said).await.unwrap();
    assert!(said.contains("sent no node record"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_is_asked_and_then_given_up() {
    let keep_alive =
        KeepAlive { ask_after: Duration::from_secs(2), lost_after: Duration::from_secs(6) };
    let hub = Hub::new(keep_alive);
    let (mut near, far) = tokio::io::duplex(64 << 10);
    let record = FakeNode::new("n1").describe().await.unwrap();
    let hello = serde_json::json!({ "hello": { "version": 1, "role": "node", "node": record } });
    near.write_all(format!("{hello}\n").as_bytes()).await.unwrap();
    let began = tokio::time::Instant::now();

    let error = hub.accept(far).await.unwrap_err();

    assert!(matches!(error, LinkError::Silent(_)), "{error}");
    assert_eq!(began.elapsed().as_secs(), 6);
    let mut said = String::new();
    near.read_to_string(&mut said).await.unwrap();
    assert!(said.contains("{\"ping\":1}"), "{said}");
    assert!(said.contains("said nothing for 6s"), "{said}");
    assert!(hub.ids().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_idle_link_stays_for_hours() {
    let hub = Hub::default();
    let (near, far) = tokio::io::duplex(64 << 10);
    let accepted = tokio::spawn({
        let hub = hub.clone();
        async move { hub.accept(far).await }
    });
    let (_keep, down) = watch::channel(false);
    let _node = tokio::spawn(crate::link::serve_node(near, FakeNode::new("n1"), down));

    tokio::time::sleep(Duration::from_secs(7200)).await;

    assert!(!accepted.is_finished());
    assert_eq!(hub.ids().await.unwrap(), [id("n1")]);
    hub.disconnect_all();
    accepted.await.unwrap().unwrap();
    assert!(hub.ids().await.unwrap().is_empty());
}
