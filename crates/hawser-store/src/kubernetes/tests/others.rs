//! What the store makes of what others do: other processes, people, the cluster itself.

use std::time::Duration;

use http::Method;
use serde_json::json;

use super::*;
use crate::transfer::{export, import};

#[tokio::test]
async fn a_change_of_another_process_is_seen_without_asking() {
    let fake = FakeApi::new();
    let store = open(&fake).await;
    let mut watch = store.watch(&Prefix::below(&["v"]), Revision(100)).await.unwrap();

    let made = fake.write_record("v/a", "theirs");

    let Watched::Put(found, theirs) = next(&mut watch).await else { panic!("no put") };
    assert_eq!((found, theirs.revision), (key("v/a"), Revision(made)));
    assert_eq!(store.get(&key("v/a")).await.unwrap(), Some(theirs));
    assert_eq!(fake.count(Method::GET), 0, "a read asked the API server");
    fake.remove_record("v.a");
    assert!(matches!(next(&mut watch).await, Watched::Deleted(..)));
    assert_eq!(store.get(&key("v/a")).await.unwrap(), None);
}

#[tokio::test]
async fn two_processes_that_put_the_same_value_over_the_same_revision_do_not_both_win() {
    let fake = FakeApi::new();
    let (one, two) = (open(&fake).await, open(&fake).await);
    for name in ["v/a", "secret/a"] {
        let first = done(one.create(&key(name), "same".into()).await);

        let again = done(one.put(&key(name), "same".into(), first).await);
        let lost = two.put(&key(name), "same".into(), first).await.unwrap();

        assert!(again > first, "a put that changes nothing is a change all the same");
        assert_eq!(lost, Cas::Conflict);
    }
}

#[tokio::test]
async fn a_conflict_makes_the_next_read_ask_so_that_a_loop_of_read_and_write_ends() {
    let fake = FakeApi::new();
    let store = open(&fake).await;
    let first = done(store.create(&key("v/a"), "1".into()).await);
    store.list(&Prefix::below(&["v"]), None, 1).await.unwrap();
    fake.set(|state| state.held = true);
    let theirs = fake.write_record("v/a", "2");
    assert_eq!(store.get(&key("v/a")).await.unwrap().unwrap().revision, first);

    assert_eq!(store.put(&key("v/a"), "3".into(), first).await.unwrap(), Cas::Conflict);

    let found = store.get(&key("v/a")).await.unwrap().unwrap();
    assert_eq!((found.value, found.revision), ("2".into(), Revision(theirs)));
    assert_eq!(fake.count(Method::GET), 1);
    store.get(&key("v/a")).await.unwrap();
    assert_eq!(fake.count(Method::GET), 1, "asked once, known from then on");
    done(store.put(&key("v/a"), "3".into(), Revision(theirs)).await);
}

#[tokio::test]
async fn a_key_that_another_process_removed_is_absent_after_the_conflict() {
    let fake = FakeApi::new();
    let store = open(&fake).await;
    let first = done(store.create(&key("v/a"), "1".into()).await);
    store.list(&Prefix::below(&["v"]), None, 1).await.unwrap();
    fake.set(|state| state.held = true);
    fake.remove_record("v.a");

    assert_eq!(store.delete(&key("v/a"), first).await.unwrap(), Cas::Conflict);

    assert_eq!(store.get(&key("v/a")).await.unwrap(), None);
    assert_eq!(store.get(&key("v/a")).await.unwrap(), None, "it came back");
    assert!(names(&store.list(&Prefix::below(&["v"]), None, 9).await.unwrap()).is_empty());
    let again = done(store.create(&key("v/a"), "2".into()).await);
    fake.set(|state| state.held = false);
    let listing = store.list(&Prefix::below(&["v"]), None, 9).await.unwrap();
    assert_eq!((names(&listing), listing.revision), (vec!["v/a"], again));
}

#[tokio::test]
async fn an_own_write_is_read_at_once_and_listed_when_the_watch_has_come_to_it() {
    let fake = FakeApi::new();
    let store = Arc::new(open(&fake).await);
    fake.set(|state| state.held = true);
    fake.write_record("v/b", "theirs");
    let own = done(store.create(&key("v/a"), "own".into()).await);

    assert_eq!(store.get(&key("v/a")).await.unwrap().unwrap().revision, own);
    let listing = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.list(&Prefix::below(&["v"]), None, 9).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!listing.is_finished(), "a page without the change of the other process");
    fake.set(|state| state.held = false);

    let listing = listing.await.unwrap().unwrap();
    assert_eq!((names(&listing), listing.revision), (vec!["v/a", "v/b"], own));
}

#[tokio::test]
async fn secrets_are_secrets_and_everything_else_is_not() {
    let fake = FakeApi::new();
    let store = open(&fake).await;
    let secret = done(store.create(&key("secret/chap"), "hidden".into()).await);
    done(store.create(&key("volume/a"), "shown".into()).await);

    let posts: Vec<_> = {
        let state = fake.lock();
        let posts = state.requests.iter().filter(|(method, _)| *method == Method::POST);
        posts.map(|(_, path)| path.split('?').next().unwrap_or_default().to_owned()).collect()
    };

    assert!(posts[0].ends_with("/namespaces/ns/secrets"), "{posts:?}");
    assert!(posts[1].ends_with("/namespaces/ns/records"), "{posts:?}");
    assert_eq!(store.get(&key("secret/chap")).await.unwrap().unwrap().value, "hidden");
    let second = done(store.put(&key("secret/chap"), "new".into(), secret).await);
    let listing = store.list(&Prefix::below(&["secret"]), None, 9).await.unwrap();
    assert_eq!((names(&listing), listing.revision), (vec!["secret/chap"], second));
    done(store.delete(&key("secret/chap"), second).await);
    assert_eq!(store.get(&key("secret/chap")).await.unwrap(), None);
}

#[tokio::test]
async fn a_watch_of_everything_is_in_order_over_both_resources() {
    let fake = FakeApi::new();
    let store = open(&fake).await;
    let from = store.list(&Prefix::all(), None, 1).await.unwrap().revision;
    let mut watch = store.watch(&Prefix::all(), from).await.unwrap();
    let mut made = Vec::new();
    for n in 0..20 {
        let name = if n % 3 == 0 { format!("secret/{n}") } else { format!("v/{n}") };
        made.push(done(store.create(&key(&name), "x".into()).await));
    }

    for wanted in made {
        let Watched::Put(_, found) = next(&mut watch).await else { panic!("no put") };
        assert_eq!(found.revision, wanted);
    }
}

#[tokio::test]
async fn all_keys_are_listed_in_order_over_both_resources() {
    let fake = FakeApi::new();
    let store = open(&fake).await;
    for name in ["volume/a", "secret/b", "name/a", "secret/a", "secret"] {
        done(store.create(&key(name), "x".into()).await);
    }

    let mut found = Vec::new();
    let mut after: Option<Key> = None;
    loop {
        let page = store.list(&Prefix::all(), after.as_ref(), 2).await.unwrap();
        after = page.items.last().map(|(key, _)| key.clone());
        found.extend(page.items.into_iter().map(|(key, _)| key.to_string()));
        if !page.more {
            break;
        }
    }

    assert_eq!(found, ["name/a", "secret", "secret/a", "secret/b", "volume/a"]);
}

#[tokio::test]
async fn records_move_to_another_store_and_back() {
    let (fake, other) = (FakeApi::new(), FakeApi::new());
    let store = open(&fake).await;
    for name in ["volume/a", "secret/a", "name/volume/native/%2F"] {
        done(store.create(&key(name), format!("\"{name}\"").into()).await);
    }
    done(store.create(&key("blob"), vec![0xff; 9].into()).await);
    let file = tempfile::NamedTempFile::new().unwrap();

    export(&store, file.reopen().unwrap()).await.unwrap();
    let moved = open(&other).await;
    let imported = import(&moved, file.reopen().unwrap()).await.unwrap();

    assert_eq!(imported.written, 3, "everything but the secret");
    assert_eq!(moved.get(&key("blob")).await.unwrap().unwrap().value, vec![0xff; 9]);
    assert_eq!(moved.get(&key("secret/a")).await.unwrap(), None);
}

#[tokio::test]
async fn a_store_of_many_pages_is_read_whole_also_when_a_list_is_begun_again() {
    let fake = FakeApi::new();
    for n in 0..1201 {
        fake.write_record(&format!("v/{n}"), "x");
    }
    fake.set(|state| state.expired = 2);

    let store = open(&fake).await;

    let listing = store.list(&Prefix::all(), None, 5000).await.unwrap();
    assert_eq!(listing.items.len(), 1201);
    fake.set(|state| state.expired = 5);
    let refused = Kubernetes::with_client(fake.client(), NAMESPACE.into()).await;
    assert!(matches!(refused, Err(KubernetesError::Endless { .. })));
}

#[tokio::test]
async fn objects_that_are_no_records_are_left_alone_and_unreadable_ones_are_named() {
    const RECORDS: &str = "/apis/hawser.storage/v1/namespaces/ns/records";
    let object = |name: &str, spec| json!({ "metadata": { "name": name }, "spec": spec });
    let fake = FakeApi::new();
    fake.write(RECORDS, object("other", json!({ "key": "v/x", "value": "x" })));
    fake.write(RECORDS, object("b", json!({ "key": "b", "bytes": "?" })));
    let store = open(&fake).await;
    let at = Revision(fake.lock().revision());
    let mut watch = store.watch(&Prefix::all(), at).await.unwrap();
    fake.write(RECORDS, object("c", json!({ "key": "c", "bytes": "?" })));

    assert_eq!(store.get(&key("v/x")).await.unwrap(), None);
    let told = futures_util::StreamExt::next(&mut watch).await.expect("it goes on");
    assert!(told.expect_err("an unreadable record").sentence().contains("record c"));
    for name in ["b", "c"] {
        let error = store.get(&key(name)).await.unwrap_err();
        assert_eq!(error.kind(), hawser_core::Kind::Internal);
        assert!(error.sentence().contains(&format!("record {name} ")), "{error:?}");
    }
    assert!(store.list(&Prefix::all(), None, 9).await.is_err());
    // Somebody else's object where ours would be.
    fake.write(RECORDS, object("d", json!({ "key": "v/d", "value": "x" })));
    assert_eq!(store.create(&key("d"), "x".into()).await.unwrap(), Cas::Conflict);
    let error = store.get(&key("d")).await.unwrap_err();
    assert!(error.sentence().contains("names the key v/d"), "{error:?}");
}

#[tokio::test]
async fn dropping_the_store_ends_its_watches() {
    let fake = FakeApi::new();
    let store = open(&fake).await;
    let made = done(store.create(&key("a"), "x".into()).await);
    let mut one = store.watch(&Prefix::below(&["v"]), made).await.unwrap();
    let mut all = store.watch(&Prefix::all(), made).await.unwrap();

    drop(store);

    for watch in [&mut one, &mut all] {
        let end = timeout(Duration::from_secs(10), futures_util::StreamExt::next(watch)).await;
        assert!(end.expect("it never ends").is_none());
    }
}

#[tokio::test]
async fn the_definition_is_applied_and_waited_for() {
    let fake = FakeApi::new();
    fake.set(|state| state.unserved = 3);
    let refused = Kubernetes::with_client(fake.client(), NAMESPACE.into()).await;
    assert!(matches!(refused, Err(KubernetesError::NotInstalled)));

    super::super::install::apply(fake.client(), NAMESPACE.into()).await.unwrap();

    let store = open(&fake).await;
    done(store.create(&key("a"), "x".into()).await);
    assert!(crd().contains("name: records.hawser.storage"));
}
