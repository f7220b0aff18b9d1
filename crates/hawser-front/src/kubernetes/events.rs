//! Events: what users see with `kubectl describe`. They are told behind everybody's back, and lost
//! when the API server has no time for them.

use std::collections::HashMap;
use std::sync::Arc;

use hawser_core::Timestamp;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::cluster::Cluster;
use super::error::ClusterError;
use super::objects::{Event, Key, Object};

/// Events that wait to be written. What does not fit is dropped.
const WAITING: usize = 1024;

/// Events that are counted up instead of written anew. More would be a leak.
const REMEMBERED: usize = 4096;

/// The API server refuses longer messages.
const LONGEST_MESSAGE: usize = 1024;

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct About {
    kind: String,
    api_version: String,
    key: Key,
    uid: String,
    revision: String,
}

impl About {
    /// An object.
    pub(super) fn of<K: Object>(object: &K) -> Self {
        Self {
            kind: K::kind(&()).into_owned(),
            api_version: K::api_version(&()).into_owned(),
            key: object.key(),
            uid: object.uid().to_owned(),
            revision: object.meta().resource_version.clone().unwrap_or_default(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Type {
    Normal,
    Warning,
}

struct Told {
    about: About,
    kind: Type,
    reason: &'static str,
    message: String,
}

/// Tells of what happened to objects.
#[derive(Clone)]
pub(super) struct Events {
    sender: mpsc::Sender<Told>,
    successes: bool,
}

/// Writes what was told.
pub(super) struct Writer {
    told: mpsc::Receiver<Told>,
    cluster: Arc<Cluster>,
    instance: String,
    written: HashMap<(String, Type, &'static str, String), (String, u32)>,
}

impl Events {
    /// Somebody to tell, and who writes it down. Successes are not written unless asked for: the
    /// objects themselves show them.
    pub(super) fn new(cluster: Arc<Cluster>, instance: String, successes: bool) -> (Self, Writer) {
        let (sender, told) = mpsc::channel(WAITING);
        let writer = Writer { told, cluster, instance, written: HashMap::new() };
        (Self { sender, successes }, writer)
    }

    /// Something went as it should.
    pub(super) fn normal(&self, about: About, reason: &'static str, message: String) {
        if self.successes {
            self.tell(Told { about, kind: Type::Normal, reason, message });
        }
    }

    /// Something did not.
    pub(super) fn warning(&self, about: About, reason: &'static str, message: String) {
        self.tell(Told { about, kind: Type::Warning, reason, message });
    }

    fn tell(&self, told: Told) {
        if self.sender.try_send(told).is_err() {
            debug!("an event was dropped: too many wait");
        }
    }
}

impl Writer {
    /// Writes until nobody tells any more or it is told to stop.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        loop {
            let told = tokio::select! {
                () = stop.cancelled() => return,
                told = self.told.recv() => told,
            };
            let Some(told) = told else { return };
            if let Err(error) = self.write(told).await {
                debug!(error = %error.sentence(), "an event was not written");
            }
        }
    }

    async fn write(&mut self, told: Told) -> Result<(), ClusterError> {
        let now = Timestamp::now().to_string();
        let namespace = match told.about.key.namespace.as_str() {
            // As all components do for objects of the whole cluster.
            "" => "default",
            namespace => namespace,
        };
        let message = cut(&told.message);
        let same = (told.about.uid.clone(), told.kind, told.reason, message.to_owned());
        if let Some((name, count)) = self.written.get_mut(&same) {
            *count += 1;
            let patch = json!({ "count": *count, "lastTimestamp": now });
            let key = Key::within(namespace, name.clone());
            match self.cluster.patch::<Event>(&key, &patch).await {
                Err(error) if error.is_absent() => {}
                done => return done.map(drop),
            }
        }
        let About { kind, api_version, key, uid, revision } = &told.about;
        let name = format!("{}.{:x}", key.name, uuid::Uuid::new_v4().as_u128() >> 64);
        let kind_of = match told.kind {
            Type::Normal => "Normal",
            Type::Warning => "Warning",
        };
        let body = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": name, "namespace": namespace },
            "involvedObject": {
                "kind": kind, "apiVersion": api_version, "namespace": key.namespace,
                "name": key.name, "uid": uid, "resourceVersion": revision,
            },
            "type": kind_of,
            "reason": told.reason,
            "message": message,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": { "component": "hawser", "host": self.instance },
            "reportingComponent": "hawser.storage/controller",
            "reportingInstance": self.instance,
        });
        self.cluster.make::<Event>(namespace, &body).await?;
        if self.written.len() >= REMEMBERED {
            self.written.clear();
        }
        self.written.insert(same, (name, 1));
        Ok(())
    }
}

/// A message that the API server takes.
pub(super) fn cut(message: &str) -> &str {
    let end = (0..=LONGEST_MESSAGE.min(message.len()))
        .rev()
        .find(|end| message.is_char_boundary(*end))
        .unwrap_or(0);
    &message[..end]
}
