//! A request, read; and what its path names.

use std::collections::BTreeMap;
use std::io;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, Method, Request};
use kube::client::Body;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::answer::Refusal;
use super::known::{Known, is_builtin, known};
use super::name::Key;

/// A request as it came, for tests to look at.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    /// The path without its query.
    pub(crate) path: String,
    /// The query, decoded and in order of names: `resourceVersion=7&watch=true`.
    pub(crate) query: String,
    /// What was sent; null where nothing was.
    pub(crate) body: Value,
    /// The caller wants the metadata of objects and no more.
    pub(crate) metadata_only: bool,
}

/// A request, with what it asks for taken apart.
pub(super) struct Call {
    pub(super) seen: Seen,
    pub(super) query: BTreeMap<String, String>,
    pub(super) content_type: String,
}

impl Call {
    pub(super) async fn read(request: Request<Body>) -> Result<Self, io::Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.map_err(io::Error::other)?;
        let body = match body.is_empty() {
            true => Value::Null,
            // What is not JSON is refused where an object is needed.
            false => serde_json::from_slice(&body).unwrap_or_else(|_| json!("not JSON")),
        };
        let query: BTreeMap<_, _> =
            parts.uri.query().unwrap_or_default().split('&').filter_map(pair).collect();
        let written: Vec<_> = query.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let seen = Seen {
            method: parts.method,
            path: parts.uri.path().to_owned(),
            query: written.join("&"),
            body,
            metadata_only: header(&parts.headers, ACCEPT).contains("as=PartialObjectMetadata"),
        };
        let content_type = header(&parts.headers, CONTENT_TYPE);
        Ok(Self { seen, query, content_type })
    }

    pub(super) fn option(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        matches!(self.option(name), "1" | "true")
    }

    pub(super) fn is_watch(&self) -> bool {
        self.seen.method == Method::GET && self.flag("watch")
    }

    /// The object that was sent.
    pub(super) fn object(&self) -> Result<Value, Refusal> {
        match self.seen.body.is_object() && self.content_type.starts_with("application/json") {
            true => Ok(self.seen.body.clone()),
            false => Err(Refusal::bad_request("the body is no object in JSON")),
        }
    }

    pub(super) fn view(&self, target: &Target) -> View {
        View { api_version: target.api_version(), metadata_only: self.seen.metadata_only }
    }
}

fn header(headers: &HeaderMap, name: http::HeaderName) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

fn pair(text: &str) -> Option<(String, String)> {
    let (key, value) = text.split_once('=')?;
    Some((key.to_owned(), decode(&value.replace('+', " "))))
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// How a caller wants to see objects: in which version, and how much of them.
#[derive(Clone)]
pub(super) struct View {
    pub(super) api_version: String,
    pub(super) metadata_only: bool,
}

impl View {
    pub(super) fn object(&self, mut object: Value) -> Value {
        if object["kind"] == "Status" {
            return object;
        }
        if self.metadata_only {
            let metadata = object["metadata"].take();
            return json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
            });
        }
        object["apiVersion"] = json!(self.api_version);
        object
    }
}

/// What a path names: a collection, an object in it, or a part of that.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) plural: String,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
}

impl Target {
    pub(super) fn parse(path: &str) -> Option<Self> {
        let parts: Vec<String> = path.trim_matches('/').split('/').map(decode).collect();
        let (group, version, rest) = match parts.as_slice() {
            [api, version, rest @ ..] if api == "api" => (String::new(), version, rest),
            [apis, group, version, rest @ ..] if apis == "apis" => (group.clone(), version, rest),
            _ => return None,
        };
        // A namespace is also an object of its own, with parts of its own.
        let (namespace, rest) = match rest {
            [word, namespace, rest @ ..] if word == "namespaces" && is_collection(rest) => {
                (Some(namespace.clone()), rest)
            }
            rest => (None, rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (plural, None, None),
            [plural, name] => (plural, Some(name), None),
            [plural, name, part] => (plural, Some(name), Some(part)),
            _ => return None,
        };
        Some(Self {
            group,
            version: version.clone(),
            plural: plural.clone(),
            namespace,
            name: name.cloned(),
            subresource: subresource.cloned(),
        })
    }

    pub(super) fn api_version(&self) -> String {
        match self.group.is_empty() {
            true => self.version.clone(),
            false => format!("{}/{}", self.group, self.version),
        }
    }

    pub(super) fn known(&self) -> Option<&'static Known> {
        known(&self.group, &self.plural)
    }

    pub(super) fn is_builtin(&self) -> bool {
        is_builtin(&self.group)
    }

    pub(super) fn is_status(&self) -> bool {
        self.subresource.as_deref() == Some("status")
    }

    /// Where the object of this name is kept.
    pub(super) fn key(&self, name: &str) -> Key {
        Key {
            group: self.group.clone(),
            plural: self.plural.clone(),
            namespace: self.namespace.clone().unwrap_or_default(),
            name: name.to_owned(),
        }
    }

    /// The resource as errors name it.
    pub(super) fn resource(&self) -> String {
        match self.group.is_empty() {
            true => self.plural.clone(),
            false => format!("{}.{}", self.plural, self.group),
        }
    }
}

fn is_collection(rest: &[String]) -> bool {
    rest.first().is_some_and(|word| word != "status" && word != "finalize")
}
