//! Rules about watches: complete, in order, and honest about what they missed.

use std::time::Duration;

use futures_core::stream::BoxStream;
use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};
use hawser_core::Result;
use hawser_core::port::store::{Prefix, Revision, Versioned, Watched};

use super::{StoreRig, bytes, create, done, key, names};

type Changes = BoxStream<'static, Result<Watched>>;

/// The next change; a watch that says nothing for ten seconds is broken.
async fn next(watch: &mut Changes) -> Option<Watched> {
    let next = tokio::time::timeout(Duration::from_secs(10), watch.next()).await;
    next.expect("the watch stays silent").map(|item| item.expect("the watch works"))
}

fn revision_of(change: &Watched) -> Revision {
    match change {
        Watched::Put(_, found) => found.revision,
        Watched::Deleted(_, revision) => *revision,
        Watched::Compacted => panic!("compacted where nothing was missed"),
    }
}

/// A listing and a watch from its revision together know everything, while others write.
pub async fn a_watch_from_a_listing_misses_nothing(rig: StoreRig) {
    let store = rig.store();
    let writer = tokio::spawn({
        let store = rig.store();
        async move {
            for n in 0..60 {
                create(&*store, &format!("v/{n:02}"), "x").await;
            }
        }
    });
    tokio::time::sleep(Duration::from_millis(5)).await;

    let listing = store.list(&Prefix::below(&["v"]), None, 1000).await.expect("list");
    let mut watch = store.watch(&Prefix::below(&["v"]), listing.revision).await.expect("watch");
    let mut known: Vec<String> = names(&listing).into_iter().map(String::from).collect();
    while known.len() < 60 {
        match next(&mut watch).await {
            Some(Watched::Put(key, found)) => {
                assert!(found.revision > listing.revision, "{key} was in the listing");
                known.push(key.to_string());
            }
            other => panic!("{other:?}"),
        }
    }

    writer.await.expect("the writer ends");
    assert!(known.iter().eq(&(0..60).map(|n| format!("v/{n:02}")).collect::<Vec<_>>()));
}

/// Writes and removals below the prefix, and nothing else, in the order of their revisions.
pub async fn a_watch_delivers_every_change_of_its_prefix_in_order(rig: StoreRig) {
    let store = rig.store();
    let before = create(&*store, "v/before", "x").await;
    let a = create(&*store, "v/a", "1").await;
    create(&*store, "va/b", "elsewhere").await;
    create(&*store, "v", "elsewhere").await;
    let b = done(store.put(&key("v/a"), bytes("2"), a).await);
    let c = done(store.delete(&key("v/a"), b).await);

    let mut watch = store.watch(&Prefix::below(&["v"]), before).await.expect("watch");
    let d = create(&*store, "v/a", "3").await;

    let put = |value: &str, revision| {
        Watched::Put(key("v/a"), Versioned { value: bytes(value), revision })
    };
    let wanted = [put("1", a), put("2", b), Watched::Deleted(key("v/a"), c), put("3", d)];
    for wanted in wanted {
        assert_eq!(next(&mut watch).await, Some(wanted));
    }
    assert!(watch.next().now_or_never().is_none(), "something after the last change");
}

/// A watcher that waits is woken, in order, by many writers at once.
pub async fn a_watch_that_began_before_the_change_wakes_up(rig: StoreRig) {
    let store = rig.store();
    let mut watch = store.watch(&Prefix::all(), Revision(0)).await.expect("watch");
    assert!(watch.next().now_or_never().is_none());
    let writers = (0..40).map(|n| {
        let store = rig.store();
        tokio::spawn(async move { create(&*store, &format!("v/{n}"), "x").await })
    });
    let writers: Vec<_> = writers.collect();

    let mut seen = Vec::new();
    while seen.len() < 40 {
        seen.push(revision_of(&next(&mut watch).await.expect("the watch goes on")));
    }

    let mut made: Vec<_> =
        join_all(writers).await.into_iter().map(|made| made.expect("the task ends")).collect();
    made.sort_unstable();
    assert_eq!(seen, made);
}

async fn outgrow_the_history(rig: &StoreRig) {
    let names: Vec<_> = (0..=rig.changes_kept).map(|n| format!("many/{n}")).collect();
    for some in names.chunks(512) {
        let store = rig.store();
        join_all(some.iter().map(|name| create(&*store, name, "x"))).await;
    }
}

/// Missed changes are never passed over in silence.
pub async fn a_watch_from_too_far_back_answers_compacted_and_ends(rig: StoreRig) {
    let first = create(&*rig.store(), "first", "x").await;
    outgrow_the_history(&rig).await;

    let mut watch = rig.store().watch(&Prefix::all(), first).await.expect("watch");

    assert_eq!(next(&mut watch).await, Some(Watched::Compacted));
    assert_eq!(next(&mut watch).await, None);
}

/// A watcher that does not read gets what it can still get in order, then `Compacted`.
pub async fn a_watcher_that_falls_behind_answers_compacted_and_ends(rig: StoreRig) {
    let store = rig.store();
    let mut watch = store.watch(&Prefix::all(), Revision(0)).await.expect("watch");
    let first = create(&*store, "first", "x").await;
    assert_eq!(next(&mut watch).await.as_ref().map(revision_of), Some(first));

    outgrow_the_history(&rig).await;

    assert_eq!(next(&mut watch).await, Some(Watched::Compacted));
    assert_eq!(next(&mut watch).await, None);
}

/// After a restart a watch from before either has the changes or says that it has not.
pub async fn a_watch_from_before_a_restart_is_never_silent(mut rig: StoreRig) {
    let first = create(&*rig.store(), "a", "x").await;
    let second = create(&*rig.store(), "b", "x").await;
    rig.reopen().await;

    let store = rig.store();
    let mut old = store.watch(&Prefix::all(), first).await.expect("watch");
    let mut new = store.watch(&Prefix::all(), second).await.expect("watch");
    let third = create(&*store, "c", "x").await;

    match next(&mut old).await.expect("an answer") {
        Watched::Compacted => assert_eq!(next(&mut old).await, None),
        change @ (Watched::Put(..) | Watched::Deleted(..)) => {
            assert_eq!(revision_of(&change), second);
        }
    }
    assert_eq!(next(&mut new).await.as_ref().map(revision_of), Some(third));
}
