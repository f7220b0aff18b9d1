//! Rules about single keys: compare-and-set, durability, what a value and a key may be.

use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::join_all;
use hawser_core::Kind;
use hawser_core::port::store::{Cas, Key, LONGEST_KEY, Prefix, Revision};

use super::{StoreRig, bytes, create, done, key, list_all, value_of};

/// Asking for what is not there is no error.
pub async fn an_absent_key_has_no_value(rig: StoreRig) {
    assert_eq!(rig.store().get(&key("a/b")).await.expect("get"), None);
}

/// What was written is read, with the revision that the write answered.
pub async fn a_created_value_comes_back_with_its_revision(rig: StoreRig) {
    let store = rig.store();

    let revision = create(&*store, "a/b", "one").await;

    let found = store.get(&key("a/b")).await.expect("get").expect("the key is there");
    assert_eq!((found.value, found.revision), (bytes("one"), revision));
}

/// The second creator loses and the first value stays.
pub async fn creating_a_key_that_exists_is_a_conflict_and_changes_nothing(rig: StoreRig) {
    let store = rig.store();
    let revision = create(&*store, "a", "one").await;

    let second = store.create(&key("a"), bytes("two")).await.expect("create");

    assert_eq!(second, Cas::Conflict);
    let found = store.get(&key("a")).await.expect("get").expect("the key is there");
    assert_eq!((found.value, found.revision), (bytes("one"), revision));
}

/// Only the holder of the last revision writes; old, foreign and absent ones conflict.
pub async fn putting_needs_the_revision_of_the_last_change(rig: StoreRig) {
    let store = rig.store();
    let first = create(&*store, "a", "one").await;
    let second = done(store.put(&key("a"), bytes("two"), first).await);
    let other = create(&*store, "b", "other").await;

    for wrong in [first, other, Revision(0), Revision(u64::MAX)] {
        let cas = store.put(&key("a"), bytes("three"), wrong).await.expect("put");
        assert_eq!(cas, Cas::Conflict, "{wrong:?}");
    }
    for absent in [Revision(0), second] {
        let cas = store.put(&key("absent"), bytes("x"), absent).await.expect("put");
        assert_eq!(cas, Cas::Conflict, "a put made a key");
    }

    assert_eq!(value_of(&*store, "a").await.as_deref(), Some("two"));
    assert_eq!(value_of(&*store, "absent").await, None);
}

/// Only the holder of the last revision removes; an absent key is a conflict.
pub async fn deleting_needs_the_revision_of_the_last_change(rig: StoreRig) {
    let store = rig.store();
    let first = create(&*store, "a", "one").await;
    let second = done(store.put(&key("a"), bytes("two"), first).await);

    assert_eq!(store.delete(&key("a"), first).await.expect("delete"), Cas::Conflict);
    assert_eq!(value_of(&*store, "a").await.as_deref(), Some("two"));
    done(store.delete(&key("a"), second).await);

    assert_eq!(value_of(&*store, "a").await, None);
    assert_eq!(store.delete(&key("a"), second).await.expect("delete"), Cas::Conflict);
    assert_eq!(store.delete(&key("b"), Revision(0)).await.expect("delete"), Cas::Conflict);
}

/// A key's second life has nothing of its first: the old revision no longer opens it.
pub async fn a_removed_key_can_be_created_again(rig: StoreRig) {
    let store = rig.store();
    let first = create(&*store, "a", "one").await;
    done(store.delete(&key("a"), first).await);

    let again = create(&*store, "a", "two").await;

    assert!(again > first);
    assert_eq!(store.put(&key("a"), bytes("x"), first).await.expect("put"), Cas::Conflict);
    assert_eq!(value_of(&*store, "a").await.as_deref(), Some("two"));
}

/// Also changes of other keys and removals count.
pub async fn every_change_has_a_larger_revision_than_those_before(rig: StoreRig) {
    let store = rig.store();
    let mut revisions = vec![create(&*store, "a", "1").await, create(&*store, "b", "1").await];
    revisions.push(done(store.put(&key("a"), bytes("2"), revisions[0]).await));
    revisions.push(done(store.delete(&key("b"), revisions[1]).await));
    revisions.push(create(&*store, "b", "2").await);

    assert!(revisions.is_sorted_by(|a, b| a < b), "{revisions:?}");
    let listing = store.list(&Prefix::all(), None, 10).await.expect("list");
    assert_eq!(Some(&listing.revision), revisions.last());
}

/// Exactly one of many winners, and it is the one whose value is there.
pub async fn of_many_racing_creates_exactly_one_wins(rig: StoreRig) {
    for round in 0..8 {
        let name = format!("race/{round}");
        let racers = (0..32).map(|racer| {
            let (store, key) = (rig.store(), key(&name));
            tokio::spawn(async move { store.create(&key, bytes(&racer.to_string())).await })
        });

        let results = join_all(racers).await;

        let winners: Vec<_> = results
            .into_iter()
            .enumerate()
            .filter(|(_, cas)| {
                let cas = cas.as_ref().expect("the task ends").as_ref().expect("create");
                matches!(cas, Cas::Done(_))
            })
            .map(|(racer, _)| racer.to_string())
            .collect();
        assert_eq!(winners.len(), 1, "{winners:?}");
        assert_eq!(value_of(&*rig.store(), &name).await, Some(winners[0].clone()));
    }
}

/// A counter that many increase by compare-and-set counts every increase.
pub async fn racing_puts_lose_no_update(rig: StoreRig) {
    create(&*rig.store(), "counter", "0").await;
    let tasks = (0..16).map(|_| {
        let store = rig.store();
        tokio::spawn(async move {
            for _ in 0..10 {
                loop {
                    let found = store.get(&key("counter")).await.expect("get").expect("there");
                    let count: u64 =
                        std::str::from_utf8(&found.value).expect("text").parse().expect("number");
                    let next = bytes(&(count + 1).to_string());
                    let cas = store.put(&key("counter"), next, found.revision).await;
                    if matches!(cas.expect("put"), Cas::Done(_)) {
                        break;
                    }
                }
            }
        })
    });

    for task in join_all(tasks).await {
        task.expect("the task ends");
    }

    assert_eq!(value_of(&*rig.store(), "counter").await.as_deref(), Some("160"));
}

/// What both hold the revision for, only one gets.
pub async fn of_a_racing_put_and_delete_exactly_one_wins(rig: StoreRig) {
    let store = rig.store();
    for round in 0..32 {
        let name = key(&format!("race/{round}"));
        let revision = create(&*store, name.as_str(), "one").await;

        let (put, delete) =
            tokio::join!(store.put(&name, bytes("two"), revision), store.delete(&name, revision));

        let put_won = matches!(put.expect("put"), Cas::Done(_));
        let delete_won = matches!(delete.expect("delete"), Cas::Done(_));
        assert!(put_won != delete_won, "put {put_won}, delete {delete_won}");
        assert_eq!(value_of(&*store, name.as_str()).await.is_some(), put_won);
    }
}

/// Writes, replacements and removals are there after a restart.
pub async fn answered_changes_survive_a_restart(mut rig: StoreRig) {
    let store = rig.store();
    let a = create(&*store, "a", "one").await;
    let b = create(&*store, "b", "one").await;
    let c = create(&*store, "c", "one").await;
    let b = done(store.put(&key("b"), bytes("two"), b).await);
    done(store.delete(&key("c"), c).await);
    drop(store);

    rig.reopen().await;

    let listing = rig.store().list(&Prefix::all(), None, 10).await.expect("list");
    let found: Vec<_> =
        listing.items.iter().map(|(k, v)| (k.as_str(), v.value.clone(), v.revision)).collect();
    assert_eq!(found, [("a", bytes("one"), a), ("b", bytes("two"), b)]);
}

/// A revision is never given twice, also when the last changes were removals.
pub async fn revisions_grow_across_a_restart(mut rig: StoreRig) {
    let mut last = Revision(0);
    for round in 0..3 {
        let made = create(&*rig.store(), "a", &round.to_string()).await;
        let gone = done(rig.store().delete(&key("a"), made).await);
        assert!(last < made && made < gone, "{last:?} {made:?} {gone:?}");
        last = gone;

        rig.reopen().await;

        let listing = rig.store().list(&Prefix::all(), None, 1).await.expect("list");
        assert!(listing.revision >= last, "the restart forgot revision {last:?}");
    }
}

/// Callers that go away leave whole values or none, and the store goes on.
pub async fn a_dropped_change_is_whole_or_absent(rig: StoreRig) {
    let store = rig.store();
    let whole = Bytes::from(vec![7_u8; 20_000]);
    for round in 0..40_u64 {
        let name = key(&format!("v/{round}"));
        // Polled once and abandoned: the first keeps the store busy, the others are begun by
        // nobody who waits for them.
        let crowd: Vec<_> = (0..8).map(|n| key(&format!("crowd/{round}/{n}"))).collect();
        let _ = crowd
            .iter()
            .map(|name| store.create(name, whole.clone()).now_or_never())
            .collect::<Vec<_>>();
        let change = store.create(&name, whole.clone());
        let limit = Duration::from_micros(round * 100);
        let answered = tokio::time::timeout(limit, change).await;

        // A change of the same key is in order behind it, so what is seen then is final.
        let after = store.create(&name, whole.clone()).await.expect("create");
        if let Ok(answer) = answered {
            done(answer);
            assert_eq!(after, Cas::Conflict, "an answered change is gone");
        }
        for name in crowd.iter().chain([&name]) {
            let found = store.get(name).await.expect("get");
            assert!(found.is_none_or(|found| found.value == whole), "{name} is torn");
        }
        assert!(store.get(&name).await.expect("get").is_some(), "neither of the two made it");
    }
}

/// A value's size makes no difference to its bytes.
pub async fn large_and_empty_values_come_back_whole(mut rig: StoreRig) {
    let mut wanted = Vec::new();
    for (index, size) in [0, 1, 4095, 4096, 70_000, 1 << 20].into_iter().enumerate() {
        let value: Bytes = (0..size).map(|n: u32| (n % 251) as u8).collect();
        let name = key(&format!("v/{index}"));
        done(rig.store().create(&name, value.clone()).await);
        wanted.push((name, value));
    }

    rig.reopen().await;

    for (name, value) in wanted {
        let found = rig.store().get(&name).await.expect("get").expect("there");
        assert!(found.value == value, "{name}: {} bytes came back", found.value.len());
    }
}

/// The limit of the port is the limit of the store, to the byte.
pub async fn the_longest_keys_work_and_longer_ones_are_refused(rig: StoreRig) {
    let store = rig.store();
    let stem = format!("v/{}", "x".repeat(LONGEST_KEY - 3));
    let longest = [format!("{stem}a"), format!("{stem}b")];
    for name in &longest {
        create(&*store, name, name).await;
    }

    for name in &longest {
        assert_eq!(value_of(&*store, name).await.as_ref(), Some(name));
    }
    assert_eq!(list_all(&*store, &Prefix::below(&["v"]), 1).await, longest);
    let longer = Key::join(&["v", &"x".repeat(LONGEST_KEY)]);
    let refused = store.create(&longer, bytes("x")).await.expect_err("a key beyond the limit");
    assert_eq!(refused.kind(), Kind::Invalid);
}

/// Outside names with odd characters are keys of their own.
pub async fn escaped_names_stay_apart(rig: StoreRig) {
    let store = rig.store();
    let odd = ["a/b", "a%2Fb", "a", "A", "ü", "", "%", "a b", "..", "\0"];
    for name in odd {
        done(store.create(&Key::join(&["name", name]), bytes(name)).await);
    }

    for name in odd {
        let found = store.get(&Key::join(&["name", name])).await.expect("get").expect("there");
        assert_eq!(found.value, bytes(name));
    }
    assert_eq!(list_all(&*store, &Prefix::below(&["name"]), 3).await.len(), odd.len());
}
