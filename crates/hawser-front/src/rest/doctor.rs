//! `/v1/doctor`.

use axum::extract::State;
use hawser_api::rest::doctor::FindingView;
use hawser_api::rest::list::ListView;

use super::Api;
use super::answer::{Answer, ok};
use super::extract::Params;

/// Things that do not belong together, in the records, in the storage and on the nodes.
#[utoipa::path(get, path = "/v1/doctor", tag = "service",
    responses((status = 200, description = "What was found", body = ListView<FindingView>)))]
pub(super) async fn examine(State(api): State<Api>, params: Params) -> Answer {
    params.end()?;
    Ok(ok(ListView::<FindingView>::whole(api.control().doctor(false).await?)))
}

/// The same, and with `fix=true` repairs what is provably safe.
#[utoipa::path(post, path = "/v1/doctor", tag = "service",
    params(
        ("fix" = Option<bool>, Query, description = "Repair what is provably safe"),
        ("wait" = Option<String>, Query, description = "Accepted as on every change; the answer comes when all is looked at"),
    ),
    responses((status = 200, description = "What was found, and what came of it", body = ListView<FindingView>)))]
pub(super) async fn repair(State(api): State<Api>, mut params: Params) -> Answer {
    let fix = params.flag("fix")?;
    params.only_wait()?;
    Ok(ok(ListView::<FindingView>::whole(api.control().doctor(fix).await?)))
}
