//! What the store makes of an API server that fails, refuses, hangs or is gone.

use std::time::Duration;

use hawser_core::{Kind, Outcome};
use http::Method;
use kube::Config;
use tokio::net::TcpListener;

use super::*;

async fn refused(store: &Kubernetes, name: &str) -> hawser_core::Error {
    store.create(&key(name), "x".into()).await.expect_err("it was told to fail")
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_unknown_and_the_next_read_asks() {
    let fake = FakeApi::new();
    let store = open(&fake).await;
    fake.set(|state| state.held = true);
    for (name, fault) in
        [("a", Fault::Lost), ("b", Fault::DoneBut(500)), ("c", Fault::DoneBut(504))]
    {
        fake.fail(Method::POST, fault);

        let error = refused(&store, name).await;

        assert!(error.is_unknown(), "{error:?}");
        let found = store.get(&key(name)).await.unwrap().expect("it was written");
        done(store.put(&key(name), "y".into(), found.revision).await);
    }
    assert_eq!(fake.count(Method::GET), 3);
}

#[tokio::test]
async fn a_write_after_503_is_not_repeated_by_itself() {
    let fake = FakeApi::new();
    let store = open(&fake).await;
    fake.fail(Method::POST, Fault::DoneBut(503));

    let error = refused(&store, "a").await;

    assert_eq!((error.kind(), error.outcome()), (Kind::Unavailable, Outcome::Unknown));
    let posts = fake.lock().requests.iter().filter(|(method, _)| *method == Method::POST).count();
    assert_eq!(posts, 1);
}

#[tokio::test(start_paused = true)]
async fn a_busy_api_server_is_asked_again_when_it_says_so() {
    let fake = FakeApi::new();
    let store = open(&fake).await;
    fake.fail(Method::POST, Fault::Status(429));
    fake.fail(Method::POST, Fault::Status(429));
    done(store.create(&key("a"), "x".into()).await);

    for _ in 0..40 {
        fake.fail(Method::POST, Fault::Status(429));
    }
    let error = refused(&store, "b").await;

    assert_eq!((error.kind(), error.outcome()), (Kind::Unavailable, Outcome::Nothing));
}

#[tokio::test]
async fn refusals_have_their_kinds_and_change_nothing() {
    let fake = FakeApi::new();
    let store = open(&fake).await;
    for (code, kind) in [
        (401, Kind::Unauthenticated),
        (403, Kind::Denied),
        (409, Kind::Unavailable),
        (413, Kind::OutOfRange),
    ] {
        fake.fail(Method::POST, Fault::Status(code));
        let error = refused(&store, "a").await;
        assert_eq!((error.kind(), error.outcome()), (kind, Outcome::Nothing), "{code}");
    }
    assert_eq!(store.get(&key("a")).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_never_answers_is_given_up() {
    let fake = FakeApi::new();
    let store = open(&fake).await;
    fake.fail(Method::POST, Fault::Hang);
    fake.fail(Method::GET, Fault::Hang);

    let error = refused(&store, "a").await;
    assert_eq!((error.kind(), error.outcome()), (Kind::Timeout, Outcome::Unknown));
    let error = store.get(&key("a")).await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (Kind::Timeout, Outcome::Nothing));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_never_got_its_turn_changed_nothing_and_one_that_did_has_all_its_time() {
    let fake = FakeApi::new();
    let store = open(&fake).await;
    // As many as can be under way, twice over: the second half begins when the first is given up.
    let names: Vec<_> = (0..192).map(|n| key(&format!("v/{n}"))).collect();
    for _ in 0..128 {
        fake.fail(Method::POST, Fault::Hang);
    }

    let writes = names.iter().map(|name| store.create(name, "x".into()));
    let answers = futures_util::future::join_all(writes).await;

    let outcomes =
        answers.iter().map(|answer| answer.as_ref().map_err(hawser_core::Error::outcome));
    let mut counts = [0; 3];
    for outcome in outcomes {
        counts[match outcome {
            Err(Outcome::Unknown) => 0,
            Err(Outcome::Nothing) => 1,
            Err(Outcome::RolledBack) | Ok(_) => 2,
        }] += 1;
    }
    let posts = fake.lock().requests.iter().filter(|(method, _)| *method == Method::POST).count();
    assert_eq!(counts[0], 128, "sent, and never answered: {counts:?}");
    assert_eq!(counts[1] + counts[2], 64);
    assert_eq!(posts, counts[0] + counts[2], "what changed nothing was not sent");
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_the_watch_never_tells_is_unknown() {
    let fake = FakeApi::new();
    let store = open(&fake).await;
    let made = done(store.create(&key("v/a"), "x".into()).await);
    store.list(&Prefix::below(&["v"]), None, 9).await.unwrap();
    fake.set(|state| state.held = true);

    let error = store.delete(&key("v/a"), made).await.unwrap_err();

    assert_eq!((error.kind(), error.outcome()), (Kind::Timeout, Outcome::Unknown));
    assert!(error.sentence().contains("its watch did not tell"), "{error:?}");
    assert_eq!(store.get(&key("v/a")).await.unwrap(), None);
    let error = store.list(&Prefix::all(), None, 9).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
}

#[tokio::test]
async fn a_watch_that_is_cut_goes_on_where_it_was() {
    let fake = FakeApi::new();
    let store = open(&fake).await;
    let mut watch = store.watch(&Prefix::below(&["v"]), Revision(100)).await.unwrap();
    let mut made = Vec::new();
    for n in 0..30 {
        made.push(done(store.create(&key(&format!("v/{n}")), "x".into()).await));
        if n % 10 == 5 {
            fake.set(super::fake::State::cut);
        }
    }

    for wanted in made {
        let Watched::Put(_, found) = next(&mut watch).await else { panic!("no put") };
        assert_eq!(found.revision, wanted);
    }
    assert_eq!(store.list(&Prefix::all(), None, 99).await.unwrap().items.len(), 30);
}

#[tokio::test]
async fn changes_that_the_api_server_no_longer_has_are_listed_and_watchers_are_told() {
    let fake = FakeApi::new();
    let store = open(&fake).await;
    let made = done(store.create(&key("v/a"), "x".into()).await);
    let listed = store.list(&Prefix::below(&["v"]), None, 9).await.unwrap();
    assert_eq!(listed.revision, made);
    let mut watch = store.watch(&Prefix::below(&["v"]), made).await.unwrap();

    fake.set(|state| state.held = true);
    fake.write_record("v/b", "x");
    fake.remove_record("v.a");
    fake.set(|state| {
        state.compact();
        state.held = false;
    });

    assert_eq!(next(&mut watch).await, Watched::Compacted);
    assert!(futures_util::StreamExt::next(&mut watch).await.is_none());
    let listing = store.list(&Prefix::below(&["v"]), None, 9).await.unwrap();
    assert_eq!(names(&listing), ["v/b"]);
    let mut watch = store.watch(&Prefix::below(&["v"]), listing.revision).await.unwrap();
    let made = done(store.create(&key("v/c"), "x".into()).await);
    let Watched::Put(_, found) = next(&mut watch).await else { panic!("no put") };
    assert_eq!(found.revision, made);
}

#[tokio::test]
async fn a_removal_that_is_missed_while_the_list_is_read_anew_is_answered() {
    let fake = FakeApi::new();
    let store = Arc::new(open(&fake).await);
    let made = done(store.create(&key("v/a"), "x".into()).await);
    store.list(&Prefix::below(&["v"]), None, 9).await.unwrap();
    fake.set(|state| state.held = true);

    let removed = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.delete(&key("v/a"), made).await }
    });
    while fake.count(Method::DELETE) == 0 {
        tokio::task::yield_now().await;
    }
    fake.set(|state| {
        state.compact();
        state.held = false;
    });

    assert!(done(removed.await.unwrap()) > made);
    assert_eq!(store.get(&key("v/a")).await.unwrap(), None);
}

#[tokio::test]
async fn a_watch_from_before_the_start_has_the_changes_or_says_so() {
    let fake = FakeApi::new();
    let first = fake.write_record("v/a", "1");
    let second = fake.write_record("v/a", "2");
    let gone = fake.write_record("v/b", "x");
    fake.remove_record("v.b");
    let store = open(&fake).await;

    let mut watch = store.watch(&Prefix::below(&["v"]), Revision(first)).await.unwrap();
    for wanted in [second, gone] {
        let Watched::Put(_, found) = next(&mut watch).await else { panic!("no put") };
        assert_eq!(found.revision, Revision(wanted));
    }
    assert!(matches!(next(&mut watch).await, Watched::Deleted(..)));

    fake.set(super::fake::State::compact);
    let store = open(&fake).await;
    for from in [first, second] {
        let mut watch = store.watch(&Prefix::below(&["v"]), Revision(from)).await.unwrap();
        assert_eq!(next(&mut watch).await, Watched::Compacted);
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_watch_reads_ask_the_api_server_until_it_is_back() {
    let fake = FakeApi::new();
    let store = open(&fake).await;
    done(store.create(&key("v/a"), "x".into()).await);
    fake.set(|state| {
        state.unwatchable = true;
        state.cut();
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let theirs = fake.write_record("v/a", "theirs");

    let found = store.get(&key("v/a")).await.unwrap().unwrap();

    assert_eq!((fake.count(Method::GET), found.revision), (1, Revision(theirs)));
    let error = store.list(&Prefix::below(&["v"]), None, 9).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "a page of what was there once");
    fake.set(|state| state.unwatchable = false);
    let listing = store.list(&Prefix::below(&["v"]), None, 9).await.unwrap();
    assert_eq!(listing.revision, Revision(theirs));
    store.get(&key("v/a")).await.unwrap();
    assert_eq!(fake.count(Method::GET), 1, "the watch is back");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_silent_while_it_has_something_to_tell_is_begun_again() {
    let fake = FakeApi::new();
    let store = open(&fake).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(fake.watches(), 1, "there was nothing to tell");

    fake.set(|state| state.held = true);
    done(store.create(&key("a"), "x".into()).await);
    tokio::time::sleep(Duration::from_secs(11)).await;

    assert!(fake.watches() > 1);
    fake.set(|state| state.held = false);
    let mut watches = fake.watches();
    store.list(&Prefix::below(&["a"]), None, 9).await.unwrap();
    tokio::time::sleep(Duration::from_secs(140)).await;
    assert!(fake.watches() <= watches + 1, "it is told everything");
    watches = fake.watches();
    tokio::time::sleep(Duration::from_secs(170)).await;
    assert!(fake.watches() > watches, "after minutes of silence it is asked again");
}

#[tokio::test]
async fn a_change_that_is_given_up_is_read_from_the_api_server() {
    let fake = FakeApi::new();
    let store = open(&fake).await;
    fake.fail(Method::POST, Fault::Hang);
    let name = key("a");

    let given_up = timeout(Duration::from_millis(20), store.create(&name, "x".into())).await;

    assert!(given_up.is_err());
    assert_eq!(store.get(&name).await.unwrap(), None);
    assert_eq!(fake.count(Method::GET), 1);
}

#[tokio::test]
async fn values_and_keys_beyond_the_limits_are_refused_before_they_are_sent() {
    let fake = FakeApi::new();
    let store = open(&fake).await;

    let error = store.create(&key("a"), vec![0; LARGEST_OBJECT + 1].into()).await.unwrap_err();

    assert_eq!(error.kind(), Kind::OutOfRange);
    assert!(error.sentence().contains("1048577 bytes"), "{error:?}");
    assert!(fake.lock().requests.iter().all(|(method, _)| *method == Method::GET));
    for impossible in [Revision(0), Revision(u64::MAX)] {
        assert_eq!(store.put(&key("a"), "x".into(), impossible).await.unwrap(), Cas::Conflict);
        assert_eq!(store.delete(&key("a"), impossible).await.unwrap(), Cas::Conflict);
    }
    assert!(fake.lock().requests.iter().all(|(method, _)| *method == Method::GET));
}

/// A client of an address, over real sockets.
fn client_of(listener: &TcpListener) -> Client {
    let address = listener.local_addr().unwrap();
    let mut config = Config::new(format!("http://{address}").parse().unwrap());
    config.default_retry = false;
    // No certificates are needed, and the machine need not have any.
    config.root_cert = Some(Vec::new());
    Client::try_from(config).unwrap()
}

#[tokio::test]
async fn nobody_there_changed_nothing_and_a_connection_that_breaks_is_unknown() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let api = Api::new(client_of(&listener), NAMESPACE.into());
    let breaking = tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        socket.readable().await.unwrap();
        let mut some = [0; 16];
        let _ = socket.try_read(&mut some);
        drop(socket);
        listener
    });

    let error = api.create(&key("a"), &"x".into()).await.expect_err("the connection broke");
    assert!(matches!(error, KubernetesError::Lost { .. }), "{error:?}");
    assert!(hawser_core::Error::from(error).is_unknown());
    drop(breaking.await.unwrap());
    let error = api.create(&key("a"), &"x".into()).await.expect_err("nobody is there");
    assert!(matches!(error, KubernetesError::Unreachable { .. }), "{error:?}");
    let error = hawser_core::Error::from(error);
    assert_eq!((error.kind(), error.outcome()), (Kind::Unavailable, Outcome::Nothing));
}

#[tokio::test]
async fn the_client_of_a_setting_repeats_no_write_either() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    let server = format!("http://{}", listener.local_addr().unwrap());
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{ "name": "here",
            "cluster": { "server": server, "certificate-authority-data": "Cg==" } }],
        "contexts": [{ "name": "here", "context": { "cluster": "here", "user": "me" } }],
        "users": [{ "name": "me", "user": {} }],
    });
    std::fs::write(&path, config.to_string()).unwrap();
    let busy = tokio::spawn(async move {
        let mut requests = 0;
        while let Ok(Ok((mut socket, _))) = timeout(Duration::from_secs(2), listener.accept()).await
        {
            let mut some = [0; 4096];
            let _ = tokio::io::AsyncReadExt::read(&mut socket, &mut some).await;
            let answer = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            tokio::io::AsyncWriteExt::write_all(&mut socket, answer).await.unwrap();
            requests += 1;
        }
        requests
    });

    let place = Place::parse(&format!("ns?kubeconfig={}", path.display())).unwrap();
    let (client, namespace) = place.connect().await.unwrap_or_else(|error| panic!("{error}"));
    let error = Api::new(client, namespace).create(&key("a"), &"x".into()).await;

    let error = hawser_core::Error::from(error.expect_err("the API server is busy"));
    assert_eq!((error.kind(), error.outcome()), (Kind::Unavailable, Outcome::Unknown));
    assert_eq!(busy.await.unwrap(), 1);
}
