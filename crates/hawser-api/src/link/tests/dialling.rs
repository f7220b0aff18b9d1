//! Nodes that dial a socket, again and again, and the accept loops.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hawser_core::port::{Node, Nodes};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use super::fake::*;
use crate::link::{
    DialOptions, Hub, NodeChange, NodeClient, dial, listen_for_callers, listen_for_nodes,
};

fn quick() -> DialOptions {
    DialOptions {
        first_wait: Duration::from_millis(5),
        longest_wait: Duration::from_millis(40),
        ..DialOptions::default()
    }
}

/// Whoever runs the tests: the owner of a file it just made.
fn me(folder: &Path) -> BTreeSet<u32> {
    use std::os::unix::fs::MetadataExt;
    BTreeSet::from([std::fs::metadata(folder).unwrap().uid()])
}

#[tokio::test]
async fn a_node_finds_a_server_that_comes_late_and_one_that_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("link.sock");
    let node = FakeNode::new("n1");
    let (stop_node, node_down) = watch::channel(false);
    let dialling = tokio::spawn(dial(socket.clone(), node.clone(), quick(), node_down));
    tokio::time::sleep(Duration::from_millis(30)).await;

    for round in 0..3 {
        let hub = Hub::default();
        let mut changes = hub.subscribe();
        let (stop, down) = watch::channel(false);
        let listener = UnixListener::bind(&socket).unwrap();
        let server = tokio::spawn(listen_for_nodes(listener, hub.clone(), me(folder.path()), down));
        let came = tokio::time::timeout(Duration::from_secs(10), changes.recv()).await;
        assert_eq!(came.unwrap().unwrap(), NodeChange::Came("n1".parse().unwrap()));
        let remote = hub.get(&"n1".parse().unwrap()).await.unwrap();
        remote.freeze(&publication()).await.unwrap();
        assert_eq!(node.seen.lock().unwrap().len(), round + 1);
        stop.send_replace(true);
        server.await.unwrap();
        std::fs::remove_file(&socket).unwrap();
    }

    stop_node.send_replace(true);
    dialling.await.unwrap();
}

#[tokio::test]
async fn work_goes_on_while_the_link_is_away_and_shut_down_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("link.sock");
    let hub = Hub::default();
    let mut changes = hub.subscribe();
    let node = FakeNode::new("n1");
    let (_stop, down) = watch::channel(false);
    let (stop_node, node_down) = watch::channel(false);
    let listener = UnixListener::bind(&socket).unwrap();
    tokio::spawn(listen_for_nodes(listener, hub.clone(), me(folder.path()), down));
    let dialling = tokio::spawn(dial(socket, node.clone(), quick(), node_down));
    changes.recv().await.unwrap();
    node.hold();
    let remote = hub.get(&"n1".parse().unwrap()).await.unwrap();
    let call = tokio::spawn(async move { remote.freeze(&publication()).await.unwrap_err() });
    node.wait_seen(1).await;

    hub.disconnect_all();
    assert!(call.await.unwrap().is_unknown());
    assert_eq!(changes.recv().await.unwrap(), NodeChange::Went("n1".parse().unwrap()));
    assert_eq!(changes.recv().await.unwrap(), NodeChange::Came("n1".parse().unwrap()));

    stop_node.send_replace(true);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!dialling.is_finished(), "the work is still under way");
    node.release();
    dialling.await.unwrap();
    assert_eq!(*node.finished.borrow(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stays_away_is_not_flooded() {
    let tries = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = tries.clone();
    let (stop, down) = watch::channel(false);
    let connect = move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async { Err::<UnixStream, _>(std::io::Error::other("nobody there")) }
    };
    let dialling = tokio::spawn(crate::link::dial_with(
        connect,
        FakeNode::new("n1") as Arc<dyn Node>,
        DialOptions::default(),
        down,
    ));

    tokio::time::sleep(Duration::from_secs(600)).await;

    let tried = tries.load(std::sync::atomic::Ordering::Relaxed);
    assert!((60..=140).contains(&tried), "{tried} tries in ten minutes");
    stop.send_replace(true);
    dialling.await.unwrap();
}

#[tokio::test]
async fn a_node_that_is_turned_away_does_not_come_back_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("link.sock");
    let hub = Hub::default();
    hub.add_local("n1".parse().unwrap(), FakeNode::new("n1"));
    let listener = UnixListener::bind(&socket).unwrap();
    let (stop, down) = watch::channel(false);
    let options = DialOptions { longest_wait: Duration::from_secs(60), ..quick() };
    let dialling = tokio::spawn(dial(socket, FakeNode::new("n1"), options, down));

    let mut accepted = 0;
    let counting = async {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            accepted += 1;
            assert!(hub.accept(stream).await.is_err());
        }
    };
    let _ = tokio::time::timeout(Duration::from_millis(400), counting).await;

    assert!((2..12).contains(&accepted), "dialled {accepted} times");
    stop.send_replace(true);
    dialling.await.unwrap();
}

#[tokio::test]
async fn the_library_socket_serves_many_callers_and_refuses_other_users() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("node.sock");
    let node = FakeNode::new("n1");
    let (stop, down) = watch::channel(false);
    let listener = UnixListener::bind(&socket).unwrap();
    let serving = tokio::spawn(listen_for_callers(listener, node.clone(), me(folder.path()), down));
    for _ in 0..3 {
        let client = NodeClient::open(UnixStream::connect(&socket).await.unwrap()).await.unwrap();
        client.freeze(&publication()).await.unwrap();
    }
    assert_eq!(node.seen.lock().unwrap().len(), 3);
    stop.send_replace(true);
    serving.await.unwrap();

    let other = folder.path().join("other.sock");
    let listener = UnixListener::bind(&other).unwrap();
    let (_stop, down) = watch::channel(false);
    tokio::spawn(listen_for_callers(listener, node, BTreeSet::from([u32::MAX - 1]), down));
    assert!(NodeClient::open(UnixStream::connect(&other).await.unwrap()).await.is_err());
}
