//! What tests see and do without a client: as another actor, and past all rules.
//!
//! Objects are named shortly, `persistentvolumes/pv-1` and `persistentvolumeclaims/ns/claim`, or by
//! their path on the server, `/api/v1/…`.

use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::FakeApi;
use super::call::{Seen, Target};
use super::name::Key;
use super::state::{State, finalizers, is_deleting};
use super::update::tidy;

/// How long a test waits for what must come; far more than it takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

impl FakeApi {
    /// Every request since the last [`forget`](Self::forget), watches and lists among them.
    pub(crate) fn requests(&self) -> Vec<Seen> {
        self.lock().requests.clone()
    }

    /// The requests that were not reads, as `PATCH /api/v1/persistentvolumes/pv-1`.
    pub(crate) fn writes(&self) -> Vec<String> {
        let state = self.lock();
        let writes = state.requests.iter().filter(|seen| seen.method != Method::GET);
        writes.map(|seen| format!("{} {}", seen.method, seen.path)).collect()
    }

    /// Forgets the requests so far.
    pub(crate) fn forget(&self) {
        self.lock().requests.clear();
    }

    /// How many watches of a resource are open, as of `persistentvolumes`.
    pub(crate) fn watches(&self, plural: &str) -> usize {
        self.lock().watched.iter().filter(|watched| *watched == plural).count()
    }

    /// An object as it is now.
    pub(crate) fn object(&self, path: &str) -> Option<Value> {
        let state = self.lock();
        state.find(path).and_then(|key| state.objects.get(&key).cloned())
    }

    /// All objects of a resource.
    pub(crate) fn objects(&self, plural: &str) -> Vec<Value> {
        let state = self.lock();
        let of_it = state.objects.iter().filter(|(key, _)| key.plural == plural);
        of_it.map(|(_, object)| object.clone()).collect()
    }

    /// Makes or replaces an object, status and all; it needs an apiVersion, a kind and a name.
    pub(crate) fn put(&self, mut object: Value) -> Value {
        self.change(|state| {
            let key = Key::of(&object);
            if let Some(old) = state.objects.get(&key) {
                object["metadata"]["uid"] = old["metadata"]["uid"].clone();
            }
            state.begin(&mut object);
            tidy(&mut object);
            state.store(key, object)
        })
    }

    /// Changes an object, whichever part of it. It is gone if it was being removed and nothing holds
    /// it any more; answers what was made of it.
    pub(crate) fn update(&self, path: &str, change: impl FnOnce(&mut Value)) -> Value {
        self.change(|state| {
            let key = state.find(path).unwrap_or_else(|| panic!("there is no {path}"));
            let mut object = state.objects[&key].clone();
            change(&mut object);
            tidy(&mut object);
            if is_deleting(&object) && finalizers(&object).is_empty() {
                state.remove(&key);
                return object;
            }
            state.store(key, object)
        })
    }

    /// Removes an object as a caller would: one with finalizers stays until they are gone.
    pub(crate) fn delete(&self, path: &str) {
        self.change(|state| {
            let key = state.find(path).unwrap_or_else(|| panic!("there is no {path}"));
            state.finish(&key);
        });
    }

    /// Waits until an object is as it should be, and answers it. What is not there is null.
    ///
    /// # Panics
    ///
    /// When it is not so in time. The time is that of the runtime, which a test may have paused.
    pub(crate) async fn wait(&self, path: &str, mut is_so: impl FnMut(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let met = self
            .until(|fake| {
                last = fake.object(path).unwrap_or_default();
                is_so(&last)
            })
            .await;
        assert!(met, "{path} is not as it should be: {last:#}");
        last
    }

    /// Waits until an object is not there.
    pub(crate) async fn wait_gone(&self, path: &str) {
        self.wait(path, Value::is_null).await;
    }

    /// Waits until something is so, and answers whether it came to that; it is asked again after
    /// each change and each request.
    pub(crate) async fn until(&self, mut is_so: impl FnMut(&Self) -> bool) -> bool {
        let mut bell = self.bell.subscribe();
        let met = async {
            loop {
                bell.borrow_and_update();
                if is_so(self) {
                    return;
                }
                bell.changed().await.expect("the bell is ours");
            }
        };
        tokio::time::timeout(PATIENCE, met).await.is_ok()
    }
}

impl State {
    fn find(&self, path: &str) -> Option<Key> {
        if path.starts_with('/') {
            let target = Target::parse(path)?;
            let key = target.key(target.name.as_deref()?);
            return self.objects.contains_key(&key).then_some(key);
        }
        self.objects.keys().find(|key| key.short() == path).cloned()
    }
}
