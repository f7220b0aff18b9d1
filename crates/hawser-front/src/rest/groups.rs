//! `/v1/groups`: snapshots of several volumes, all of one instant.

use axum::extract::State;
use hawser_api::rest::groups::{CreateGroup, GroupView};
use hawser_api::rest::operations::OperationView;
use hawser_core::group::GroupRequest;

use super::Api;
use super::answer::{Answer, created, gone, ok};
use super::extract::{JsonBody, Named, Params, group};

/// Takes snapshots of several volumes, all of one instant; mounted file systems are frozen for that
/// moment. Volumes that cannot be held still together are refused with 412.
#[utoipa::path(post, path = "/v1/groups", tag = "groups",
    params(("wait" = Option<String>, Query, description = "How long to wait")),
    request_body = CreateGroup,
    responses(
        (status = 201, description = "Taken now", body = GroupView),
        (status = 200, description = "The same was there already", body = GroupView),
        (status = 202, description = "Goes on", body = OperationView, headers(("location" = String, description = "The operation"))),
    ))]
pub(super) async fn create(
    State(api): State<Api>,
    params: Params,
    JsonBody(body): JsonBody<CreateGroup>,
) -> Answer {
    let wait = params.only_wait()?;
    let reply = api.control().create_group(GroupRequest::try_from(body)?, wait).await?;
    Ok(created::<_, GroupView>(reply))
}

/// One group with its snapshots.
#[utoipa::path(get, path = "/v1/groups/{group}", tag = "groups",
    params(("group" = String, Path, description = "Id or name")),
    responses((status = 200, description = "The group", body = GroupView)))]
pub(super) async fn show(
    State(api): State<Api>,
    Named(text): Named<String>,
    params: Params,
) -> Answer {
    params.end()?;
    Ok(ok(GroupView::from(api.control().get_group(&group(&text)?).await?)))
}

/// Removes a group with all of its snapshots; one that is not there is no error.
#[utoipa::path(delete, path = "/v1/groups/{group}", tag = "groups",
    params(
        ("group" = String, Path, description = "Id or name"),
        ("wait" = Option<String>, Query, description = "How long to wait"),
    ),
    responses(
        (status = 204, description = "Gone"),
        (status = 202, description = "Goes on", body = OperationView),
    ))]
pub(super) async fn delete(
    State(api): State<Api>,
    Named(text): Named<String>,
    params: Params,
) -> Answer {
    let wait = params.only_wait()?;
    Ok(gone(api.control().delete_group(&group(&text)?, wait).await?))
}
