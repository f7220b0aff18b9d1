//! Reading requests: bodies, queries and paths, within bounds, with refusals of our own.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use hawser_api::rest::{reference, wait};
use hawser_core::group::GroupRef;
use hawser_core::page::PageRequest;
use hawser_core::place::Place;
use hawser_core::snapshot::SnapshotRef;
use hawser_core::volume::VolumeRef;
use http::request::Parts;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use super::answer::Refusal;
use super::error::{RestError, cut};

/// No request of this API is nearly as large.
const LARGEST_BODY: usize = 1 << 20;

/// A mebibyte arrives within this time even over a bad line.
const BODY_LIMIT: Duration = Duration::from_secs(30);

/// A body that must be there.
pub(super) struct JsonBody<T>(pub(super) T);

/// A body that may be left out.
pub(super) struct MaybeBody<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refusal> {
        let (parts, body) = request.into_parts();
        if !is_json(&parts.headers) {
            return Err(RestError::MediaType.into());
        }
        parse(&collect(&parts.headers, body).await?).map(Self)
    }
}

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for MaybeBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refusal> {
        let (parts, body) = request.into_parts();
        let bytes = collect(&parts.headers, body).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        if !is_json(&parts.headers) {
            return Err(RestError::MediaType.into());
        }
        parse(&bytes).map(Self)
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let media = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = media.and_then(|media| media.split(';').next()).map(str::trim);
    essence.is_some_and(|essence| essence.eq_ignore_ascii_case("application/json"))
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(bytes)
        .map_err(|error| RestError::Body { why: cut(&error.to_string()) }.into())
}

/// Holds at most [`LARGEST_BODY`]; a declared length above it is refused before anything is read.
async fn collect(headers: &HeaderMap, body: Body) -> Result<bytes::Bytes, RestError> {
    let too_large = RestError::TooLarge { most: LARGEST_BODY };
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let declared = declared.and_then(|length| length.parse::<u64>().ok());
    if declared.is_some_and(|length| length > LARGEST_BODY as u64) {
        return Err(too_large);
    }
    let collected = Limited::new(body, LARGEST_BODY).collect();
    match tokio::time::timeout(BODY_LIMIT, collected).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(source)) if source.is::<LengthLimitError>() => Err(too_large),
        Ok(Err(source)) => Err(RestError::BrokenBody { source }),
        Err(_) => Err(RestError::Slow { limit: BODY_LIMIT }),
    }
}

/// The names in the path.
pub(super) struct Named<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(names)) => Ok(Self(names)),
            Err(rejection) => Err(RestError::Path { why: cut(&rejection.body_text()) }.into()),
        }
    }
}

/// The query, taken apart key by key, so that a key nobody asked for is refused and not ignored.
pub(super) struct Params(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        match Query::<Vec<(String, String)>>::try_from_uri(&parts.uri) {
            Ok(Query(pairs)) => Ok(Self(pairs)),
            Err(rejection) => Err(RestError::Query { why: cut(&rejection.body_text()) }.into()),
        }
    }
}

impl Params {
    /// Every value of a key.
    pub(super) fn all(&mut self, key: &str) -> Vec<String> {
        let (taken, rest) = std::mem::take(&mut self.0).into_iter().partition(|(k, _)| k == key);
        self.0 = rest;
        let taken: Vec<(String, String)> = taken;
        taken.into_iter().map(|(_, value)| value).collect()
    }

    /// The one value of a key.
    pub(super) fn one(&mut self, key: &str) -> Result<Option<String>, RestError> {
        let mut values = self.all(key);
        if values.len() > 1 {
            return Err(RestError::Query { why: format!("{key} is given more than once") });
        }
        Ok(values.pop())
    }

    /// Every value of a key, as `key=value` pairs.
    pub(super) fn pairs(&mut self, key: &str) -> Result<BTreeMap<String, String>, RestError> {
        let pair = |text: String| match text.split_once('=') {
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => {
                let why = format!("{key} {:?} is not of the form key=value", cut(&text));
                Err(RestError::Query { why })
            }
        };
        self.all(key).into_iter().map(pair).collect()
    }

    /// `place`, of which each value is one pair.
    pub(super) fn place(&mut self) -> Result<Option<Place>, RestError> {
        let pairs = self.pairs("place")?;
        Ok((!pairs.is_empty()).then(|| Place::new(pairs)))
    }

    /// A yes or no, which is no when left out.
    pub(super) fn flag(&mut self, key: &str) -> Result<bool, RestError> {
        match self.one(key)?.as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(RestError::Query { why: format!("{key} must be true or false") }),
        }
    }

    /// `wait`, or this when it is left out.
    pub(super) fn wait(&mut self, default: Duration) -> Result<Duration, Refusal> {
        match self.one("wait")? {
            None => Ok(default),
            Some(text) => {
                wait::parse(&text).map_err(|error| hawser_core::Error::from(error).into())
            }
        }
    }

    /// `limit` and `page_token`.
    pub(super) fn page(&mut self) -> Result<PageRequest, RestError> {
        let limit = match self.one("limit")? {
            None => 0,
            Some(text) => text.parse().map_err(|_| RestError::Query {
                why: format!("limit {:?} is not a number of items", cut(&text)),
            })?,
        };
        Ok(PageRequest { limit, token: self.one("page_token")? })
    }

    /// Refuses what nobody took.
    pub(super) fn end(self) -> Result<(), RestError> {
        match self.0.first() {
            None => Ok(()),
            Some((key, _)) => Err(RestError::Query {
                why: format!("the parameter {:?} is not known here", cut(key)),
            }),
        }
    }

    /// `wait` and nothing else, for changes.
    pub(super) fn only_wait(mut self) -> Result<Duration, Refusal> {
        let wait = self.wait(wait::DEFAULT_WAIT)?;
        self.end()?;
        Ok(wait)
    }
}

/// Reads a volume's id or name, and puts an id into the request's span.
pub(super) fn volume(text: &str) -> Result<VolumeRef, Refusal> {
    let volume = reference::volume(text)?;
    if let VolumeRef::Id(id) = &volume {
        tracing::Span::current().record("volume.id", id.as_str());
    }
    Ok(volume)
}

/// Reads a snapshot's id or name.
pub(super) fn snapshot(text: &str) -> Result<SnapshotRef, Refusal> {
    Ok(reference::snapshot(text)?)
}

/// Reads a group's id or name.
pub(super) fn group(text: &str) -> Result<GroupRef, Refusal> {
    Ok(reference::group(text)?)
}

/// Reads any name of the domain. `Kind::Invalid` when it is none.
pub(super) fn name<T>(text: &str) -> Result<T, Refusal>
where
    T: std::str::FromStr,
    hawser_core::Error: From<T::Err>,
{
    text.parse().map_err(|error| hawser_core::Error::from(error).into())
}
