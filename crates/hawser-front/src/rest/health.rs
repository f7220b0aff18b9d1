//! Whether the server runs, whether it takes changes, and its numbers.

use axum::extract::State;
use axum::response::IntoResponse;
use hawser_api::rest::doctor::ReadyView;
use http::{StatusCode, header};

use super::Api;
use super::answer::{Answer, ok};
use super::extract::Params;
use super::metrics::MEDIA_TYPE;

/// Answers while the process runs.
#[utoipa::path(get, path = "/healthz", tag = "service",
    responses((status = 200, description = "Alive", body = String, content_type = "text/plain")))]
pub(super) async fn alive(params: Params) -> Answer {
    params.end()?;
    Ok("ok\n".into_response())
}

/// Answers 200 when start-up recovery is through and changes are taken.
#[utoipa::path(get, path = "/readyz", tag = "service",
    responses(
        (status = 200, description = "Ready", body = ReadyView),
        (status = 503, description = "Not yet", body = ReadyView),
    ))]
pub(super) async fn ready(State(api): State<Api>, params: Params) -> Answer {
    params.end()?;
    let ready = api.control().ready().await?;
    let mut response = ok(ReadyView { ready });
    if !ready {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    Ok(response)
}

/// Numbers for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "service",
    responses((status = 200, description = "OpenMetrics text", body = String, content_type = "application/openmetrics-text")))]
pub(super) async fn metrics(State(api): State<Api>, params: Params) -> Answer {
    params.end()?;
    let text = api.0.metrics.text()?;
    Ok(([(header::CONTENT_TYPE, MEDIA_TYPE)], text).into_response())
}
