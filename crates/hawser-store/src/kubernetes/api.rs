//! What is asked of the API server: one function for each request, in words of the store.
//!
//! Answers are taken as text and read here: what the client crate cannot read it writes to the log,
//! and some of it would be secrets.

use bytes::Bytes;
use futures_core::stream::BoxStream;
use futures_util::StreamExt;
use hawser_core::port::store::{Cas, Key, Revision, Versioned};
use http::{Method, Request};
use kube::Client;
use kube::core::WatchEvent;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::error::{Attempt, KubernetesError, Verb};
use super::name::{TICK, object_name};
use super::object::{self, Content, Object, ObjectError, Page};
use super::resource::Resource;
use super::send::{APPLY, Failure, Line, REQUEST_LIMIT, WRITE, parse, unsendable};

/// How many objects a page of a list has: what Kubernetes' own clients ask for.
const PAGE: usize = 500;

/// When the API server ends a watch that is not ended otherwise, in seconds.
const WATCH_SECONDS: u32 = 290;

/// What one watch delivers.
pub(super) type Events = BoxStream<'static, Result<WatchEvent<Object>, kube::Error>>;

/// The API server, as the store uses it.
pub(super) struct Api {
    line: Line,
}

/// The answer to a write.
#[derive(Deserialize)]
struct Answer {
    metadata: AnswerMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerMetadata {
    resource_version: String,
}

impl Api {
    pub(super) fn new(client: Client, namespace: String) -> Self {
        Self { line: Line::new(client, namespace) }
    }

    /// The value of a key, as of now.
    pub(super) async fn get(&self, key: &Key) -> Result<Option<Versioned>, KubernetesError> {
        let (resource, name) = (Resource::of(key), object_name(key));
        let attempt = about(Verb::Get, key);
        let request = self.line.request(&attempt, Method::GET, "", None)?;
        let text = match self.line.send(&attempt, request).await {
            Ok(text) => text,
            Err(failure) if failure.is_absent(&name) => return Ok(None),
            Err(failure) => return Err(self.line.refused(attempt, failure)),
        };
        let object: Object = parse(&attempt, &text)?;
        let malformed =
            |source| KubernetesError::Malformed { resource, name: name.clone(), source };
        let revision = object.revision().map_err(malformed)?;
        match object.content(resource) {
            Content::Record(found, value) if found == *key => {
                Ok(Some(Versioned { value, revision }))
            }
            Content::Record(found, _) => {
                Err(malformed(ObjectError::OtherName { key: found, wanted: name.clone() }))
            }
            Content::Unreadable(_, source) | Content::Foreign(source) => Err(malformed(source)),
            Content::Tick => Err(malformed(ObjectError::NoKey)),
        }
    }

    /// Writes a key that has no object.
    pub(super) async fn create(&self, key: &Key, value: &Bytes) -> Result<Cas, KubernetesError> {
        let attempt = about(Verb::Create, key);
        let body = object::record(key, value, None);
        let request = self.line.request(&attempt, Method::POST, WRITE, Some(body))?;
        match self.line.send(&attempt, request).await {
            Ok(text) => Ok(Cas::Done(written(attempt, &text)?)),
            Err(Failure::Status(status)) if status.is_already_exists() => Ok(Cas::Conflict),
            Err(failure) => Err(self.line.refused(attempt, failure)),
        }
    }

    /// Writes a key whose object has this revision.
    pub(super) async fn replace(
        &self,
        key: &Key,
        value: &Bytes,
        expected: Revision,
    ) -> Result<Cas, KubernetesError> {
        let attempt = about(Verb::Replace, key);
        let body = object::record(key, value, Some(expected));
        let request = self.line.request(&attempt, Method::PUT, WRITE, Some(body))?;
        match self.line.send(&attempt, request).await {
            Ok(text) => Ok(Cas::Done(written(attempt, &text)?)),
            Err(failure) if failure.is_conflict(&object_name(key)) => Ok(Cas::Conflict),
            Err(failure) => Err(self.line.refused(attempt, failure)),
        }
    }

    /// Removes the object of a key that has this revision; false when there is none with it. The
    /// answer of the API server does not have the revision of the removal: the watch has.
    pub(super) async fn remove(
        &self,
        key: &Key,
        expected: Revision,
    ) -> Result<bool, KubernetesError> {
        let attempt = about(Verb::Remove, key);
        // No uid: a revision is given once in the life of a cluster, so it names the object, too.
        let body = format!(
            r#"{{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background","preconditions":{{"resourceVersion":"{}"}}}}"#,
            expected.0
        );
        let body = Some(body.into_bytes());
        let request = self.line.request(&attempt, Method::DELETE, "", body)?;
        match self.line.send(&attempt, request).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.is_conflict(&object_name(key)) => Ok(false),
            Err(failure) => Err(self.line.refused(attempt, failure)),
        }
    }

    /// One page of all objects, from the token of the page before; `None` when the token is too old.
    pub(super) async fn page(
        &self,
        resource: Resource,
        token: Option<&str>,
    ) -> Result<Option<Page>, KubernetesError> {
        let attempt = Attempt { verb: Verb::List, resource, name: None };
        let mut query = format!("?limit={PAGE}{}", resource.selector());
        if let Some(token) = token {
            query.push_str("&continue=");
            query.extend(utf8_percent_encode(token, NON_ALPHANUMERIC));
        }
        let request = self.line.request(&attempt, Method::GET, &query, None)?;
        match self.line.send(&attempt, request).await {
            Ok(text) => Ok(Some(parse(&attempt, &text)?)),
            Err(Failure::Status(status)) if status.code == 410 && token.is_some() => Ok(None),
            Err(failure) => Err(self.line.refused(attempt, failure)),
        }
    }

    /// The changes of all objects after a revision. Fails as [`KubernetesError::is_gone`] when the
    /// API server no longer has them.
    pub(super) async fn watch(
        &self,
        resource: Resource,
        after: Revision,
    ) -> Result<Events, KubernetesError> {
        let attempt = Attempt { verb: Verb::Watch, resource, name: None };
        let query = format!(
            "?watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={}{}",
            after.0,
            resource.selector()
        );
        let request = self.line.request(&attempt, Method::GET, &query, None)?;
        let opening = self.line.client.request_events::<Object>(request);
        match tokio::time::timeout(REQUEST_LIMIT, opening).await {
            Err(_) => Err(KubernetesError::Timeout { attempt, limit: REQUEST_LIMIT, sent: true }),
            Ok(Err(error)) => {
                let failure = Failure::new(&attempt, error);
                Err(self.line.refused(attempt, failure))
            }
            Ok(Ok(events)) => Ok(events.boxed()),
        }
    }

    /// What became of a watch that says this instead of an event.
    pub(super) fn watch_failed(&self, resource: Resource, error: kube::Error) -> KubernetesError {
        let attempt = Attempt { verb: Verb::Watch, resource, name: None };
        let failure = Failure::new(&attempt, error);
        self.line.refused(attempt, failure)
    }

    /// Writes the object that is written only to be seen, and answers its revision, which is larger
    /// than `target`. `target` is a revision that this process has seen: if another process has
    /// written the same, it did so after that revision, and nothing need be written again.
    pub(super) async fn tick(
        &self,
        resource: Resource,
        target: Revision,
    ) -> Result<Revision, KubernetesError> {
        let attempt = Attempt { verb: Verb::Tick, resource, name: Some(TICK.into()) };
        let body = Some(object::tick(resource, target));
        let request = self.line.request(&attempt, Method::PATCH, APPLY, body)?;
        match self.line.send(&attempt, request).await {
            Ok(text) => written(attempt, &text),
            Err(failure) => Err(self.line.refused(attempt, failure)),
        }
    }

    /// Applies a definition of the cluster, in YAML.
    pub(super) async fn apply(&self, path: &str, yaml: &str) -> Result<(), KubernetesError> {
        let attempt = Attempt { verb: Verb::Install, resource: Resource::Records, name: None };
        let request = Request::patch(format!("{path}{APPLY}"))
            .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
            .body(yaml.as_bytes().to_vec())
            .map_err(|error| unsendable(&attempt, error))?;
        match self.line.send(&attempt, request).await {
            Ok(_) => Ok(()),
            Err(failure) => Err(self.line.refused(attempt, failure)),
        }
    }
}

fn about(verb: Verb, key: &Key) -> Attempt {
    Attempt { verb, resource: Resource::of(key), name: Some(object_name(key)) }
}

/// The revision that a write made.
fn written(attempt: Attempt, text: &str) -> Result<Revision, KubernetesError> {
    let answer: Answer = parse(&attempt, text)?;
    let revision = object::revision(&answer.metadata.resource_version);
    revision.map_err(|source| KubernetesError::Answer { attempt, source: source.into() })
}
