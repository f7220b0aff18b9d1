//! Changes of contents, as merge patches.

use hawser_core::Timestamp;
use serde_json::{Value, json};

use super::any::AnyContent;
use super::time::moment;

/// Says that a snapshot may be under way. Not of a content that has the name now: what is asked of
/// the driver was read from this one.
pub(super) fn mark<C: AnyContent>(content: &C) -> Value {
    annotation(content, json!("yes"))
}

/// Says that none is.
pub(super) fn unmark<C: AnyContent>(content: &C) -> Value {
    annotation(content, Value::Null)
}

fn annotation<C: AnyContent>(content: &C, value: Value) -> Value {
    let annotations = json!({ C::NAMES.being_created: value });
    json!({ "metadata": { "uid": content.uid(), "annotations": annotations } })
}

/// Lets go of a content, unless it has changed: the list of finalizers is written as a whole.
pub(super) fn release<C: AnyContent>(content: &C) -> Value {
    let others: Vec<_> = content.finalizers().iter().filter(|f| *f != C::NAMES.finalizer).collect();
    let revision = &content.meta().resource_version;
    json!({ "metadata": { "resourceVersion": revision, "finalizers": others } })
}

/// Tells users what went wrong.
pub(super) fn failed(message: &str) -> Value {
    let time = moment(Timestamp::now());
    json!({ "readyToUse": false, "error": { "message": message, "time": time } })
}
