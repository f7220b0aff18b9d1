//! `/v1/operations`.

use std::time::Duration;

use axum::extract::State;
use hawser_api::rest::list::ListView;
use hawser_api::rest::operations::{OperationStateView, OperationView};
use hawser_core::operation::OperationState;
use hawser_core::port::control::OperationFilter;

use super::Api;
use super::answer::{Answer, ok, operation_view};
use super::error::{RestError, cut};
use super::extract::{Named, Params, name};

/// Operations, newest first, in pages.
#[utoipa::path(get, path = "/v1/operations", tag = "operations",
    params(
        ("state" = Option<OperationStateView>, Query, description = "In this state"),
        ("subject" = Option<String>, Query, description = "Of the object with this id"),
        ("limit" = Option<u32>, Query, description = "At most so many"),
        ("page_token" = Option<String>, Query, description = "next_page_token of the page before"),
    ),
    responses((status = 200, description = "A page", body = ListView<OperationView>)))]
pub(super) async fn list(State(api): State<Api>, mut params: Params) -> Answer {
    let page = params.page()?;
    let state = params.one("state")?.map(|word| state(&word)).transpose()?;
    let filter = OperationFilter { state, subject: params.one("subject")? };
    params.end()?;
    let page = api.control().list_operations(&filter, &page).await?;
    let items = page.items.into_iter().map(operation_view).collect();
    Ok(ok(ListView { items, next_page_token: page.next }))
}

fn state(word: &str) -> Result<OperationState, RestError> {
    let value = serde_json::Value::String(word.to_owned());
    match serde_json::from_value::<OperationStateView>(value) {
        Ok(state) => Ok(state.into()),
        Err(_) => Err(RestError::Query {
            why: format!("state {:?} is none of running, waiting, succeeded, failed", cut(word)),
        }),
    }
}

/// One operation; with `wait`, answers when it is over or the time is.
#[utoipa::path(get, path = "/v1/operations/{id}", tag = "operations",
    params(
        ("id" = String, Path, description = "The operation's id"),
        ("wait" = Option<String>, Query, description = "How long to wait for its end; not at all when left out"),
    ),
    responses((status = 200, description = "The operation", body = OperationView)))]
pub(super) async fn show(
    State(api): State<Api>,
    Named(text): Named<String>,
    mut params: Params,
) -> Answer {
    let wait = params.wait(Duration::ZERO)?;
    params.end()?;
    Ok(ok(operation_view(api.control().get_operation(&name(&text)?, wait).await?)))
}

/// Asks an operation to stop and take back what it did, where that is safe.
#[utoipa::path(post, path = "/v1/operations/{id}/cancel", tag = "operations",
    params(
        ("id" = String, Path, description = "The operation's id"),
        ("wait" = Option<String>, Query, description = "Accepted as on every change; the answer comes at once"),
    ),
    responses((status = 200, description = "The operation as it is now", body = OperationView)))]
pub(super) async fn cancel(
    State(api): State<Api>,
    Named(text): Named<String>,
    params: Params,
) -> Answer {
    params.only_wait()?;
    Ok(ok(operation_view(api.control().cancel_operation(&name(&text)?).await?)))
}
