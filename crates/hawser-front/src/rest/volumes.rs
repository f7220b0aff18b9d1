//! `/v1/volumes`.

use axum::extract::State;
use hawser_api::rest::list::ListView;
use hawser_api::rest::operations::OperationView;
use hawser_api::rest::volumes::{CreateVolume, ExpandVolume, HealthView, PatchVolume, VolumeView};
use hawser_core::Error;
use hawser_core::name::Labels;
use hawser_core::port::control::{Reply, VolumeFilter};
use hawser_core::volume::{Volume, VolumeRequest};
use tracing::Span;

use super::Api;
use super::answer::{Answer, changed, created, gone, ok};
use super::extract::{JsonBody, Named, Params, name, volume};

/// Volumes, oldest first, in pages.
#[utoipa::path(get, path = "/v1/volumes", tag = "volumes",
    params(
        ("class" = Option<String>, Query, description = "Of this class"),
        ("label" = Option<Vec<String>>, Query, description = "With this label, as key=value; may be repeated"),
        ("limit" = Option<u32>, Query, description = "At most so many, 1000 at the most; 100 when left out"),
        ("page_token" = Option<String>, Query, description = "next_page_token of the page before"),
    ),
    responses((status = 200, description = "A page", body = ListView<VolumeView>)))]
pub(super) async fn list(State(api): State<Api>, mut params: Params) -> Answer {
    let page = params.page()?;
    let class = params.one("class")?.map(|text| name(&text)).transpose()?;
    let labels = Labels::try_from(params.pairs("label")?).map_err(Error::from)?;
    params.end()?;
    let filter = VolumeFilter { class, labels };
    Ok(ok(ListView::<VolumeView>::from_page(api.control().list_volumes(&filter, &page).await?)))
}

/// Makes a volume, from nothing or from a source.
#[utoipa::path(post, path = "/v1/volumes", tag = "volumes",
    params(("wait" = Option<String>, Query, description = "How long to wait: 10s, 500ms, 2m; 30s when left out, 10m at the most")),
    request_body = CreateVolume,
    responses(
        (status = 201, description = "Made now", body = VolumeView),
        (status = 200, description = "The same was there already", body = VolumeView),
        (status = 202, description = "Goes on", body = OperationView, headers(("location" = String, description = "The operation"))),
    ))]
pub(super) async fn create(
    State(api): State<Api>,
    params: Params,
    JsonBody(body): JsonBody<CreateVolume>,
) -> Answer {
    let wait = params.only_wait()?;
    let reply = api.control().create_volume(VolumeRequest::try_from(body)?, wait).await?;
    note(&reply);
    Ok(created::<_, VolumeView>(reply))
}

/// One volume.
#[utoipa::path(get, path = "/v1/volumes/{volume}", tag = "volumes",
    params(("volume" = String, Path, description = "Id or name; names of other worlds as scope:name")),
    responses((status = 200, description = "The volume", body = VolumeView)))]
pub(super) async fn show(
    State(api): State<Api>,
    Named(text): Named<String>,
    params: Params,
) -> Answer {
    params.end()?;
    let found = api.control().get_volume(&volume(&text)?).await?;
    Span::current().record("volume.id", found.id.as_str());
    Ok(ok(VolumeView::from(found)))
}

/// Removes a volume; one that is not there is no error.
#[utoipa::path(delete, path = "/v1/volumes/{volume}", tag = "volumes",
    params(
        ("volume" = String, Path, description = "Id or name"),
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
    Ok(gone(api.control().delete_volume(&volume(&text)?, wait).await?))
}

/// Adds, changes and removes labels.
#[utoipa::path(patch, path = "/v1/volumes/{volume}", tag = "volumes",
    params(
        ("volume" = String, Path, description = "Id or name"),
        ("wait" = Option<String>, Query, description = "How long to wait"),
    ),
    request_body = PatchVolume,
    responses(
        (status = 200, description = "The volume as it is now", body = VolumeView),
        (status = 202, description = "Goes on", body = OperationView),
    ))]
pub(super) async fn patch(
    State(api): State<Api>,
    Named(text): Named<String>,
    params: Params,
    JsonBody(body): JsonBody<PatchVolume>,
) -> Answer {
    let wait = params.only_wait()?;
    let reply = api.control().label_volume(&volume(&text)?, body.labels, wait).await?;
    note(&reply);
    Ok(changed::<_, VolumeView>(reply))
}

/// Makes a volume larger, and its file system where it is mounted.
#[utoipa::path(post, path = "/v1/volumes/{volume}/expand", tag = "volumes",
    params(
        ("volume" = String, Path, description = "Id or name"),
        ("wait" = Option<String>, Query, description = "How long to wait"),
    ),
    request_body = ExpandVolume,
    responses(
        (status = 200, description = "The volume as it is now", body = VolumeView),
        (status = 202, description = "Goes on", body = OperationView),
    ))]
pub(super) async fn expand(
    State(api): State<Api>,
    Named(text): Named<String>,
    params: Params,
    JsonBody(body): JsonBody<ExpandVolume>,
) -> Answer {
    let wait = params.only_wait()?;
    let reply = api.control().expand_volume(&volume(&text)?, body.size, wait).await?;
    note(&reply);
    Ok(changed::<_, VolumeView>(reply))
}

/// Whether a volume works, at its storage and where it is attached.
#[utoipa::path(get, path = "/v1/volumes/{volume}/health", tag = "volumes",
    params(("volume" = String, Path, description = "Id or name")),
    responses((status = 200, description = "What is wrong, or that nothing is", body = HealthView)))]
pub(super) async fn health(
    State(api): State<Api>,
    Named(text): Named<String>,
    params: Params,
) -> Answer {
    params.end()?;
    Ok(ok(HealthView::from(api.control().volume_health(&volume(&text)?).await?)))
}

/// Puts the id of the changed volume into the request's span.
fn note(reply: &Reply<Volume>) {
    let id = match reply {
        Reply::Done(change) => change.get().id.as_str(),
        Reply::Pending(operation) => &operation.subject,
    };
    Span::current().record("volume.id", id);
}
