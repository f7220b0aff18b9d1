//! The native REST API: HTTP/1.1 and JSON, below `/v1`.
//!
//! Every handler is parse, one call of the `Control` port, answer. What goes out is described by an
//! OpenAPI 3.1 document that is made from the same code and served at `/v1/openapi.json`; refusals are
//! `application/problem+json` (RFC 9457). [`serve`] runs it on a Unix socket, where the caller's
//! user is checked, and on TCP, where a token is needed.

mod access;
mod answer;
mod classes;
mod doctor;
mod error;
mod events;
mod extract;
mod groups;
mod health;
mod listen;
mod metrics;
mod observe;
mod openapi;
mod operations;
mod publications;
mod serve;
mod snapshots;
mod stall;
mod volumes;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hawser_core::port::Control;
use tokio::sync::watch;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use error::RestError;
pub use listen::{Listener, Tls};
pub use openapi::document;
pub use serve::{Limits, serve};

use crate::Front;
use answer::Refusal;
use error::cut;
use metrics::Metrics;

/// The table line of this front end.
pub static FRONT: Front =
    Front { name: "rest", about: "programs and the command line, over HTTP and JSON" };

/// What every request needs.
#[derive(Clone)]
pub struct Api(Arc<Inner>);

struct Inner {
    control: Arc<dyn Control>,
    metrics: Metrics,
    document: Bytes,
    closing: watch::Sender<bool>,
}

impl Api {
    /// An API over this engine; `version` is shown in the metrics.
    pub fn new(control: Arc<dyn Control>, version: &str) -> Self {
        Self::with_gauges(control, version, Vec::new())
    }

    /// The same with numbers that are asked for whenever the metrics are read.
    pub fn with_gauges(control: Arc<dyn Control>, version: &str, gauges: Vec<Gauge>) -> Self {
        let document = serde_json::to_vec(&openapi::document()).unwrap_or_default();
        Self(Arc::new(Inner {
            control,
            metrics: Metrics::new(version, gauges),
            document: document.into(),
            closing: watch::Sender::new(false),
        }))
    }

    fn control(&self) -> &dyn Control {
        &*self.0.control
    }

    /// Done when the server is told to stop.
    fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut closing = self.0.closing.subscribe();
        async move {
            // An error means that the server is gone, which is as good.
            let _ = closing.wait_for(|closing| *closing).await;
        }
    }
}

/// A number that is read when the metrics are, such as the count of volumes.
pub struct Gauge {
    /// Its name without the leading `hawser_`.
    pub name: &'static str,
    /// What it counts.
    pub help: &'static str,
    /// Reads it; must not block.
    pub read: Box<dyn Fn() -> i64 + Send + Sync>,
}

impl std::fmt::Debug for Gauge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gauge").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The routes and what they say about themselves.
fn described() -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(openapi::frame())
        .routes(routes!(volumes::list, volumes::create))
        .routes(routes!(volumes::show, volumes::delete, volumes::patch))
        .routes(routes!(volumes::expand))
        .routes(routes!(volumes::health))
        .routes(routes!(publications::show, publications::publish, publications::unpublish))
        .routes(routes!(publications::attach, publications::detach))
        .routes(routes!(publications::mount, publications::unmount))
        .routes(routes!(snapshots::list, snapshots::create))
        .routes(routes!(snapshots::show, snapshots::delete))
        .routes(routes!(groups::create))
        .routes(routes!(groups::show, groups::delete))
        .routes(routes!(operations::list))
        .routes(routes!(operations::show))
        .routes(routes!(operations::cancel))
        .routes(routes!(classes::list))
        .routes(routes!(classes::capacity))
        .routes(routes!(classes::nodes))
        .routes(routes!(events::follow))
        .routes(routes!(doctor::examine, doctor::repair))
        .routes(routes!(openapi::show))
        .routes(routes!(health::alive))
        .routes(routes!(health::ready))
        .routes(routes!(health::metrics))
}

/// The whole application. Requests without a [`access::Peer`] are refused: only [`serve`] knows who
/// is at the other end.
fn application(api: &Api) -> Router {
    let (router, _) = described().split_for_parts();
    router
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(from_fn(access::check))
        .layer(from_fn_with_state(api.clone(), observe::observe))
        .with_state(api.clone())
}

async fn no_route(request: Request) -> Response {
    Refusal::from(RestError::NoRoute { path: cut(request.uri().path()) }).into_response()
}

async fn no_method(request: Request) -> Response {
    let method = cut(request.method().as_str());
    Refusal::from(RestError::NoMethod { method, path: cut(request.uri().path()) }).into_response()
}
