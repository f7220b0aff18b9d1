//! Changing what is there: the parts of an object, and who may write them.

use serde_json::{Map, Value, json};

use super::answer::Refusal;
use super::call::Target;
use super::known::StatusPart;
use super::state::{State, finalizers, is_deleting};

/// What the server writes and nobody else.
const OWN: [&str; 6] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
];

impl State {
    pub(super) fn replace(&mut self, target: &Target, mut object: Value) -> Result<Value, Refusal> {
        check_shape(target, &mut object)?;
        let old = self.get(target)?;
        let given = &object["metadata"]["resourceVersion"];
        if given.as_str().unwrap_or_default().is_empty() && !may_be_unconditional(target) {
            let name = target.name.as_deref().unwrap_or_default();
            let why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
            return Err(Refusal::invalid(target, name, why));
        }
        self.update(target, old, object)
    }

    /// Puts a whole new object in the place of the old one, as far as the caller may.
    pub(super) fn update(
        &mut self,
        target: &Target,
        old: Value,
        mut new: Value,
    ) -> Result<Value, Refusal> {
        let name = target.name.as_deref().unwrap_or_default();
        check_identity(target, &old, &new)?;
        split(target, &old, &mut new);
        let metadata = new["metadata"].as_object_mut().expect("its shape was checked");
        for field in OWN {
            restore(metadata, field, &old["metadata"][field]);
        }
        tidy(&mut new);
        if is_deleting(&old) {
            let known = finalizers(&old);
            if finalizers(&new).iter().any(|finalizer| !known.contains(finalizer)) {
                let why = "metadata.finalizers: Forbidden: no new finalizers can be added if the \
                           object is being deleted";
                return Err(Refusal::invalid(target, name, why));
            }
            if finalizers(&new).is_empty() {
                // Watches see it as it was before, as nothing was written but its end.
                self.remove(&target.key(name));
                return Ok(new);
            }
        }
        if new == old {
            return Ok(old);
        }
        if !target.is_builtin() && differ(&old, &new) {
            let generation = old["metadata"]["generation"].as_u64().unwrap_or(0) + 1;
            new["metadata"]["generation"] = json!(generation);
        }
        Ok(self.store(target.key(name), new))
    }
}

/// Refuses what is no object of this resource, and fills in what its path tells.
pub(super) fn check_shape(target: &Target, object: &mut Value) -> Result<(), Refusal> {
    if !object["metadata"].is_object() {
        return Err(Refusal::bad_request("an object has metadata"));
    }
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    if !namespace.is_empty() && Some(namespace) != target.namespace.as_deref() {
        let message = "the namespace of the provided object does not match the namespace sent on \
                       the request";
        return Err(Refusal::bad_request(message));
    }
    let kind = target.known().map(|known| known.kind.to_owned());
    for (field, wanted) in [("apiVersion", Some(target.api_version())), ("kind", kind)] {
        match (object[field].as_str(), wanted) {
            (Some(given), Some(wanted)) if given != wanted => {
                return Err(Refusal::bad_request(&format!("{field} is {given}, not {wanted}")));
            }
            (Some(_), _) => {}
            // The server knows its own types; of others it wants to be told.
            (None, Some(wanted)) if target.is_builtin() => object[field] = json!(wanted),
            (None, _) => {
                return Err(Refusal::bad_request(&format!("Object '{field}' is missing")));
            }
        }
    }
    Ok(())
}

/// Refuses to write to another object than the caller means, or to another revision of it.
fn check_identity(target: &Target, old: &Value, new: &Value) -> Result<(), Refusal> {
    let name = target.name.as_deref().unwrap_or_default();
    if !new["metadata"].is_object() {
        return Err(Refusal::bad_request("an object has metadata"));
    }
    let differs = |field: &str| {
        let given = new["metadata"][field].as_str().unwrap_or_default();
        !given.is_empty() && new["metadata"][field] != old["metadata"][field]
    };
    if differs("name") || differs("namespace") {
        let message = "the name of the object does not match the name on the URL";
        return Err(Refusal::bad_request(message));
    }
    if differs("uid") {
        return Err(Refusal::immutable(target, name, "metadata.uid"));
    }
    if differs("resourceVersion") {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        return Err(Refusal::conflict(target, name, why));
    }
    Ok(())
}

/// Takes from the old object what this part of it may not change.
fn split(target: &Target, old: &Value, new: &mut Value) {
    let part = target.known().map_or(StatusPart::Alone, |known| known.status);
    let status = new["status"].take();
    let fields = new.as_object_mut().expect("its shape was checked");
    match (target.is_status(), part) {
        (true, StatusPart::WithMetadata) => {
            let metadata = fields["metadata"].take();
            *new = old.clone();
            new["metadata"] = metadata;
            new["status"] = status;
        }
        (true, StatusPart::Alone | StatusPart::Missing) => {
            *new = old.clone();
            new["status"] = status;
        }
        (false, StatusPart::Missing) => restore(fields, "status", &status),
        (false, StatusPart::Alone | StatusPart::WithMetadata) => {
            restore(fields, "status", &old["status"]);
        }
    }
    // What a caller leaves out is named by the path.
    for field in ["name", "namespace"] {
        let metadata = new["metadata"].as_object_mut().expect("its shape was checked");
        restore(metadata, field, &old["metadata"][field]);
    }
    new["kind"] = old["kind"].clone();
    new["apiVersion"] = old["apiVersion"].clone();
}

fn restore(fields: &mut Map<String, Value>, field: &str, value: &Value) {
    match value.is_null() {
        true => fields.remove(field),
        false => fields.insert(field.to_owned(), value.clone()),
    };
}

/// Whether more than metadata and status is different.
fn differ(old: &Value, new: &Value) -> bool {
    let rest = |object: &Value| {
        let mut fields = object.as_object().cloned().unwrap_or_default();
        fields.remove("metadata");
        fields.remove("status");
        fields
    };
    rest(old) != rest(new)
}

/// Drops what the server would not write: fields that are null, and empty metadata.
pub(super) fn tidy(object: &mut Value) {
    drop_nulls(object);
    if let Some(metadata) = object["metadata"].as_object_mut() {
        let is_empty = |value: &Value| {
            value.as_array().is_some_and(Vec::is_empty)
                || value.as_object().is_some_and(Map::is_empty)
        };
        metadata.retain(|_, value| !is_empty(value));
    }
}

fn drop_nulls(value: &mut Value) {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, field| !field.is_null());
        fields.values_mut().for_each(drop_nulls);
    }
    if let Some(list) = value.as_array_mut() {
        list.iter_mut().for_each(drop_nulls);
    }
}

/// Whether the type lets a caller overwrite what it has not read.
fn may_be_unconditional(target: &Target) -> bool {
    target.group.is_empty() || target.plural == "storageclasses"
}
