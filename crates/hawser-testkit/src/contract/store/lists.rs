//! Rules about lists: order, pages, prefixes.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use hawser_core::port::store::Prefix;

use super::{StoreRig, create, done, key, list_all, names};

/// Every page size gives the same list.
pub async fn a_list_is_ordered_and_complete_over_its_pages(rig: StoreRig) {
    let store = rig.store();
    let wanted: BTreeSet<String> = (0..37).map(|n| format!("v/{:02}", (n * 7) % 37)).collect();
    join_all(wanted.iter().map(|name| create(&*store, name, name))).await;

    for page in [1, 2, 5, 36, 37, 38, 1000] {
        let found = list_all(&*store, &Prefix::below(&["v"]), page).await;
        assert!(found.iter().eq(&wanted), "page size {page}: {found:?}");
    }
}

/// Neighbours that only look alike are not below a prefix.
pub async fn a_list_ends_where_its_prefix_ends(rig: StoreRig) {
    let store = rig.store();
    // In byte order: `-` and `.` come before `/`, digits and letters after it.
    let all = ["a", "a-/x", "a.b", "a/", "a/b", "a/b/c", "a0", "ab/c", "b", "b/c"]
        .map(|name| name.trim_end_matches('/'));
    for name in all.iter().collect::<BTreeSet<_>>() {
        create(&*store, name, "x").await;
    }

    let below = |segments: &[&str]| Prefix::below(segments);
    assert_eq!(list_all(&*store, &below(&["a"]), 1).await, ["a/b", "a/b/c"]);
    assert_eq!(list_all(&*store, &below(&["a", "b"]), 9).await, ["a/b/c"]);
    assert_eq!(list_all(&*store, &below(&["ab"]), 9).await, ["ab/c"]);
    assert_eq!(list_all(&*store, &below(&["c"]), 9).await, [""; 0]);
    assert_eq!(list_all(&*store, &Prefix::all(), 9).await.len(), 9);
}

/// A page token is a place in the order, not a record; it may lie before or after the prefix.
pub async fn a_list_starts_after_the_given_key_even_if_it_is_gone(rig: StoreRig) {
    let store = rig.store();
    for name in ["v/a", "v/c", "v/d", "w/a"] {
        create(&*store, name, "x").await;
    }
    let below = Prefix::below(&["v"]);

    for (after, wanted) in [
        ("v/b", vec!["v/c", "v/d"]),
        ("v/c", vec!["v/d"]),
        ("v/d", vec![]),
        ("a", vec!["v/a", "v/c", "v/d"]),
        ("z", vec![]),
    ] {
        let listing = store.list(&below, Some(&key(after)), 10).await.expect("list");
        assert_eq!(names(&listing), wanted, "after {after}");
        assert!(!listing.more);
    }
}

/// `more` is true exactly when something of the prefix follows.
pub async fn a_list_of_a_page_and_one_more_says_more(rig: StoreRig) {
    let store = rig.store();
    for name in ["v/a", "v/b", "w/a"] {
        create(&*store, name, "x").await;
    }

    let below = Prefix::below(&["v"]);
    assert!(store.list(&below, None, 1).await.expect("list").more);
    assert!(!store.list(&below, None, 2).await.expect("list").more, "the next prefix counted");
}

/// Keys that stay are seen once each, whatever happens around them.
pub async fn keys_that_stay_are_listed_once_while_others_come_and_go(rig: StoreRig) {
    let store = rig.store();
    let stay: Vec<String> = (0..60).map(|n| format!("v/{n:03}-stay")).collect();
    join_all(stay.iter().map(|name| create(&*store, name, "x"))).await;
    let churn = tokio::spawn({
        let store = rig.store();
        async move {
            for round in 0_u64.. {
                let name = format!("v/{:03}-churn", (round * 17) % 60);
                let made = create(&*store, &name, "x").await;
                done(store.delete(&key(&name), made).await);
                // A store in memory never waits, and what never waits cannot be stopped.
                tokio::task::yield_now().await;
            }
        }
    });

    for _ in 0..10 {
        let found = list_all(&*store, &Prefix::below(&["v"]), 7).await;
        assert!(found.is_sorted_by(|a, b| a < b), "not in order: {found:?}");
        let stayed: Vec<_> = found.into_iter().filter(|name| name.ends_with("stay")).collect();
        assert_eq!(stayed, stay);
    }

    churn.abort();
    let ended = churn.await.expect_err("the churn has no end of its own");
    assert!(ended.is_cancelled(), "{ended}");
}
