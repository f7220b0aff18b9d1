//! The Kubernetes store against a real API server: its contract, and what no fake can prove.
//!
//! `make e2e-store` runs it. `HAWSER_CLUSTER_KUBECONFIG` names the kubeconfig of an administrator of a
//! cluster that is there for tests: each test makes a namespace and leaves it behind. An API server
//! and an etcd are enough of a cluster.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use hawser_core::port::Store;
use hawser_core::port::store::{Cas, Key, Prefix, Revision, Watched};
use hawser_core::{Kind, Result};
use hawser_store::kubernetes::{CHANGES_KEPT, Kubernetes, install};
use hawser_testkit::contract::store::StoreRig;
use hawser_testkit::skip::say;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

static NAMESPACES: AtomicU32 = AtomicU32::new(0);
static INSTALLED: OnceCell<()> = OnceCell::const_new();

#[expect(clippy::disallowed_methods, reason = "tests are told where their cluster is")]
fn kubeconfig() -> PathBuf {
    let path = std::env::var_os("HAWSER_CLUSTER_KUBECONFIG");
    path.expect("HAWSER_CLUSTER_KUBECONFIG names the kubeconfig of a cluster for tests").into()
}

async fn admin() -> Client {
    let file = Kubeconfig::read_from(kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A new namespace in a cluster that has records.
async fn namespace() -> String {
    let place = format!("default?kubeconfig={}", kubeconfig().display());
    INSTALLED.get_or_init(|| async { install(&place).await.unwrap() }).await;
    let number = NAMESPACES.fetch_add(1, Ordering::SeqCst);
    let name = format!("hawser-{}-{number}", std::process::id());
    let namespace: Namespace = object(json!({ "metadata": { "name": name } }));
    let namespaces = Api::<Namespace>::all(admin().await);
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    name
}

async fn open(namespace: &str, kubeconfig: &Path) -> Result<Kubernetes> {
    Kubernetes::open(&format!("{namespace}?kubeconfig={}", kubeconfig.display())).await
}

async fn rig() -> StoreRig {
    let namespace = namespace().await;
    StoreRig::new(CHANGES_KEPT, move || {
        let namespace = namespace.clone();
        Box::pin(async move {
            Arc::new(open(&namespace, &kubeconfig()).await.unwrap()) as Arc<dyn Store>
        })
    })
    .await
}

hawser_testkit::store_contract!(rig().await);

fn key(text: &str) -> Key {
    text.parse().unwrap()
}

fn done(cas: Result<Cas>) -> Revision {
    match cas.unwrap() {
        Cas::Done(revision) => revision,
        Cas::Conflict => panic!("a conflict where none can be"),
    }
}

/// Two processes, as far as the API server can tell.
async fn pair() -> (String, Arc<Kubernetes>, Arc<Kubernetes>) {
    let namespace = namespace().await;
    let one = open(&namespace, &kubeconfig()).await.unwrap();
    let two = open(&namespace, &kubeconfig()).await.unwrap();
    (namespace, Arc::new(one), Arc::new(two))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_lose_no_update_and_no_change() {
    let (_, one, two) = pair().await;
    let first = done(one.create(&key("v/counter"), "0".into()).await);
    let mut watch = two.watch(&Prefix::all(), first).await.unwrap();
    let count = |store: Arc<Kubernetes>| async move {
        let mut made = Vec::new();
        for _ in 0..40 {
            loop {
                let Some(found) = store.get(&key("v/counter")).await.unwrap() else { continue };
                let count: u32 = std::str::from_utf8(&found.value).unwrap().parse().unwrap();
                let next = (count + 1).to_string().into();
                let cas = store.put(&key("v/counter"), next, found.revision).await.unwrap();
                if let Cas::Done(revision) = cas {
                    made.push(revision);
                    break;
                }
            }
        }
        made
    };

    let counted = join_all([&one, &two].map(|store| tokio::spawn(count(Arc::clone(store))))).await;

    let mut made: Vec<_> = counted.into_iter().flat_map(|made| made.unwrap()).collect();
    made.sort_unstable();
    let mut seen = Vec::new();
    while seen.len() < made.len() {
        match watch.next().await.unwrap().unwrap() {
            Watched::Put(_, found) => seen.push(found.revision),
            other @ (Watched::Deleted(..) | Watched::Compacted) => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, made);
    let listing = one.list(&Prefix::below(&["v"]), None, 9).await.unwrap();
    assert_eq!(listing.items[0].1.value, "80");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_value_over_the_same_revision_wins_once() {
    let (_, one, two) = pair().await;
    for name in ["v/a", "secret/a"] {
        let first = done(one.create(&key(name), "same".into()).await);
        let (name, same) = (&key(name), || "same".into());

        let (a, b) = tokio::join!(one.put(name, same(), first), two.put(name, same(), first));

        let wins = [a.unwrap(), b.unwrap()].iter().filter(|cas| **cas != Cas::Conflict).count();
        assert_eq!(wins, 1, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_objects_of_their_own_and_in_order_with_the_rest() {
    let (namespace, one, two) = pair().await;
    let from = one.list(&Prefix::all(), None, 1).await.unwrap().revision;
    let mut watch = one.watch(&Prefix::all(), from).await.unwrap();
    let mut made = Vec::new();
    for n in 0..30 {
        let name = if n % 2 == 0 { format!("secret/{n}") } else { format!("v/{n}") };
        let store = if n % 3 == 0 { &one } else { &two };
        made.push(done(store.create(&key(&name), "x".into()).await));
    }
    made.push(done(two.delete(&key("secret/0"), made[0]).await));

    for wanted in &made {
        let found = match watch.next().await.unwrap().unwrap() {
            Watched::Put(_, found) => found.revision,
            Watched::Deleted(_, revision) => revision,
            Watched::Compacted => panic!("compacted"),
        };
        assert_eq!(found, *wanted);
    }
    let secrets = Api::<Secret>::namespaced(admin().await, &namespace);
    let labelled = ListParams::default().labels("hawser.storage/record=true");
    let names: Vec<_> = secrets.list(&labelled).await.unwrap().into_iter().collect();
    let names: Vec<_> =
        names.iter().map(|secret| secret.metadata.name.as_deref().unwrap()).collect();
    assert!(names.contains(&"hawser.secret.2") && !names.contains(&"hawser.secret.0"), "{names:?}");
}

/// A kubeconfig of somebody who has just the rights that the store asks for, in one namespace.
async fn servant(namespace: &str, folder: &Path) -> PathBuf {
    let admin = admin().await;
    let post = PostParams::default();
    let metadata = json!({ "name": "hawser" });
    let verbs = json!(["get", "list", "watch", "create", "update", "patch", "delete"]);
    let role: Role = object(json!({ "metadata": metadata, "rules": [
        { "apiGroups": ["hawser.storage"], "resources": ["records"], "verbs": verbs },
        { "apiGroups": [""], "resources": ["secrets"], "verbs": verbs },
    ] }));
    let binding: RoleBinding = object(json!({
        "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "hawser" },
        "subjects": [{ "kind": "ServiceAccount", "name": "hawser", "namespace": namespace }],
    }));
    let account: ServiceAccount = object(json!({ "metadata": metadata }));
    let accounts = Api::<ServiceAccount>::namespaced(admin.clone(), namespace);
    accounts.create(&post, &account).await.unwrap();
    Api::<Role>::namespaced(admin.clone(), namespace).create(&post, &role).await.unwrap();
    Api::<RoleBinding>::namespaced(admin, namespace).create(&post, &binding).await.unwrap();
    let request: TokenRequest = object(json!({ "spec": { "audiences": [] } }));
    let token = accounts.create_token_request("hawser", &post, &request).await.unwrap();

    let file = Kubeconfig::read_from(kubeconfig()).unwrap();
    let cluster = file.clusters[0].cluster.clone().unwrap();
    let written = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{ "name": "test", "cluster": cluster }],
        "users": [{ "name": "test", "user": { "token": token.status.unwrap().token } }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
    });
    let path = folder.join("kubeconfig");
    std::fs::write(&path, written.to_string()).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_in_one_namespace_are_enough_and_none_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let (own, other) = (namespace().await, namespace().await);
    let servant = servant(&own, folder.path()).await;

    let store = open(&own, &servant).await.unwrap();
    for name in ["v/a", "secret/a"] {
        let made = done(store.create(&key(name), "1".into()).await);
        let made = done(store.put(&key(name), "2".into(), made).await);
        assert_eq!(store.list(&Prefix::all(), None, 9).await.unwrap().items.len(), 1);
        let mut watch = store.watch(&Prefix::all(), Revision(made.0 - 1)).await.unwrap();
        assert!(matches!(watch.next().await.unwrap().unwrap(), Watched::Put(..)));
        done(store.delete(&key(name), made).await);
    }

    let Err(error) = open(&other, &servant).await else { panic!("it may not read there") };
    assert_eq!(error.kind(), Kind::Denied, "{error:?}");
    let Err(error) = install(&format!("{own}?kubeconfig={}", servant.display())).await else {
        panic!("it may not define resources")
    };
    assert_eq!(error.kind(), Kind::Denied, "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_that_is_not_there_is_named() {
    namespace().await;
    let store = open("hawser-nowhere", &kubeconfig()).await.unwrap();

    let error = store.create(&key("a"), "x".into()).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Precondition);
    assert!(error.sentence().contains("the namespace hawser-nowhere does not exist"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_records_are_written_and_read_without_asking_for_each() {
    const RECORDS: usize = 2000;
    const AT_ONCE: usize = 256;
    let (namespace, one, _) = pair().await;
    let value = "x".repeat(1024);
    let names: Vec<_> = (0..RECORDS).map(|n| key(&format!("volume/{n:05}"))).collect();

    let started = Instant::now();
    let creates = names.iter().map(|name| one.create(name, value.clone().into()));
    let made: Vec<_> = stream::iter(creates).buffered(AT_ONCE).map(done).collect().await;
    let created = started.elapsed();
    let started = Instant::now();
    for (name, revision) in names.iter().zip(&made) {
        assert_eq!(one.get(name).await.unwrap().unwrap().revision, *revision);
    }
    let read = started.elapsed();
    let started = Instant::now();
    let again = open(&namespace, &kubeconfig()).await.unwrap();
    let opened = started.elapsed();
    let removes = names.iter().zip(&made).map(|(name, revision)| one.delete(name, *revision));
    let started = Instant::now();
    let gone: Vec<_> = stream::iter(removes).buffered(AT_ONCE).map(done).collect().await;
    let removed = started.elapsed();

    let rate = |took: Duration| RECORDS as f64 / took.as_secs_f64();
    say(&format!(
        "{RECORDS} records: {:.0} creates/s, {:.0} gets/s, {:.0} deletes/s, opened in {opened:?}",
        rate(created),
        rate(read),
        rate(removed)
    ));
    assert!(read < Duration::from_secs(1), "reads asked the API server: {read:?}");
    assert!(gone.iter().min() > made.iter().max());
    assert!(again.list(&Prefix::below(&["volume"]), None, 9).await.is_ok());
}
