//! What is known of one kind of object: a copy in memory, kept by one watch.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use futures_util::StreamExt;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_objects};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::objects::{Key, Object};
use super::waiters::Waiters;

/// When the API server ends a watch, in seconds. A connection that is gone without a word is noticed
/// half a minute later; the default of the client is almost five minutes, in which nothing is heard.
const WATCH_SECONDS: u32 = 120;

/// All objects of one kind.
///
/// What this process itself has written is known at once (`tell`); what others wrote, when the watch
/// says it. Of two states of an object the newer one stays. Controllers hear of both when the watch
/// says it: what one has written may be for another, and may stand over what a user wrote just
/// before.
pub(super) struct Table<K> {
    objects: RwLock<HashMap<Key, Row<K>>>,
    filled: watch::Sender<bool>,
    waiters: Waiters,
}

struct Row<K> {
    object: Arc<K>,
    heard: Heard<K>,
}

/// What the controllers have heard of an object.
enum Heard<K> {
    /// What is known of it.
    This,
    /// What was known before this process wrote to it.
    Before(Option<Arc<K>>),
}

impl<K> Row<K> {
    fn heard(self) -> Option<Arc<K>> {
        match self.heard {
            Heard::This => Some(self.object),
            Heard::Before(before) => before,
        }
    }
}

/// A change of one object.
pub(super) struct Changed<K> {
    pub(super) key: Key,
    pub(super) before: Option<Arc<K>>,
    pub(super) now: Option<Arc<K>>,
}

impl<K: Object> Default for Table<K> {
    fn default() -> Self {
        Self {
            objects: RwLock::default(),
            filled: watch::Sender::new(false),
            waiters: Waiters::default(),
        }
    }
}

impl<K: Object> Table<K> {
    fn read(&self) -> RwLockReadGuard<'_, HashMap<Key, Row<K>>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<Key, Row<K>>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// One object.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.read().get(key).map(|row| row.object.clone())
    }

    /// One object of the whole cluster.
    pub(super) fn named(&self, name: &str) -> Option<Arc<K>> {
        self.get(&Key::global(name))
    }

    /// The objects that fit.
    pub(super) fn all(&self, fits: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        self.read().values().map(|row| &row.object).filter(|object| fits(object)).cloned().collect()
    }

    /// True when one of them fits.
    pub(super) fn any(&self, fits: impl Fn(&K) -> bool) -> bool {
        self.read().values().any(|row| fits(&row.object))
    }

    /// Takes in what a change was answered with. What is not known by now went before the answer came,
    /// and nobody would say so again.
    pub(super) fn tell(&self, object: K) -> Arc<K> {
        self.learn(object, false)
    }

    /// The same for what was made.
    pub(super) fn tell_made(&self, object: K) -> Arc<K> {
        self.learn(object, true)
    }

    fn learn(&self, object: K, made: bool) -> Arc<K> {
        let object = Arc::new(trimmed(object));
        let key = object.key();
        let mut objects = self.write();
        let known = objects.get(&key);
        if known.map_or(made, |known| known.object.revision() < object.revision()) {
            let heard = Heard::Before(objects.remove(&key).and_then(Row::heard));
            objects.insert(key, Row { object: object.clone(), heard });
        }
        object
    }

    /// Forgets what was just removed.
    pub(super) fn forget(&self, key: &Key) {
        self.write().remove(key);
    }

    /// Takes in what the watch says.
    fn put(&self, object: Arc<K>) -> Option<Changed<K>> {
        let key = object.key();
        let mut objects = self.write();
        let now = match objects.get(&key) {
            Some(known) if known.object.revision() > object.revision() => return None,
            Some(known) if known.object.revision() == object.revision() => match known.heard {
                Heard::This => return None,
                Heard::Before(_) => known.object.clone(),
            },
            Some(_) | None => object,
        };
        let before = objects.remove(&key).and_then(Row::heard);
        objects.insert(key.clone(), Row { object: now.clone(), heard: Heard::This });
        Some(Changed { key, before, now: Some(now) })
    }

    fn remove(&self, object: &K) -> Option<Changed<K>> {
        let key = object.key();
        let mut objects = self.write();
        let known = objects.get(&key)?;
        // One of the same name may have been made since.
        if known.object.revision() > object.revision() {
            return None;
        }
        let before = objects.remove(&key).and_then(Row::heard);
        Some(Changed { key, before, now: None })
    }

    /// Waits until all objects are known that there were.
    pub(super) async fn filled(&self) {
        // It is never dropped while it is waited for.
        let _ = self.filled.subscribe().wait_for(|filled| *filled).await;
    }

    /// The object, when the watch has brought it; `None` when it has not within the limit. What only
    /// this process was told of does not count.
    pub(super) async fn seen(&self, key: &Key, limit: Duration) -> Option<Arc<K>> {
        self.becomes(key, limit, |_| true).await;
        self.get(key)
    }

    /// Waits until the watch has brought the object like this; `false` when it has not within the
    /// limit.
    pub(super) async fn becomes(
        &self,
        key: &Key,
        limit: Duration,
        like_this: impl Fn(&K) -> bool,
    ) -> bool {
        let come =
            self.waiters.until(key, || self.get(key).is_some_and(|object| like_this(&object)));
        timeout(limit, come).await.is_ok()
    }

    /// Keeps the table until it is told to stop. `tell` hears of each change.
    pub(super) async fn keep(
        self: Arc<Self>,
        client: Client,
        stop: CancellationToken,
        tell: impl Fn(Changed<K>) + Send + Sync,
    ) {
        self.keep_some(Api::all(client), watcher::Config::default(), stop, tell).await;
    }

    /// The same for some objects only: those of a namespace, or with certain labels.
    pub(super) async fn keep_some(
        self: Arc<Self>,
        api: Api<K>,
        which: watcher::Config,
        stop: CancellationToken,
        tell: impl Fn(Changed<K>) + Send + Sync,
    ) {
        let events = watch_objects(api, which.timeout(WATCH_SECONDS)).default_backoff();
        let mut events = std::pin::pin!(events);
        let mut listed = HashSet::new();
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => event,
            };
            let Some(event) = event else { return };
            match event {
                Ok(event) => self.hear(event, &mut listed, &tell),
                Err(error) => warn!(kind = %K::kind(&()), %error, "the watch was lost"),
            }
        }
    }

    /// Takes in one event of the watch; `listed` is what the list that comes in has so far.
    fn hear(&self, event: Event<K>, listed: &mut HashSet<Key>, tell: &impl Fn(Changed<K>)) {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(object) => {
                listed.insert(object.key());
                self.hear_of(object, tell);
            }
            Event::InitDone => {
                self.keep_only(listed).into_iter().for_each(tell);
                *listed = HashSet::new();
                debug!(kind = %K::kind(&()), objects = self.read().len(), "known");
                self.filled.send_replace(true);
            }
            Event::Apply(object) => self.hear_of(object, tell),
            Event::Delete(object) => self.remove(&object).into_iter().for_each(tell),
        }
    }

    fn hear_of(&self, object: K, tell: &impl Fn(Changed<K>)) {
        let object = Arc::new(trimmed(object));
        let key = object.key();
        self.put(object).into_iter().for_each(tell);
        self.waiters.ring(&key);
    }

    /// Forgets what a new list does not have.
    fn keep_only(&self, listed: &HashSet<Key>) -> Vec<Changed<K>> {
        let mut gone = Vec::new();
        self.write().retain(|key, row| {
            let stays = listed.contains(key);
            if !stays {
                let before = Some(row.object.clone());
                gone.push(Changed { key: key.clone(), before, now: None });
            }
            stays
        });
        gone
    }
}

/// The object without what nobody here reads and what is the larger half of it.
fn trimmed<K: Object>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    if let Some(annotations) = &mut object.meta_mut().annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kubernetes::objects::Claim;
    use crate::kubernetes::tests::fake::FakeApi;

    fn claim(revision: u64, requested: &str) -> Claim {
        serde_json::from_value(json!({
            "metadata": { "name": "c", "namespace": "ns", "resourceVersion": revision.to_string() },
            "spec": { "resources": { "requests": { "storage": requested } } },
        }))
        .unwrap()
    }

    /// What was heard: what was asked for before, and is now.
    fn heard(changed: Option<Changed<Claim>>) -> String {
        let Some(Changed { before, now, .. }) = changed else { return "nothing".to_owned() };
        let [before, now] = [before, now].map(|claim| {
            claim.and_then(|it| it.requested().map(str::to_owned)).unwrap_or_default()
        });
        format!("{before}-{now}")
    }

    #[test]
    fn what_a_user_wrote_before_our_own_write_is_heard_of() {
        let table = Table::default();
        let watched = |claim| heard(table.put(Arc::new(claim)));
        assert_eq!(watched(claim(1, "1Gi")), "-1Gi");

        // The user writes 2, we write 3 on top of it and are answered before the watch says 2.
        table.tell(claim(3, "2Gi"));
        assert_eq!(watched(claim(2, "2Gi")), "nothing");
        assert_eq!(watched(claim(3, "2Gi")), "1Gi-2Gi");
    }

    #[test]
    fn what_was_told_twice_or_late_is_heard_of_once() {
        let table = Table::default();
        table.tell_made(claim(1, "1Gi"));
        table.tell(claim(2, "2Gi"));
        assert_eq!(heard(table.put(Arc::new(claim(3, "3Gi")))), "-3Gi");

        table.tell(claim(3, "3Gi"));
        assert_eq!(heard(table.put(Arc::new(claim(3, "3Gi")))), "nothing");
        table.tell(claim(4, "4Gi"));
        assert_eq!(heard(table.remove(&claim(5, "4Gi"))), "3Gi-");
    }

    /// A patch is answered late, when the watch has said already that the object is gone.
    #[test]
    fn what_is_gone_does_not_come_back_with_a_late_answer() {
        let table = Table::default();
        table.put(Arc::new(claim(1, "1Gi")));
        assert_eq!(heard(table.remove(&claim(3, "1Gi"))), "1Gi-");

        assert_eq!(table.tell(claim(2, "1Gi")).revision(), 2, "the caller has it all the same");

        assert!(!table.any(|_| true));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_an_object_is_not_woken_for_others() {
        let table = Table::default();
        let hear = |name: &str, revision| {
            let mut claim = claim(revision, "1Gi");
            claim.metadata.name = Some(name.to_owned());
            table.hear(Event::Apply(claim), &mut HashSet::new(), &|_| {});
        };
        let (limit, looks) = (Duration::from_secs(5), std::cell::Cell::new(0));
        hear("c", 1);
        let key = Key::within("ns", "c");
        let waiting = table.becomes(&key, limit, |claim| {
            looks.set(looks.get() + 1);
            claim.revision() > 1
        });
        let others = async {
            for revision in 10..20 {
                hear("other", revision);
                tokio::task::yield_now().await;
            }
            assert_eq!(looks.get(), 1);
            hear("c", 20);
        };

        let (came, ()) = tokio::join!(waiting, others);

        assert_eq!((came, looks.get()), (true, 2));
        assert!(table.waiters.is_empty(), "nobody waits any more");
    }

    #[tokio::test]
    async fn a_connection_that_is_gone_without_a_word_is_given_up_within_minutes() {
        let (api, stop) = (FakeApi::new(), CancellationToken::new());
        let table = Arc::new(Table::<Claim>::default());
        let kept = tokio::spawn(table.keep(api.client(), stop.clone(), |_| {}));

        assert!(api.until(|api| api.watches("persistentvolumeclaims") == 1).await);

        let watch = api.requests().into_iter().find(|seen| seen.query.contains("watch=")).unwrap();
        assert!(watch.query.contains("timeoutSeconds=120"), "{}", watch.query);
        stop.cancel();
        kept.await.unwrap();
    }
}
