//! How a request is made, sent and limited in time, and what its failures mean.

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use kube::Client;
use kube::core::Status;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::error::{Attempt, KubernetesError, said};

/// The longest that one request may take from when it is first sent. The API server itself gives up
/// after 60 seconds.
pub(super) const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// The longest that a request waits for its turn. It has a limit of its own: one that got its turn
/// late and was then given up early would be unknown, where nothing need have been sent.
const QUEUE_LIMIT: Duration = Duration::from_secs(60);

/// How many requests are under way at once. Each has a connection of its own, because the client
/// speaks HTTP/1.1; the API server by default works on 200 changes at once, for everybody.
const REQUESTS: usize = 64;

/// The query of a write. Strict: a definition in the cluster that lacks a field of ours would
/// otherwise drop it in silence.
pub(super) const WRITE: &str = "?fieldManager=hawser&fieldValidation=Strict";

/// The query of a server-side apply, which makes the object where there is none.
pub(super) const APPLY: &str = "?fieldManager=hawser&force=true";

/// Of the answer to a write only the metadata is of interest, not the value that was just sent.
const METADATA_ONLY: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// The way to the API server, and the namespace where the records are.
pub(super) struct Line {
    pub(super) client: Client,
    pub(super) namespace: String,
    slots: Semaphore,
}

/// Why there is no answer to work with.
pub(super) enum Failure {
    /// The API server answered, and it was not yes.
    Status(Box<Status>),
    /// Everything else.
    Error(KubernetesError),
}

impl Line {
    pub(super) fn new(client: Client, namespace: String) -> Self {
        Self { client, namespace, slots: Semaphore::new(REQUESTS) }
    }

    /// The request for what is attempted.
    pub(super) fn request(
        &self,
        attempt: &Attempt,
        method: Method,
        query: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Request<Vec<u8>>, KubernetesError> {
        let path = attempt.resource.path(&self.namespace);
        let uri = match &attempt.name {
            Some(name) if method != Method::POST => format!("{path}/{name}{query}"),
            Some(_) | None => format!("{path}{query}"),
        };
        let mut request = Request::builder().uri(uri);
        if body.is_some() {
            let apply = method == Method::PATCH;
            let content = if apply { "application/apply-patch+yaml" } else { "application/json" };
            request = request.header(CONTENT_TYPE, content).header(ACCEPT, METADATA_ONLY);
        }
        let request = request.method(method).body(body.unwrap_or_default());
        request.map_err(|error| unsendable(attempt, error))
    }

    /// Sends a request and answers the text of what came back.
    ///
    /// A request that the API server has no room for (429) was not begun; it is sent again when the
    /// API server says, within the same limit. Nothing else is: a write that is repeated after 503
    /// or 504 may meet its own first try and would take it for somebody else's.
    pub(super) async fn send(
        &self,
        attempt: &Attempt,
        request: Request<Vec<u8>>,
    ) -> Result<String, Failure> {
        let late = |limit, sent| {
            let attempt = attempt.clone();
            Failure::Error(KubernetesError::Timeout { attempt, limit, sent })
        };
        let slot = timeout(QUEUE_LIMIT, self.slots.acquire()).await;
        let slot = slot.map_err(|_| late(QUEUE_LIMIT, false))?;
        let _slot = slot.map_err(|_| Failure::Error(KubernetesError::Closed))?;
        let deadline = Instant::now() + REQUEST_LIMIT;
        loop {
            let answer = timeout_at(deadline, self.client.request_text(request.clone())).await;
            let failure = match answer {
                Err(_) => return Err(late(REQUEST_LIMIT, true)),
                Ok(Ok(text)) => return Ok(text),
                Ok(Err(error)) => Failure::new(attempt, error),
            };
            let Some(pause) = failure.pause() else { return Err(failure) };
            if Instant::now() + pause >= deadline {
                return Err(failure);
            }
            sleep(pause).await;
        }
    }

    /// The error for a failure that is not an answer to work with.
    pub(super) fn refused(&self, attempt: Attempt, failure: Failure) -> KubernetesError {
        match failure {
            Failure::Status(status) => KubernetesError::refused(attempt, &self.namespace, *status),
            Failure::Error(error) => error,
        }
    }
}

impl Failure {
    pub(super) fn new(attempt: &Attempt, error: kube::Error) -> Self {
        if let kube::Error::Api(status) = error {
            return Self::Status(status);
        }
        Self::Error(KubernetesError::broken(attempt.clone(), error))
    }

    /// How long to wait before the request is sent again; `None` when it is not.
    fn pause(&self) -> Option<Duration> {
        match self {
            Self::Status(status) if status.code == 429 => {
                let asked = status.details.as_ref().map_or(0, |d| d.retry_after_seconds);
                Some(Duration::from_secs(asked.max(1).into()))
            }
            Self::Status(_) | Self::Error(_) => None,
        }
    }

    /// True when there is no object of this name.
    pub(super) fn is_absent(&self, name: &str) -> bool {
        match self {
            // Not any 404: the definition of records or the namespace may be missing, too.
            Self::Status(status) => {
                let details = status.details.as_ref();
                status.code == 404 && details.is_some_and(|details| details.name == name)
            }
            Self::Error(_) => false,
        }
    }

    /// True when the object of this name is not as the request expected it.
    pub(super) fn is_conflict(&self, name: &str) -> bool {
        let is_changed = match self {
            // Not any 409: a quota that somebody else changes answers with one, too.
            Self::Status(status) => {
                let details = status.details.as_ref();
                status.code == 409 && details.is_none_or(|details| details.name == name)
            }
            Self::Error(_) => false,
        };
        is_changed || self.is_absent(name)
    }
}

/// Reads an answer.
pub(super) fn parse<T: DeserializeOwned>(
    attempt: &Attempt,
    text: &str,
) -> Result<T, KubernetesError> {
    serde_json::from_str(text).map_err(|source| {
        let attempt = attempt.clone();
        KubernetesError::Answer { attempt, source: source.into() }
    })
}

/// Names and namespaces are checked before they become a path, so this is ours to answer for.
pub(super) fn unsendable(attempt: &Attempt, error: http::Error) -> KubernetesError {
    KubernetesError::Client { source: said(format_args!("{attempt}: {error}")) }
}
