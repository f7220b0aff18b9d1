//! Watches of the fake, as the watcher of kube sees them.

use std::pin::{Pin, pin};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::super::{Cut, FakeApi};
use super::{PV, volume, volumes};

type Events<'a, K> = Pin<&'a mut (dyn Stream<Item = watcher::Result<Event<K>>> + Send)>;

/// What the watcher says next, but for its errors, as words.
async fn said<K: ResourceExt>(events: &mut Events<'_, K>) -> String {
    loop {
        let next = tokio::time::timeout(Duration::from_secs(30), events.next()).await;
        if let Ok(event) = next.expect("an event in time").expect("a watcher never ends") {
            return event.to_string();
        }
    }
}

#[tokio::test]
async fn a_watcher_misses_nothing_across_cuts() {
    let fake = FakeApi::new();
    fake.put(volume());
    let events = watcher(volumes(&fake), watcher::Config::default());
    let mut events: Events<'_, _> = pin!(events);
    for word in ["Init", "InitApply(pv-1)", "InitDone"] {
        assert_eq!(said(&mut events).await, word);
    }

    for cut in [None, Some(Cut::End), Some(Cut::Reset)] {
        if let Some(cut) = cut {
            assert_eq!(fake.watches("persistentvolumes"), 1);
            fake.cut(cut);
        }
        fake.update(PV, |pv| pv["spec"]["touched"] = json!(format!("{cut:?}")));
        assert_eq!(said(&mut events).await, "Apply(pv-1)");
    }
    fake.compact();
    fake.cut(Cut::End);
    for word in ["Init", "InitApply(pv-1)", "InitDone"] {
        assert_eq!(said(&mut events).await, word);
    }
    fake.bookmark();
    fake.update(PV, |pv| pv["metadata"]["finalizers"] = json!([]));
    assert_eq!(said(&mut events).await, "Apply(pv-1)");
    fake.cut(Cut::Gone);
    fake.delete(PV);
    for word in ["Init", "InitDone"] {
        assert_eq!(said(&mut events).await, word);
    }
}

#[tokio::test]
async fn a_watcher_that_streams_its_list_sees_what_fits_its_labels() {
    let fake = FakeApi::new();
    fake.put(volume());
    let config = watcher::Config::default().labels("app in (a, b),!gone").streaming_lists();
    let only_metadata: Api<PartialObjectMeta<PersistentVolume>> = Api::all(fake.client());
    let mut events: Events<'_, _> = pin!(watcher(only_metadata, config));
    for word in ["Init", "InitApply(pv-1)", "InitDone"] {
        assert_eq!(said(&mut events).await, word);
    }
    assert_eq!(fake.watches("persistentvolumes"), 1);

    fake.hold(true);
    fake.update(PV, |pv| pv["metadata"]["labels"]["app"] = json!("c"));
    let early = tokio::time::timeout(Duration::from_millis(20), events.next()).await;
    assert!(early.is_err(), "{early:?}");
    fake.hold(false);
    assert_eq!(said(&mut events).await, "Delete(pv-1)");
    fake.update(PV, |pv| pv["metadata"]["labels"]["app"] = json!("b"));
    assert_eq!(said(&mut events).await, "Apply(pv-1)");
}
