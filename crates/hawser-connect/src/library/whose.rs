//! Whose records the library's are, and what their owners call them.

use hawser_core::attach::AttachRecord;
use hawser_core::id::InstanceId;

use super::key::volume_id;

/// All processes that use the library on one host are one instance: what one of them began, the
/// next may finish.
pub(crate) fn instance() -> InstanceId {
    "inst-0000000000000000000000000j".parse().expect("a constant id of the right form")
}

/// True when a program attached the volume through the library, and no server knows of it.
pub(crate) fn is_of_library(record: &AttachRecord) -> bool {
    record.instance == instance()
}

/// What to call the volume of a record: the name that its user knows.
pub(crate) fn name_of(record: &AttachRecord) -> String {
    match volume_id(&record.info) {
        Some(name) if is_of_library(record) => name,
        Some(_) | None => record.volume.to_string(),
    }
}
