//! Everything that this process knows of the records, and how to wait until it knows more.

use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hawser_core::port::store::{Key, Listing, Prefix, Revision, Versioned};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::error::KubernetesError;
use super::name::object_name;
use super::resource::Resource;
use super::ring::Change;
use super::shelf::{Entry, Listed, Look, Shelf};

/// The longest wait for the watch to come to something that was answered. As a rule it is there a
/// few milliseconds after the answer.
pub(super) const WATCH_LIMIT: Duration = Duration::from_secs(30);

/// Rings when the watch has told something; the watching tasks have the bell, so that waiting ends
/// when they do.
pub(super) type Bell = watch::Sender<()>;

/// The knowledge of both resources.
pub(super) struct Cache {
    shelves: Mutex<[Shelf; 2]>,
    bell: watch::Receiver<()>,
}

/// A revision of each resource.
pub(super) type Marks = [Revision; 2];

/// What a watcher finds.
pub(super) enum Found {
    /// These changes, which are all up to the revision.
    Changes(Vec<Change>, Revision),
    /// There are changes, but nobody can say yet whether the other resource has earlier ones. It
    /// has to come to this revision first.
    Held(Revision),
    /// Some changes are no longer known.
    Gone,
}

impl Cache {
    /// Starts from lists of both resources, in their order.
    pub(super) fn new(listed: [Listed; 2], bell: watch::Receiver<()>) -> Self {
        Self { shelves: Mutex::new(listed.map(Shelf::new)), bell }
    }

    /// What is known of a key.
    pub(super) fn look(&self, key: &Key) -> Look {
        self.lock()[Resource::of(key).index()].look(key)
    }

    /// Works on what is known of one resource.
    pub(super) fn with<T>(&self, resource: Resource, work: impl FnOnce(&mut Shelf) -> T) -> T {
        work(&mut self.lock()[resource.index()])
    }

    /// Works on what is known of the resource of a key.
    pub(super) fn with_key<T>(&self, key: &Key, work: impl FnOnce(&mut Shelf) -> T) -> T {
        self.with(Resource::of(key), work)
    }

    /// What the API server was asked for and found; `known` is what was known before.
    pub(super) fn read_through(
        &self,
        key: &Key,
        known: Option<Revision>,
        found: Option<Versioned>,
    ) -> Option<Versioned> {
        self.with_key(key, |shelf| {
            shelf.trust(key);
            match found.clone() {
                Some(found) => shelf.tell(key, found),
                None => shelf.tell_absent(key, known),
            }
            match shelf.look(key) {
                // The watch or another answer may have been faster, and know more.
                Look::Known(newest) => newest,
                Look::Doubtful(_) | Look::Unreadable => found,
            }
        })
    }

    /// Where the revision of the removal of a key that has `before` will be told.
    pub(super) fn await_removal(&self, key: &Key, before: Revision) -> oneshot::Receiver<Revision> {
        self.with_key(key, |shelf| shelf.await_removal(key, before))
    }

    /// What each resource was told of in answers.
    pub(super) fn told(&self) -> Marks {
        self.lock().each_ref().map(|shelf| shelf.told)
    }

    /// The newest revision of a change in these resources.
    pub(super) fn newest(&self, resources: &[Resource]) -> Revision {
        let shelves = self.lock();
        let newest = |resource: &Resource| {
            let shelf = &shelves[resource.index()];
            shelf.changed.max(shelf.told)
        };
        resources.iter().map(newest).max().unwrap_or_default()
    }

    /// True when the watches of these resources are there and have come to these revisions.
    pub(super) fn has_come_to(&self, resources: &[Resource], marks: &Marks) -> bool {
        let shelves = self.lock();
        resources.iter().all(|resource| {
            let shelf = &shelves[resource.index()];
            shelf.live && shelf.seen >= marks[resource.index()]
        })
    }

    /// Waits until [`Cache::has_come_to`].
    pub(super) async fn come_to(
        &self,
        resources: &[Resource],
        marks: Marks,
    ) -> Result<(), KubernetesError> {
        if self.has_come_to(resources, &marks) {
            return Ok(());
        }
        let mut bell = self.bell.clone();
        let coming = async {
            loop {
                // Marked before the look, so that what comes right after it rings again.
                bell.borrow_and_update();
                if self.has_come_to(resources, &marks) {
                    return Ok(());
                }
                bell.changed().await.map_err(|_| KubernetesError::Closed)?;
            }
        };
        let late = |_| KubernetesError::Behind { limit: WATCH_LIMIT };
        timeout(WATCH_LIMIT, coming).await.map_err(late)?
    }

    /// One page of keys, all of one resource, so that it is consistent in itself.
    pub(super) fn page(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Listing, KubernetesError> {
        let resources = Resource::below(prefix);
        let shelves = self.lock();
        let revision = revision(&shelves, resources);
        let from = match after {
            // A token may come from outside and lie before the prefix.
            Some(after) if after.as_str() >= prefix.as_str() => Bound::Excluded(after.as_str()),
            Some(_) | None => Bound::Included(prefix.as_str()),
        };
        let mut runs: Vec<_> = resources
            .iter()
            .map(|resource| {
                let shelf = &shelves[resource.index()];
                let keys = shelf.keys.range::<str, _>((from, Bound::Unbounded));
                let keys = keys.take_while(move |(key, _)| prefix.covers(&key.0));
                (*resource, keys.filter(move |(key, _)| !shelf.is_gone(&key.0)).peekable())
            })
            .collect();
        let heads: Vec<_> =
            runs.iter_mut().map(|(_, run)| run.peek().map(|(key, _)| &key.0)).collect();
        let mut listing = Listing { items: Vec::new(), more: false, revision };
        let starts = (0..runs.len()).filter(|run| heads[*run].is_some());
        let Some(first) = starts.min_by_key(|run| heads[*run]) else { return Ok(listing) };
        let other = (0..runs.len()).filter(|run| *run != first).find_map(|run| heads[run]);
        let (resource, run) = &mut runs[first];
        let fits = |key: &Key, taken: usize| taken < limit && other.is_none_or(|other| key < other);
        while let Some((Entry(key), kept)) =
            run.next_if(|(key, _)| fits(&key.0, listing.items.len()))
        {
            let Some(value) = kept.value.clone() else {
                let name = object_name(key);
                return Err(KubernetesError::Unreadable { resource: *resource, name });
            };
            listing.items.push((key.clone(), Versioned { value, revision: kept.revision }));
        }
        listing.more = other.is_some() || run.peek().is_some();
        Ok(listing)
    }

    /// What a watcher of `prefix` that has seen everything up to `after` gets next.
    pub(super) fn changes(&self, prefix: &Prefix, after: Revision) -> Found {
        let resources = Resource::below(prefix);
        let locked = self.lock();
        let all: &[Shelf; 2] = &locked;
        let shelves = || resources.iter().map(move |resource| &all[resource.index()]);
        let until = shelves().map(|shelf| shelf.seen).min().unwrap_or_default();
        // The lists of the two were read one after the other: from a revision between them, the later
        // one would no longer be known from its beginning.
        let begun: Option<Vec<_>> = shelves().map(|shelf| shelf.ring.begins_for(after)).collect();
        let begun = begun.into_iter().flatten().max();
        if let Some(begun) = begun.filter(|begun| *begun > until) {
            let some = shelves().any(|shelf| shelf.ring.has_after(prefix, after));
            return if some { Found::Held(begun) } else { Found::Changes(Vec::new(), after) };
        }
        let mut changes = Vec::new();
        for shelf in shelves() {
            let Some(found) = shelf.ring.between(prefix, after, until) else { return Found::Gone };
            changes.extend(found.cloned());
        }
        if changes.is_empty() && shelves().any(|shelf| shelf.ring.has_after(prefix, until)) {
            return Found::Held(shelves().map(|shelf| shelf.changed).max().unwrap_or_default());
        }
        changes.sort_by_key(|change| change.revision);
        Found::Changes(changes, after.max(until))
    }

    fn lock(&self) -> MutexGuard<'_, [Shelf; 2]> {
        // Shelves are whole between any two statements that can panic.
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Up to where all of these resources are known, but not more than their last change: marks of the
/// API server move on while nothing changes.
fn revision(shelves: &[Shelf; 2], resources: &[Resource]) -> Revision {
    let shelves = || resources.iter().map(move |resource| &shelves[resource.index()]);
    let seen = shelves().map(|shelf| shelf.seen).min().unwrap_or_default();
    let changed = shelves().map(|shelf| shelf.changed).max().unwrap_or_default();
    seen.min(changed)
}

#[cfg(test)]
mod tests {
    use super::super::ring::Now;
    use super::super::shelf::Kept;
    use super::*;

    fn key(text: &str) -> Key {
        text.parse().expect("a legal key")
    }

    fn listed(revision: u64, keys: &[&str]) -> Listed {
        let kept = || Kept { revision: Revision(revision), value: Some("x".into()) };
        let keys = keys.iter().map(|name| (Entry(key(name)), kept())).collect();
        Listed { keys, revision: Revision(revision) }
    }

    fn cache(records: &[&str], secrets: &[&str]) -> (Cache, Bell) {
        let (bell, rung) = watch::channel(());
        (Cache::new([listed(10, records), listed(10, secrets)], rung), bell)
    }

    fn put(cache: &Cache, name: &str, revision: u64) {
        let key = key(name);
        let change =
            Change { key: key.clone(), revision: Revision(revision), now: Now::Is("x".into()) };
        cache.with_key(&key, |shelf| shelf.apply(change));
    }

    fn names(listing: &Listing) -> Vec<&str> {
        listing.items.iter().map(|(key, _)| key.as_str()).collect()
    }

    fn revisions(found: Found) -> Vec<u64> {
        match found {
            Found::Changes(changes, _) => changes.iter().map(|change| change.revision.0).collect(),
            Found::Held(at) => panic!("held at {at:?}"),
            Found::Gone => panic!("gone"),
        }
    }

    #[test]
    fn a_page_of_all_keys_is_in_order_and_of_one_resource_at_a_time() {
        let (cache, _bell) = cache(&["name/a", "volume/a", "volume/b"], &["secret/a", "secret/b"]);
        let mut pages = Vec::new();
        let mut after = None;
        loop {
            let page = cache.page(&Prefix::all(), after.as_ref(), 2).expect("a page");
            pages.push(names(&page).join(" "));
            after = page.items.last().map(|(key, _)| key.clone());
            if !page.more {
                break;
            }
        }

        assert_eq!(pages, ["name/a", "secret/a secret/b", "volume/a volume/b"]);
        let none = cache.page(&Prefix::below(&["gluster"]), None, 2).expect("a page");
        assert!(none.items.is_empty() && !none.more);
        let nothing = cache.page(&Prefix::all(), None, 0).expect("a page");
        assert!(nothing.items.is_empty() && nothing.more);
    }

    #[test]
    fn a_page_leaves_out_what_was_seen_absent_and_refuses_what_cannot_be_read() {
        let (cache, _bell) = cache(&["v/a", "v/b"], &[]);
        cache.with_key(&key("v/a"), |shelf| shelf.tell_absent(&key("v/a"), Some(Revision(10))));
        assert_eq!(names(&cache.page(&Prefix::all(), None, 9).expect("a page")), ["v/b"]);

        let broken = Change { key: key("v/b"), revision: Revision(11), now: Now::Unreadable };
        cache.with_key(&key("v/b"), |shelf| shelf.apply(broken));
        let error = cache.page(&Prefix::all(), None, 9).expect_err("an unreadable record");
        assert!(error.to_string().contains("v.b"), "{error}");
    }

    #[test]
    fn the_revision_of_a_page_is_that_of_the_last_change_that_all_have_come_to() {
        let (cache, _bell) = cache(&["v/a"], &[]);
        put(&cache, "v/b", 15);
        let revision = |prefix: &Prefix| cache.page(prefix, None, 9).expect("a page").revision;

        assert_eq!(revision(&Prefix::below(&["v"])), Revision(15));
        assert_eq!(revision(&Prefix::all()), Revision(10), "secrets may have changed at 12");
        cache.with(Resource::Secrets, |shelf| shelf.pass(Revision(17)));
        cache.with(Resource::Records, |shelf| shelf.pass(Revision(18)));
        assert_eq!(revision(&Prefix::all()), Revision(15));
    }

    #[test]
    fn a_watcher_of_everything_gets_no_change_before_an_earlier_one_of_the_other_resource() {
        let (cache, _bell) = cache(&[], &[]);
        put(&cache, "v/a", 15);

        assert_eq!(revisions(cache.changes(&Prefix::below(&["v"]), Revision(10))), [15]);
        let held = cache.changes(&Prefix::all(), Revision(10));
        assert!(matches!(held, Found::Held(Revision(15))));

        put(&cache, "secret/a", 12);
        assert_eq!(revisions(cache.changes(&Prefix::all(), Revision(10))), [12]);
        cache.with(Resource::Secrets, |shelf| shelf.pass(Revision(16)));
        assert_eq!(revisions(cache.changes(&Prefix::all(), Revision(10))), [12, 15]);
        assert!(matches!(cache.changes(&Prefix::all(), Revision(9)), Found::Gone));
    }

    #[test]
    fn a_watcher_of_an_empty_store_misses_nothing_though_its_lists_were_read_one_after_the_other() {
        let (_bell, rung) = watch::channel(());
        let cache = Cache::new([listed(10, &[]), listed(12, &[])], rung);
        let all = |after| cache.changes(&Prefix::all(), Revision(after));

        let Found::Changes(none, Revision(0)) = all(0) else { panic!("not from the beginning") };
        assert_eq!(none, []);
        put(&cache, "v/a", 11);
        assert!(
            matches!(all(0), Found::Held(Revision(12))),
            "what comes at 12 is to be known first"
        );
        put(&cache, "v/b", 14);
        cache.with(Resource::Secrets, |shelf| shelf.pass(Revision(15)));
        assert_eq!(revisions(all(0)), [11, 14]);
    }

    #[test]
    fn the_answer_of_the_api_server_gives_way_to_what_is_newer() {
        let (cache, _bell) = cache(&["a"], &[]);
        let found = |revision| Versioned { value: "y".into(), revision: Revision(revision) };
        put(&cache, "a", 20);

        let newest = cache.read_through(&key("a"), Some(Revision(10)), Some(found(15)));

        assert_eq!(newest.map(|found| found.revision), Some(Revision(20)));
        let newest = cache.read_through(&key("a"), Some(Revision(20)), Some(found(25)));
        assert_eq!(newest, Some(found(25)));
        cache.with_key(&key("a"), |shelf| shelf.live = false);
        assert_eq!(cache.read_through(&key("b"), None, Some(found(26))), Some(found(26)));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_the_watch_ends_when_it_comes_or_goes_or_takes_too_long() {
        let (cache, bell) = cache(&[], &[]);
        let marks = [Revision(12), Revision(0)];

        let late = cache.come_to(&[Resource::Records], marks).await;
        assert!(matches!(late, Err(KubernetesError::Behind { .. })));
        let coming = async {
            put(&cache, "a", 12);
            bell.send_replace(());
        };
        let (come, ()) = tokio::join!(cache.come_to(&[Resource::Records], marks), coming);
        come.expect("it came");
        drop(bell);
        let closed = cache.come_to(&[Resource::Records], [Revision(99); 2]).await;
        assert!(matches!(closed, Err(KubernetesError::Closed)));
    }
}
