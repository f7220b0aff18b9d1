//! Many objects at once, through a client in this process: kubectl would be what takes the time.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, Config};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::objects::name;
use crate::cluster::Cluster;

/// How many requests are under way at the same time.
const AT_ONCE: usize = 32;

/// How long a server that cannot be reached is left alone.
const PAUSE: Duration = Duration::from_millis(300);

/// How long a server that restarts may take until it answers again.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);

/// How often somebody who waits for a crowd looks.
const LOOK: Duration = Duration::from_millis(20);

/// What the client calls itself.
const AGENT: &str = "hawser-live";

/// A kind of object, as the paths of the server spell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
}

/// Claims of the namespace `default`.
pub const CLAIMS: Kind = Kind {
    group: "",
    kind: "PersistentVolumeClaim",
    plural: "persistentvolumeclaims",
    namespaced: true,
};

/// Volumes.
pub const VOLUMES: Kind =
    Kind { group: "", kind: "PersistentVolume", plural: "persistentvolumes", namespaced: false };

/// Pods of the namespace `default`.
pub const PODS: Kind = Kind { group: "", kind: "Pod", plural: "pods", namespaced: true };

/// Snapshots of the namespace `default`.
pub const SNAPSHOTS: Kind = Kind {
    group: "snapshot.storage.k8s.io",
    kind: "VolumeSnapshot",
    plural: "volumesnapshots",
    namespaced: true,
};

/// When something was first so, by the name of the object.
pub type Moments = BTreeMap<String, Instant>;

/// A client with every right.
pub struct Crowd {
    client: Client,
    runtime: Runtime,
}

impl Crowd {
    /// Of the cluster.
    pub fn of(cluster: &Cluster) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let config = Kubeconfig::read_from(cluster.kubeconfig()).expect("a kubeconfig");
        let client = runtime.block_on(async {
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(config, &options).await;
            let mut config = config.expect("a kubeconfig that can be used");
            let agent = ("user-agent".parse(), AGENT.parse());
            let (Ok(header), Ok(value)) = agent else { panic!("a header that can be sent") };
            config.headers.push((header, value));
            Client::try_from(config).expect("a client")
        });
        Self { client, runtime }
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        let group = if kind.group.is_empty() { "v1".into() } else { format!("{}/v1", kind.group) };
        let resource = ApiResource {
            group: kind.group.into(),
            version: "v1".into(),
            api_version: group,
            kind: kind.kind.into(),
            plural: kind.plural.into(),
        };
        match kind.namespaced {
            true => Api::namespaced_with(self.client.clone(), "default", &resource),
            false => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Makes objects; answers when each was asked for.
    ///
    /// # Panics
    ///
    /// When the server refuses one.
    #[track_caller]
    pub fn create(&self, kind: Kind, objects: Vec<Value>) -> Moments {
        let api = self.api(kind);
        let make = |object: Value| {
            let api = api.clone();
            async move {
                let object: DynamicObject = serde_json::from_value(object).expect("an object");
                let name = object.metadata.name.clone().unwrap_or_default();
                let begun = Instant::now();
                if let Err(error) = api.create(&PostParams::default(), &object).await {
                    panic!("making {} {name}: {error}", kind.kind);
                }
                (name, begun)
            }
        };
        let made = stream::iter(objects).map(make).buffer_unordered(AT_ONCE);
        self.runtime.block_on(made.collect())
    }

    /// Deletes objects by name, and does not wait until they are gone; those that are gone are fine.
    ///
    /// # Panics
    ///
    /// When the server refuses one.
    #[track_caller]
    pub fn delete(&self, kind: Kind, names: &[String]) {
        let api = self.api(kind);
        let remove = |name: String| {
            let api = api.clone();
            async move {
                match api.delete(&name, &DeleteParams::default()).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    Err(error) => panic!("deleting {} {name}: {error}", kind.kind),
                    Ok(_) => {}
                }
            }
        };
        let gone = stream::iter(names.to_vec()).map(remove).buffer_unordered(AT_ONCE);
        self.runtime.block_on(gone.collect::<()>());
    }

    /// All objects of a kind. A server that cannot be reached is asked again for a while.
    ///
    /// # Panics
    ///
    /// When it does not answer in that time.
    #[track_caller]
    pub fn list(&self, kind: Kind) -> Vec<Value> {
        let api = self.api(kind);
        let begun = Instant::now();
        loop {
            match self.runtime.block_on(api.list(&ListParams::default())) {
                Ok(list) => return list.items.iter().map(value).collect(),
                Err(error) => {
                    let slow = begun.elapsed() > ANSWER_LIMIT;
                    assert!(!slow, "listing {} for {ANSWER_LIMIT:?}: {error}", kind.plural);
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Notes from now on when each object of a kind becomes as the fact wants it.
    pub fn follow(&self, kind: Kind, fact: fn(&Value) -> bool) -> Following {
        let seen = Seen::default();
        let task = self.runtime.spawn(follow(self.api(kind), fact, seen.clone()));
        Following { seen, task, what: kind.plural }
    }
}

type Seen = Arc<Mutex<Moments>>;

/// Objects that are looked at as they change, until it is dropped.
pub struct Following {
    seen: Seen,
    task: JoinHandle<()>,
    what: &'static str,
}

impl Following {
    /// When each was first as the fact wants it, as far as it was seen by now.
    pub fn seen(&self) -> Moments {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until all of these were.
    ///
    /// # Panics
    ///
    /// When they are not within the limit, with how many are, and some of those that are not.
    #[track_caller]
    pub fn wait(&self, names: &[String], limit: Duration) -> Moments {
        let begun = Instant::now();
        loop {
            let seen = self.seen();
            let missing: Vec<&String> =
                names.iter().filter(|name| !seen.contains_key(*name)).collect();
            if missing.is_empty() {
                return seen;
            }
            let (all, left, what) = (names.len(), missing.len(), self.what);
            let some = &missing[..left.min(5)];
            let slow = begun.elapsed() > limit;
            assert!(!slow, "{left} of {all} {what} were not so within {limit:?}: {some:?} …");
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(api: Api<DynamicObject>, fact: fn(&Value) -> bool, seen: Seen) {
    loop {
        // The server restarts, or has forgotten where we were: everything is looked at again.
        if follow_once(&api, fact, &seen).await.is_err() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn follow_once(
    api: &Api<DynamicObject>,
    fact: fn(&Value) -> bool,
    seen: &Seen,
) -> Result<(), kube::Error> {
    let note = |object: &DynamicObject| {
        let object = value(object);
        if fact(&object) {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.entry(name(&object).to_owned()).or_insert_with(Instant::now);
        }
    };
    let list = api.list(&ListParams::default()).await?;
    list.items.iter().for_each(note);
    let version = list.metadata.resource_version.unwrap_or_default();
    let mut events = pin!(api.watch(&WatchParams::default(), &version).await?);
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => note(&object),
            WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(_) => return Ok(()),
        }
    }
    Ok(())
}

fn value(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}
