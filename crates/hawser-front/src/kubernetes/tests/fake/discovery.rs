//! Which groups, versions and resources there are.

use http::Method;
use serde_json::{Value, json};

use super::answer::Refusal;
use super::call::Call;
use super::known::{StatusPart, of_group};
use super::state::State;

impl State {
    /// The document of a path that names no collection.
    pub(super) fn discover(&self, call: &Call) -> Option<Result<Value, Refusal>> {
        let parts: Vec<_> = call.seen.path.trim_matches('/').split('/').collect();
        let found = match parts.as_slice() {
            ["version"] => Some(json!({
                "major": "1", "minor": "34", "gitVersion": "v1.34.0", "platform": "linux/amd64",
            })),
            ["api"] => Some(json!({ "kind": "APIVersions", "versions": self.groups.get("") })),
            ["apis"] => {
                let groups = self.groups.keys().filter_map(|name| self.group(name));
                let groups = groups.collect::<Vec<_>>();
                Some(json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }))
            }
            ["apis", group] => self.group(group),
            ["api", version] => self.resources("", version),
            ["apis", group, version] => self.resources(group, version),
            _ => return None,
        };
        Some(match (found, &call.seen.method) {
            (Some(found), &Method::GET) => Ok(found),
            _ => Err(Refusal::Page),
        })
    }

    fn group(&self, name: &str) -> Option<Value> {
        let of = |version: &String| json!({ "groupVersion": format!("{name}/{version}"), "version": version });
        let versions: Vec<_> = self.groups.get(name)?.iter().map(of).collect();
        let preferred = versions.first().filter(|_| !name.is_empty())?.clone();
        Some(json!({
            "kind": "APIGroup",
            "apiVersion": "v1",
            "name": name,
            "versions": versions,
            "preferredVersion": preferred,
        }))
    }

    fn resources(&self, group: &str, version: &str) -> Option<Value> {
        let versions = self.groups.get(group)?;
        versions.iter().find(|served| *served == version)?;
        let mut resources = Vec::new();
        for known in of_group(group) {
            let resource = |name: String, verbs: &[&str]| {
                json!({
                    "name": name,
                    "singularName": known.kind.to_lowercase(),
                    "namespaced": known.namespaced,
                    "kind": known.kind,
                    "verbs": verbs,
                })
            };
            let verbs = ["create", "delete", "get", "list", "patch", "update", "watch"];
            resources.push(resource(known.plural.to_owned(), &verbs));
            if known.status != StatusPart::Missing {
                let status = format!("{}/status", known.plural);
                resources.push(resource(status, &["get", "patch", "update"]));
            }
        }
        let separator = if group.is_empty() { "" } else { "/" };
        Some(json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": format!("{group}{separator}{version}"),
            "resources": resources,
        }))
    }
}
