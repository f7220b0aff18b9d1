//! Requests to the API server: one try each, limited in time. What is not done is done by whoever
//! asked, later. Only what the API server has no room for now is sent again, when it says: nothing of
//! it was begun.

use std::time::Duration;

use http::HeaderValue;
use http::header::ACCEPT;
use kube::api::{DeleteParams, GetParams, ListParams};
use kube::api::{Patch, PatchParams, PostParams, Preconditions};
use kube::core::{Request, Status};
use kube::{Client, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::error::ClusterError;
use super::objects::{Key, Object};

/// The longest that a request may take. The API server itself gives up after 60 seconds.
const LIMIT: Duration = Duration::from_secs(30);

/// How many requests are under way at once. Each has a connection of its own, because the client
/// speaks HTTP/1.1; the API server by default works on 200 changes at once, for everybody.
const REQUESTS: usize = 64;

/// What the API server writes down as the author of our changes.
const MANAGER: &str = "hawser";

/// Of what was made as it was asked for only the metadata is sent back.
const METADATA_ONLY: HeaderValue = HeaderValue::from_static(
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
);

/// How many objects a page of a list has: what Kubernetes' own clients ask for.
const PAGE: u32 = 500;

/// The API server.
pub(super) struct Cluster {
    pub(super) client: Client,
    slots: Semaphore,
}

impl Cluster {
    pub(super) fn new(client: Client) -> Self {
        Self { client, slots: Semaphore::new(REQUESTS) }
    }

    /// Makes an object and answers it.
    pub(super) async fn create<K: Object>(
        &self,
        namespace: &str,
        body: &Value,
    ) -> Result<K, ClusterError> {
        let (attempt, request) = creation::<K>(namespace, body);
        self.answer(attempt, request).await
    }

    /// Makes an object of which nothing is of interest but that it is there.
    pub(super) async fn make<K: Object>(
        &self,
        namespace: &str,
        body: &Value,
    ) -> Result<(), ClusterError> {
        let (attempt, request) = creation::<K>(namespace, body);
        let request = request.map(|mut request| {
            request.headers_mut().insert(ACCEPT, METADATA_ONLY);
            request
        });
        self.text(attempt, request).await.map(drop)
    }

    /// Changes an object by a merge patch and answers it.
    pub(super) async fn patch<K: Object>(
        &self,
        key: &Key,
        patch: &Value,
    ) -> Result<K, ClusterError> {
        let attempt = about::<K>("changing", key);
        let request = path::<K>(&key.namespace).patch(&key.name, &params(), &Patch::Merge(patch));
        self.answer(attempt, request).await
    }

    /// Changes the status of an object by a merge patch and answers it. Annotations can be changed
    /// with it.
    pub(super) async fn patch_status<K: Object>(
        &self,
        key: &Key,
        patch: &Value,
    ) -> Result<K, ClusterError> {
        let attempt = about::<K>("telling the status of", key);
        let request = path::<K>(&key.namespace);
        let request =
            request.patch_subresource("status", &key.name, &params(), &Patch::Merge(patch));
        self.answer(attempt, request).await
    }

    /// Removes an object, if it is still the one that was seen. Done, too, when it is gone.
    pub(super) async fn delete<K: Object>(&self, key: &Key, uid: &str) -> Result<(), ClusterError> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let request = path::<K>(&key.namespace).delete(&key.name, &params);
        match self.text(about::<K>("removing", key), request).await {
            Ok(_) => Ok(()),
            // One of its name that was made later is somebody else's.
            Err(error) if error.is_absent() || error.is_conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// An object as it is now.
    pub(super) async fn get<K: Object>(&self, key: &Key) -> Result<Option<K>, ClusterError> {
        let request = path::<K>(&key.namespace).get(&key.name, &GetParams::default());
        match self.answer(about::<K>("reading", key), request).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All objects of a kind, as they are now, with nothing but their metadata.
    pub(super) async fn list_metadata<K: Object>(&self) -> Result<Vec<K>, ClusterError> {
        let attempt = format!("listing each {}", K::kind(&()));
        let (mut all, mut token) = (Vec::new(), None);
        loop {
            let params =
                ListParams { limit: Some(PAGE), continue_token: token, ..Default::default() };
            let request = path::<K>("").list_metadata(&params);
            let page: Page<K> = self.answer(attempt.clone(), request).await?;
            all.extend(page.items);
            token = page.metadata.next.filter(|token| !token.is_empty());
            if token.is_none() {
                return Ok(all);
            }
        }
    }

    /// The text of what is at a path; `None` when nothing is.
    pub(super) async fn text_at(&self, path: &str) -> Result<Option<String>, ClusterError> {
        let attempt = format!("reading {path}");
        let request = http::Request::get(path)
            .body(Vec::new())
            .map_err(kube::core::request::Error::BuildRequest);
        match self.text(attempt, request).await {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn answer<T: DeserializeOwned>(
        &self,
        attempt: String,
        request: Built,
    ) -> Result<T, ClusterError> {
        let text = self.text(attempt.clone(), request).await?;
        serde_json::from_str(&text).map_err(|error| ClusterError::Api {
            attempt,
            source: Box::new(kube::Error::SerdeError(error)),
        })
    }

    async fn text(&self, attempt: String, request: Built) -> Result<String, ClusterError> {
        let failed = |source: kube::Error| ClusterError::Api {
            attempt: attempt.clone(),
            source: Box::new(source),
        };
        let late = |what: &str| ClusterError::NotYet(format!("{attempt}: {what}"));
        let request = request.map_err(|error| failed(kube::Error::BuildRequest(error)))?;
        let Ok(Ok(_slot)) = timeout(LIMIT, self.slots.acquire()).await else {
            return Err(late("too many requests are under way"));
        };
        let deadline = Instant::now() + LIMIT;
        loop {
            let answer = timeout_at(deadline, self.client.request_text(request.clone())).await;
            let error = match answer {
                Err(_) => return Err(late("the API server does not answer")),
                Ok(Ok(text)) => return Ok(text),
                Ok(Err(error)) => error,
            };
            let pause = pause(&error).filter(|pause| Instant::now() + *pause < deadline);
            let Some(pause) = pause else { return Err(failed(error)) };
            sleep(pause).await;
        }
    }
}

/// A request, or why there is none.
type Built = Result<http::Request<Vec<u8>>, kube::core::request::Error>;

/// One page of a list.
#[derive(Deserialize)]
struct Page<K> {
    metadata: PageMetadata,
    items: Vec<K>,
}

#[derive(Deserialize)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

/// How long to wait before a request is sent again; `None` when it is not.
fn pause(error: &kube::Error) -> Option<Duration> {
    let kube::Error::Api(status) = error else { return None };
    let Status { code: 429, details, .. } = &**status else { return None };
    let asked = details.as_ref().map_or(0, |details| details.retry_after_seconds);
    Some(Duration::from_secs(asked.max(1).into()))
}

fn creation<K: Object>(namespace: &str, body: &Value) -> (String, Built) {
    let name = body["metadata"]["name"].as_str().unwrap_or_default();
    let attempt = about::<K>("making", &Key::within(namespace, name));
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    (attempt, path::<K>(namespace).create(&params, body.to_string().into_bytes()))
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

fn path<K: Resource<DynamicType = ()>>(namespace: &str) -> Request {
    let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
    Request::new(K::url_path(&(), namespace))
}

fn about<K: Resource<DynamicType = ()>>(verb: &str, key: &Key) -> String {
    format!("{verb} {} {key}", K::kind(&()))
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::*;
    use crate::kubernetes::objects::{Snapshot, Volume};
    use crate::kubernetes::tests::fake::{FakeApi, Fault};

    fn volume() -> Value {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "pv-1" },
            "spec": { "capacity": { "storage": "1Gi" } },
        })
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_api_server_has_no_room_for_is_sent_again_and_nothing_else() {
        let api = FakeApi::new();
        let cluster = Cluster::new(api.client());
        api.fail(2, Method::POST, "persistentvolumes", Fault::Refused(429));
        let begun = Instant::now();

        cluster.make::<Volume>("", &volume()).await.unwrap();

        assert_eq!(begun.elapsed(), Duration::from_secs(2));
        assert_eq!(api.writes().len(), 3);

        api.fail(1, Method::PATCH, "persistentvolumes", Fault::Refused(503));
        let patch = json!({ "spec": { "capacity": { "storage": "2Gi" } } });
        let refused = cluster.patch::<Volume>(&Key::global("pv-1"), &patch).await;
        assert!(refused.is_err());
        assert_eq!(api.writes().len(), 4, "it may have been done");

        api.fail(1000, Method::PATCH, "persistentvolumes", Fault::Refused(429));
        let refused = cluster.patch::<Volume>(&Key::global("pv-1"), &patch).await;
        assert!(matches!(refused, Err(ClusterError::Api { .. })), "{refused:?}");
        assert!(begun.elapsed() <= Duration::from_secs(2) + LIMIT, "after {:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn of_what_was_made_as_it_was_asked_for_nothing_comes_back_but_its_metadata() {
        let api = FakeApi::new();
        let cluster = Cluster::new(api.client());

        cluster.make::<Volume>("", &volume()).await.unwrap();

        assert!(api.requests()[0].metadata_only);
        assert!(cluster.make::<Volume>("", &volume()).await.unwrap_err().is_conflict());
    }

    #[tokio::test]
    async fn a_list_has_the_objects_of_all_pages() {
        let api = FakeApi::new();
        for n in 0..2 * PAGE + 1 {
            api.put(json!({
                "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                "metadata": { "name": format!("s-{n}"), "namespace": "shop" },
            }));
        }

        let listed = Cluster::new(api.client()).list_metadata::<Snapshot>().await.unwrap();

        assert_eq!(listed.len(), 2 * PAGE as usize + 1);
        assert_eq!(api.requests().len(), 3);
    }
}
