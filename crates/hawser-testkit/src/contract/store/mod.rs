//! The contract of the store port: `store_contract!` runs every rule against one store.

mod changes;
mod lists;
mod watches;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use hawser_core::Result;
use hawser_core::port::Store;
use hawser_core::port::store::{Cas, Key, Listing, Prefix, Revision};

pub use self::changes::*;
pub use self::lists::*;
pub use self::watches::*;

/// Runs each rule of the store port as a test of its own against a fresh [`StoreRig`].
///
/// The calling crate needs tokio with `macros` and `rt-multi-thread` as a dev-dependency.
#[macro_export]
macro_rules! store_contract {
    ($rig:expr) => {
        $crate::store_contract!(@rules $rig;
            an_absent_key_has_no_value
            a_created_value_comes_back_with_its_revision
            creating_a_key_that_exists_is_a_conflict_and_changes_nothing
            putting_needs_the_revision_of_the_last_change
            deleting_needs_the_revision_of_the_last_change
            a_removed_key_can_be_created_again
            every_change_has_a_larger_revision_than_those_before
            of_many_racing_creates_exactly_one_wins
            racing_puts_lose_no_update
            of_a_racing_put_and_delete_exactly_one_wins
            answered_changes_survive_a_restart
            revisions_grow_across_a_restart
            a_list_is_ordered_and_complete_over_its_pages
            a_list_ends_where_its_prefix_ends
            a_list_starts_after_the_given_key_even_if_it_is_gone
            a_list_of_a_page_and_one_more_says_more
            keys_that_stay_are_listed_once_while_others_come_and_go
            a_watch_from_a_listing_misses_nothing
            a_watch_delivers_every_change_of_its_prefix_in_order
            a_watch_that_began_before_the_change_wakes_up
            a_watch_from_too_far_back_answers_compacted_and_ends
            a_watcher_that_falls_behind_answers_compacted_and_ends
            a_watch_from_before_a_restart_is_never_silent
            a_dropped_change_is_whole_or_absent
            large_and_empty_values_come_back_whole
            the_longest_keys_work_and_longer_ones_are_refused
            escaped_names_stay_apart
        );
    };
    (@rules $rig:expr; $($rule:ident)+) => {
        mod store_contract {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $rule() {
                    $crate::contract::store::$rule($rig).await;
                }
            )+
        }
    };
}

/// An open store, once it is awaited.
pub type Opening = Pin<Box<dyn Future<Output = Arc<dyn Store>> + Send>>;

/// A store under test and the way to restart it.
pub struct StoreRig {
    store: Option<Arc<dyn Store>>,
    open: Box<dyn Fn() -> Opening + Send + Sync>,
    changes_kept: usize,
}

impl StoreRig {
    /// A rig around an empty store. `open` is called once now and again for every restart, after
    /// the store before was dropped; `changes_kept` is how many changes a watch can go back.
    pub async fn new(
        changes_kept: usize,
        open: impl Fn() -> Opening + Send + Sync + 'static,
    ) -> Self {
        let store = Some(open().await);
        Self { store, open: Box::new(open), changes_kept }
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(self.store.as_ref().expect("the store is open between restarts"))
    }

    async fn reopen(&mut self) {
        self.store = None;
        self.store = Some((self.open)().await);
    }
}

fn key(text: &str) -> Key {
    text.parse().expect("a legal key")
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn done(cas: Result<Cas>) -> Revision {
    match cas.expect("the store answers") {
        Cas::Done(revision) => revision,
        Cas::Conflict => panic!("a conflict where none can be"),
    }
}

async fn create(store: &dyn Store, name: &str, value: &str) -> Revision {
    done(store.create(&key(name), bytes(value)).await)
}

async fn value_of(store: &dyn Store, name: &str) -> Option<String> {
    let found = store.get(&key(name)).await.expect("get");
    found.map(|found| String::from_utf8(found.value.to_vec()).expect("text"))
}

fn names(listing: &Listing) -> Vec<&str> {
    listing.items.iter().map(|(key, _)| key.as_str()).collect()
}

async fn list_all(store: &dyn Store, prefix: &Prefix, page: usize) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut after: Option<Key> = None;
    loop {
        let listing = store.list(prefix, after.as_ref(), page).await.expect("list");
        assert!(listing.items.len() <= page, "a page larger than asked for");
        let first = listing.items.first().map(|(key, _)| key.clone());
        assert!(first.is_none() || first > after, "{first:?} is not after {after:?}");
        found.extend(names(&listing).into_iter().map(String::from));
        after = listing.items.last().map(|(key, _)| key.clone());
        if !listing.more {
            return found;
        }
        assert!(!listing.items.is_empty(), "an empty page that says there is more");
    }
}
