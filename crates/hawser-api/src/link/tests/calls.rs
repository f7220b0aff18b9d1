//! Calls through a client to a node and back.

use std::path::Path;
use std::sync::Arc;

use hawser_core::attach::{Detach, Health};
use hawser_core::port::Node;
use hawser_core::port::pools::{PoolAnswer, PoolCall};
use hawser_core::{ByteSize, Change, Error, Kind, Outcome};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::fake::*;
use crate::link::{LinkError, NodeClient, serve_node};

struct Rig {
    node: Arc<FakeNode>,
    client: Arc<NodeClient>,
    shutdown: watch::Sender<bool>,
    server: JoinHandle<Result<(), LinkError>>,
}

async fn rig() -> Rig {
    let node = FakeNode::new("n1");
    let (near, far) = UnixStream::pair().unwrap();
    let (shutdown, down) = watch::channel(false);
    let server = tokio::spawn(serve_node(far, node.clone() as Arc<dyn Node>, down));
    let client = Arc::new(NodeClient::open(near).await.unwrap());
    Rig { node, client, shutdown, server }
}

#[tokio::test]
async fn every_method_arrives_with_its_params_and_answers_its_result() {
    let Rig { node, client, shutdown: _shutdown, .. } = rig().await;
    let p = publication();
    let detach = Detach { force: true, ..Detach::default() };

    assert_eq!(client.describe().await.unwrap(), node.describe().await.unwrap());
    assert_eq!(client.attach(&attach_work()).await.unwrap(), Change::Made(attached()));
    assert_eq!(client.detach(&p, &detach).await.unwrap(), Change::Already(()));
    assert_eq!(client.format(&format_work()).await.unwrap(), Change::Made(()));
    assert_eq!(client.mount(&mount_work()).await.unwrap(), Change::Made(()));
    assert_eq!(client.unmount(&p, Path::new("/mnt/x")).await.unwrap(), Change::Made(()));
    assert_eq!(client.extend(&p, ByteSize::bytes(41)).await.unwrap(), ByteSize::bytes(42));
    assert_eq!(client.freeze(&p).await.unwrap(), Change::Made(()));
    assert_eq!(client.thaw(&p).await.unwrap(), Change::Already(()));
    assert_eq!(client.attachments().await.unwrap(), vec![record()]);
    assert_eq!(client.usage(&p, Path::new("/mnt/x")).await.unwrap(), usage());
    assert_eq!(client.health(&p).await.unwrap(), Health::bad("a path is down"));
    assert_eq!(client.survey(true).await.unwrap(), vec![finding()]);

    let expected = [
        format!("attach {:?}", attach_work()),
        format!("detach {p} {detach:?}"),
        format!("format {:?}", format_work()),
        format!("mount {:?}", mount_work()),
        format!("unmount {p} \"/mnt/x\""),
        format!("extend {p} 41"),
        format!("freeze {p}"),
        format!("thaw {p}"),
        "attachments".into(),
        format!("usage {p} \"/mnt/x\""),
        format!("health {p}"),
        "survey true".into(),
    ];
    assert_eq!(*node.seen.lock().unwrap(), expected);
}

#[tokio::test]
async fn calls_on_the_storage_of_a_node_arrive_and_answer() {
    let Rig { node, client, shutdown: _shutdown, .. } = rig().await;
    let (class, pools) = ("fast".parse().unwrap(), client.pools().expect("asked there"));
    let [check, delete] = [PoolCall::Check(provision()), PoolCall::Delete(at_provider())];

    let checked = pools.call(&class, check.clone()).await.unwrap();
    let deleted = pools.call(&class, delete.clone()).await.unwrap();
    let refused = pools.call(&class, PoolCall::Capacity).await.unwrap_err();

    assert_eq!(checked, PoolAnswer::Size(provision().size));
    assert_eq!(deleted, PoolAnswer::Gone(Change::Already(())));
    assert_eq!(refused.kind(), Kind::Unsupported);
    let seen = node.seen.lock().unwrap();
    assert_eq!(seen[..2], [format!("pools fast {check:?}"), format!("pools fast {delete:?}")]);
}

#[tokio::test]
async fn a_node_without_storage_says_so() {
    let node = FakeNode::new("poor");
    let (near, far) = UnixStream::pair().unwrap();
    let (_keep, down) = watch::channel(false);
    tokio::spawn(serve_node(far, node.clone() as Arc<dyn Node>, down));
    let client = NodeClient::open(near).await.unwrap();

    let call = client.pools().unwrap().call(&"fast".parse().unwrap(), PoolCall::List).await;

    let error = call.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (Kind::Precondition, Outcome::Nothing));
    assert!(node.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_link_lost_during_work_on_storage_leaves_changes_unknown() {
    let Rig { node, client, server, shutdown: _shutdown } = rig().await;
    node.hold();
    let ask = |call: PoolCall| {
        let client = client.clone();
        tokio::spawn(async move {
            client.pools().unwrap().call(&"fast".parse().unwrap(), call).await.unwrap_err()
        })
    };
    let (change, read) = (ask(PoolCall::Delete(at_provider())), ask(PoolCall::List));
    node.wait_seen(2).await;

    server.abort();

    let (change, read) = (change.await.unwrap(), read.await.unwrap());
    assert_eq!((change.kind(), change.outcome()), (Kind::Unavailable, Outcome::Unknown));
    assert_eq!((read.kind(), read.outcome()), (Kind::Unavailable, Outcome::Nothing));
}

#[tokio::test]
async fn secrets_arrive_and_are_never_shown() {
    let Rig { node, client, shutdown: _shutdown, .. } = rig().await;

    client.attach(&attach_work()).await.unwrap();

    let works = node.works.lock().unwrap();
    assert_eq!(works[0].info.secrets["auth_password"].expose(), "hunter2");
    assert_eq!(works[0], attach_work(), "all the rest arrives too");
    assert!(!node.seen.lock().unwrap()[0].contains("hunter2"));
    assert!(!format!("{client:?}").contains("hunter2"));
}

#[tokio::test]
async fn an_error_arrives_with_kind_outcome_and_its_whole_chain() {
    let Rig { node, client, shutdown: _shutdown, .. } = rig().await;
    *node.fail.lock().unwrap() = Some(|| {
        Error::new(Kind::Busy, "it is mounted")
            .with_outcome(Outcome::RolledBack)
            .context("detaching v1")
    });

    let error = client.freeze(&publication()).await.unwrap_err();

    assert_eq!((error.kind(), error.outcome()), (Kind::Busy, Outcome::RolledBack));
    assert_eq!(error.chain(), ["detaching v1", "it is mounted"]);
}

#[tokio::test]
async fn answers_come_in_any_order_and_hundreds_are_in_flight() {
    let Rig { node, client, shutdown: _shutdown, .. } = rig().await;
    node.hold();

    let calls: Vec<_> = (100..400)
        .map(|n| {
            let client = client.clone();
            tokio::spawn(
                async move { client.extend(&publication(), ByteSize::bytes(n)).await.unwrap() },
            )
        })
        .collect();
    node.wait_seen(300).await;
    node.release();

    for (n, call) in (100..400).zip(calls) {
        assert_eq!(call.await.unwrap(), ByteSize::bytes(n + 1));
    }
}

#[tokio::test]
async fn a_lost_link_leaves_changes_unknown_and_reads_unchanged() {
    let Rig { node, client, server, shutdown: _shutdown } = rig().await;
    node.hold();
    let change = tokio::spawn({
        let client = client.clone();
        async move { client.freeze(&publication()).await.unwrap_err() }
    });
    let read = tokio::spawn({
        let client = client.clone();
        async move { client.survey(false).await.unwrap_err() }
    });
    node.wait_seen(2).await;

    server.abort();

    let (change, read) = (change.await.unwrap(), read.await.unwrap());
    assert_eq!((change.kind(), change.outcome()), (Kind::Unavailable, Outcome::Unknown));
    assert!(change.to_string().contains("link to node n1 was lost during freeze"), "{change}");
    assert_eq!((read.kind(), read.outcome()), (Kind::Unavailable, Outcome::Nothing));
    let later = client.freeze(&publication()).await.unwrap_err();
    assert_eq!((later.kind(), later.outcome()), (Kind::Unavailable, Outcome::Nothing), "not sent");
}

#[tokio::test]
async fn dropping_a_call_or_the_whole_client_does_not_stop_the_work() {
    let Rig { node, client, server, shutdown: _shutdown } = rig().await;
    node.hold();
    let dropped = tokio::spawn({
        let client = client.clone();
        async move { client.freeze(&publication()).await }
    });
    node.wait_seen(1).await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    let other = client.clone();
    let second = tokio::spawn(async move { other.thaw(&publication()).await });
    node.wait_seen(2).await;
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());

    drop(client);
    node.release();

    // The server waits for the work it began, although nobody is there to hear the answer.
    server.await.unwrap().unwrap();
    assert_eq!(*node.finished.borrow(), 2);
}

#[tokio::test]
async fn a_late_answer_to_a_dropped_call_is_not_taken_for_another() {
    let Rig { node, client, shutdown: _shutdown, .. } = rig().await;
    node.hold();
    let dropped = tokio::spawn({
        let client = client.clone();
        async move { client.extend(&publication(), ByteSize::bytes(1)).await }
    });
    node.wait_seen(1).await;
    dropped.abort();

    let wanted = publication();
    let call = client.extend(&wanted, ByteSize::bytes(500));
    node.release();

    assert_eq!(call.await.unwrap(), ByteSize::bytes(501));
}

#[tokio::test]
async fn a_panic_in_the_node_fails_one_call_and_not_the_link() {
    let Rig { client, shutdown: _shutdown, .. } = rig().await;

    let error = client.extend(&publication(), ByteSize::bytes(13)).await.unwrap_err();

    assert_eq!((error.kind(), error.outcome()), (Kind::Internal, Outcome::Unknown));
    assert!(client.freeze(&publication()).await.is_ok(), "the link lives");
}

#[tokio::test]
async fn shutting_down_says_so_and_waits_for_the_work() {
    let Rig { node, client, shutdown, server } = rig().await;
    node.hold();
    let call = tokio::spawn(async move { client.freeze(&publication()).await.unwrap_err() });
    node.wait_seen(1).await;

    shutdown.send_replace(true);

    let error = call.await.unwrap();
    assert!(error.is_unknown());
    assert!(error.to_string().contains("this side closed the node link"), "{error}");
    assert!(!server.is_finished(), "the work is still under way");
    node.release();
    server.await.unwrap().unwrap();
    assert_eq!(*node.finished.borrow(), 1);
}

#[tokio::test]
async fn what_does_not_fit_or_cannot_be_said_is_refused_before_it_is_sent() {
    use std::os::unix::ffi::OsStrExt;
    let Rig { node, client, shutdown: _shutdown, .. } = rig().await;
    let mut large = mount_work();
    large.flags = vec!["x".repeat(5 << 20)];
    let odd = Path::new(std::ffi::OsStr::from_bytes(b"/mnt/\xff"));

    let too_large = client.mount(&large).await.unwrap_err();
    let unsayable = client.unmount(&publication(), odd).await.unwrap_err();

    assert_eq!((too_large.kind(), too_large.outcome()), (Kind::OutOfRange, Outcome::Nothing));
    assert_eq!((unsayable.kind(), unsayable.outcome()), (Kind::Invalid, Outcome::Nothing));
    assert!(node.seen.lock().unwrap().is_empty());
}
