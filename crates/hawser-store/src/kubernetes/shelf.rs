//! What this process knows of one resource: what its watch told, and what answers told before it.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use hawser_core::port::store::{Key, Revision, Versioned};
use tokio::sync::oneshot;

use super::ring::{Change, Now, Ring};

/// A key by which an ordered map can be entered at any text, such as a prefix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry(pub(super) Key);

/// Keys compare as their texts do.
impl Borrow<str> for Entry {
    fn borrow(&self) -> &str {
        self.0.as_str()
    }
}

/// A key as it was at some revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) revision: Revision,
    /// `None` when nobody can read it.
    pub(super) value: Option<Bytes>,
}

/// All keys as they were when they were listed.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) keys: BTreeMap<Entry, Kept>,
    pub(super) revision: Revision,
}

/// What is known of a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// This, and by nobody's knowledge anything newer.
    Known(Option<Versioned>),
    /// Its object cannot be read.
    Unreadable,
    /// Something newer, but not what: the API server has to be asked. With the revision that is
    /// known all the same.
    Doubtful(Option<Revision>),
}

/// What an answer told of a key before the watch did.
enum Ahead {
    Is(Versioned),
    /// The object that had this revision is gone.
    Gone(Revision),
}

/// Somebody who waits for the revision of a removal.
struct Removal {
    key: Key,
    /// What the key had.
    before: Revision,
    answer: oneshot::Sender<Revision>,
}

/// The knowledge of one resource.
///
/// `keys` is exactly what the resource was at `seen`: only the list and the watch write there, in
/// order, so a page of it is consistent in itself. What this process was answered earlier than that
/// is in `ahead` until the watch has come as far.
pub(super) struct Shelf {
    pub(super) keys: BTreeMap<Entry, Kept>,
    pub(super) ring: Ring,
    /// The watch has told everything up to here.
    pub(super) seen: Revision,
    /// The last change that it told, or the list; never more than `seen`, which marks move, too.
    pub(super) changed: Revision,
    /// The newest revision that an answer told.
    pub(super) told: Revision,
    /// False while there is no watch: what others change goes unnoticed.
    pub(super) live: bool,
    ahead: HashMap<Key, Ahead>,
    doubted: HashSet<Key>,
    removals: Vec<Removal>,
}

impl Shelf {
    pub(super) fn new(listed: Listed) -> Self {
        let Listed { keys, revision } = listed;
        Self {
            ring: Ring::new(revision, keys.is_empty()),
            keys,
            seen: revision,
            changed: revision,
            told: revision,
            live: true,
            ahead: HashMap::new(),
            doubted: HashSet::new(),
            removals: Vec::new(),
        }
    }

    /// Starts anew from a list, because the watch could not go on where it was.
    pub(super) fn relist(&mut self, listed: Listed) {
        let at = listed.revision;
        let fresh = Self::new(listed);
        // A cluster that was restored from a backup counts from an earlier revision. Nothing that
        // was told before is of use then.
        let told = if at < self.seen { at } else { self.told.max(at) };
        let mut ahead = std::mem::take(&mut self.ahead);
        ahead.retain(|key, ahead| match ahead {
            Ahead::Is(found) => found.revision > at && at >= self.seen,
            Ahead::Gone(before) => {
                fresh.keys.get(key.as_str()).is_some_and(|kept| kept.revision == *before)
            }
        });
        let doubted = std::mem::take(&mut self.doubted);
        let (over, removals): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.removals).into_iter().partition(|removal| {
                fresh
                    .keys
                    .get(removal.key.as_str())
                    .is_none_or(|kept| kept.revision != removal.before)
            });
        *self = Self { told, ahead, doubted, removals, live: self.live, ..fresh };
        for removal in over {
            // The change itself was missed; it was not after the list.
            let _ = removal.answer.send(at);
        }
    }

    /// Takes the next change that the watch tells.
    pub(super) fn apply(&mut self, change: Change) {
        if change.revision <= self.seen {
            return;
        }
        let Change { key, revision, now } = &change;
        match now {
            Now::Is(value) => {
                let kept = Kept { revision: *revision, value: Some(value.clone()) };
                self.keys.insert(Entry(key.clone()), kept);
            }
            Now::Unreadable => {
                self.keys.insert(Entry(key.clone()), Kept { revision: *revision, value: None });
            }
            Now::Removed => {
                self.keys.remove(key.as_str());
                self.settle_removals(key, *revision);
            }
        }
        if self.ahead.get(key).is_some_and(|ahead| ahead.is_over(*revision)) {
            self.ahead.remove(key);
        }
        self.doubted.remove(key);
        self.seen = *revision;
        self.changed = *revision;
        self.ring.add(change);
    }

    /// The watch has nothing more to tell up to this revision.
    pub(super) fn pass(&mut self, revision: Revision) {
        self.seen = self.seen.max(revision);
    }

    /// An answer told the value of a key at a revision.
    pub(super) fn tell(&mut self, key: &Key, found: Versioned) {
        self.expect(found.revision);
        let newer = match self.ahead.get(key) {
            Some(Ahead::Is(known)) => known.revision < found.revision,
            Some(Ahead::Gone(known)) => *known < found.revision,
            None => true,
        };
        if newer && found.revision > self.seen {
            self.ahead.insert(key.clone(), Ahead::Is(found));
        }
    }

    /// The watch will come to this revision.
    pub(super) fn expect(&mut self, revision: Revision) {
        self.told = self.told.max(revision);
    }

    /// The API server has no object for a key, of which `known` was known when it was asked.
    pub(super) fn tell_absent(&mut self, key: &Key, known: Option<Revision>) {
        if let Some(known) = known
            && self.revision(key) == Some(known)
        {
            self.ahead.insert(key.clone(), Ahead::Gone(known));
        }
    }

    /// Somebody else changed the key, or nobody knows whether a change was made.
    pub(super) fn doubt(&mut self, key: &Key) {
        self.doubted.insert(key.clone());
    }

    /// The API server was asked.
    pub(super) fn trust(&mut self, key: &Key) {
        self.doubted.remove(key);
    }

    /// What is known of a key.
    pub(super) fn look(&self, key: &Key) -> Look {
        if !self.live || self.doubted.contains(key) {
            return Look::Doubtful(self.revision(key));
        }
        match (self.ahead.get(key), self.keys.get(key.as_str())) {
            (Some(Ahead::Is(found)), _) => Look::Known(Some(found.clone())),
            (Some(Ahead::Gone(_)), _) | (None, None) => Look::Known(None),
            (None, Some(Kept { revision, value: Some(value) })) => {
                Look::Known(Some(Versioned { value: value.clone(), revision: *revision }))
            }
            (None, Some(Kept { value: None, .. })) => Look::Unreadable,
        }
    }

    /// True when an answer told that the object the watch knows is gone.
    pub(super) fn is_gone(&self, key: &Key) -> bool {
        matches!(self.ahead.get(key), Some(Ahead::Gone(_)))
    }

    /// Where the revision of the removal of a key that has `before` is told.
    pub(super) fn await_removal(
        &mut self,
        key: &Key,
        before: Revision,
    ) -> oneshot::Receiver<Revision> {
        let (answer, answered) = oneshot::channel();
        self.removals.retain(|removal| !removal.answer.is_closed());
        self.removals.push(Removal { key: key.clone(), before, answer });
        answered
    }

    fn settle_removals(&mut self, key: &Key, revision: Revision) {
        // The first removal after `before` is that of the object that had it.
        let over = |removal: &mut Removal| removal.key == *key && removal.before < revision;
        for removal in self.removals.extract_if(.., over) {
            let _ = removal.answer.send(revision);
        }
    }

    fn revision(&self, key: &Key) -> Option<Revision> {
        match self.ahead.get(key) {
            Some(Ahead::Is(found)) => Some(found.revision),
            Some(Ahead::Gone(_)) => None,
            None => self.keys.get(key.as_str()).map(|kept| kept.revision),
        }
    }
}

impl Ahead {
    /// True when a change of the key at this revision says as much, or more.
    fn is_over(&self, revision: Revision) -> bool {
        match self {
            Self::Is(found) => found.revision <= revision,
            Self::Gone(before) => *before < revision,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        text.parse().expect("a legal key")
    }

    fn versioned(revision: u64, value: &str) -> Versioned {
        Versioned { value: value.to_owned().into(), revision: Revision(revision) }
    }

    fn put(revision: u64, value: &str) -> Change {
        let now = Now::Is(value.to_owned().into());
        Change { key: key("a"), revision: Revision(revision), now }
    }

    fn removed(revision: u64) -> Change {
        Change { key: key("a"), revision: Revision(revision), now: Now::Removed }
    }

    fn listed(revision: u64, keys: &[(&str, u64)]) -> Listed {
        let kept = |at: &u64| Kept { revision: Revision(*at), value: Some("listed".into()) };
        let keys = keys.iter().map(|(name, at)| (Entry(key(name)), kept(at))).collect();
        Listed { keys, revision: Revision(revision) }
    }

    fn shelf() -> Shelf {
        Shelf::new(listed(10, &[("a", 5)]))
    }

    fn known(shelf: &Shelf) -> Option<u64> {
        match shelf.look(&key("a")) {
            Look::Known(found) => found.map(|found| found.revision.0),
            other @ (Look::Unreadable | Look::Doubtful(_)) => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_answer_is_known_at_once_and_a_page_waits_for_the_watch() {
        let mut shelf = shelf();

        shelf.tell(&key("a"), versioned(12, "own"));

        assert_eq!(known(&shelf), Some(12));
        assert_eq!((shelf.seen, shelf.told), (Revision(10), Revision(12)));
        assert_eq!(shelf.keys["a"].revision, Revision(5));
        shelf.apply(put(12, "own"));
        assert_eq!((known(&shelf), shelf.seen), (Some(12), Revision(12)));
        assert!(shelf.ahead.is_empty());
    }

    #[test]
    fn an_answer_that_comes_after_the_watch_takes_nothing_back() {
        let mut shelf = shelf();
        shelf.apply(put(12, "own"));
        shelf.apply(put(13, "other"));

        shelf.tell(&key("a"), versioned(12, "own"));

        assert_eq!(known(&shelf), Some(13));
        shelf.apply(removed(14));
        shelf.tell(&key("a"), versioned(13, "other"));
        assert_eq!(known(&shelf), None);
    }

    #[test]
    fn a_change_of_another_before_ours_does_not_hide_ours() {
        let mut shelf = shelf();
        shelf.tell(&key("a"), versioned(15, "own"));

        shelf.apply(put(12, "other"));
        assert_eq!(known(&shelf), Some(15));
        shelf.apply(removed(13));
        assert_eq!(known(&shelf), Some(15), "it was created again, by us");
    }

    #[test]
    fn doubt_lasts_until_the_api_server_or_the_watch_has_spoken() {
        let mut shelf = shelf();
        shelf.doubt(&key("a"));
        assert_eq!(shelf.look(&key("a")), Look::Doubtful(Some(Revision(5))));
        shelf.trust(&key("a"));
        assert_eq!(known(&shelf), Some(5));

        shelf.doubt(&key("a"));
        shelf.apply(put(11, "other"));
        assert_eq!(known(&shelf), Some(11));
        shelf.live = false;
        assert_eq!(shelf.look(&key("b")), Look::Doubtful(None));
    }

    #[test]
    fn a_key_that_was_seen_absent_stays_so_until_the_watch_says_why() {
        let mut shelf = shelf();

        shelf.tell_absent(&key("a"), Some(Revision(5)));
        assert_eq!((known(&shelf), shelf.is_gone(&key("a"))), (None, true));
        shelf.apply(removed(12));
        assert!(!shelf.is_gone(&key("a")));
        shelf.apply(put(13, "again"));
        assert_eq!(known(&shelf), Some(13));

        // The watch was faster than the answer.
        shelf.tell_absent(&key("a"), Some(Revision(5)));
        assert_eq!(known(&shelf), Some(13));
        // Created by this process meanwhile.
        shelf.tell_absent(&key("a"), Some(Revision(13)));
        shelf.tell(&key("a"), versioned(20, "own"));
        assert_eq!(known(&shelf), Some(20));
    }

    #[test]
    fn a_removal_is_told_with_its_own_revision_and_not_that_of_an_earlier_life() {
        let mut shelf = shelf();
        shelf.tell(&key("a"), versioned(14, "again"));
        let mut answered = shelf.await_removal(&key("a"), Revision(14));

        shelf.apply(removed(12));
        assert!(answered.try_recv().is_err());
        shelf.apply(put(14, "again"));
        shelf.apply(removed(17));

        assert_eq!(answered.try_recv().ok(), Some(Revision(17)));
        assert!(shelf.removals.is_empty());
    }

    #[test]
    fn a_list_settles_the_removals_that_the_watch_missed_and_no_other() {
        let mut shelf = Shelf::new(listed(10, &[("a", 5), ("b", 6)]));
        let mut gone = shelf.await_removal(&key("a"), Revision(5));
        let mut there = shelf.await_removal(&key("b"), Revision(6));

        shelf.relist(listed(30, &[("b", 6)]));

        assert_eq!(gone.try_recv().ok(), Some(Revision(30)));
        assert!(there.try_recv().is_err());
        assert_eq!((shelf.seen, shelf.changed), (Revision(30), Revision(30)));
        assert!(
            shelf
                .ring
                .between(&hawser_core::port::store::Prefix::all(), Revision(29), Revision(99))
                .is_none()
        );
    }

    #[test]
    fn a_list_keeps_what_was_answered_after_it_and_forgets_what_a_restored_cluster_never_had() {
        let mut shelf = shelf();
        shelf.tell(&key("a"), versioned(40, "own"));
        shelf.relist(listed(30, &[("a", 5)]));
        assert_eq!((known(&shelf), shelf.told), (Some(40), Revision(40)));

        shelf.relist(listed(8, &[("a", 5)]));
        assert_eq!((known(&shelf), shelf.told, shelf.seen), (Some(5), Revision(8), Revision(8)));
    }

    #[test]
    fn a_mark_moves_what_was_seen_but_is_no_change() {
        let mut shelf = shelf();
        shelf.pass(Revision(20));
        assert_eq!((shelf.seen, shelf.changed), (Revision(20), Revision(10)));
        shelf.pass(Revision(15));
        assert_eq!(shelf.seen, Revision(20));
    }

    #[test]
    fn an_object_that_cannot_be_read_is_neither_absent_nor_a_value() {
        let mut shelf = shelf();
        shelf.apply(Change { key: key("a"), revision: Revision(11), now: Now::Unreadable });
        assert_eq!(shelf.look(&key("a")), Look::Unreadable);
        shelf.apply(put(12, "mended"));
        assert_eq!(known(&shelf), Some(12));
    }
}
