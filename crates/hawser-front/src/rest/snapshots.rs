//! `/v1/snapshots`.

use axum::extract::State;
use hawser_api::rest::list::ListView;
use hawser_api::rest::operations::OperationView;
use hawser_api::rest::snapshots::{CreateSnapshot, SnapshotView};
use hawser_core::snapshot::SnapshotRequest;

use super::Api;
use super::answer::{Answer, created, gone, ok};
use super::extract::{JsonBody, Named, Params, snapshot, volume};

/// Snapshots, oldest first, in pages.
#[utoipa::path(get, path = "/v1/snapshots", tag = "snapshots",
    params(
        ("volume" = Option<String>, Query, description = "Of this volume: id or name"),
        ("limit" = Option<u32>, Query, description = "At most so many"),
        ("page_token" = Option<String>, Query, description = "next_page_token of the page before"),
    ),
    responses((status = 200, description = "A page", body = ListView<SnapshotView>)))]
pub(super) async fn list(State(api): State<Api>, mut params: Params) -> Answer {
    let page = params.page()?;
    let of = params.one("volume")?.map(|text| volume(&text)).transpose()?;
    params.end()?;
    let page = api.control().list_snapshots(of.as_ref(), &page).await?;
    Ok(ok(ListView::<SnapshotView>::from_page(page)))
}

/// Takes a snapshot; a mounted file system is frozen for that moment.
#[utoipa::path(post, path = "/v1/snapshots", tag = "snapshots",
    params(("wait" = Option<String>, Query, description = "How long to wait")),
    request_body = CreateSnapshot,
    responses(
        (status = 201, description = "Taken now", body = SnapshotView),
        (status = 200, description = "The same was there already", body = SnapshotView),
        (status = 202, description = "Goes on", body = OperationView, headers(("location" = String, description = "The operation"))),
    ))]
pub(super) async fn create(
    State(api): State<Api>,
    params: Params,
    JsonBody(body): JsonBody<CreateSnapshot>,
) -> Answer {
    let wait = params.only_wait()?;
    let reply = api.control().create_snapshot(SnapshotRequest::try_from(body)?, wait).await?;
    Ok(created::<_, SnapshotView>(reply))
}

/// One snapshot.
#[utoipa::path(get, path = "/v1/snapshots/{snapshot}", tag = "snapshots",
    params(("snapshot" = String, Path, description = "Id or name")),
    responses((status = 200, description = "The snapshot", body = SnapshotView)))]
pub(super) async fn show(
    State(api): State<Api>,
    Named(text): Named<String>,
    params: Params,
) -> Answer {
    params.end()?;
    Ok(ok(SnapshotView::from(api.control().get_snapshot(&snapshot(&text)?).await?)))
}

/// Removes a snapshot; one that is not there is no error.
#[utoipa::path(delete, path = "/v1/snapshots/{snapshot}", tag = "snapshots",
    params(
        ("snapshot" = String, Path, description = "Id or name"),
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
    Ok(gone(api.control().delete_snapshot(&snapshot(&text)?, wait).await?))
}
