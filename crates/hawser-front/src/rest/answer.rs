//! Answers: what was done, what goes on, and what was refused.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use hawser_api::rest::operations::OperationView;
use hawser_api::rest::problem::Problem;
use hawser_api::rest::{CHANGE_HEADER, PROBLEM_TYPE};
use hawser_core::operation::Operation;
use hawser_core::port::control::Reply;
use hawser_core::{Change, Error, Kind};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;

use super::error::RestError;
use crate::status;

/// What a handler answers.
pub(super) type Answer = Result<Response, Refusal>;

/// A request that failed. It becomes a response without a body, which the outermost layer fills in:
/// only there the trace id is known.
#[derive(Debug)]
pub(super) struct Refusal {
    error: Error,
    status: Option<StatusCode>,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self { error, status: None }
    }
}

impl From<RestError> for Refusal {
    fn from(error: RestError) -> Self {
        // Statuses of HTTP's own, for requests that have no meaning yet.
        let status = match &error {
            RestError::NoMethod { .. } => Some(StatusCode::METHOD_NOT_ALLOWED),
            RestError::MediaType => Some(StatusCode::UNSUPPORTED_MEDIA_TYPE),
            RestError::TooLarge { .. } => Some(StatusCode::PAYLOAD_TOO_LARGE),
            RestError::Slow { .. } => Some(StatusCode::REQUEST_TIMEOUT),
            RestError::NoRoute { .. }
            | RestError::Path { .. }
            | RestError::Query { .. }
            | RestError::Body { .. }
            | RestError::BrokenBody { .. }
            | RestError::Unauthenticated
            | RestError::Stranger { .. }
            | RestError::Unknown
            | RestError::Panicked { .. }
            | RestError::NotPublished { .. }
            | RestError::Metrics(_)
            | RestError::Taken { .. }
            | RestError::NotASocket { .. }
            | RestError::Socket { .. }
            | RestError::Listen { .. }
            | RestError::NoToken { .. }
            | RestError::Pem(_)
            | RestError::Tls(_) => None,
        };
        Self { error: error.into(), status }
    }
}

/// Carries the error of a refused request to the outermost layer.
#[derive(Clone)]
pub(super) struct Failed(pub(super) Arc<Error>);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let code = self.status.map_or(status::of(&self.error).http, |status| status.as_u16());
        let mut response = Response::default();
        *response.status_mut() =
            StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if self.error.kind() == Kind::Unauthenticated {
            let scheme = HeaderValue::from_static("Bearer realm=\"hawser\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response.extensions_mut().insert(Failed(Arc::new(self.error)));
        response
    }
}

/// Writes the body of a refused request. A fault of ours is told as a fixed sentence.
pub(super) fn fill_in(mut response: Response, error: &Error, trace_id: &str) -> Response {
    let messages = match error.kind() {
        Kind::Internal => vec![format!(
            "something went wrong inside Hawser; the server's log has the details under {trace_id}"
        )],
        Kind::Invalid
        | Kind::NotFound
        | Kind::Exists
        | Kind::Busy
        | Kind::Precondition
        | Kind::OutOfRange
        | Kind::NoSpace
        | Kind::Unauthenticated
        | Kind::Denied
        | Kind::Unsupported
        | Kind::Unavailable
        | Kind::Timeout => error.chain(),
    };
    let code = response.status().as_u16();
    let problem = Problem::new(error.kind(), error.outcome(), messages, code, trace_id);
    let (_, body) = Json(problem).into_response().into_parts();
    *response.body_mut() = body;
    let media = HeaderValue::from_static(PROBLEM_TYPE);
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response
}

/// An operation as callers may see it: a fault of ours stays in the log, as in [`fill_in`].
pub(super) fn operation_view(mut operation: Operation) -> OperationView {
    if let Some(error) = operation.error.as_mut().filter(|error| error.kind == Kind::Internal) {
        let id = &operation.id;
        error.messages = vec![format!(
            "something went wrong inside Hawser; the server's log has the details under {id}"
        )];
    }
    OperationView::from(operation)
}

/// 200 with a value.
pub(super) fn ok<V: Serialize>(value: V) -> Response {
    Json(value).into_response()
}

/// 201 when made now, 200 when it was there already, 202 when it goes on.
pub(super) fn created<T, V: Serialize + From<T>>(reply: Reply<T>) -> Response {
    answer(reply, StatusCode::CREATED, |value| Json(V::from(value)).into_response())
}

/// 200 when it is done, 202 when it goes on.
pub(super) fn changed<T, V: Serialize + From<T>>(reply: Reply<T>) -> Response {
    answer(reply, StatusCode::OK, |value| Json(V::from(value)).into_response())
}

/// 204 when it is gone, 202 when that goes on.
pub(super) fn gone(reply: Reply<()>) -> Response {
    answer(reply, StatusCode::NO_CONTENT, |()| StatusCode::NO_CONTENT.into_response())
}

fn answer<T>(reply: Reply<T>, made: StatusCode, write: impl FnOnce(T) -> Response) -> Response {
    let (word, value) = match reply {
        Reply::Pending(operation) => {
            let location = HeaderMap::from_iter(
                HeaderValue::from_str(&format!("/v1/operations/{}", operation.id))
                    .ok()
                    .map(|path| (header::LOCATION, path)),
            );
            let body = Json(operation_view(operation));
            return (StatusCode::ACCEPTED, location, body).into_response();
        }
        Reply::Done(Change::Made(value)) => ("made", value),
        Reply::Done(Change::Already(value)) => ("already", value),
    };
    let mut response = write(value);
    if word == "made" {
        *response.status_mut() = made;
    }
    response.headers_mut().insert(CHANGE_HEADER, HeaderValue::from_static(word));
    response
}
