//! What the API says about itself: an OpenAPI 3.1 document, made from the handlers.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use hawser_api::rest::PROBLEM_TYPE;
use hawser_api::rest::problem::Problem;
use http::header;
use utoipa::OpenApi;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, ResponseBuilder};

use super::answer::Answer;
use super::extract::Params;
use super::{Api, described};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Hawser",
        description = "Volumes from any storage system to any Linux host. Every change is idempotent: the same request again finds it done or joins it. A change that takes longer than `wait` answers 202 with its operation.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    components(schemas(Problem))
)]
struct Frame;

/// The document without its paths.
pub(super) fn frame() -> utoipa::openapi::OpenApi {
    Frame::openapi()
}

/// The whole document.
pub fn document() -> utoipa::openapi::OpenApi {
    let (_, mut document) = described().split_for_parts();
    for item in document.paths.paths.values_mut() {
        for operation in operations(item) {
            operation.responses.responses.insert("default".to_owned(), refusal().into());
        }
    }
    let token = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    document.components.get_or_insert_default().add_security_scheme("token", token);
    // The first is for the Unix socket, where the caller's user is checked instead.
    let none = SecurityRequirement::default();
    document.security = Some(vec![none, SecurityRequirement::new("token", Vec::<String>::new())]);
    document
}

fn refusal() -> utoipa::openapi::Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    ResponseBuilder::new()
        .description("Refused or failed; `kind` and `outcome` say what to do about it.")
        .content(PROBLEM_TYPE, content)
        .build()
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch]
        .into_iter()
        .filter_map(Option::as_mut)
}

/// This document.
#[utoipa::path(get, path = "/v1/openapi.json", tag = "service",
    responses((status = 200, description = "An OpenAPI 3.1 document", body = Object)))]
pub(super) async fn show(State(api): State<Api>, params: Params) -> Answer {
    params.end()?;
    let document = api.0.document.clone();
    let media = [(header::CONTENT_TYPE, "application/json")];
    Ok::<Response, _>((media, document).into_response())
}
