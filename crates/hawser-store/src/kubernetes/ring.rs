//! The latest changes of one resource, kept in memory for watches.

use std::collections::VecDeque;

use bytes::Bytes;
use hawser_core::port::store::{Key, Prefix, Revision};

/// How many changes of each resource a store keeps for its watches. A watcher that is further behind
/// is told so, and lists again.
pub const CHANGES_KEPT: usize = 4096;

/// How many bytes of values are kept, whatever their number: 4096 records of the usual 1 KiB. Values
/// that are still current are held anyway and take no room twice.
const BYTES_KEPT: usize = 4 << 20;

/// One change that the API server told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) key: Key,
    pub(super) revision: Revision,
    pub(super) now: Now,
}

/// What a key is after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Now {
    /// It has this value.
    Is(Bytes),
    /// It has a value that nobody can read.
    Unreadable,
    /// It is no more.
    Removed,
}

/// Changes in the order of their revisions, without a gap.
pub(super) struct Ring {
    kept: VecDeque<Change>,
    bytes: usize,
    /// Changes up to and including this revision are not here.
    gone: Revision,
    /// True until the first change is dropped: what is not here was before this process looked, and
    /// the API server may still have it.
    whole: bool,
    /// True when there was no key at all when this process looked. Whoever knows nothing then knows
    /// all there is.
    from_nothing: bool,
}

impl Ring {
    /// Starts at a list that was read at `gone`, and that was empty or not.
    pub(super) fn new(gone: Revision, from_nothing: bool) -> Self {
        Self { kept: VecDeque::new(), bytes: 0, gone, whole: true, from_nothing }
    }

    /// Adds the next change.
    pub(super) fn add(&mut self, change: Change) {
        self.bytes += change.size();
        self.kept.push_back(change);
        self.trim();
    }

    fn trim(&mut self) {
        while self.kept.len() > CHANGES_KEPT || self.bytes > BYTES_KEPT {
            let Some(oldest) = self.kept.pop_front() else { break };
            self.bytes -= oldest.size();
            self.gone = oldest.revision;
            self.whole = false;
        }
    }

    /// Where the ring begins, when changes after `after` are missing from it that the API server may
    /// still have.
    pub(super) fn lacks(&self, after: Revision) -> Option<Revision> {
        let known = self.from(after) >= self.gone;
        // Revision 0 is before all changes, and no API server goes back that far.
        (!known && self.whole && after != Revision(0)).then_some(self.gone)
    }

    /// Puts changes before those that are here: all after `after` up to `gone`, where the ring began
    /// when they were asked for.
    pub(super) fn precede(&mut self, after: Revision, gone: Revision, changes: Vec<Change>) {
        if !self.whole || self.gone != gone || after >= gone {
            return;
        }
        for change in changes.into_iter().rev() {
            self.bytes += change.size();
            self.kept.push_front(change);
        }
        self.gone = after;
        self.from_nothing = false;
        self.trim();
    }

    /// The changes below `prefix` after `after` up to `until`; `None` when some are not here.
    pub(super) fn between<'a>(
        &'a self,
        prefix: &'a Prefix,
        after: Revision,
        until: Revision,
    ) -> Option<impl Iterator<Item = &'a Change>> {
        let after = self.from(after);
        if after < self.gone {
            return None;
        }
        let first = self.kept.partition_point(|change| change.revision <= after);
        let found = self.kept.range(first..).take_while(move |change| change.revision <= until);
        Some(found.filter(|change| prefix.covers(&change.key)))
    }

    /// True when there is a change after `after` below the prefix.
    pub(super) fn has_after(&self, prefix: &Prefix, after: Revision) -> bool {
        self.kept
            .iter()
            .rev()
            .take_while(|change| change.revision > after)
            .any(|change| prefix.covers(&change.key))
    }

    /// Where this ring begins for a watcher that knows nothing yet and need not know more.
    pub(super) fn begins_for(&self, after: Revision) -> Option<Revision> {
        (self.from(after) != after).then_some(self.gone)
    }

    /// Where a watcher from `after` begins.
    fn from(&self, after: Revision) -> Revision {
        let nothing = after == Revision(0) && self.from_nothing && self.whole;
        if nothing { self.gone } else { after }
    }
}

impl Change {
    fn size(&self) -> usize {
        match &self.now {
            Now::Is(value) => value.len(),
            Now::Unreadable | Now::Removed => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(revision: u64, size: usize) -> Change {
        let key = format!("v/{revision}").parse().expect("a legal key");
        Change { key, revision: Revision(revision), now: Now::Is(vec![0; size].into()) }
    }

    fn found(ring: &Ring, after: u64, until: u64) -> Option<Vec<u64>> {
        let prefix = Prefix::all();
        let found = ring.between(&prefix, Revision(after), Revision(until))?;
        Some(found.map(|change| change.revision.0).collect())
    }

    fn ring(gone: u64, revisions: &[u64]) -> Ring {
        let mut ring = Ring::new(Revision(gone), false);
        revisions.iter().for_each(|revision| ring.add(change(*revision, 1)));
        ring
    }

    #[test]
    fn what_is_asked_for_comes_in_order_and_what_is_gone_is_said() {
        let ring = ring(10, &[12, 15, 19]);

        assert_eq!(found(&ring, 10, 99), Some(vec![12, 15, 19]));
        assert_eq!(found(&ring, 12, 15), Some(vec![15]));
        assert_eq!(found(&ring, 19, 99), Some(vec![]));
        assert_eq!(found(&ring, 9, 99), None);
        assert!(ring.has_after(&Prefix::all(), Revision(18)));
        assert!(!ring.has_after(&Prefix::all(), Revision(19)));
        assert!(!ring.has_after(&Prefix::below(&["w"]), Revision(1)));
    }

    #[test]
    fn too_many_changes_or_bytes_push_out_the_oldest() {
        let mut many = ring(1, &[]);
        (2..=CHANGES_KEPT as u64 + 2).for_each(|revision| many.add(change(revision, 1)));
        assert_eq!(found(&many, 1, u64::MAX), None);
        assert_eq!(found(&many, 2, u64::MAX).map(|found| found.len()), Some(CHANGES_KEPT));

        let mut large = ring(1, &[]);
        (2..=6).for_each(|revision| large.add(change(revision, 1 << 20)));
        assert_eq!(found(&large, 1, 99), None);
        assert_eq!(found(&large, 2, 99), Some(vec![3, 4, 5, 6]));
    }

    #[test]
    fn a_watcher_that_knows_nothing_begins_with_an_empty_store() {
        let mut empty = Ring::new(Revision(10), true);
        empty.add(change(12, 1));
        assert_eq!(found(&empty, 0, 99), Some(vec![12]));
        assert_eq!(found(&empty, 5, 99), None, "between 5 and 10 there may have been removals");

        assert_eq!(found(&ring(10, &[12]), 0, 99), None);
        (13..=CHANGES_KEPT as u64 + 13).for_each(|revision| empty.add(change(revision, 1)));
        assert_eq!(found(&empty, 0, u64::MAX), None);
    }

    #[test]
    fn changes_from_before_the_start_are_put_before_the_others() {
        let mut ring = ring(10, &[12]);
        assert_eq!(ring.lacks(Revision(10)), None);
        assert_eq!(ring.lacks(Revision(0)), None);
        assert_eq!(ring.lacks(Revision(5)), Some(Revision(10)));

        ring.precede(Revision(5), Revision(10), vec![change(6, 1), change(9, 1)]);
        // A second one that asked at the same time changes nothing.
        ring.precede(Revision(5), Revision(10), vec![change(6, 1), change(9, 1)]);

        assert_eq!(found(&ring, 5, 99), Some(vec![6, 9, 12]));
        assert_eq!(found(&ring, 4, 99), None);
        assert_eq!(ring.lacks(Revision(4)), Some(Revision(5)));
    }

    #[test]
    fn what_was_pushed_out_is_not_asked_for_again() {
        let mut ring = ring(10, &[]);
        (11..=CHANGES_KEPT as u64 + 11).for_each(|revision| ring.add(change(revision, 1)));

        assert_eq!(ring.lacks(Revision(9)), None);
        ring.precede(Revision(9), Revision(10), vec![change(10, 1)]);
        assert_eq!(found(&ring, 9, u64::MAX), None);
    }
}
