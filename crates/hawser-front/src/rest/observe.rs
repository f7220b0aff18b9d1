//! The outermost layer: one span, one log line and one count for each request.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use hawser_core::{Error, Kind};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tracing::{Instrument, Span, debug, error, field, info, info_span, warn};

use super::Api;
use super::answer::{Failed, Refusal, fill_in};
use super::error::{RestError, cut};

/// Names a request in the logs of caller and server.
const REQUEST_ID: &str = "x-request-id";

/// Runs a request in its span, catches a panic, fills in refusals, counts and logs the outcome.
pub(super) async fn observe(State(api): State<Api>, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let matched = request.extensions().get::<MatchedPath>();
    let route = matched.map_or("unmatched", MatchedPath::as_str).to_owned();
    let id = request_id(request.headers());
    let span = info_span!(
        "http.request",
        request.id = %id,
        http.method = %cut(method.as_str()),
        http.route = %route,
        volume.id = field::Empty,
    );
    let watch = Watch { span: &span, answered: false, begun: Instant::now() };

    let caught = AssertUnwindSafe(next.run(request).instrument(span.clone())).catch_unwind().await;
    let response = caught.unwrap_or_else(|panic| {
        Refusal::from(RestError::Panicked { message: words(&*panic) }).into_response()
    });

    let _entered = span.enter();
    let (response, failure) = finish(response, &id);
    let took = watch.stop();
    api.0.metrics.count_request(&route, &method, response.status(), took);
    log(&method, response.status(), failure.as_deref(), took.as_secs_f64());
    response
}

/// Says so when a request ends without an answer: its caller left. The work goes on in the engine.
struct Watch<'a> {
    span: &'a Span,
    answered: bool,
    begun: Instant,
}

impl Watch<'_> {
    fn stop(mut self) -> std::time::Duration {
        self.answered = true;
        self.begun.elapsed()
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let seconds = self.begun.elapsed().as_secs_f64();
            self.span.in_scope(|| info!(seconds, "the caller left before the answer"));
        }
    }
}

fn finish(mut response: Response, id: &str) -> (Response, Option<std::sync::Arc<Error>>) {
    let failed = response.extensions_mut().remove::<Failed>();
    let response = match &failed {
        Some(Failed(error)) => fill_in(response, error, id),
        None => response,
    };
    let mut response = response;
    if let Ok(value) = HeaderValue::from_str(id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    (response, failed.map(|Failed(error)| error))
}

fn log(method: &Method, status: StatusCode, failure: Option<&Error>, seconds: f64) {
    let status = status.as_u16();
    let reads = method.is_safe();
    match failure {
        None if reads => debug!(status, seconds, "answered"),
        None => info!(status, seconds, "answered"),
        Some(failure) => {
            let (kind, reason) = (failure.kind().as_str(), failure.sentence());
            if failure.kind() == Kind::Internal || (status >= 500 && !reads) {
                error!(status, seconds, kind, reason, "failed");
            } else if status >= 500 {
                warn!(status, seconds, kind, reason, "failed");
            } else {
                info!(status, seconds, kind, reason, "refused");
            }
        }
    }
}

/// The caller's own id for the request where it is short and plain, else a new one.
fn request_id(headers: &HeaderMap) -> String {
    const LONGEST: usize = 128;
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
    let plain = |id: &&str| {
        !id.is_empty() && id.len() <= LONGEST && id.bytes().all(|byte| byte.is_ascii_graphic())
    };
    given.filter(plain).map_or_else(|| uuid::Uuid::new_v4().simple().to_string(), str::to_owned)
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without words").to_owned()
}
