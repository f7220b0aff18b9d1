//! Attachments that failed, and what may let them succeed: they are tried again at once when it
//! comes, not only after their pause.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::kubernetes::objects::{Attachment, Object};

/// The attachments that failed, by name.
#[derive(Default)]
pub(super) struct Waiting(Mutex<HashMap<String, Needs>>);

struct Needs {
    volume: String,
    node: String,
}

/// The volume that an attachment is about, in words.
pub(super) fn volume(attachment: &Attachment) -> &str {
    attachment.spec.source.persistent_volume_name.as_deref().unwrap_or_default()
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Needs>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, attachment: &Attachment) {
        let needs = Needs {
            volume: volume(attachment).to_owned(),
            node: attachment.spec.node_name.clone(),
        };
        self.lock().insert(attachment.name().to_owned(), needs);
    }

    pub(super) fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    pub(super) fn for_volume(&self, volume: &str) -> Vec<String> {
        self.all(|needs| needs.volume == volume)
    }

    pub(super) fn for_node(&self, node: &str) -> Vec<String> {
        self.all(|needs| needs.node == node)
    }

    fn all(&self, fits: impl Fn(&Needs) -> bool) -> Vec<String> {
        let waiting = self.lock();
        let fitting = waiting.iter().filter(|(_, needs)| fits(needs));
        fitting.map(|(name, _)| name.clone()).collect()
    }
}
