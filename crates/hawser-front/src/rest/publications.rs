//! `/v1/volumes/{volume}/publications`, `…/attachments` and `…/mounts`.

use axum::extract::State;
use hawser_api::rest::operations::OperationView;
use hawser_api::rest::publications::{
    AttachedView, MountVolume, PublicationView, PublishVolume, target,
};
use hawser_core::name::NodeId;
use hawser_core::publication::{MountRequest, PublishRequest};

use super::Api;
use super::answer::{Answer, created, gone, ok};
use super::error::RestError;
use super::extract::{JsonBody, MaybeBody, Named, Params, name, volume};

/// The right of one node to use a volume.
#[utoipa::path(get, path = "/v1/volumes/{volume}/publications/{node}", tag = "publications",
    params(
        ("volume" = String, Path, description = "Id or name"),
        ("node" = String, Path, description = "The node's id"),
    ),
    responses((status = 200, description = "The publication", body = PublicationView)))]
pub(super) async fn show(
    State(api): State<Api>,
    Named((text, node)): Named<(String, String)>,
    params: Params,
) -> Answer {
    params.end()?;
    let node: NodeId = name(&node)?;
    let found = api.control().get_volume(&volume(&text)?).await?;
    let shown = found.display_name();
    match found.publications.into_iter().find(|publication| publication.node == node) {
        Some(publication) => Ok(ok(PublicationView::from(publication))),
        None => Err(RestError::NotPublished { volume: shown, node: node.to_string() }.into()),
    }
}

/// Gives a node the right to use a volume.
#[utoipa::path(put, path = "/v1/volumes/{volume}/publications/{node}", tag = "publications",
    params(
        ("volume" = String, Path, description = "Id or name"),
        ("node" = String, Path, description = "The node's id"),
        ("wait" = Option<String>, Query, description = "How long to wait"),
    ),
    request_body = Option<PublishVolume>,
    responses(
        (status = 201, description = "Published now", body = PublicationView),
        (status = 200, description = "It was published already", body = PublicationView),
        (status = 202, description = "Goes on", body = OperationView),
    ))]
pub(super) async fn publish(
    State(api): State<Api>,
    Named((text, node)): Named<(String, String)>,
    params: Params,
    MaybeBody(body): MaybeBody<PublishVolume>,
) -> Answer {
    let wait = params.only_wait()?;
    let request = PublishRequest::new(name(&node)?, body.read_only);
    let reply = api.control().publish(&volume(&text)?, request, wait).await?;
    Ok(created::<_, PublicationView>(reply))
}

/// Takes that right back; answers when the node can no longer write.
#[utoipa::path(delete, path = "/v1/volumes/{volume}/publications/{node}", tag = "publications",
    params(
        ("volume" = String, Path, description = "Id or name"),
        ("node" = String, Path, description = "The node's id"),
        ("wait" = Option<String>, Query, description = "How long to wait"),
    ),
    responses(
        (status = 204, description = "Revoked"),
        (status = 202, description = "Goes on", body = OperationView),
    ))]
pub(super) async fn unpublish(
    State(api): State<Api>,
    Named((text, node)): Named<(String, String)>,
    params: Params,
) -> Answer {
    let wait = params.only_wait()?;
    Ok(gone(api.control().unpublish(&volume(&text)?, &name(&node)?, wait).await?))
}

/// Publishes where needed, and brings the volume to the node.
#[utoipa::path(put, path = "/v1/volumes/{volume}/attachments/{node}", tag = "publications",
    params(
        ("volume" = String, Path, description = "Id or name"),
        ("node" = String, Path, description = "The node's id"),
        ("wait" = Option<String>, Query, description = "How long to wait"),
    ),
    request_body = Option<PublishVolume>,
    responses(
        (status = 201, description = "Attached now", body = AttachedView),
        (status = 200, description = "It was attached already", body = AttachedView),
        (status = 202, description = "Goes on", body = OperationView),
    ))]
pub(super) async fn attach(
    State(api): State<Api>,
    Named((text, node)): Named<(String, String)>,
    params: Params,
    MaybeBody(body): MaybeBody<PublishVolume>,
) -> Answer {
    let wait = params.only_wait()?;
    let request = PublishRequest::new(name(&node)?, body.read_only);
    let reply = api.control().attach(&volume(&text)?, request, wait).await?;
    Ok(created::<_, AttachedView>(reply))
}

/// Takes the volume from the node and unpublishes it.
#[utoipa::path(delete, path = "/v1/volumes/{volume}/attachments/{node}", tag = "publications",
    params(
        ("volume" = String, Path, description = "Id or name"),
        ("node" = String, Path, description = "The node's id"),
        ("wait" = Option<String>, Query, description = "How long to wait"),
    ),
    responses(
        (status = 204, description = "Detached"),
        (status = 202, description = "Goes on", body = OperationView),
    ))]
pub(super) async fn detach(
    State(api): State<Api>,
    Named((text, node)): Named<(String, String)>,
    params: Params,
) -> Answer {
    let wait = params.only_wait()?;
    Ok(gone(api.control().detach(&volume(&text)?, &name(&node)?, wait).await?))
}

/// Publishes, attaches and formats where needed, and mounts.
#[utoipa::path(post, path = "/v1/volumes/{volume}/mounts", tag = "publications",
    params(
        ("volume" = String, Path, description = "Id or name"),
        ("wait" = Option<String>, Query, description = "How long to wait"),
    ),
    request_body = MountVolume,
    responses(
        (status = 201, description = "Mounted now", body = PublicationView),
        (status = 200, description = "It was mounted already", body = PublicationView),
        (status = 202, description = "Goes on", body = OperationView),
    ))]
pub(super) async fn mount(
    State(api): State<Api>,
    Named(text): Named<String>,
    params: Params,
    JsonBody(body): JsonBody<MountVolume>,
) -> Answer {
    let wait = params.only_wait()?;
    let request = MountRequest::try_from(body)?;
    let reply = api.control().mount(&volume(&text)?, request, wait).await?;
    Ok(created::<_, PublicationView>(reply))
}

/// Unmounts one folder, or all of them, of a node.
#[utoipa::path(delete, path = "/v1/volumes/{volume}/mounts", tag = "publications",
    params(
        ("volume" = String, Path, description = "Id or name"),
        ("node" = String, Query, description = "On which node"),
        ("target" = Option<String>, Query, description = "From which folder; all of them when left out"),
        ("wait" = Option<String>, Query, description = "How long to wait"),
    ),
    responses(
        (status = 204, description = "Unmounted"),
        (status = 202, description = "Goes on", body = OperationView),
    ))]
pub(super) async fn unmount(
    State(api): State<Api>,
    Named(text): Named<String>,
    mut params: Params,
) -> Answer {
    let Some(node) = params.one("node")? else {
        return Err(RestError::Query { why: "node is missing".to_owned() }.into());
    };
    let target = params.one("target")?.map(|text| target(&text)).transpose()?;
    let wait = params.only_wait()?;
    Ok(gone(api.control().unmount(&volume(&text)?, &name(&node)?, target, wait).await?))
}
