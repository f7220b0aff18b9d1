//! Changes of attachments and volumes, as merge patches. `None` where there is nothing to change.

use std::collections::BTreeMap;

use hawser_core::Timestamp;
use serde_json::{Map, Value, json};

use crate::kubernetes::error::ClusterError;
use crate::kubernetes::events::cut;
use crate::kubernetes::names::NODE_ID;
use crate::kubernetes::objects::{Attachment, Object};

/// What did not go as it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undone {
    Attach,
    Detach,
}

impl Undone {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Attach => "a volume was not attached",
            Self::Detach => "a volume was not detached",
        }
    }
}

/// Holds a volume, so that it outlives its attachments.
pub(super) fn hold(object: &impl Object, finalizer: &str) -> Option<Value> {
    let metadata = finalizers(object, with(object, finalizer)?);
    Some(json!({ "metadata": metadata }))
}

/// Holds an attachment, and writes down what is needed to undo it when the node is gone.
pub(super) fn hold_on(attachment: &Attachment, finalizer: &str, node: &str) -> Option<Value> {
    let held = with(attachment, finalizer).map(|all| finalizers(attachment, all));
    let named = attachment.annotation(NODE_ID) == Some(node);
    if held.is_none() && named {
        return None;
    }
    let mut metadata = held.unwrap_or_else(|| same(attachment));
    if !named {
        metadata.insert("annotations".to_owned(), json!({ NODE_ID: node }));
    }
    Some(json!({ "metadata": metadata }))
}

/// Lets an object go.
pub(super) fn release(object: &impl Object, finalizer: &str) -> Option<Value> {
    if !object.has_finalizer(finalizer) {
        return None;
    }
    let rest: Vec<_> = object.finalizers().iter().filter(|there| *there != finalizer).collect();
    let metadata = finalizers(object, rest.into_iter().map(String::as_str).collect());
    Some(json!({ "metadata": metadata }))
}

/// The node may use the volume. `context` is what it needs to find it.
pub(super) fn attached(
    attachment: &Attachment,
    context: &BTreeMap<String, String>,
) -> Option<Value> {
    let status = &attachment.status;
    let known = &status.attachment_metadata;
    if status.attached && status.attach_error.is_none() && known == context {
        return None;
    }
    // A merge keeps what is not named.
    let stale = known.keys().filter(|key| !context.contains_key(*key));
    let stale = stale.map(|key| (key.clone(), Value::Null));
    let new = context.iter().map(|(key, value)| (key.clone(), value.as_str().into()));
    let told: Map<_, _> = stale.chain(new).collect();
    let told = if context.is_empty() { Value::Null } else { told.into() };
    let status = json!({ "attached": true, "attachmentMetadata": told, "attachError": null });
    Some(json!({ "metadata": same(attachment), "status": status }))
}

/// The node may not use the volume any more.
pub(super) fn detached(attachment: &Attachment) -> Option<Value> {
    let status = &attachment.status;
    let told =
        !status.attached && status.detach_error.is_none() && status.attachment_metadata.is_empty();
    let status = json!({ "attached": false, "attachmentMetadata": null, "detachError": null });
    (!told).then(|| json!({ "metadata": same(attachment), "status": status }))
}

/// Why not.
pub(super) fn failure(
    attachment: &Attachment,
    undone: Undone,
    error: &ClusterError,
    now: Timestamp,
) -> Option<Value> {
    let sentence = error.sentence();
    let message = cut(&sentence);
    // The kubelet reads the code of a failed attach alone.
    let (field, known, code) = match undone {
        Undone::Attach => {
            let code = error.code().map(|code| code as i32);
            ("attachError", &attachment.status.attach_error, code)
        }
        Undone::Detach => ("detachError", &attachment.status.detach_error, None),
    };
    // An API server that does not know of codes drops them.
    let same_code = |known: Option<i32>| known.is_none() || known == code;
    if known.as_ref().is_some_and(|it| it.message == message && same_code(it.error_code)) {
        return None;
    }
    let told = json!({ "message": message, "time": now.to_string(), "errorCode": code });
    Some(json!({ "metadata": same(attachment), "status": { field: told } }))
}

/// The finalizers with one more; `None` when it is one of them.
fn with<'a>(object: &'a impl Object, finalizer: &'a str) -> Option<Vec<&'a str>> {
    let all = object.finalizers().iter().map(String::as_str).chain([finalizer]);
    (!object.has_finalizer(finalizer)).then(|| all.collect())
}

/// New finalizers, if nobody else has changed the object: a list is only replaced as a whole.
fn finalizers(object: &impl Object, finalizers: Vec<&str>) -> Map<String, Value> {
    let mut metadata = same(object);
    metadata.insert("resourceVersion".to_owned(), json!(object.meta().resource_version));
    metadata.insert("finalizers".to_owned(), json!(finalizers));
    metadata
}

/// Refuses the change when the object is another one of the same name: attachments of a volume and a
/// node have the same name each time.
fn same(object: &impl Object) -> Map<String, Value> {
    Map::from_iter([("uid".to_owned(), json!(object.uid()))])
}
