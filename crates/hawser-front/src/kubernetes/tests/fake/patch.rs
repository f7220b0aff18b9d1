//! Patches of the four forms, turned into the object that they make of the old one.

use serde_json::Value;

use super::answer::{Done, Refusal};
use super::call::{Call, Target};
use super::state::State;

impl State {
    pub(super) fn patch(&mut self, target: &Target, call: &Call) -> Result<Done, Refusal> {
        let form = call.content_type.split(';').next().unwrap_or_default();
        let patch = &call.seen.body;
        let is_apply = form == "application/apply-patch+yaml";
        if is_apply && call.option("fieldManager").is_empty() {
            let name = target.name.as_deref().unwrap_or_default();
            let why = "fieldManager: Required value: is required for apply patch";
            return Err(Refusal::invalid(target, name, why));
        }
        let old = match self.get(target) {
            Err(_) if is_apply && patch.is_object() && !target.is_status() => {
                let mut object = patch.clone();
                object["metadata"]["name"] = target.name.clone().into();
                return self.create(target, object).map(Done::created);
            }
            old => old?,
        };
        let mut new = old.clone();
        match form {
            "application/json-patch+json" => steps(&mut new, patch)?,
            "application/merge-patch+json" => merge(&mut new, patch)?,
            "application/strategic-merge-patch+json" if !target.is_builtin() => {
                let message = "the body of the request was in an unknown format";
                return Err(Refusal::new(415, message));
            }
            "application/strategic-merge-patch+json" if has_lists(patch) => {
                let message = "a strategic patch with lists or directives is not faked";
                return Err(Refusal::bad_request(message));
            }
            "application/strategic-merge-patch+json" | "application/apply-patch+yaml" => {
                merge(&mut new, patch)?;
            }
            _ => return Err(Refusal::new(415, "the form of the patch is unknown")),
        }
        self.update(target, old, new).map(Done::ok)
    }
}

fn merge(object: &mut Value, patch: &Value) -> Result<(), Refusal> {
    if !patch.is_object() {
        return Err(Refusal::bad_request("a patch that merges is an object"));
    }
    json_patch::merge(object, patch);
    Ok(())
}

fn steps(object: &mut Value, patch: &Value) -> Result<(), Refusal> {
    let steps: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|error| Refusal::bad_request(&format!("error decoding patch: {error}")))?;
    let refused = |error| Refusal::new(422, &format!("the server rejected our request: {error}"));
    json_patch::patch(object, &steps).map_err(refused)
}

fn has_lists(patch: &Value) -> bool {
    match patch {
        Value::Array(_) => true,
        Value::Object(fields) => {
            fields.iter().any(|(name, value)| name.starts_with('$') || has_lists(value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
