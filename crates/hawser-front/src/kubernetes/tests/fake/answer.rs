//! Answers and errors, in the words of the server.

use std::io;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use super::call::Target;

pub(super) type FakeBody = UnsyncBoxBody<Bytes, io::Error>;
pub(super) type Answer = Result<Response<FakeBody>, io::Error>;

/// A request that was served.
pub(super) struct Done {
    code: StatusCode,
    pub(super) body: Value,
}

impl Done {
    pub(super) fn ok(body: Value) -> Self {
        Self { code: StatusCode::OK, body }
    }

    pub(super) fn created(body: Value) -> Self {
        Self { code: StatusCode::CREATED, body }
    }
}

/// A request that was not.
#[derive(Debug)]
pub(super) enum Refusal {
    /// There is no such page: the one error that is no object.
    Page,
    /// An object of the kind `Status`.
    Status(Value),
}

impl Refusal {
    /// An error with the reason that belongs to its code.
    pub(super) fn new(code: u16, message: &str) -> Self {
        Self::because(code, reason(code), message)
    }

    fn because(code: u16, reason: &str, message: &str) -> Self {
        Self::Status(json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }))
    }

    fn about(mut self, target: &Target, name: &str) -> Self {
        if let Self::Status(status) = &mut self {
            let mut details = json!({ "kind": target.plural });
            for (field, value) in [("name", name), ("group", &target.group)] {
                if !value.is_empty() {
                    details[field] = json!(value);
                }
            }
            status["details"] = details;
        }
        self
    }

    pub(super) fn bad_request(message: &str) -> Self {
        Self::new(400, message)
    }

    pub(super) fn not_found(target: &Target, name: &str) -> Self {
        let message = format!("{} {name:?} not found", target.resource());
        Self::new(404, &message).about(target, name)
    }

    pub(super) fn method_not_allowed(target: &Target, method: &Method) -> Self {
        let resource = target.resource();
        let message = format!("{method} is not supported on resources of kind {resource:?}");
        Self::new(405, &message).about(target, "")
    }

    pub(super) fn exists(target: &Target, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", target.resource());
        Self::because(409, "AlreadyExists", &message).about(target, name)
    }

    pub(super) fn conflict(target: &Target, name: &str, why: &str) -> Self {
        let resource = target.resource();
        let message = format!("Operation cannot be fulfilled on {resource} {name:?}: {why}");
        Self::new(409, &message).about(target, name)
    }

    pub(super) fn invalid(target: &Target, name: &str, why: &str) -> Self {
        let kind = target.known().map_or(target.plural.as_str(), |known| known.kind);
        let message = format!("{kind} {name:?} is invalid: {why}");
        Self::new(422, &message).about(target, name)
    }

    /// A field that nobody may change, as the server names it.
    pub(super) fn immutable(target: &Target, name: &str, field: &str) -> Self {
        let why = format!("{field}: Invalid value: field is immutable");
        let mut refusal = Self::invalid(target, name, &why);
        if let Self::Status(status) = &mut refusal {
            status["details"]["causes"] = json!([{
                "reason": "FieldValueInvalid", "message": why, "field": field,
            }]);
        }
        refusal
    }

    pub(super) fn expired(message: &str) -> Self {
        Self::new(410, message)
    }

    /// The object itself, as a watch shows it.
    pub(super) fn status(self) -> Value {
        match self {
            Self::Status(status) => status,
            Self::Page => Value::Null,
        }
    }
}

fn reason(code: u16) -> &'static str {
    match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        409 => "Conflict",
        410 => "Expired",
        413 => "RequestEntityTooLarge",
        415 => "UnsupportedMediaType",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    }
}

pub(super) fn reply(done: &Done) -> Answer {
    respond(done.code, "application/json", done.body.to_string())
}

pub(super) fn refuse(refusal: &Refusal) -> Answer {
    match refusal {
        Refusal::Page => {
            respond(StatusCode::NOT_FOUND, "text/plain", "404 page not found\n".into())
        }
        Refusal::Status(status) => {
            let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
            let code = code.and_then(|code| StatusCode::from_u16(code).ok()).expect("a code");
            respond(code, "application/json", status.to_string())
        }
    }
}

fn respond(code: StatusCode, content_type: &'static str, body: String) -> Answer {
    let body = Full::new(Bytes::from(body)).map_err(io::Error::other).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    Ok(response)
}
