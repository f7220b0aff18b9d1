//! `/v1/classes` and `/v1/nodes`: what there is to make volumes in, and to use them on.

use axum::extract::State;
use hawser_api::rest::classes::{CapacityView, ClassView};
use hawser_api::rest::list::ListView;
use hawser_api::rest::nodes::NodeView;

use super::Api;
use super::answer::{Answer, ok};
use super::extract::{Named, Params, name};

/// All classes.
#[utoipa::path(get, path = "/v1/classes", tag = "classes",
    responses((status = 200, description = "All of them", body = ListView<ClassView>)))]
pub(super) async fn list(State(api): State<Api>, params: Params) -> Answer {
    params.end()?;
    Ok(ok(ListView::<ClassView>::whole(api.control().list_classes().await?)))
}

/// How much room a class has, in all or at one place.
#[utoipa::path(get, path = "/v1/classes/{class}/capacity", tag = "classes",
    params(
        ("class" = String, Path, description = "The class's name"),
        ("place" = Option<Vec<String>>, Query, description = "At this place, as key=value such as node=host-a; may be repeated"),
    ),
    responses((status = 200, description = "Its room", body = CapacityView)))]
pub(super) async fn capacity(
    State(api): State<Api>,
    Named(text): Named<String>,
    mut params: Params,
) -> Answer {
    let place = params.place()?;
    params.end()?;
    let capacity = api.control().capacity(&name(&text)?, place.as_ref()).await?;
    Ok(ok(CapacityView::from(capacity)))
}

/// All nodes that were ever seen.
#[utoipa::path(get, path = "/v1/nodes", tag = "nodes",
    responses((status = 200, description = "All of them", body = ListView<NodeView>)))]
pub(super) async fn nodes(State(api): State<Api>, params: Params) -> Answer {
    params.end()?;
    Ok(ok(ListView::<NodeView>::whole(api.control().list_nodes().await?)))
}
