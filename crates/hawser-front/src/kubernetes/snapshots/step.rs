//! What is to be done for a content, and which changes make it worth to look.

use std::collections::BTreeMap;

use super::super::objects::Key;
use super::super::queue::Queue;
use super::super::table::Changed;
use super::Snapshots;
use super::any::{AnyContent, Source};

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing, until something changes.
    Rest,
    /// Take the snapshot, or ask again for one that is not ready.
    Take,
    /// Look at the snapshot that is there.
    Look,
    /// Take the mark off a content that is ready.
    Unmark,
    /// Remove the snapshot.
    Remove,
    /// Let go of a content whose snapshot is gone, or stays.
    Release,
}

/// The next step for a content.
pub(super) fn step<C: AnyContent>(content: &C) -> Step {
    if is_to_go(content) {
        return if content.is_for_removal() && content.handle().is_some() {
            Step::Remove
        } else if content.has_finalizer(C::NAMES.finalizer) {
            Step::Release
        } else {
            Step::Rest
        };
    }
    if content.is_ready() {
        return if is_marked(content) { Step::Unmark } else { Step::Rest };
    }
    match content.source() {
        Source::ToTake => Step::Take,
        Source::There => Step::Look,
        Source::WithGroup | Source::Unknown => Step::Rest,
    }
}

/// True when a snapshot may be under way. An empty mark is one, too.
pub(super) fn is_marked<C: AnyContent>(content: &C) -> bool {
    has_annotation(content, C::NAMES.being_created)
}

fn has_annotation<C: AnyContent>(content: &C, name: &str) -> bool {
    content.meta().annotations.as_ref().is_some_and(|all| all.contains_key(name))
}

/// True when it is deleted and nothing speaks against it. What is deleted alone, without the word of
/// the snapshot controller, is still wanted by its user.
fn is_to_go<C: AnyContent>(content: &C) -> bool {
    if !content.is_going() {
        return false;
    }
    if content.is_given() && content.wish().uid.is_empty() {
        return true;
    }
    !is_marked(content) && has_annotation(content, C::NAMES.being_deleted)
}

impl Snapshots {
    /// True when a content is one of our drivers. One whose class is another driver's is nobody's.
    pub(super) fn is_ours<C: AnyContent>(&self, content: &C) -> bool {
        let class = content.class_driver(&self.office.tables);
        content.source() != Source::Unknown
            && self.office.driver(content.driver()).is_some()
            && class.is_none_or(|driver| driver == content.driver())
    }

    pub(super) fn concerns<C: AnyContent>(&self, changed: &Changed<C>) -> bool {
        let Some(now) = changed.now.as_deref() else { return false };
        let news = changed.before.as_deref().is_none_or(|before| is_news(before, now));
        news && self.is_ours(now)
    }

    /// Looks again at what is not ready and has this class.
    pub(super) fn wake<C: AnyContent>(&self, queue: &Queue<Key>, class: &str) {
        let waits = |content: &C| {
            content.class_name() == Some(class) && !content.is_ready() && self.is_ours(content)
        };
        for content in C::table(&self.office.tables).all(waits) {
            queue.add(content.key());
        }
    }
}

/// True when a change may ask for something. What is written here is not news: an error in the
/// status, or the mark that comes and goes with each try, would wake a content that has just failed
/// and is to wait.
pub(super) fn is_news<C: AnyContent>(before: &C, now: &C) -> bool {
    before.uid() != now.uid()
        || before.is_going() != now.is_going()
        || !before.has_same_spec(now)
        || foreign_annotations(before) != foreign_annotations(now)
        || before.source() != now.source()
        || (now.is_ready() && !before.is_ready())
}

fn foreign_annotations<C: AnyContent>(content: &C) -> BTreeMap<&str, &str> {
    let all = content.meta().annotations.iter().flatten();
    all.map(|(key, value)| (key.as_str(), value.as_str()))
        .filter(|(key, _)| *key != C::NAMES.being_created)
        .collect()
}
