//! `/v1/events`: what changes, as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::IntoResponse;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use futures_util::StreamExt;
use hawser_api::rest::events::EventView;
use hawser_core::event::Event;
use http::HeaderMap;

use super::Api;
use super::answer::Answer;
use super::error::{RestError, cut};
use super::extract::Params;

/// Proxies close what is silent for a minute; clients notice a dead server as fast.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Changes from now on, or after `Last-Event-ID`. Each `data` is one event as JSON.
#[utoipa::path(get, path = "/v1/events", tag = "events",
    params(
        ("last-event-id" = Option<u64>, Header, description = "Events after the one with this sequence number"),
        ("after" = Option<u64>, Query, description = "The same, for callers that cannot set headers"),
    ),
    responses((status = 200, description = "Does not end; `id` is the sequence number, `event` the kind", body = EventView, content_type = "text/event-stream")))]
pub(super) async fn follow(
    State(api): State<Api>,
    headers: HeaderMap,
    mut params: Params,
) -> Answer {
    let query = params.one("after")?;
    params.end()?;
    let header =
        headers.get("last-event-id").map(|value| String::from_utf8_lossy(value.as_bytes()));
    let after = header.as_deref().or(query.as_deref()).map(sequence).transpose()?;
    let events = api.control().events(after).await?;
    // A server that is shut down does not wait for those who listen for ever.
    let stream = events.map(|event| Ok::<_, Infallible>(write(event)));
    let stream = stream.take_until(Box::pin(api.closed()));
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

fn sequence(text: &str) -> Result<u64, RestError> {
    text.trim().parse().map_err(|_| RestError::Query {
        why: format!("{:?} is not the sequence number of an event", cut(text)),
    })
}

fn write(event: Event) -> SseEvent {
    let view = EventView::from(event);
    let kind = serde_json::to_value(view.kind).ok();
    let written = SseEvent::default()
        .id(view.sequence.to_string())
        .event(kind.as_ref().and_then(|kind| kind.as_str()).unwrap_or("message"))
        .json_data(&view);
    // An event is numbers and texts, which always have a JSON form.
    written.unwrap_or_default()
}
