//! Requests to the API server: one try each, limited in time. What is not done is done by whoever
//! asked, later.

use std::time::Duration;

use kube::api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Client, Resource};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::error::ClusterError;
use super::objects::{Key, Object};

/// The longest that a request may take. The API server itself gives up after 60 seconds.
const LIMIT: Duration = Duration::from_secs(30);

/// How many requests are under way at once. Each has a connection of its own, because the client
/// speaks HTTP/1.1; the API server by default works on 200 changes at once, for everybody.
const REQUESTS: usize = 64;

/// What the API server writes down as the author of our changes.
const MANAGER: &str = "hawser";

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
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        let attempt = about::<K>("making", &Key::within(namespace, name));
        let params =
            PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let request = path::<K>(namespace).create(&params, body.to_string().into_bytes());
        self.answer(attempt, request).await
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

    async fn answer<K: Object>(
        &self,
        attempt: String,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<K, ClusterError> {
        let text = self.text(attempt.clone(), request).await?;
        serde_json::from_str(&text).map_err(|error| ClusterError::Api {
            attempt,
            source: Box::new(kube::Error::SerdeError(error)),
        })
    }

    async fn text(
        &self,
        attempt: String,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<String, ClusterError> {
        let failed = |source: kube::Error| ClusterError::Api {
            attempt: attempt.clone(),
            source: Box::new(source),
        };
        let late = |what: &str| ClusterError::NotYet(format!("{attempt}: {what}"));
        let request = request.map_err(|error| failed(kube::Error::BuildRequest(error)))?;
        let Ok(Ok(_slot)) = timeout(LIMIT, self.slots.acquire()).await else {
            return Err(late("too many requests are under way"));
        };
        match timeout(LIMIT, self.client.request_text(request)).await {
            Err(_) => Err(late("the API server does not answer")),
            Ok(answer) => answer.map_err(failed),
        }
    }
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
